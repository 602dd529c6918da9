"""Threads of processes: names and CPU time of a GPU process's threads, and states of any process's threads."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from gputop.sources.processes.look.wait_state import (
    BLOCKED,
    RAN,
    UNREAD,
    WaitClassifier,
    WaitObservation,
    WaitState,
)
from gputop.sources.processes.tree.loaders import (
    is_backward_thread,
    is_host_thread,
    is_nccl_thread,
    is_pin_memory_thread,
    is_rank_thread,
    thread_framework,
    thread_loader,
)
from gputop.sources.procfs import TICKS_PER_S, Stat, names_in, text_of, times_of

_NS_PER_TICK = 1_000_000_000 // TICKS_PER_S
MOST_NAMED = 512
"""Limit of thread names that one scan reads; with ten thousand threads each waits its turn."""


class Threads(Struct, frozen=True):
    """Summary of the threads of one process.

    ``pool_run_pct`` is the CPU time of host threads, ``other_run_pct`` that of threads that prepare no data and do none
    of the main thread's work. Both are None until two scans, or without schedstat.
    """

    nccl: bool
    pin_memory: bool
    pool_threads: int
    pool_run_pct: float | None
    loader: str | None
    framework: str | None = None
    ranks: bool = False
    """Whether threads serve communication between the ranks of a job."""
    other_run_pct: float | None = None


class _Times(Struct, frozen=True):
    """CPU time of a process's threads at one scan, in nanoseconds."""

    t: float
    pool_ns: int
    other_ns: int
    others: frozenset[str]
    """The threads outside the pool, which were subtracted."""


class PoolUse(Struct, frozen=True):
    """CPU time of the pool, and of threads that neither feed nor compute gradients, percent; None if unknown."""

    pool_pct: float | None = None
    other_pct: float | None = None


class HostThreads:
    """Tracks the threads of one GPU process.

    Scanned every few seconds, not each tick: a process has hundreds of threads. Only names of new threads are read, and
    only the few threads *outside* the pool are timed: the pool's time is the process's time minus theirs.
    """

    def __init__(self, directory: str, pid: int) -> None:
        self._directory = f"{directory}/task"
        self._main = str(pid)
        self._names: dict[str, str] = {}
        self._settled: set[str] = set()
        self._last: _Times | None = None
        self.feeder_tids: list[str] = []
        """Threads that could prepare data at the last scan: the pool, and PyTorch's pin-memory thread."""
        self.backward_tids: list[str] = []
        """Threads that continue the main thread's work while it waits for gradients."""

    def scan(self, now: float, process: Stat, main_run_ns: int | None) -> Threads | None:
        """Return a summary of the threads; None if they cannot be listed.

        ``process`` are the process's counters, ``main_run_ns`` the main thread's CPU time in nanoseconds.
        """
        try:
            several = process.threads > 1
            present = (
                [tid for tid in os.listdir(self._directory) if tid != self._main] if several else []
            )
        except OSError:
            return None
        self._name(present)
        names = {tid: self._names.get(tid, "") for tid in present}
        pool = [tid for tid, name in names.items() if is_host_thread(name)]
        pins = [tid for tid, name in names.items() if is_pin_memory_thread(name)]
        # The pin-memory thread comes first: a lock of the main thread waits for it, if it exists.
        self.feeder_tids = [*pins, *pool]
        self.backward_tids = [tid for tid, name in names.items() if is_backward_thread(name)]
        in_pool = set(pool)
        others = [tid for tid in present if tid not in in_pool]
        use = self._use(now, process.cpu_ticks, main_run_ns, others)
        return Threads(
            nccl=any(is_nccl_thread(names[tid]) for tid in others),
            pin_memory=bool(pins),
            pool_threads=len(pool),
            pool_run_pct=use.pool_pct,
            loader=thread_loader(names.values()),
            framework=thread_framework(names.values()),
            ranks=any(map(is_rank_thread, names.values())),
            other_run_pct=use.other_pct,
        )

    def _name(self, present: list[str]) -> None:
        names, self._names = self._names, {}
        budget = MOST_NAMED
        for tid in present:
            if tid in names and (budget <= 0 or tid in self._settled):
                self._names[tid] = names[tid]
                continue
            if budget <= 0:
                continue
            budget -= 1
            name = text_of(f"{self._directory}/{tid}/comm")
            if not name:
                continue
            self._names[tid] = name
            # A thread names itself after its start: its name is read in two scans and then kept.
            if tid in names:
                self._settled.add(tid)
        self._settled &= self._names.keys()

    def _use(
        self, now: float, cpu_ticks: int, main_run_ns: int | None, others: list[str]
    ) -> PoolUse:
        """Return the CPU time of the threads since the last scan."""
        last, self._last = self._last, None
        if main_run_ns is None:
            return PoolUse()
        used_ns = other_ns = 0
        for tid in others:
            run_ns, _ = times_of(f"{self._directory}/{tid}")
            used_ns += run_ns
            if tid not in self.feeder_tids and tid not in self.backward_tids:
                other_ns += run_ns
        pool_ns = cpu_ticks * _NS_PER_TICK - main_run_ns - used_ns
        self._last = _Times(now, pool_ns, other_ns, frozenset(others))
        if last is None or now <= last.t:
            return PoolUse()
        if last.others != self._last.others:
            # If a thread were no longer subtracted, the pool would be charged with its whole CPU time.
            return PoolUse()
        elapsed_s = now - last.t
        return PoolUse(
            pool_pct=max(0.0, (pool_ns - last.pool_ns) / elapsed_s / 1e7),
            other_pct=max(0.0, (other_ns - last.other_ns) / elapsed_s / 1e7),
        )


