"""What every program of a run looks at: the same GPUs, the same real processes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.nvml.stand_in import GIB, LIBRARY, Process, Scenario, build

# The power of the last GPU, in steps of 5 W as on a screen; no other GPU draws it: a frame that shows it is complete.
LAST_GPU_POWER_W = 615
LAST_GPU_PATTERN = rf"(?<![\d.]){LAST_GPU_POWER_W}(?![\d.])"
LAST_GPU_BYTES = str(LAST_GPU_POWER_W).encode()
# Long enough for one load, short enough that nothing stays behind when it is killed.
SLEEP_S = 3600


@dataclass(frozen=True, slots=True)
class Load:
    """How big the machine is that the programs watch."""

    gpus: int = 8
    processes: int = 64
    """In all, dealt out to the GPUs in turn; the stand-in takes 64 of each GPU."""
    latency_ms: float = 0.0
    interval_s: float = 1.0

    def title(self) -> str:
        return (
            f"{self.gpus} GPU{'s' * (self.gpus != 1)}, {self.processes} processes, every {self.interval_s:g} s, "
            f"{self.latency_ms:g} ms added to each NVML call"
        )


@contextmanager
def sleeping_processes(count: int) -> Iterator[list[int]]:
    """Real processes that do nothing."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        # One by one, so that those which were started before a failure are ended, too.
        processes.extend(subprocess.Popen(["sleep", str(SLEEP_S)]) for _ in range(count))
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


@contextmanager
def machine(load: Load, directory: Path) -> Iterator[Scenario]:
    """The stand-in GPUs of a load with their processes, in force. Values move, except those that mark a frame.

    The library is compiled into ``directory`` when it is not there yet, so loads in one directory share it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if not (directory / LIBRARY).exists():
        build(directory)
    scenario = Scenario(directory, directory, gpus=load.gpus)
    scenario.latency_us = 1000 * load.latency_ms
    with sleeping_processes(load.processes) as pids:
        for index, gpu in enumerate(scenario.gpus):
            gpu.processes += [
                Process(pid, (1 + rank) * GIB // 2, sm=5 + rank)
                for rank, pid in enumerate(pids[index :: load.gpus])
            ]
            gpu.set(
                util=60 + 4 * (index % 8),
                power_w=300 + 10 * index,
                mem_used_bytes=(30 + index) * GIB,
            )
        scenario.gpus[-1].set(power_w=LAST_GPU_POWER_W)
        scenario.write()
        yield scenario


def set_in_motion(scenario: Scenario, moving: bool) -> None:
    """Let the values swing slowly, as on a machine at work, or hold them."""
    scenario.wave_s = 30.0 if moving else 0.0
    scenario.write()
