"""How long a batch takes, measured so that it means something.

While nobody takes batches, workers fill their queues: the first batches then cost nothing (measured: 13 times too fast
over the first ten). So the queues are emptied first, and then whole rounds of the workers are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from statistics import median
from typing import Any

from msgspec import Struct

LEAST_BLOCKS = 8
LEAST_S = 0.5
MOST_S = 4.0
ERROR_PCT = 3.0
"""A measurement ends when half of the 95 % interval of the mean, in percent of it, is below this. With fewer blocks, or
in less time, a few that agree by chance would end it."""
_T95 = {3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 10: 2.23, 12: 2.18, 15: 2.13, 20: 2.09, 30: 2.04}
"""Student's t for 95 % by degrees of freedom."""
TAKES = 16
LEAST_TAKES = 4
TAKING_S = 0.5
MOST_TAKING_S = 2.0
"""If a loader is too slow for the fewest takes within this time, the cost of taking is not measured."""
SLACK = 1.5
"""A pause this many times as long as a loader needs for what was taken refills its queue."""


class Stretch(Struct, frozen=True):
    """Seconds to the first batch, the mean seconds a batch, half its 95 % interval in percent, and of how many.

    ``take_s`` is what the loop waits for a batch that is ready, in seconds; None where that was not measured.
    """

    first_s: float
    batch_s: float
    error_pct: float
    batches: int
    take_s: float | None = None


class Empty(Exception):
    """The loader gives no batch at all."""


def measure(
    begin: Callable[[], Iterator[Any]],
    workers: int,
    prefetch: int,
    clock: Callable[[], float],
    drained: Callable[[], None] = lambda: None,
    most_s: float = MOST_S,
    timed: Callable[[], None] = lambda: None,
    pause: Callable[[float], None] | None = None,
) -> Stretch:
    """Time a loader; ``begin`` makes a new pass over it. Raises Empty, and what the loader raises.

    ``drained`` is called when the queues are empty and the timing begins, ``timed`` when it is over. Passes that end
    are restarted: their first batches are not part of any block. With ``pause``, which waits so many seconds, the cost
    of taking a batch while the queue is full is then measured as well.
    """
    started = clock()
    batches = _Passes(begin)
    batches.take()
    first_s = clock() - started
    waiting = workers * prefetch + 2
    limit = clock() + max(most_s, 2.0 * first_s)
    taken = 0
    while taken < waiting and clock() < limit:
        batches.take()
        taken += 1
    drained()
    size = max(1, workers)
    times: list[float] = []
    begun = clock()
    while not _is_enough(times, clock() - begun, most_s):
        times.append(_block(batches, size, clock))
    batch_s = sum(times) / len(times)
    timed()
    take_s = None if pause is None else _taking_s(batches, batch_s, waiting, clock, pause)
    return Stretch(first_s, batch_s, _interval(times), len(times) * size, take_s)


def _taking_s(
    batches: _Passes, batch_s: float, waiting: int, clock: Callable[[], float], pause: Callable[[float], None]
) -> float | None:
    """What a loop waits for a batch that is ready: the median over takes after pauses, as after the step of a job,
    that leave the workers more time than they need for one."""
    between = SLACK * batch_s
    if LEAST_TAKES * between > MOST_TAKING_S:
        return None
    pause(min(TAKING_S, between * waiting))
    took = []
    for _ in range(max(LEAST_TAKES, min(TAKES, int(TAKING_S / between) if between > 0.0 else TAKES))):
        pause(between)
        before, begun = batches.passes, clock()
        batches.take()
        if batches.passes == before:
            took.append(clock() - begun)
    return median(took) if len(took) >= LEAST_TAKES else None


def _is_enough(times: list[float], spent_s: float, most_s: float) -> bool:
    """Whether timing ends: precise enough, or out of time. It also ends for batches so slow that a few rounds take four
    times as long as other loaders do in all."""
    if not times or spent_s < LEAST_S:
        return False
    if len(times) < LEAST_BLOCKS:
        return spent_s > 4.0 * most_s
    return spent_s >= most_s or _interval(times) <= ERROR_PCT


def _block(batches: _Passes, size: int, clock: Callable[[], float]) -> float:
    """Seconds a batch over one round of the workers. One in which a pass ended is timed again."""
    for _ in range(8):
        before, begun = batches.passes, clock()
        for _ in range(size):
            batches.take()
        spent = (clock() - begun) / size
        if batches.passes == before:
            return spent
    # Passes are shorter than a round: their beginning is this loader's normal speed.
    return spent


class _Passes:
    """Endless batches."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin
        self._iterator = begin()
        self._in_pass = 0
        self.passes = 0

    def take(self) -> None:
        while True:
            try:
                next(self._iterator)
            except StopIteration:
                if not self._in_pass:
                    raise Empty from None
                self._iterator, self._in_pass = self._begin(), 0
                self.passes += 1
                continue
            self._in_pass += 1
            return


def _error(times: list[float]) -> float:
    """The standard error of the mean, in percent of it."""
    n = len(times)
    if n < 2:
        return float("inf")
    mean = sum(times) / n
    variance = sum((t - mean) ** 2 for t in times) / (n - 1)
    return 100.0 * sqrt(variance / n) / mean if mean > 0.0 else 0.0


def _interval(times: list[float]) -> float:
    """Half of the 95 % interval of the mean, in percent of it."""
    return _t(len(times) - 1) * _error(times)


def _t(freedom: int) -> float:
    return next((t for most, t in sorted(_T95.items(), reverse=True) if freedom >= most), 4.3)
