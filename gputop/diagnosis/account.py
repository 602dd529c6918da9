"""One account per second: of a GPU's idle time, how much at least, and how much at most, was each cause's.

In a cell of time in which the GPU idled for the share ``i`` and a cause held for ``x``, both held together for at least
``max(0, x + i − 1)`` and at most ``min(x, i)`` of it (Fréchet), whatever they have to do with each other. Both are
summed over the window and divided by the sum of ``i``: waits that come in bursts are not averaged away.

With a few looks this would be no bound: of a main thread and a GPU that are independent one look a second gives 80 %
where the truth is 20 (simulated: util 75, polling 80 %). So a cell lasts at least a second and holds at least eight
looks; where util comes as single moments, all or nothing, it holds five of them and lasts five seconds; and what was
looked at enters the lower sum less one standard error of the whole window. What was counted, time on a core or
queued, needs none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import groupby, pairwise
from math import sqrt
from operator import add
from typing import NamedTuple

from msgspec import Struct

from gputop.diagnosis.feeder_window import DISK, LOCK, NETWORK, POLL, PROOFS, SLEEP, STATES, UNREAD, FeederRow
from gputop.diagnosis.window import SCALE, HostMeans

LEAST_S, LEAST_LOOKS = 1.0, 8
WINDOW_S = 30.0
MOMENTS_S, LEAST_MOMENTS = 5.0, 5
"""What a cell holds where util is read over less than the distance of its samples."""
NOTHING_PCT, ALL_PCT = 5.0, 95.0
MOMENTS = 0.9
"""Share of the samples that are all or nothing from which on they may be moments."""
BLOCKS, LEAST_SEEN, PAUSE = 0.5, 15, 3
"""With so many samples, fewer changes between all and nothing than this share of what independent ones would have, and
two idle runs of ``PAUSE`` samples, they are no moments: a job pauses for seconds [judged]."""
ERRORS, LEAST_IDLE = 3.0, 3
"""Where util comes as moments, a sum must have so many standard errors of its cells to spare, and so many of them must
have idle time [judged]."""
LEAST_CELLS = 2
"""Fewer say nothing; so many are kept, however long they are."""
MOSTLY, NO_LONGER = 0.5, 0.4
"""A cause is named from this lower sum on, and left below that one."""


class IdleAttribution(NamedTuple):
    """Of the GPU's idle time, the least share (0–1) in which it was so: the main thread's, the busiest feeder's, and
    that of any feeder at all; ``most_…`` are the greatest."""

    main_run: float = 0.0
    main_disk: float = 0.0
    main_network: float = 0.0
    main_write: float = 0.0
    main_sleep: float = 0.0
    main_fetch: float = 0.0
    """Waits for the network, or polls."""
    main_alone: float = 0.0
    """Runs, sleeps, or waits for something of its own: for no other process."""
    useful: float = 0.0
    """Runs, is queued, or waits for a disk or the network."""
    cpu: float = 0.0
    disk: float = 0.0
    network: float = 0.0
    outside: float = 0.0
    """Useful, or polls."""
    lock: float = 0.0
    sleep: float = 0.0
    lock_or_sleep: float = 0.0
    any_useful: float = 0.0
    any_cpu: float = 0.0
    any_disk: float = 0.0
    any_network: float = 0.0
    most_main_run: float = 1.0
    """From here on the greatest share."""
    most_disk: float = 0.0
    most_network: float = 0.0
    most_write: float = 0.0


_FIRST, _LAST = IdleAttribution._fields.index("useful"), IdleAttribution._fields.index("any_useful")
_GREATEST = ("most_main_run", "most_disk", "most_network", "most_write")
_OF_MAIN = ("main_disk", "main_network", "main_write", "main_sleep", "main_poll")
_PLACES = tuple(HostMeans._fields.index(name) for name in _OF_MAIN)
NOT_WAITED = (0.0,) * len(_OF_MAIN)
NO_FEEDER = [0.0] * STATES


class Interval(Struct):
    """Sums over the seconds of one cell: shares times seconds."""

    end: float = 0.0
    seconds: float = 0.0
    idle: float = 0.0
    looks: int = 0
    run: float = 0.0
    counted: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Seconds, idle and run of its last part. What was counted needs no looks, so a second of it is enough."""
    least_run: float = 0.0
    most_run: float = 0.0
    waits: tuple[float, ...] = NOT_WAITED
    samples: int = 0
    feeders: dict[int, list[float]] = {}
    """Percent, summed up over the samples."""
    closed: IdleAttribution = IdleAttribution()
    """Seconds, without the busiest feeder's."""

    def least(self, counted: float, waited: float) -> float:
        """Seconds that it was so, at least, while the GPU idled; both are sums of shares times seconds."""
        counted, waited = min(1.0, counted / self.seconds), waited / self.seconds
        rest = 1.0 - counted
        waited = min(rest, waited)
        if waited > 0.0:
            # Errors of n cells add up as √n, not n: each of them bears its part of the window's one standard error.
            # A window has few long cells: two errors there, and not none where all looks agree (Laplace).
            part, errors = waited / rest, sqrt(min(1.0, self.seconds / WINDOW_S))
            if self.seconds >= MOMENTS_S:
                part, errors = (part * self.looks + 1.0) / (self.looks + 2.0), 2.0
            waited = max(0.0, waited - errors * rest * sqrt(part * (1.0 - part) / self.looks))
        return max(0.0, (counted + waited - 1.0) * self.seconds + self.idle)

    def count(self, seconds: float, idle: float, run: float, least_s: float) -> bool:
        """Take counted time in; whether a part of at least ``least_s`` ends with it."""
        seconds, idle, run = self.counted[0] + seconds, self.counted[1] + idle, self.counted[2] + run
        ends = seconds >= least_s - 1e-3
        if ends:
            self.least_run += max(0.0, run + idle - seconds)
            self.most_run += min(run, idle)
        self.counted = (0.0, 0.0, 0.0) if ends else (seconds, idle, run)
        return ends

    def states(self, key: int) -> list[float]:
        """Seconds of a feeder in each state."""
        part = self.seconds / (100.0 * self.samples)
        return [part * value for value in self.feeders.get(key, NO_FEEDER)]

    def prove(self, key: int) -> bool:
        """Count the polls of a feeder as waits for the network; whether there were any."""
        states = list(self.feeders.get(key, NO_FEEDER))
        polled = states[POLL] + states[UNREAD]
        states[NETWORK] += polled
        states[POLL] = states[UNREAD] = 0.0
        if polled:
            self.feeders[key] = states
        return polled > 0.0

    def close(self) -> None:
        """Sum up what stays the same."""
        disk, network, write, sleep, poll = self.waits
        run, least, own = self.run, self.least, disk + network + write
        every = [key for key in self.feeders if key >= 0] or list(self.feeders)
        several = [self.states(key) for key in every] or [NO_FEEDER]
        useful = max([least(f[0] + f[1], f[DISK] + f[NETWORK]) for f in several])
        cpu, on_disk = least(max([f[0] + f[1] for f in several]), 0.0), least(0.0, max([f[DISK] for f in several]))
        on_network = least(0.0, max([f[NETWORK] for f in several]))
        self.closed = IdleAttribution(
            main_run=self.least_run, main_disk=least(0.0, disk), main_network=least(0.0, network),
            main_write=least(0.0, write), main_sleep=least(0.0, sleep), main_fetch=least(0.0, network + poll),
            main_alone=least(run, own + sleep), any_useful=useful, any_cpu=cpu, any_disk=on_disk,
            any_network=on_network, most_main_run=self.most_run, most_disk=min(disk, self.idle),
            most_network=min(network, self.idle), most_write=min(write, self.idle),
        )  # fmt: skip

    def of(self, feeder: int) -> tuple[float, ...]:
        """Seconds of one feeder, in the order of ``Filled`` from ``useful`` on."""
        f, least = self.states(feeder), self.least
        cpu, wait = f[0] + f[1], f[DISK] + f[NETWORK]
        return (
            least(cpu, wait), least(cpu, 0.0), least(0.0, f[DISK]), least(0.0, f[NETWORK]), least(cpu, wait + f[POLL]),
            least(0.0, f[LOCK]), least(0.0, f[SLEEP]), least(0.0, f[LOCK] + f[SLEEP]),
        )  # fmt: skip


