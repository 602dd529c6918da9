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
from itertools import groupby, pairwise
from math import sqrt
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.host.workers import PROOFS
from gputop.diagnosis.window.host_activity import (
    DISK,
    LOCK,
    NETWORK,
    POLL,
    SLEEP,
    STATES,
    UNREAD,
    FeederRow,
)
from gputop.diagnosis.window.host_side import HostMeans
from gputop.diagnosis.window.window import EPSILON_S, WINDOW_S

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


class IdleAttribution(NamedTuple):
    """Bounds, 0 to 1, of how much idle time each cause explains.

    Lower bounds; ``most_*`` are upper ones.
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
    """First of the fields of any worker.

    They cover all workers if these take turns at a lock.
    """
    any_cpu: float = 0.0
    any_disk: float = 0.0
    any_network: float = 0.0
    most_main_run: float = 1.0
    """First of the upper bounds."""
    most_disk: float = 0.0
    most_network: float = 0.0
    most_write: float = 0.0
    most_fetch: float = 0.0
    useful: float = 0.0
    """First of the busiest worker's fields: useful time.

    The worker runs, is queued, or waits for a disk or the network.
    """
    cpu: float = 0.0
    disk: float = 0.0
    network: float = 0.0
    outside: float = 0.0
    """The busiest worker is useful, or polls."""
    lock: float = 0.0
    sleep: float = 0.0
    lock_or_sleep: float = 0.0


_SEEN_OF_MAIN = frozenset(
    ("main_disk", "main_network", "main_write", "main_sleep", "main_fetch", "main_alone")
)
_NO_WORKER = (0.0,) * STATES


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


class Interval(Struct, frozen=True):
    """Sums over some samples (shares times seconds) and their bounds."""

    end: float
    seconds: float
    idle: float
    looks: int
    run: float
    least_run: float
    most_run: float
    waits: tuple[float, ...]
    """Main thread: disk, network, write, sleep, poll."""
    workers: Mapping[int, tuple[float, ...]]
    """Seconds of each worker in each state."""
    bounds: tuple[float, ...] = ()
    """Seconds, without the busiest worker's."""

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

    def of_worker(self, key: int) -> tuple[float, ...]:
        """Bounds of one worker, from ``useful`` on."""
        w, bound = self.workers.get(key, _NO_WORKER), self.lower_bound
        cpu, wait = w[0] + w[1], w[DISK] + w[NETWORK]
        return (
            bound(cpu, wait),
            bound(cpu, 0.0),
            bound(0.0, w[DISK]),
            bound(0.0, w[NETWORK]),
            bound(cpu, wait + w[POLL]),
            bound(0.0, w[LOCK]),
            bound(0.0, w[SLEEP]),
            bound(0.0, w[LOCK] + w[SLEEP]),
        )

    def bounded(self) -> Interval:
        """The interval with its bounds."""
        disk, network, write, sleep, poll = self.waits
        bound = self.lower_bound
        every = (
            [w for key, w in self.workers.items() if key >= 0]
            or list(self.workers.values())
            or [_NO_WORKER]
        )
        if _take_turns(every, self.seconds):
            every = [tuple([min(self.seconds, sum(column)) for column in zip(*every, strict=True)])]
        seen = [bound(0.0, wait) for wait in (disk, network, write, sleep, network + poll)]
        bounds = (
            self.least_run, *seen, bound(self.run, disk + network + write + sleep),
            max([bound(w[0] + w[1], w[DISK] + w[NETWORK]) for w in every]),
            bound(max([w[0] + w[1] for w in every]), 0.0), bound(0.0, max([w[DISK] for w in every])),
            bound(0.0, max([w[NETWORK] for w in every])), self.most_run,
            *[min(wait, self.idle) for wait in (disk, network, write, network + poll)],
        )  # fmt: skip
        return replace(self, bounds=bounds)

    def proven(self, key: int) -> Interval:
        """The interval with a worker's polls counted as network waits."""
        states = self.workers.get(key, _NO_WORKER)
        if not states[POLL] + states[UNREAD]:
            return self
        return replace(self, workers={**self.workers, key: _as_network(states)}).bounded()


