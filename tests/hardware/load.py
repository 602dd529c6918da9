"""Half of a GPU's multiprocessors at work, by the kernels of `gputop prove`: no CUDA toolkit, no PyTorch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gputop.features.prove.experiment import Stage
from gputop.features.prove.prove_run import Kernels, KernelsFailed
from tests.hardware import checks
from tests.hardware.checks import Missing

SETTLES_S = 1.5
"""Until utilisation and the counters know of nothing else."""


def gpus(*options: str) -> list[dict[str, Any]]:
    """The GPUs as `gputop once --json` gives them. Raises Missing where there is none."""
    found: list[dict[str, Any]] = json.loads(checks.printed([*checks.GPUTOP, "once", "--json", *options]))["gpus"]
    if not found:
        raise Missing("no GPU")
    return found


@contextmanager
def half_busy() -> Iterator[float]:
    """Runs on the first GPU meanwhile; gives the SM activity in percent that must be seen. Raises Missing."""
    kernels = Kernels(gpus()[0]["uuid"])
    try:
        n = kernels.ready().multiprocessors
        blocks = max(1, n // 2)
        kernels.begin(Stage("spin", blocks, "half", 100.0 * blocks / n))
        time.sleep(SETTLES_S)
        kernels.heard()
        yield 100.0 * blocks / n
    except KernelsFailed as failed:
        raise Missing(f"the kernels cannot run: {failed}") from None
    finally:
        kernels.close()