class Account:
    """The cells of one GPU, of the last ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._cells: deque[Interval] = deque()
        self._open = Interval()
        self._utils: deque[tuple[float, float]] = deque()
        self._named: frozenset[str] = frozenset()
        self._moments = False
        self._proven: set[int] = set()
        """Feeders whose polls have been seen to be waits for the network."""
        self._found: tuple[int | None, tuple[IdleAttribution, frozenset[str]]] | None = None
        """The account that was given last and whose it was; None once its cells have changed, or how they are read."""

    def add(self, t: float, dt: float, util_pct: float, looks: int, main: HostMeans, rows: Iterable[FeederRow]) -> None:
        """Take one sample in, of ``dt`` seconds. ``main`` is in millionths of a percent, as a row of the window."""
        self._utils.append((t, util_pct))
        while self._utils[0][0] <= t - max(self._seconds, LEAST_SEEN * dt):
            self._utils.popleft()
        moments = self._has_moments()
        if moments != self._moments:
            self._moments, self._found = moments, None
        least_s = max(MOMENTS_S, LEAST_MOMENTS * dt) if self._moments else LEAST_S
        cell, idle, run = self._open, dt * (1.0 - util_pct / 100.0), dt * (main.main or 0.0) / (100.0 * SCALE)
        ends = cell.count(dt, idle, run, least_s)
        cell.end = t
        cell.seconds += dt
        cell.idle += idle
        cell.run += run
        cell.looks += looks
        part = dt / (100.0 * SCALE)
        cell.waits = tuple(map(add, cell.waits, [part * (main[place] or 0.0) for place in _PLACES]))
        cell.samples += 1
        for row in rows:
            cell.feeders[row.key] = list(map(add, cell.feeders.get(row.key, NO_FEEDER), row.values))
            if row.by in PROOFS and row.key not in self._proven:
                # What is proven now also held before the proof: the first looks at sockets take a while.
                self._proven.add(row.key)
                for past in self._cells:
                    if past.prove(row.key):
                        past.close()
                cell.prove(row.key)
                self._found = None
        if ends and cell.looks >= LEAST_LOOKS:
            cell.close()
            self._cells.append(cell)
            self._open, self._found = Interval(), None
            # The least number of them is kept, however old.
            while len(self._cells) > LEAST_CELLS and self._cells[0].end <= t - self._seconds + 0.0005:
                self._cells.popleft()

    def _has_moments(self) -> bool:
        """Whether util comes as single moments: all or nothing, by turns as quick as chance has them."""
        values = [util for _, util in self._utils]
        high = [util >= ALL_PCT for util in values if util <= NOTHING_PCT or util >= ALL_PCT]
        part = sum(high) / max(1, len(high))
        if len(high) < MOMENTS * len(values) or part in (0.0, 1.0):
            return False
        by_chance = 2.0 * part * (1.0 - part) * (len(high) - 1)
        changes = sum([a != b for a, b in pairwise(high)])
        pauses = sum([not is_high and len(list(run)) >= PAUSE for is_high, run in groupby(high)])
        return len(high) < LEAST_SEEN or changes >= BLOCKS * by_chance or pauses < 2

    @property
    def says_something(self) -> bool:
        """Whether there are enough cells."""
        return len(self._cells) >= LEAST_CELLS

    def restart(self, seconds: float) -> None:
        """Drop what is older, whatever that leaves."""
        end = self._open.end or (self._cells[-1].end if self._cells else 0.0)
        while self._cells and self._cells[0].end <= end - seconds + 0.0005:
            self._cells.popleft()
        self._found = None

    def filled(self, busiest: int | None) -> tuple[IdleAttribution, frozenset[str]]:
        """The account, with that of the busiest feeder by its key, and which of it is most of the idle time."""
        if self._found is None or self._found[0] != busiest:
            self._found = busiest, self._add_up(busiest)
        return self._found[1]

    def _add_up(self, busiest: int | None) -> tuple[IdleAttribution, frozenset[str]]:
        cells = self._cells
        idle = sum([cell.idle for cell in cells])
        if not self.says_something or idle <= 0.0:
            return IdleAttribution(), frozenset()
        rows = [cell.closed if busiest is None else cell.closed[:_FIRST] + cell.of(busiest) + cell.closed[_LAST:]
                for cell in cells]  # fmt: skip
        n, shares = sum([cell.idle > 0.0 for cell in cells]), []
        for name, seconds in zip(IdleAttribution._fields, zip(*rows, strict=True), strict=True):
            share = sum(seconds) / idle
            if self._moments and name not in _GREATEST:
                # Chance alone has some cells idle, and with them a bound: what is a cause is so in all of them.
                squares = sum([(part - share * cell.idle) ** 2 for part, cell in zip(seconds, cells, strict=True)])
                share -= ERRORS * sqrt(squares) / idle if n >= LEAST_IDLE else share
            shares.append(min(1.0, max(0.0, round(share, 9))))
        found = IdleAttribution(*shares)
        self._named = frozenset(
            name
            for name, share in zip(IdleAttribution._fields, found, strict=True)
            if share >= (NO_LONGER if name in self._named else MOSTLY)
        )
        return found, self._named
