"""Idle attribution: bounds of how much each cause explains.

In an interval in which the GPU idled for the share ``i`` and a cause held for ``x``, both held together for at least
``max(0, x + i − 1)`` and at most ``min(x, i)`` of it (Fréchet), whatever they have to do with each other. Both are
summed up over the window and divided by the sum of ``i``: waits that come in bursts are not averaged away.

With a few looks this would be no bound: of a main thread and a GPU that are independent one look a second gives 80 %
where the truth is 20 (simulated: util 75, polling 80 %). So an interval lasts at least a second and holds at least
eight looks; where util comes as single moments, all or nothing, it holds five of them and lasts five seconds; and what
was looked at enters the lower sum less one standard error of the whole window. Counted time (on a core or queued) needs
none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import groupby, pairwise
from math import sqrt
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.host.workers import PROOFS, polls_as_network
from gputop.diagnosis.window.host_activity import FeederRow
from gputop.diagnosis.window.host_side import HostMeans
from gputop.diagnosis.window.window import EPSILON_S, WINDOW_S
from gputop.model.wait_shares import WaitShares, sum_of

LEAST_S, LEAST_LOOKS = 1.0, 8
MOMENTS_S, LEAST_MOMENTS = 5.0, 5
"""What an interval holds where util is read over less than the distance of its samples."""
NOTHING_PCT, ALL_PCT = 5.0, 95.0
MOMENTS = 0.9
"""Share of the samples that are all or nothing from which on they may be moments."""
MOMENTS_STEP_S = 0.9
"""Samples closer together than this do not count: a driver may renew util once a second only (a GeForce of the
Blackwell generation), and whether work and pauses alternate shows in seconds."""
BLOCKS, LEAST_SEEN, PAUSE = 0.5, 15, 3
"""With so many samples, fewer changes between all and nothing than this share of what independent ones would have, and
two idle runs of ``PAUSE`` samples, they are no moments: a job pauses for seconds [judged]."""
ERRORS, LEAST_IDLE = 3.0, 3
"""Where util comes as moments, a sum must have so many standard errors of its intervals to spare, and so many of them
must have idle time [judged]."""
LEAST_INTERVALS = 2
"""Fewer say nothing; so many are kept, however long they are."""
MOSTLY, NO_LONGER = 0.5, 0.4
"""A cause is named from this lower sum on, and left below that one."""
SHORT_S, OF_SHORT = 8.0, 0.6
"""Intervals of fewer seconds name a cause from this lower sum on: what they bear is their part of the error of a whole
window [judged]."""
TURNS_MOST, TURNS_LOCK = 1.1, 0.5
"""Workers take turns at a lock where their useful shares add up to no more than the time there is, and each of them
waits for a lock in so much of the rest [judged]."""
SEEN_ERRORS, VARIES = 4.0, 0.3
"""Where idle time varies so much (its coefficient of variation) a wait of the main thread is named only if its share
has so many standard errors of its intervals to spare: chance alone gives bounds to a thread that is independent of the
GPU [simulated: util 65 to 75, asleep 80 %; with 2.5 errors in 0.5 % of the time]."""


IdleCause = Literal[
    "main_run",
    "main_disk",
    "main_network",
    "main_write",
    "main_sleep",
    "main_fetch",
    "main_alone",
    "any_useful",
    "any_cpu",
    "any_disk",
    "any_network",
    "useful",
    "cpu",
    "disk",
    "network",
    "outside",
    "lock",
    "sleep",
    "lock_or_sleep",
]
"""What may explain idle time: a lower bound of ``IdleAttribution``."""


class IdleAttribution(Struct, frozen=True):
    """Bounds, 0 to 1, of how much idle time each cause explains.

    Lower bounds; ``most_*`` are upper ones. ``main_*`` are the main thread's, ``any_*`` those of any worker (of all
    together, if they take turns at a lock), the others the busiest worker's.
    """

    main_run: float = 0.0
    main_disk: float = 0.0
    main_network: float = 0.0
    main_write: float = 0.0
    main_sleep: float = 0.0
    main_fetch: float = 0.0
    """The main thread waits for the network, or polls."""
    main_alone: float = 0.0
    """The main thread runs, sleeps, or waits for no other process."""
    any_useful: float = 0.0
    any_cpu: float = 0.0
    any_disk: float = 0.0
    any_network: float = 0.0
    most_main_run: float = 1.0
    most_disk: float = 0.0
    most_network: float = 0.0
    most_write: float = 0.0
    most_fetch: float = 0.0
    useful: float = 0.0
    """The busiest worker runs, is queued, or waits for a disk or the network."""
    cpu: float = 0.0
    disk: float = 0.0
    network: float = 0.0
    outside: float = 0.0
    """The busiest worker is useful, or polls."""
    lock: float = 0.0
    sleep: float = 0.0
    lock_or_sleep: float = 0.0


class WorkerBounds(Struct, frozen=True):
    """Seconds of an interval that a worker's states explain at least."""

    useful: float
    cpu: float
    disk: float
    network: float
    outside: float
    lock: float
    sleep: float
    lock_or_sleep: float


