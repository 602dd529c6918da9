"""The threads of one process as feeders: each one's shares, read in turns, and their total.

Two small reads a thread, so a caller says how many it may cost. Only asked for while a GPU waits and nothing else
explains it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct

from gputop.model.feeders import NO_SHARES, FeederShares
from gputop.sources.processes.feed import MEAN_S, Recent, Smoothed, shares_of
from gputop.sources.processes.loaders import (
    is_host_thread,
    is_nccl_thread,
    is_pin_memory_thread,
    thread_framework,
    thread_loader,
)
from gputop.sources.processes.wait_look import BLOCKED, RAN, WaitLook
from gputop.sources.procfs import parse_schedstat, parse_stat, read_small

LIST_AGAIN_S = 3.0
MOST_LISTED = 4096
"""The most threads of one process that take turns; they stand for the rest."""
FIRST = 2.0 / 3.0
"""The part of the reads that goes to threads that ran when they were last read; the rest takes turns over all."""


class _Thread:
    __slots__ = ("at", "moved", "queued_ns", "recent", "run_ns", "shares", "smoothed", "waiting_on")

    def __init__(self) -> None:
        self.at: float | None = None
        self.run_ns = self.queued_ns = 0
        self.moved = False
        """Whether it was on a core or queued for one before its latest reading."""
        self.waiting_on: str | None = None
        """What it waited for at its latest look; None while it ran."""
        self.recent = Recent()
        self.shares = NO_SHARES
        self.smoothed = Smoothed()


class FeederThreads:
    """The threads of one process but its main one. ``read`` goes on where the call before it stopped."""

    __slots__ = ("_any_at", "_any_disk", "_any_network", "_directory", "_listed_at", "_look_at", "_main", "_next",
                 "_order", "_pid", "_threads", "reads_or_writes")  # fmt: skip

    def __init__(self, proc: str, pid: int, look: WaitLook) -> None:
        self._directory = f"{proc}/{pid}/task"
        self._pid, self._main = pid, str(pid)
        self._look_at = look
        self._threads: dict[str, _Thread] = {}
        self._order: list[str] = []
        self._next = 0
        self._listed_at: float | None = None
        self._any_disk = self._any_network = 0.0
        self._any_at: float | None = None
        self.reads_or_writes = False
        """Whether the process has lately moved bytes from or to a disk: then a state D of no known class is a disk."""

    def read(self, now: float, limit: int, tids: Sequence[str] | None = None) -> int:
        """Read up to ``limit`` threads and tell how many were; ``tids`` are all that count, else all there are.

        First those that ran when they were last read, wherever they are among hundreds that never do.
        """
        if tids is not None:
            self._order = list(tids[:MOST_LISTED])
        elif self._listed_at is None or now - self._listed_at >= LIST_AGAIN_S:
            self._listed_at = now
            try:
                self._order = [tid for tid in os.listdir(self._directory) if tid != self._main][:MOST_LISTED]
            except OSError:
                self._order = []
        order = self._order
        if len(self._threads) > 2 * len(order) + 64:
            self._threads = {tid: self._threads[tid] for tid in order if tid in self._threads}
        count = min(limit, len(order))
        chosen: dict[str, None] = {}
        if count < len(order):
            moved = (tid for tid in order if (thread := self._threads.get(tid)) is not None and thread.moved)
            for tid in moved:
                if len(chosen) >= int(FIRST * count):
                    break
                chosen[tid] = None
        while len(chosen) < count:
            self._next = (self._next + 1) % len(order)
            chosen[order[self._next]] = None
        for tid in chosen:
            self._look(now, tid)
        self._count_any(now)
        return count

    def __len__(self) -> int:
        return len(self._order)

    def busiest(self) -> FeederShares:
        """The shares of the thread that did most for the next batch; of all together where they take turns.

        Threads that pass a core, a lock or a connection to each other are one feeder: each by itself looks half asleep.
        """
        best: _Thread | None = None
        score = -1.0
        run = queued = 0.0
        for tid in self._order:
            thread = self._threads.get(tid)
            if thread is None or thread.at is None:
                continue
            smoothed = thread.smoothed
            run += smoothed.shares[0]
            queued += smoothed.shares[1]
            points = smoothed.useful + smoothed.shares[6] / 100.0
            if points > score:
                best, score = thread, points
        if best is None:
            return NO_SHARES
        cpu = min(1.0, run + queued)
        disk = min(self._any_disk, 1.0 - cpu)
        network = min(self._any_network, 1.0 - cpu - disk)
        together = cpu + disk + network
        if together >= TAKE_TURNS and together > best.smoothed.useful + 0.05:
            run = cpu * run / (run + queued) if cpu else 0.0
            return FeederShares(run, cpu - run, disk, network, lock=1.0 - together)
        return best.shares

    def _count_any(self, now: float) -> None:
        """At this look, whether any thread waited for a disk, and any for the network."""
        last, self._any_at = self._any_at, now
        waits = {thread.waiting_on for tid in self._order if (thread := self._threads.get(tid)) is not None}
        weight = 1.0 if last is None else min(1.0, max(0.0, (now - last) / MEAN_S))
        self._any_disk += weight * (("disk" in waits) - self._any_disk)
        self._any_network += weight * (("network" in waits) - self._any_network)

    def _look(self, now: float, tid: str) -> None:
        folder = f"{self._directory}/{tid}"
        try:
            times = parse_schedstat(read_small(f"{folder}/schedstat"))
            channel = read_small(f"{folder}/wchan").decode("ascii", "replace")
        except OSError:
            self._threads.pop(tid, None)
            return
        thread = self._threads.get(tid)
        if thread is None:
            thread = self._threads[tid] = _Thread()
        wait: str | None = self._look_at.at(now, self._pid, folder, channel).wait
        if wait == BLOCKED:
            wait = "disk" if self.reads_or_writes else "other"
        elif wait == RAN:
            wait = self._unnamed_wait(folder)
        thread.waiting_on = wait
        if wait is not None:
            thread.recent.add(now, wait)
        run_ns, queued_ns = times or (0, 0)
        last, thread.at = thread.at, now
        if last is not None and now > last:
            span = (now - last) * 1e7
            shares = shares_of(
                min(100.0, max(0.0, (run_ns - thread.run_ns) / span)),
                min(100.0, max(0.0, (queued_ns - thread.queued_ns) / span)),
                thread.recent.waits(now),
            )
            thread.shares = shares
            thread.smoothed.add(now, shares)
            thread.moved = shares.cpu >= MOVED
        thread.run_ns, thread.queued_ns = run_ns, queued_ns

    def _unnamed_wait(self, folder: str) -> str | None:
        """Where the kernel names no channel: it runs, or state D alone tells that it does not."""
        try:
            stat = parse_stat(read_small(f"{folder}/stat"))
        except OSError:
            return None
        return "disk" if stat is not None and stat.state == "D" and self.reads_or_writes else None


TAKE_TURNS = 0.4
"""From this share of the time on, in which any of the threads does something, they are judged together [judged]."""
MOVED = 0.02
"""A thread that ran so much of the time is read again before those that did not [judged]."""


# The threads of a GPU process: NCCL, pin-memory, and the pool of host threads that may feed it.
#
# Read every few seconds, not each tick: a process has hundreds of threads. Only names of new threads are read, and
# only the few threads that are *not* in the pool are timed: the pool's time is the process's less theirs.

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
    framework: str | None = None


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
        # Before all others: where there is one, it is what a lock of the main thread is for.
        self.feeder_tids.sort(key=lambda tid: not is_pin_memory_thread(names.get(tid, "")))
        others = [tid for tid in present if not is_host_thread(names.get(tid, ""))]
        return Threads(
            nccl=any(is_nccl_thread(names[tid]) for tid in others),
            pin_memory=any(is_pin_memory_thread(names[tid]) for tid in others),
            pool_threads=len(present) - len(others),
            pool_run_pct=self._pool_run(now, cpu_ticks, main_run_ns, others),
            loader=thread_loader(names.values()),
            framework=thread_framework(names.values()),
        )

    def _name(self, present: list[str]) -> None:
        names = self._names
        self._names = {}
        budget = MOST_NAMED
        for tid in present:
            if tid in names and (budget <= 0 or tid in self._settled):
                self._names[tid] = names[tid]
                continue
            if budget <= 0:
                continue
            budget -= 1
            try:
                name = read_small(f"{self._directory}/{tid}/comm").decode("utf-8", "replace").rstrip("\n")
            except OSError:
                continue
            self._names[tid] = name
            # A thread names itself after its start: its name is read in two scans and then kept.
            if tid in names:
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