MOST_THREADS = 24
"""Limit of threads that one sample reads, of all processes together: each takes two small reads."""
LEAST_THREADS = 4
"""Least limit for one process, however many processes wait for their own threads."""
MOST_MORE = 64
"""Additional threads that one sample reads, of all processes together, if none of those read is active."""
MOST_LISTED = 4096
"""Limit of threads of one process that take turns; they represent the rest."""
RECENTLY_ACTIVE = 2.0 / 3.0
"""Share of the reads for recently active threads; the rest takes turns over all."""
ACTIVE_S = 10.0
_RANKS = (RAN, "disk", BLOCKED, "network", "socket", "queue", "sleep", "lock", "other", UNREAD)
"""Order of activity: the first kind counts before the others."""
WORK = (RAN, "disk", BLOCKED, "network")
"""Kinds of states that count as work for the next batch."""


def rank_of(state: WaitState) -> int:
    """Return the rank of a state; the lowest is most active."""
    return _RANKS.index(state.kind) if state.kind in _RANKS else len(_RANKS)


class ThreadTurn:
    """Whose turn it is among the threads of one process, and which were active lately."""

    def __init__(self) -> None:
        self.next_place = 0
        self._active_at: dict[str, float] = {}

    def active_since(self, since: float) -> Collection[str]:
        """Return the threads that were seen active after this time; all others are forgotten."""
        self._active_at = {tid: t for tid, t in self._active_at.items() if t > since}
        return self._active_at.keys()

    def note_active(self, now: float, threads: Iterable[WaitObservation]) -> None:
        """Note which of the sampled threads are active."""
        for thread in threads:
            if thread.state.kind in WORK:
                self._active_at[str(thread.tid)] = now


class ThreadSampler:
    """Samples the threads of processes, in turns if they are many.

    Used by one thread at a time.
    """

    def __init__(self, proc: str, classifier: WaitClassifier) -> None:
        self._proc = proc
        self._classifier = classifier
        self._sampled_at, self._more = 0.0, MOST_MORE
        """Time of the latest sample, and its remaining additional reads."""

    def sample(
        self, now: float, pid: int, turn: ThreadTurn, tids: Sequence[str] | None, limit: int
    ) -> list[WaitObservation]:
        """Return the states of up to ``limit`` threads.

        None for ``tids`` means all threads but the main one. The first thread is read, then recently active ones, then
        others in turn. If none of them is active, more are read until one is: work that rotates among threads is always
        in another one.
        """
        if tids is None:
            others = [tid for tid in names_in(f"{self._proc}/{pid}/task") if tid != str(pid)]
            tids = others[:MOST_LISTED]
        recent = turn.active_since(now - ACTIVE_S)
        order, active, begin = tids, list[str](), 0
        if len(tids) > limit:
            active = [tid for tid in tids if tid in recent][: int(RECENTLY_ACTIVE * limit)]
            begin = turn.next_place % len(tids)
            in_turn = [*tids[begin:], *tids[:begin]][: limit + MOST_MORE]
            order = list(dict.fromkeys([tids[0], *active, *in_turn]))
        if now != self._sampled_at:
            self._sampled_at, self._more = now, MOST_MORE
        sampled: list[WaitObservation] = []
        works, number = False, 0
        for number, tid in enumerate(order):
            if number >= limit:
                if works or not self._more:
                    break
                self._more -= 1
            found = self._classifier.classify_thread(now, pid, f"{self._proc}/{pid}/task/{tid}")
            if found is None:
                continue
            stat, state = found
            name = stat.comm.decode("utf-8", "replace")
            sampled.append(WaitObservation(now, pid, int(tid), state, name=name))
            works = works or state.kind in WORK
        turn.next_place = begin + max(1, number - 1 - len(active))
        turn.note_active(now, sampled)
        return sampled