class IntervalBounds(Struct, frozen=True):
    """Seconds of an interval that each cause but the busiest worker's explains."""

    main_run: float
    main_disk: float
    main_network: float
    main_write: float
    main_sleep: float
    main_fetch: float
    main_alone: float
    any_useful: float
    any_cpu: float
    any_disk: float
    any_network: float
    most_main_run: float
    most_disk: float
    most_network: float
    most_write: float
    most_fetch: float


NO_TIME = WaitShares()


class IdleSample(Struct, frozen=True):
    """The part of one sample that attribution needs.

    ``workers`` are those that the main thread may wait for.
    """

    t: float
    dt: float
    util_pct: float
    looks: int
    main: HostMeans
    workers: Sequence[FeederRow] = ()


class Interval(Struct, frozen=True, dict=True):
    """Sums over some samples (shares times seconds) and their bounds."""

    end: float
    seconds: float
    idle: float
    looks: int
    run: float
    least_run: float
    most_run: float
    waits: WaitShares
    """Seconds of the main thread in each wait."""
    workers: Mapping[int, WaitShares]
    """Seconds of each worker in each state."""

    def lower_bound(self, counted: float, waited: float) -> float:
        """Seconds of a state, at least, while the GPU idled.

        Both are sums of shares times seconds.
        """
        counted, waited = min(1.0, counted / self.seconds), waited / self.seconds
        rest = 1.0 - counted
        waited = min(rest, waited)
        if waited > 0.0:
            # Errors of n intervals add up as √n, not n: each bears its part of the window's one standard error. A
            # window has few long intervals: two errors there, and not none where all looks agree (Laplace).
            part, errors = waited / rest, sqrt(min(1.0, self.seconds / WINDOW_S))
            if self.seconds >= MOMENTS_S:
                part, errors = (part * self.looks + 1.0) / (self.looks + 2.0), 2.0
            waited = max(0.0, waited - errors * rest * sqrt(part * (1.0 - part) / self.looks))
        return max(0.0, (counted + waited - 1.0) * self.seconds + self.idle)

    def of_worker(self, key: int) -> WorkerBounds:
        """Bounds of one worker."""
        worker, bound = self.workers.get(key, NO_TIME), self.lower_bound
        waits_outside = worker.disk + worker.network
        return WorkerBounds(
            useful=bound(worker.cpu, waits_outside),
            cpu=bound(worker.cpu, 0.0),
            disk=bound(0.0, worker.disk),
            network=bound(0.0, worker.network),
            outside=bound(worker.cpu, waits_outside + worker.poll),
            lock=bound(0.0, worker.lock),
            sleep=bound(0.0, worker.sleep),
            lock_or_sleep=bound(0.0, worker.lock + worker.sleep),
        )

    @cached_property
    def bounds(self) -> IntervalBounds:
        """Bounds of the main thread and of any worker."""
        waits, bound = self.waits, self.lower_bound
        fetch = waits.network + waits.poll
        alone = waits.disk + waits.network + waits.write + waits.sleep
        workers = self._workers_that_count()
        return IntervalBounds(
            main_run=self.least_run,
            main_disk=bound(0.0, waits.disk),
            main_network=bound(0.0, waits.network),
            main_write=bound(0.0, waits.write),
            main_sleep=bound(0.0, waits.sleep),
            main_fetch=bound(0.0, fetch),
            main_alone=bound(self.run, alone),
            any_useful=max([bound(w.cpu, w.disk + w.network) for w in workers]),
            any_cpu=bound(max([w.cpu for w in workers]), 0.0),
            any_disk=bound(0.0, max([w.disk for w in workers])),
            any_network=bound(0.0, max([w.network for w in workers])),
            most_main_run=self.most_run,
            most_disk=min(waits.disk, self.idle),
            most_network=min(waits.network, self.idle),
            most_write=min(waits.write, self.idle),
            most_fetch=min(fetch, self.idle),
        )

    def _workers_that_count(self) -> list[WaitShares]:
        """Processes, or threads without any; all together if they take turns."""
        processes = [worker for key, worker in self.workers.items() if key >= 0]
        workers = processes or list(self.workers.values()) or [NO_TIME]
        if not _take_turns(workers, self.seconds):
            return workers
        together = sum_of(workers)
        return [_at_most(together, self.seconds)]

    def proven(self, key: int) -> Interval:
        """The interval with a worker's polls counted as network waits."""
        worker = self.workers.get(key, NO_TIME)
        if not worker.poll + worker.unread:
            return self
        return replace(self, workers={**self.workers, key: polls_as_network(worker)})


