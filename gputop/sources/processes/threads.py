"""The threads of a GPU process: NCCL, pin-memory, and the pool of host threads that may feed it.

Read every few seconds, not each tick: a process has hundreds of threads. Only names of new threads are read, and
only the few threads that are *not* in the pool are timed: the pool's time is the process's less theirs.
"""

from __future__ import annotations

import os

from msgspec import Struct

from gputop.sources.processes.loaders import is_host_thread, is_nccl_thread, is_pin_memory_thread, thread_loader
from gputop.sources.procfs import parse_schedstat, read_small

_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")

MOST_NAMED = 512
"""Thread names that one scan reads; with ten thousand threads each waits its turn."""


class Threads(Struct, frozen=True):
    """What is known of the threads of one process. ``pool_run_pct`` is None until two scans, or without schedstat."""

    nccl: bool
    pin_memory: bool
    pool_threads: int
    pool_run_pct: float | None
    loader: str | None


class HostThreads:
    """The threads of one process over time."""

    __slots__ = ("_directory", "_last", "_main", "_names", "_settled", "feeder_tids")

    def __init__(self, directory: str, pid: int) -> None:
        self._directory = f"{directory}/task"
        self._main = str(pid)
        self._names: dict[str, str] = {}
        self._settled: set[str] = set()
        self._last: tuple[float, int, frozenset[str]] | None = None
        self.feeder_tids: list[str] = []
        """The threads that could prepare data, as of the last scan: the pool, and PyTorch's pin-memory thread."""

    def scan(self, now: float, cpu_ticks: int, main_run_ns: int | None) -> Threads | None:
        """The threads now; None when they cannot be listed.

        ``cpu_ticks`` is the process's CPU time in clock ticks, ``main_run_ns`` the main thread's in nanoseconds.
        """
        try:
            present = [tid for tid in os.listdir(self._directory) if tid != self._main]
        except OSError:
            return None
        self._name(present)
        names = self._names
        self.feeder_tids = [
            tid for tid in present if is_host_thread(name := names.get(tid, "")) or is_pin_memory_thread(name)
        ]
        others = [tid for tid in present if not is_host_thread(names.get(tid, ""))]
        return Threads(
            nccl=any(is_nccl_thread(names[tid]) for tid in others),
            pin_memory=any(is_pin_memory_thread(names[tid]) for tid in others),
            pool_threads=len(present) - len(others),
            pool_run_pct=self._pool_run(now, cpu_ticks, main_run_ns, others),
            loader=thread_loader(names.values()),
        )

    def _name(self, present: list[str]) -> None:
        known = self._names
        self._names = {}
        left = MOST_NAMED
        for tid in present:
            if tid in known and (left <= 0 or tid in self._settled):
                self._names[tid] = known[tid]
                continue
            if left <= 0:
                continue
            left -= 1
            try:
                name = read_small(f"{self._directory}/{tid}/comm").decode("utf-8", "replace").rstrip("\n")
            except OSError:
                continue
            self._names[tid] = name
            # A thread names itself after its start: its name is read in two scans and then kept.
            if tid in known:
                self._settled.add(tid)
        self._settled &= self._names.keys()

    def _pool_run(self, now: float, cpu_ticks: int, main_run_ns: int | None, others: list[str]) -> float | None:
        if main_run_ns is None:
            self._last = None
            return None
        pool_ns = cpu_ticks * _NS_PER_TICK - main_run_ns - sum(self._run_ns(tid) for tid in others)
        last, self._last = self._last, (now, pool_ns, frozenset(others))
        # If a thread were no longer subtracted, the pool would be charged with its whole life's time.
        if last is None or now <= last[0] or last[2] != self._last[2]:
            return None
        return max(0.0, (pool_ns - last[1]) / (now - last[0]) / 1e7)

    def _run_ns(self, tid: str) -> int:
        try:
            times = parse_schedstat(read_small(f"{self._directory}/{tid}/schedstat"))
        except OSError:
            return 0
        return times[0] if times else 0
