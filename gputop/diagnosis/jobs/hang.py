"""Hangs: waits inside a kernel for a rank or a lock.

The driver shows such a GPU as busy. Small kernels from a loop and one long kernel of one block look exactly so, so that
a hang takes a before and a witness. Before: the same job was at work in another way, or its announced steps stopped.
Witness: another rank of the job idles outside of kernels or is gone, or the main thread slept all the time. One that
spins on a core says nothing, since CUDA waits like that and a loop of launches looks like it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from gputop.diagnosis.jobs.kernel_pictures import (
    WORK_UTIL,
    WorkPower,
    has_counters,
    has_fallen,
    holds_all,
    is_at_work,
    spins,
)
from gputop.diagnosis.signals import ENDED, WAITS_S, BusyWait, LaggingRank, Signals
from gputop.diagnosis.why_idle import why_idle
from gputop.model.snapshot import GpuSample
from gputop.model.steps import StepRow

FLAT_PCT = 3.0
"""SM that stays within so many points does not move."""
WORKED_S = 30.0
"""At work in another way for so long before [judged]."""
ASLEEP_PCT, ASLEEP = 5.0, 0.95
"""A main thread that is on a core, or queued for one, for at most this percentage of a sample sleeps; in this share of
the time."""
ALONE_S = 120.0
"""How long the picture must stand where no other rank is seen: one on another node may evaluate or save [judged]."""
TIMES_LONGER = 2.0
"""A wait of which the job came back is exceeded so many times before it is no such wait [judged]."""
STEPS_LATE = 5.0
"""Steps have stopped after so many times the longest one."""
CPU_PHASE, SAVES_BYTES = 0.5, 1e6
"""Share of the time in which a main thread is runnable, and bytes a second that a job writes, from which on it is at
work outside of kernels [judged]."""
WAITS_FOR_REQUESTS = 0.5
"""Share of the time in which a main thread sits in accept, poll or an event loop."""
TOGETHER_S = 10.0
"""Ranks of one job that stop do so within so many seconds [judged]."""
GONE_S = 10.0
"""A rank has ended when its process is not seen for so long."""
MOST_JOBS = 64


class _Announced(Struct):
    """The steps of one process so far."""

    run: str | None
    last_t: float
    longest_s: float
    rank: int | None

    def have_stopped(self, t: float) -> bool:
        return t - self.last_t >= max(WAITS_S, STEPS_LATE * self.longest_s)


class _Seen(Struct):
    """One GPU so far: its present picture, and other work before."""

    t: float = float("-inf")
    pids: frozenset[int] = frozenset()
    since: float | None = None
    hole_s: float = 0.0
    """Seconds since then without samples."""
    low: float = 0.0
    high: float = 0.0
    looked_s: float = 0.0
    asleep_s: float = 0.0
    worked_s: float = 0.0
    longest_s: float = 0.0
    """The longest such picture after which the job went on."""
    work: WorkPower = field(default_factory=WorkPower)
    holds_all: bool = False
    """A kernel holds all SMs in the present picture."""
    has_counters: bool = False

    def add(self, t: float, dt: float, s: Signals) -> None:
        """Take one sample in."""
        pids = frozenset(p.pid for p in s.tick.owners)
        if t - self.t > WAITS_S or (pids and not pids & self.pids):
            self.since, self.worked_s, self.longest_s = None, 0.0, 0.0
            self.work = WorkPower()
        self.hole_s += max(0.0, t - dt - self.t)
        self.t, self.pids = t, pids or self.pids
        gpu = s.gpu
        if gpu.util_pct is None:
            return
        self.has_counters, holds = has_counters(gpu), holds_all(gpu, self.work)
        if not (holds or spins(gpu) or has_fallen(gpu, self.work)):
            self._note_work(t, dt, gpu)
            return
        if holds != self.holds_all:
            self.since = None
        self.holds_all = holds
        # Without counters power says whether it stands still: percent of what the job drew at work.
        sm = gpu.sm_active_pct
        if sm is None:
            sm = 100.0 * (gpu.power_w or 0.0) / (self.work.mean_w or 1.0)
        self.low, self.high = min(self.low, sm), max(self.high, sm)
        if self.since is None or self.high - self.low > FLAT_PCT:
            self.since, self.low, self.high = t, sm, sm
            self.hole_s = self.looked_s = self.asleep_s = 0.0
        p = s.tick.primary
        if p is not None and p.main_pct is not None:
            self.looked_s += dt
            self.asleep_s += dt if p.main_pct <= ASLEEP_PCT else 0.0

    def _note_work(self, t: float, dt: float, gpu: GpuSample) -> None:
        """Take in a sample that is no wait."""
        if self.since is not None:
            self.longest_s, self.since = max(self.longest_s, self.for_s(t)), None
        if is_at_work(gpu):
            self.worked_s += dt
            self.work.add(dt, gpu.power_w)

    def for_s(self, t: float) -> float:
        return 0.0 if self.since is None else t - self.since - self.hole_s

    @property
    def is_asleep(self) -> bool:
        return self.looked_s >= WAITS_S / 2 and self.asleep_s >= ASLEEP * self.looked_s


def waits_for_requests(s: Signals) -> bool:
    """True if a process listens or serves, and its main thread waits for somebody to ask.

    A rank that serves and computes at the same time may hold the others up all the same.
    """
    listens = s.host.mean.listens is not None and s.host.mean.listens >= 0.5
    serves = any((s.tick.server is not None, s.host.served, listens))
    waits = s.host.waits
    sits = waits is not None and waits.poll + waits.pipe + waits.network >= WAITS_FOR_REQUESTS
    return serves and sits and (s.host.mean.main or 0.0) < CPU_PHASE


class Hangs:
    """Follows all GPUs of a machine and the ranks on them."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._announced: dict[int, _Announced] = {}
        self._ranks: dict[str, dict[int, tuple[int, float]]] = {}
        """By job, then GPU: the rank's pid and when it was seen last."""

    def observe(
        self,
        t: float,
        dt: float,
        signals: Sequence[Signals],
        steps: Iterable[StepRow],
        pids: Iterable[int],
    ) -> Mapping[int, BusyWait]:
        """Return the waits inside a kernel by GPU index.

        ``pids`` are all processes on any GPU.
        """
        for row in steps:
            before = self._announced.get(row.pid)
            longest = max(row.max_s, 0.0 if before is None else before.longest_s)
            self._announced[row.pid] = _Announced(row.run, t, longest, row.rank)
        there = frozenset(pids)
        waiting: list[Signals] = []
        for s in signals:
            seen = self._seen.setdefault(s.index, _Seen())
            seen.add(t, dt, s)
            if (job := self._job(s)) is not None and s.tick.pid is not None:
                self._ranks.setdefault(job, {})[s.index] = (s.tick.pid, t)
            if seen.for_s(t) >= WAITS_S:
                waiting.append(s)
        while len(self._ranks) > MOST_JOBS:
            del self._ranks[next(iter(self._ranks))]
        if len(self._announced) > len(there) + MOST_JOBS:
            self._announced = {pid: steps for pid, steps in self._announced.items() if pid in there}
        return {s.index: self._spin(t, s, waiting, signals, there) for s in waiting}

    def _job(self, s: Signals) -> str | None:
        """Key that the ranks of one run share.

        None of a process that is no rank as far as can be seen.
        """
        announced = None if s.tick.pid is None else self._announced.get(s.tick.pid)
        if announced is not None and announced.run is not None:
            return f"run {announced.run}"
        job = s.tick.job
        if job is None:
            return None
        is_rank = job.rank is not None or job.is_announced
        return job.key if s.tick.nccl or is_rank else None

    def _fell_together(self, s: Signals, waiting: Sequence[Signals]) -> list[Signals]:
        """Other GPUs of a job that look the same since the same seconds, all asleep.

        Whatever the threads are called: nothing but a collective stops equal processes at one moment.
        """
        seen, job = self._seen[s.index], s.tick.job
        if job is None or not seen.is_asleep:
            return []
        together = []
        for other in waiting:
            theirs = self._seen[other.index]
            is_of_job = other.tick.job is not None and other.tick.job.loose_key == job.loose_key
            if other is s or not is_of_job or not theirs.is_asleep:
                continue
            if abs((theirs.since or 0.0) - (seen.since or 0.0)) <= TOGETHER_S:
                together.append(other)
        return together

    def _spin(
        self,
        t: float,
        s: Signals,
        waiting: Sequence[Signals],
        signals: Sequence[Signals],
        there: frozenset[int],
    ) -> BusyWait:
        seen, pid = self._seen[s.index], s.tick.pid
        announced = None if pid is None else self._announced.get(pid)
        stopped = announced is not None and announced.have_stopped(t)
        job = self._job(s)
        ranks = {} if job is None else self._ranks[job]
        # Others of the same name that ran before have nothing to do with this run.
        begun = t - seen.for_s(t) - WAITS_S
        others = {gpu for gpu, (_, last_t) in ranks.items() if last_t >= begun} - {
            other.index for other in waiting
        }
        by_index = {other.index: other for other in signals}
        behind = [
            found
            for gpu in sorted(others)
            if (
                found := self._behind(t, gpu, ranks[gpu], by_index, there, seen.for_s(t) >= ALONE_S)
            )
        ]
        somebody_works = len(behind) < len(others) or (announced is not None and not stopped)
        has_before = stopped or (
            seen.worked_s >= WORKED_S and seen.for_s(t) > TIMES_LONGER * seen.longest_s
        )
        # Asleep alone is what one long kernel looks like, too: there must be something that could be waited for.
        together = self._fell_together(s, waiting)
        is_certain = bool(s.tick.nccl) or stopped or bool(together)
        sleeps_long = seen.is_asleep and seen.for_s(t) >= ALONE_S
        alone = seen.has_counters and sleeps_long and is_certain
        serving = self._serving(s, by_index)
        return BusyWait(
            for_s=seen.for_s(t),
            is_hang=has_before and (bool(behind) or alone) and not somebody_works,
            is_collective=bool(s.tick.nccl) or len(ranks) > 1 or bool(together),
            waiting=1 + sum(other.index in ranks for other in waiting if other.index != s.index),
            behind=tuple(behind),
            is_asleep=seen.is_asleep,
            holds_all=seen.holds_all,
            worked_w=seen.work.mean_w,
            together=1 + len(together),
            serving=serving,
        )

    def _serving(self, s: Signals, by_index: Mapping[int, Signals]) -> int | None:
        """GPU of the member of a job that waits for requests; None if none does."""
        job = self._job(s)
        for gpu in sorted({} if job is None else self._ranks[job]):
            other = by_index.get(gpu)
            is_idle = other is not None and other.util_pct < WORK_UTIL
            if other is not None and is_idle and waits_for_requests(other):
                return gpu
        return None

    def _behind(
        self,
        t: float,
        gpu: int,
        rank: tuple[int, float],
        by_index: Mapping[int, Signals],
        there: frozenset[int],
        long: bool,
    ) -> LaggingRank | None:
        """A rank that idles outside of kernels or is gone, else None.

        One that computes on the CPU or writes works, too: it evaluates or saves, unless the others wait for ``long``.
        """
        pid, last_t = rank
        announced = self._announced.get(pid)
        number = None if announced is None else announced.rank
        if pid not in there:
            return LaggingRank(gpu, pid, number, ENDED) if t - last_t >= GONE_S else None
        s = by_index.get(gpu)
        if s is None or s.samples < s.min_samples or s.util_pct >= WORK_UTIL:
            return None
        if waits_for_requests(s):
            return None
        runs = (s.host.mean.main or 0.0) >= CPU_PHASE
        if (runs or (s.tick.write_bytes or 0.0) >= SAVES_BYTES) and not long:
            return None
        why, _ = why_idle(s)
        return LaggingRank(
            gpu, pid, number, why or ("its main thread computes" if runs else "its GPU is idle")
        )