def _at_most(together: WaitShares, seconds: float) -> WaitShares:
    """Sums of workers that take turns: no more than the time there is, in the states that bounds ask for."""
    return replace(
        together,
        run=min(seconds, together.run),
        queued=min(seconds, together.queued),
        disk=min(seconds, together.disk),
        network=min(seconds, together.network),
    )


def _take_turns(workers: Sequence[WaitShares], seconds: float) -> bool:
    """True if workers share one lock and work one at a time."""
    useful = sum([worker.useful for worker in workers])
    if len(workers) < 2 or not 0.0 < useful <= TURNS_MOST * seconds:
        return False
    return all(worker.lock >= TURNS_LOCK * (seconds - worker.useful) for worker in workers)


def interval_of(parts: Sequence[Sequence[IdleSample]], proven: Iterable[int] = ()) -> Interval:
    """Sum samples up.

    ``proven``: keys of workers whose polls are waits for the network. Each part is long enough to bound the main
    thread's running, which is counted and needs no looks.
    """
    samples = [sample for part in parts for sample in part]
    seconds = sum([s.dt for s in samples])
    idle = run = least_run = most_run = 0.0
    for part in parts:
        part_idle = sum([s.dt * (1.0 - s.util_pct / 100.0) for s in part])
        part_run = sum([s.dt * (s.main.main or 0.0) for s in part])
        idle, run = idle + part_idle, run + part_run
        least_run += max(0.0, part_run + part_idle - sum([s.dt for s in part]))
        most_run += min(part_run, part_idle)
    rows: dict[int, list[WaitShares]] = {}
    for sample in samples:
        for row in sample.workers:
            rows.setdefault(row.key, []).append(row.shares)
    span = seconds / len(samples)
    workers = {key: sum_of(shares).scaled(span) for key, shares in rows.items()}
    for key in proven:
        if key in workers:
            workers[key] = polls_as_network(workers[key])
    return Interval(
        end=samples[-1].t,
        seconds=seconds,
        idle=idle,
        looks=sum([s.looks for s in samples]),
        run=run,
        least_run=least_run,
        most_run=most_run,
        waits=sum_of([_main_waits(s) for s in samples]),
        workers=workers,
    )


def _main_waits(sample: IdleSample) -> WaitShares:
    """Seconds of the main thread's waits in one sample."""
    main, dt = sample.main, sample.dt
    return WaitShares(
        disk=dt * (main.main_disk or 0.0),
        network=dt * (main.main_network or 0.0),
        write=dt * (main.main_write or 0.0),
        sleep=dt * (main.main_sleep or 0.0),
        poll=dt * (main.main_poll or 0.0),
    )


