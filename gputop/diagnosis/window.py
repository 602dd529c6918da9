"""The window: sums over the last 30 s, kept up to date sample by sample, so that a tick costs the same at any length.

Values are kept as integers in millionths. Sums of them never drift, and a mean of equal values is that value exactly:
the thresholds of the flags are strict, and 80.0 must not become 79.99999.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import add, and_, is_not, mul, sub
from typing import Final

from msgspec import Struct

SCALE: Final = 1e6

COLUMNS: Final = 36
(
    U, SM, OCC, TENSOR, FP32, FP64, DRAM, PCIE_RX, PCIE_TX, NVLINK, POWER, CLOCK, LOUD, THERMAL, BRAKE, CAPPED,
    MAIN, MAIN_DISK, WORKERS, RUNNING, QUEUED, DISK, NETWORK, LOADERS, TREE, READ, WRITE, THROTTLED, POOL,
    MAIN_NETWORK, MAIN_LOCK, MAIN_SLEEP, MAIN_POLL, MAIN_PIPE, LISTENS, MAIN_QUEUED,
) = range(COLUMNS)  # fmt: skip

_SHARES = frozenset(
    (
        PCIE_RX, PCIE_TX, NVLINK, POWER, CLOCK, MAIN, MAIN_DISK, WORKERS, RUNNING, QUEUED, DISK, NETWORK, TREE,
        THROTTLED, POOL, MAIN_NETWORK, MAIN_LOCK, MAIN_SLEEP, MAIN_POLL, MAIN_PIPE, LISTENS,
        MAIN_QUEUED,
    )
)  # fmt: skip
_UNITS = tuple(100.0 * SCALE if column in _SHARES else SCALE for column in range(COLUMNS))
"""Columns of shares hold percent and are read as shares 0–1."""

Row = tuple[int | None, ...]
"""One sample: per column the value in millionths, or None where it was not measured."""
Means = tuple[float | None, ...]
"""Per column the mean over the window in its unit, or None where it is not known."""


_NOTHING: Final = (None,) * COLUMNS

MOST: Final = 1e18
"""Far beyond any value of the catalogue; what exceeds it, or is not a number, counts as not measured."""


def scaled(value: float | None) -> int | None:
    """A value in millionths."""
    return round(value * SCALE) if value is not None and value < MOST else None


class _Sample(Struct, frozen=True, gc=False):
    """One sample of the window: 0 stands where a value was not measured, and ``known`` tells which were."""

    t: float
    values: tuple[int, ...]
    known: tuple[bool, ...]


class Window:
    """Samples of the last ``seconds`` with their sums and counts by column."""

    __slots__ = ("_counts", "_divisors", "_means", "_samples", "_seconds", "_sums")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[_Sample] = deque()
        self._sums = [0] * COLUMNS
        self._counts = [0] * COLUMNS
        self._means: Means | None = None
        """The means of all columns; None once a sum or a count has changed."""
        self._divisors: list[float | None] | None = None
        """What each sum is divided by, None where too few samples have the column; None once a count has changed."""

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def oldest_t(self) -> float:
        """Time of the oldest sample kept."""
        return self._samples[0].t

    def push(self, t: float, row: Row) -> None:
        """Add a sample and drop those older than the window."""
        samples = self._samples
        known = tuple(map(is_not, row, _NOTHING))
        if samples and samples[-1].known == known:
            known = samples[-1].known
        now = _Sample(t, tuple([value or 0 for value in row]), known)
        samples.append(now)
        if samples[0].t <= self._horizon(self._seconds) < samples[1].t:
            # One goes as one comes: mostly the same columns are known, and often nothing has changed at all.
            then = samples.popleft()
            if then.known != known:
                self._add_counts(add, known)
                self._add_counts(sub, then.known)
            if then.values != now.values:
                self._means = None
                self._sums = list(map(sub, map(add, self._sums, now.values), then.values))
            return
        self._means = None
        self._sums = list(map(add, self._sums, now.values))
        self._add_counts(add, known)
        self.keep(self._seconds)

    def _add_counts(self, operation: Callable[[int, int], int], known: tuple[bool, ...]) -> None:
        self._counts = list(map(operation, self._counts, known))
        self._means = self._divisors = None

    def keep(self, seconds: float) -> None:
        """Drop what is more than ``seconds`` older than the latest sample."""
        horizon = self._horizon(seconds)
        while self._samples[0].t <= horizon:
            then = self._samples.popleft()
            self._sums = list(map(sub, self._sums, then.values))
            self._add_counts(sub, then.known)

    def _horizon(self, seconds: float) -> float:
        # Half a millisecond: Unix times carry a rounding error, and the sample 30 s ago must not count by chance.
        return self._samples[-1].t - seconds + 0.0005

    def latest(self, seconds: float, columns: Sequence[int]) -> list[tuple[float, float] | None]:
        """Per column the mean of the last ``seconds`` and of what came before, in its unit; None without both."""
        found: list[tuple[float, float] | None] = []
        horizon = self._horizon(seconds)
        for column in columns:
            total = count = 0
            for sample in reversed(self._samples):
                if sample.t <= horizon:
                    break
                total += sample.values[column]
                count += sample.known[column]
            others = self._counts[column] - count
            unit = _UNITS[column]
            found.append(
                (total / (count * unit), (self._sums[column] - total) / (others * unit)) if count and others else None
            )
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._samples.clear()
        self._means = self._divisors = None
        self._sums = [0] * COLUMNS
        self._counts = [0] * COLUMNS

    def forget(self, *columns: int) -> None:
        """Drop a column's past: two sources of one metric never mix, and a broken counter's zeros do not count."""
        kept = [i not in columns for i in range(COLUMNS)]
        self._samples = deque(
            _Sample(sample.t, tuple(map(mul, sample.values, kept)), tuple(map(and_, sample.known, kept)))
            for sample in self._samples
        )
        self._means = self._divisors = None
        for column in columns:
            self._sums[column] = self._counts[column] = 0

    def mean(self, column: int) -> float | None:
        """The mean of a column, or None where less than half of the samples have it."""
        count = self._counts[column]
        return self._sums[column] / (count * _UNITS[column]) if count and count >= len(self) / 2.0 else None

    def means(self) -> Means:
        """The mean of every column, shares as 0–1; None where less than half of the samples have it."""
        if self._means is None:
            if self._divisors is None:
                half = len(self) / 2.0
                self._divisors = [
                    count * unit if count and count >= half else None
                    for count, unit in zip(self._counts, _UNITS, strict=True)
                ]
            self._means = tuple(
                [
                    None if divisor is None else total / divisor
                    for total, divisor in zip(self._sums, self._divisors, strict=True)
                ]
            )
        return self._means

    def total(self, column: int) -> float:
        """The sum of a column in its own unit."""
        return self._sums[column] / SCALE

    def count(self, column: int) -> int:
        """How many samples have a column."""
        return self._counts[column]
