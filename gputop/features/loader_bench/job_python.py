"""The Python of the user's job, in which its dataset and its PyTorch live.

gputop is often installed in an environment of its own (pipx, a venv for tools), which has no PyTorch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from gputop.model.clean_text import clean_text
from gputop.model.source import UsageError
from gputop.system.children import TooLate, a_jobs, finished

IMPORT_LIMIT_S = 120.0
"""How long an `import torch` may take: it is seconds from a cold disk, a minute over a network [judged]."""
_MAX_REASON_CHARS = 120
_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
_NAMES = ("python", "python3")


class JobPython(Struct, frozen=True):
    """A Python, and what named it: ``--python``, a variable, ``PATH`` or ``gputop's own``."""

    path: str
    named_by: str

    def __str__(self) -> str:
        return f"{self.path} ({self.named_by})"


def find_job_python(asked: str | None) -> JobPython:
    """Return the asked Python, else the first that can import torch. Raises UsageError.

    Active environments come first, then PATH in its order, at last gputop's own Python.
    """
    if asked is not None:
        if not is_program(asked):
            raise UsageError(f"--python {asked}: there is no program that can be run")
        return JobPython(os.path.abspath(asked), "--python")
    tried = []
    for python in candidates():
        problem = why_no_torch(python.path)
        if problem is None:
            return python
        tried.append(f"{python}: {problem}")
    raise UsageError(
        f"no Python with PyTorch was found; tried {'; '.join(tried)}. Name the job's with --python PATH"
    )


def candidates() -> Iterator[JobPython]:
    """Yield each Python that may be the job's, once, in the order in which they are tried."""
    seen = set()
    for python in (*_environments(), *_on_path(), JobPython(sys.executable, "gputop's own")):
        if python.path not in seen and is_program(python.path):
            seen.add(python.path)
            yield python


def _environments() -> Iterator[JobPython]:
    for variable in _ENVIRONMENTS:
        folder = os.environ.get(variable)
        if folder:
            yield JobPython(str(Path(folder).absolute() / "bin" / "python"), variable)


def _on_path() -> Iterator[JobPython]:
    for folder in os.environ.get("PATH", "").split(":"):
        # A relative folder may be anybody's.
        if not folder.startswith("/"):
            continue
        for name in _NAMES:
            yield JobPython(str(Path(folder) / name), "PATH")


def is_program(path: str) -> bool:
    """True for a file that may be executed."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def why_no_torch(python: str) -> str | None:
    """Return why a Python cannot import torch, None if it can."""
    command = [python, "-c", "import torch"]
    try:
        done = finished(command, a_jobs(), IMPORT_LIMIT_S)
    except OSError as error:
        return error.strerror or "it cannot be run"
    except TooLate:
        return f"import torch takes over {IMPORT_LIMIT_S:.0f} s"
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return clean_text(lines[-1])[:_MAX_REASON_CHARS] if lines else "import torch fails"