def has_moments(utils: Iterable[float]) -> bool:
    """True if util comes as single moments, all or nothing.

    They alternate as quickly as chance has them.
    """
    values = list(utils)
    high = [util >= ALL_PCT for util in values if util <= NOTHING_PCT or util >= ALL_PCT]
    part = sum(high) / max(1, len(high))
    if len(high) < MOMENTS * len(values) or part in (0.0, 1.0):
        return False
    by_chance = 2.0 * part * (1.0 - part) * (len(high) - 1)
    changes = sum([a != b for a, b in pairwise(high)])
    pauses = sum([not is_high and len(list(run)) >= PAUSE for is_high, run in groupby(high)])
    return len(high) < LEAST_SEEN or changes >= BLOCKS * by_chance or pauses < 2


def _variation(intervals: Sequence[Interval]) -> float:
    """Coefficient of variation of the idle share over the intervals."""
    idle = [interval.idle / interval.seconds for interval in intervals]
    mean = sum(idle) / len(idle)
    return sqrt(sum([(part - mean) ** 2 for part in idle]) / len(idle)) / mean


def _error(seconds: Sequence[float], share: float, intervals: Sequence[Interval]) -> float:
    """Standard error of a share by the spread of its intervals."""
    squares = sum(
        [(part - share * i.idle) ** 2 for part, i in zip(seconds, intervals, strict=True)]
    )
    return sqrt(squares) / sum([i.idle for i in intervals])


class IdleAccount:
    """Sums of bounds over the window's intervals, and the causes above half."""

    def __init__(
        self, intervals: Sequence[Interval], *, moments: bool, named: frozenset[IdleCause]
    ) -> None:
        self._intervals = intervals
        self._moments = moments
        self._named_before = named
        self._idle_s = sum([interval.idle for interval in intervals])
        is_short = sum([interval.seconds for interval in intervals]) < SHORT_S
        self._mostly = OF_SHORT if is_short else MOSTLY
        self._chance = SEEN_ERRORS * min(1.0, _variation(intervals) / VARIES)
        self._has_enough = sum([interval.idle > 0.0 for interval in intervals]) >= LEAST_IDLE
        self.named: set[IdleCause] = set()

    def counted(self, cause: IdleCause, seconds: Sequence[float]) -> float:
        """Lower bound of a cause whose ``seconds`` in each interval were counted, or are a worker's."""
        return self._lower(cause, seconds, errors=0.0)

    def looked_at(self, cause: IdleCause, seconds: Sequence[float]) -> float:
        """Lower bound of a wait of the main thread, which was looked at."""
        return self._lower(cause, seconds, errors=self._chance)

    def upper(self, seconds: Sequence[float]) -> float:
        """Upper bound of a cause."""
        return _rounded_share(sum(seconds) / self._idle_s)

    def _lower(self, cause: IdleCause, seconds: Sequence[float], *, errors: float) -> float:
        share, to_spare = sum(seconds) / self._idle_s, 0.0
        if self._moments:
            # Chance alone has some intervals idle, and with them a bound: a cause holds in all of them.
            if not self._has_enough:
                share = 0.0
            else:
                share -= ERRORS * _error(seconds, share, self._intervals)
        elif errors and share >= NO_LONGER:
            to_spare = errors * _error(seconds, share, self._intervals)
        share = _rounded_share(share)
        least = NO_LONGER if cause in self._named_before else self._mostly
        if share - to_spare >= least:
            self.named.add(cause)
        return share


def _rounded_share(share: float) -> float:
    return min(1.0, max(0.0, round(share, 9)))


