"""Time per batch of a loader, measured with empty queues.

While no batches are taken, workers fill their queues, and the first batches then cost nothing (measured: 13 times too
fast over the first ten). So the queues are emptied first, and then whole rounds of the workers are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from msgspec import Struct

MIN_BLOCKS = 8
MIN_S = 0.5
MAX_S = 4.0
ERROR_PCT = 3.0
"""A measurement ends when half of the 95 % interval of the mean, in percent of the mean, is below this.

Fewer blocks, or less time, could agree by chance.
"""
_T95 = {
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
    10: 2.23,
    12: 2.18,
    15: 2.13,
    20: 2.09,
    30: 2.04,
}
"""Student's t for 95 % by degrees of freedom."""


class BatchTiming(Struct, frozen=True):
    """Seconds to the first batch, mean seconds per batch, half of its 95 % interval in percent, number of batches."""

    first_s: float
    batch_s: float
    error_pct: float
    batches: int


class EmptyLoaderError(Exception):
    """The loader yields no batch at all."""


def measure(
    begin: Callable[[], Iterator[Any]],
    workers: int,
    prefetch: int,
    clock: Callable[[], float],
    drained: Callable[[], None] = lambda: None,
) -> BatchTiming:
    """Time a loader; ``begin`` starts a new pass over its batches.

    ``drained`` is called when the queues are empty and timing begins. A pass that ends is restarted; its first batches
    are not part of any block. Raises EmptyLoaderError, and whatever the loader raises.
    """
    started = clock()
    batches = _EndlessPasses(begin)
    batches.take()
    first_s = clock() - started
    limit = clock() + max(MAX_S, 2.0 * first_s)
    for _ in range(workers * prefetch + 2):
        if clock() >= limit:
            break
        batches.take()
    drained()
    size = max(1, workers)
    times: list[float] = []
    begun = clock()
    while not _is_enough(times, clock() - begun):
        times.append(_block_s(batches, size, clock))
    return BatchTiming(first_s, fmean(times), _interval_pct(times), len(times) * size)


def _is_enough(times: list[float], spent_s: float) -> bool:
    """True if the mean is precise enough, or time is up; slow batches get four times as long for the first blocks."""
    if not times or spent_s < MIN_S:
        return False
    if len(times) < MIN_BLOCKS:
        return spent_s > 4.0 * MAX_S
    return spent_s >= MAX_S or _interval_pct(times) <= ERROR_PCT


def _block_s(batches: _EndlessPasses, size: int, clock: Callable[[], float]) -> float:
    """Return seconds per batch over one round of the workers; a round in which a pass ended is repeated."""
    for _ in range(8):
        before, begun = batches.passes, clock()
        for _ in range(size):
            batches.take()
        spent = (clock() - begun) / size
        if batches.passes == before:
            return spent
    # Passes are shorter than a round: their beginning is this loader's normal speed.
    return spent


class _EndlessPasses:
    """Batches without end: a new pass begins where one ends."""

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
                    raise EmptyLoaderError from None
                self._iterator, self._in_pass = self._begin(), 0
                self.passes += 1
                continue
            self._in_pass += 1
            return


def _interval_pct(times: list[float]) -> float:
    """Return half of the 95 % interval of the mean, in percent of the mean."""
    n = len(times)
    if n < 2:
        return float("inf")
    t95 = next((t for freedom, t in sorted(_T95.items(), reverse=True) if n > freedom), 4.3)
    mean = fmean(times)
    return 100.0 * t95 * stdev(times, mean) / sqrt(n) / mean if mean > 0.0 else 0.0
