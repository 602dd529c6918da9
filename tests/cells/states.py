"""The states: what NVML answers of a first GPU, beside a healthy second one, and which processes /proc shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gputop.model.snapshot import ProcessSample
from tests.nvml.stand_in import GIB, Failure, Gpu, Process, make_gpu, split
from tests.support.scenes import train, workers

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
WORKING: Mapping[int, float] = {1: 97, 2: 88, 3: 40, 4: 30, 5: 45, 10: 38, 11: 0, 12: 4, 13: 30}
"""GPM metric id → percent, of a GPU that works."""


class State(NamedTuple):
    """``gpu`` is what NVML says at first, ``later`` what it says before the second reading, 10 s after."""

    gpu: Gpu
    processes: tuple[ProcessSample, ...] = ()
    later: Callable[[Gpu], None] = lambda _: None
    watched_s: int = 90


def _gpu(util: float = 98, sm: float | None = None, model: str = H100, **values: float) -> Gpu:
    """A GPU on which one process runs; ``sm`` scales what GPM says."""
    gpu = make_gpu(0, model)
    gpu.set(
        **{"util": util, "power_w": 380, "sm_clock_mhz": 1380 if model == A100 else 1950, **values}
    )
    if gpu.gpm:
        gpu.gpm.update(
            {key: value if sm is None else value * sm / 88 for key, value in WORKING.items()}
        )
        gpu.gpm[1] = util
    gpu.processes = [Process(4000, 20 * GIB, sm=90)]
    return gpu


def _lose(gpu: Gpu) -> None:
    gpu.values = {key: Failure(15) for key in gpu.values}


def _split() -> Gpu:
    gpu = _gpu()
    split(gpu, 0, 2)
    gpu.processes = []
    return gpu


def states() -> dict[str, State]:
    """Each state by its name."""
    job = (train(0, 60.0),)
    return {
        "working": State(_gpu(), job),
        "busy_not_working": State(_gpu(99, 5.0), (train(0, 99.0),)),
        "starved": State(_gpu(34, 22.0), (train(0, 6.0), *workers(4, 98.0))),
        "idle_with_memory": State(_gpu(0, 0.0), (train(0, 0.0),)),
        "bound_only": State(_gpu(model=A100), job),
        "lost": State(_gpu(), job, _lose),
        "split": State(_split()),
        "throttled": State(
            _gpu(throttle=0x40, temp_c=91, sm_clock_mhz=900, pcie_gen=1, remap_pending=1), job
        ),
        "collecting": State(_gpu(), job, watched_s=3),
    }