def idle_attribution(
    intervals: Sequence[Interval],
    busiest: int | None,
    *,
    moments: bool,
    named: frozenset[IdleCause] = frozenset(),
) -> tuple[IdleAttribution, frozenset[IdleCause]]:
    """Return bounds over the window and the causes above half.

    ``busiest``: key of the worker that decides. ``named``: causes named before, which are left at a lower sum than they
    are entered.
    """
    idle = sum([interval.idle for interval in intervals])
    if len(intervals) < LEAST_INTERVALS or idle <= 0.0:
        return IdleAttribution(), frozenset()
    account = IdleAccount(intervals, moments=moments, named=named)
    bounds = [interval.bounds for interval in intervals]
    found = IdleAttribution(
        main_run=account.counted("main_run", [b.main_run for b in bounds]),
        main_disk=account.looked_at("main_disk", [b.main_disk for b in bounds]),
        main_network=account.looked_at("main_network", [b.main_network for b in bounds]),
        main_write=account.looked_at("main_write", [b.main_write for b in bounds]),
        main_sleep=account.looked_at("main_sleep", [b.main_sleep for b in bounds]),
        main_fetch=account.looked_at("main_fetch", [b.main_fetch for b in bounds]),
        main_alone=account.looked_at("main_alone", [b.main_alone for b in bounds]),
        any_useful=account.counted("any_useful", [b.any_useful for b in bounds]),
        any_cpu=account.counted("any_cpu", [b.any_cpu for b in bounds]),
        any_disk=account.counted("any_disk", [b.any_disk for b in bounds]),
        any_network=account.counted("any_network", [b.any_network for b in bounds]),
        most_main_run=account.upper([b.most_main_run for b in bounds]),
        most_disk=account.upper([b.most_disk for b in bounds]),
        most_network=account.upper([b.most_network for b in bounds]),
        most_write=account.upper([b.most_write for b in bounds]),
        most_fetch=account.upper([b.most_fetch for b in bounds]),
    )
    if busiest is not None:
        found = _with_worker(found, account, [i.of_worker(busiest) for i in intervals])
    return found, frozenset(account.named)


def _with_worker(
    found: IdleAttribution, account: IdleAccount, worker: Sequence[WorkerBounds]
) -> IdleAttribution:
    """Add the bounds of the busiest worker."""
    return replace(
        found,
        useful=account.counted("useful", [b.useful for b in worker]),
        cpu=account.counted("cpu", [b.cpu for b in worker]),
        disk=account.counted("disk", [b.disk for b in worker]),
        network=account.counted("network", [b.network for b in worker]),
        outside=account.counted("outside", [b.outside for b in worker]),
        lock=account.counted("lock", [b.lock for b in worker]),
        sleep=account.counted("sleep", [b.sleep for b in worker]),
        lock_or_sleep=account.counted("lock_or_sleep", [b.lock_or_sleep for b in worker]),
    )


class IdleTime:
    """The intervals of one GPU's window."""

    def __init__(self) -> None:
        self.intervals: deque[Interval] = deque()
        self.moments = False
        self._parts: list[list[IdleSample]] = []
        """Complete parts of the interval that is open."""
        self._part: list[IdleSample] = []
        self._utils: deque[tuple[float, float]] = deque()
        self._proven: dict[int, float] = {}
        """Workers whose polls were seen to be waits for the network, and when last."""

    def add(self, sample: IdleSample) -> None:
        """Add a sample; an interval ends once it is long enough and has enough looks."""
        t, dt = sample.t, sample.dt
        if not self._utils or t - self._utils[-1][0] >= MOMENTS_STEP_S:
            self._utils.append((t, sample.util_pct))
        while self._utils[0][0] <= t - max(WINDOW_S, LEAST_SEEN * dt):
            self._utils.popleft()
        self.moments = has_moments([util for _, util in self._utils])
        least_s = max(MOMENTS_S, LEAST_MOMENTS * dt) if self.moments else LEAST_S
        self._part.append(sample)
        for row in sample.workers:
            if row.resolved_by in PROOFS:
                if row.key not in self._proven:
                    # What is proven now also held before the proof: the first looks at sockets take a while.
                    self.intervals = deque(
                        [interval.proven(row.key) for interval in self.intervals]
                    )
                self._proven[row.key] = t
        if sum([s.dt for s in self._part]) < least_s - 1e-3:
            return
        self._parts.append(self._part)
        self._part = []
        if sum([s.looks for part in self._parts for s in part]) >= LEAST_LOOKS:
            self._proven = {key: seen for key, seen in self._proven.items() if t - seen <= WINDOW_S}
            self.intervals.append(interval_of(self._parts, self._proven))
            self._parts = []
            while (
                len(self.intervals) > LEAST_INTERVALS
                and self.intervals[0].end <= t - WINDOW_S + EPSILON_S
            ):
                self.intervals.popleft()

    def keep_after(self, t: float) -> None:
        """Drop intervals that ended up to Unix time ``t``."""
        while self.intervals and self.intervals[0].end <= t + EPSILON_S:
            self.intervals.popleft()

    @property
    def says_something(self) -> bool:
        """True if there are enough intervals."""
        return len(self.intervals) >= LEAST_INTERVALS
