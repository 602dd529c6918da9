"""What is slow to make and is needed by several workers is made once in a run: by the worker that comes first."""

from __future__ import annotations

import copyreg
import fcntl
import os
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

KEPT_IN = "GPUTOP_TESTS_KEPT_IN"
"""The environment variable that names the directory of this run; without it every process makes its own."""

Made = TypeVar("Made")


def kept(name: str, make: Callable[[], Made]) -> Made:
    """What ``make`` gives, from the worker that has made it already, or made here. ``name`` is its name in this run."""
    directory = os.environ.get(KEPT_IN)
    if directory is None:
        return make()
    path = Path(directory, name)
    with path.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            found: Made = pickle.loads(path.read_bytes())
            return found
        made = make()
        path.write_bytes(pickle.dumps(made, pickle.HIGHEST_PROTOCOL))
        return made


def _read_only(values: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(values)


copyreg.pickle(MappingProxyType, lambda proxy: (_read_only, (dict(proxy),)))
