"""What watching costs the program that is watched: the CPU time of gputop's own threads, from the kernel's counters."""

from __future__ import annotations

import threading
import time

from msgspec import Struct

from gputop.sources.procfs import read_small

THREADS = "gputop-"
"""The prefix of the names of all of gputop's threads."""


class OwnCost(Struct, frozen=True):
    """``cpu_s`` of CPU time in ``seconds`` of watching, ``cpu_pct`` of one core; ``longest_s`` is the most CPU time
    that one frame took on the watcher's thread: at most so long it held the interpreter's lock at a stretch."""

    cpu_s: float
    seconds: float
    longest_s: float

    @property
    def cpu_pct(self) -> float:
        return 100.0 * self.cpu_s / self.seconds if self.seconds > 0.0 else 0.0


class CostMeter:
    """Adds up CPU time thread by thread; a thread that has ended keeps what it had at the last look."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._used: dict[int, float] = {}
        self.longest_s = 0.0

    def look(self) -> None:
        """Read the counters of the living threads."""
        for thread in threading.enumerate():
            if thread.name.startswith(THREADS) and thread.native_id is not None:
                used = _used_s(thread.native_id)
                if used is not None:
                    self._used[thread.native_id] = used

    def read(self) -> OwnCost:
        """The cost until now."""
        self.look()
        return OwnCost(sum(self._used.values()), time.monotonic() - self._begun, self.longest_s)


def _used_s(thread: int) -> float | None:
    try:
        return int(read_small(f"/proc/self/task/{thread}/schedstat").split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