def _as_network(states: Sequence[float]) -> tuple[float, ...]:
    values = list(states)
    values[NETWORK] += values[POLL] + values[UNREAD]
    values[POLL] = values[UNREAD] = 0.0
    return tuple(values)


def _take_turns(workers: Sequence[Sequence[float]], seconds: float) -> bool:
    """True if workers share one lock and work one at a time."""
    useful = [w[0] + w[1] + w[DISK] + w[NETWORK] for w in workers]
    return (
        len(workers) > 1
        and 0.0 < sum(useful) <= TURNS_MOST * seconds
        and all(
            w[LOCK] >= TURNS_LOCK * (seconds - part)
            for w, part in zip(workers, useful, strict=True)
        )
    )


def interval_of(parts: Sequence[Sequence[IdleSample]], proven: Iterable[int] = ()) -> Interval:
    """Sum samples up.

    ``proven``: keys of workers whose polls are waits for the network. Each part is long enough to bound the main
    thread's running, which is counted and needs no looks.
    """
    samples = [sample for part in parts for sample in part]
    seconds = sum([s.dt for s in samples])
    waits = [
        [
            s.dt * (x or 0.0)
            for x in (m.main_disk, m.main_network, m.main_write, m.main_sleep, m.main_poll)
        ]
        for s in samples
        for m in (s.main,)
    ]
    idle = run = least_run = most_run = 0.0
    for part in parts:
        part_idle = sum([s.dt * (1.0 - s.util_pct / 100.0) for s in part])
        part_run = sum([s.dt * (s.main.main or 0.0) for s in part])
        idle, run = idle + part_idle, run + part_run
        least_run += max(0.0, part_run + part_idle - sum([s.dt for s in part]))
        most_run += min(part_run, part_idle)
    rows: dict[int, list[tuple[float, ...]]] = {}
    for sample in samples:
        for row in sample.workers:
            rows.setdefault(row.key, []).append(row.values)
    share = seconds / (100.0 * len(samples))
    workers = {
        key: tuple([share * sum(column) for column in zip(*values, strict=True)])
        for key, values in rows.items()
    }
    workers.update({key: _as_network(workers[key]) for key in proven if key in workers})
    return Interval(
        samples[-1].t,
        seconds,
        idle,
        sum([s.looks for s in samples]),
        run,
        least_run,
        most_run,
        tuple(map(sum, zip(*waits, strict=True))),
        workers,
    ).bounded()


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


def idle_attribution(
    intervals: Sequence[Interval],
    busiest: int | None,
    *,
    moments: bool,
    named: frozenset[str] = frozenset(),
) -> tuple[IdleAttribution, frozenset[str]]:
    """Return bounds over the window and the causes above half.

    ``busiest``: key of the worker that decides. ``named``: causes named before, which are left at a lower sum than they
    are entered.
    """
    idle = sum([interval.idle for interval in intervals])
    if len(intervals) < LEAST_INTERVALS or idle <= 0.0:
        return IdleAttribution(), frozenset()
    rows = [i.bounds if busiest is None else i.bounds + i.of_worker(busiest) for i in intervals]
    mostly = OF_SHORT if sum([interval.seconds for interval in intervals]) < SHORT_S else MOSTLY
    chance = SEEN_ERRORS * min(1.0, _variation(intervals) / VARIES)
    n, shares, now = sum([interval.idle > 0.0 for interval in intervals]), list[float](), set[str]()
    for name, seconds in zip(IdleAttribution._fields, zip(*rows, strict=True), strict=False):
        share, error = sum(seconds) / idle, 0.0
        if moments and not name.startswith("most_"):
            # Chance alone has some intervals idle, and with them a bound: a cause holds in all of them.
            share -= ERRORS * _error(seconds, share, intervals) if n >= LEAST_IDLE else share
        elif name in _SEEN_OF_MAIN and share >= NO_LONGER:
            error = chance * _error(seconds, share, intervals)
        shares.append(min(1.0, max(0.0, round(share, 9))))
        if shares[-1] - error >= (NO_LONGER if name in named else mostly):
            now.add(name)
    return IdleAttribution(*shares), frozenset(now)


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
