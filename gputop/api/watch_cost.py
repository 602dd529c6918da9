"""CPU time of gputop's own threads in the watched program, from the kernel's counters."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from msgspec import Struct

from gputop.diagnosis.signals import Leak
from gputop.model.durations import length
from gputop.model.quantity import memory
from gputop.report.job_report import JobReport
from gputop.sources.procfs import read_small

THREADS = "gputop-"
"""The prefix of the names of all of gputop's threads."""


class WatchCost(Struct, frozen=True):
    """The cost of a watch for the watched program.

    ``cpu_s`` of CPU time in ``seconds`` of watching, ``cpu_pct`` of one core; ``longest_s`` is the most CPU time that
    one frame took on the watcher's thread: the longest time for which it held the interpreter's lock.
    """

    cpu_s: float
    seconds: float
    longest_s: float

    @property
    def cpu_pct(self) -> float:
        return 100.0 * self.cpu_s / self.seconds if self.seconds > 0.0 else 0.0

    @property
    def text(self) -> str:
        """One line for people."""
        return f"gputop itself: {self.cpu_pct:.2f} % of one core over {length(self.seconds)}"


class CostMeter:
    """Adds up the CPU time of gputop's threads.

    A thread that has ended keeps its last figure.
    """

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._used: dict[int, float] = {}
        self.longest_s = 0.0

    def look(self) -> None:
        """Read the counters of the living threads."""
        for thread in threading.enumerate():
            if thread.name.startswith(THREADS) and thread.native_id is not None:
                with suppress(OSError, ValueError, IndexError):
                    counters = read_small(f"/proc/self/task/{thread.native_id}/schedstat")
                    self._used[thread.native_id] = int(counters.split()[0]) / 1e9

    def read(self) -> WatchCost:
        """The cost until now."""
        self.look()
        return WatchCost(sum(self._used.values()), time.monotonic() - self._begun, self.longest_s)


class RunMemory(Struct, frozen=True):
    """Device memory of one GPU over the run."""

    gpu: int
    peak_bytes: float
    total_bytes: float
    growth: Leak | None = None
    """Memory of one process that grew until the end, and when the GPU is full at that rate."""

    @property
    def headroom_bytes(self) -> float:
        return max(0.0, self.total_bytes - self.peak_bytes)

    @property
    def text(self) -> str:
        """One line for people."""
        words = f"{memory(self.peak_bytes)} of {memory(self.total_bytes)} at most"
        words = f"GPU {self.gpu}: {words}, {memory(self.headroom_bytes)} free"
        return words if self.growth is None else f"{words}; it grows by {self.growth.rate_words}"


def memory_of(report: JobReport) -> tuple[RunMemory, ...]:
    """Device memory of each GPU on which it was measured."""
    return tuple(
        RunMemory(gpu.index, gpu.memory_peak_bytes, gpu.memory_total_bytes, gpu.memory_growth)
        for gpu in report.gpus
        if gpu.memory_peak_bytes and gpu.memory_total_bytes
    )
