"""The window: sums over the last 30 s, kept up to date sample by sample, so that a tick costs the same at any length.

Values are kept as integers in millionths. Sums of them never drift, and a mean of equal values is that value exactly:
the thresholds of the flags are strict, and 80.0 must not become 79.99999.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

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


MOST: Final = 1e18
"""Far beyond any value of the catalogue; what exceeds it, or is not a number, counts as not measured."""


def scaled(value: float | None) -> int | None:
    """A value in millionths."""
    return round(value * SCALE) if value is not None and value < MOST else None


class Window:
    """Rows of the last ``seconds`` with their sums and counts by column."""

    __slots__ = ("_counts", "_means", "_rows", "_seconds", "_sums")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._rows: deque[tuple[float, Row]] = deque()
        self._sums = [0] * COLUMNS
        self._counts = [0] * COLUMNS
        self._means: Means | None = None
        """The means of all columns; None once a sum or a count has changed."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def oldest_t(self) -> float:
        """Time of the oldest sample kept."""
        return self._rows[0][0]

    def push(self, t: float, row: Row) -> None:
        """Add a sample and drop those older than the window."""
        rows, sums, counts = self._rows, self._sums, self._counts
        oldest = rows[0] if rows else None
        rows.append((t, row))
        if oldest is not None and oldest[0] <= self._horizon(self._seconds) < rows[1][0] and oldest[1] == row:
            rows.popleft()
            return
        self._means = None
        for i, value in enumerate(row):
            if value is not None:
                sums[i] += value
                counts[i] += 1
        self.keep(self._seconds)

    def keep(self, seconds: float) -> None:
        """Drop what is more than ``seconds`` older than the latest sample."""
        rows, sums, counts = self._rows, self._sums, self._counts
        horizon = self._horizon(seconds)
        while rows[0][0] <= horizon:
            self._means = None
            for i, value in enumerate(rows.popleft()[1]):
                if value is not None:
                    sums[i] -= value
                    counts[i] -= 1

    def _horizon(self, seconds: float) -> float:
        # Half a millisecond: Unix times carry a rounding error, and the sample 30 s ago must not count by chance.
        return self._rows[-1][0] - seconds + 0.0005

    def latest(self, seconds: float, columns: Sequence[int]) -> list[tuple[float, float] | None]:
        """Per column the mean of the last ``seconds`` and of what came before, in its unit; None without both."""
        found: list[tuple[float, float] | None] = []
        horizon = self._horizon(seconds)
        for column in columns:
            total = count = 0
            for t, row in reversed(self._rows):
                if t <= horizon:
                    break
                value = row[column]
                if value is not None:
                    total += value
                    count += 1
            others = self._counts[column] - count
            unit = _UNITS[column]
            found.append(
                (total / (count * unit), (self._sums[column] - total) / (others * unit)) if count and others else None
            )
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self._means = None
        self._sums = [0] * COLUMNS
        self._counts = [0] * COLUMNS

    def forget(self, *columns: int) -> None:
        """Drop a column's past: two sources of one metric never mix, and a broken counter's zeros do not count."""
        self._rows = deque(
            (t, tuple(None if i in columns else value for i, value in enumerate(row))) for t, row in self._rows
        )
        self._means = None
        for column in columns:
            self._sums[column] = self._counts[column] = 0

    def mean(self, column: int) -> float | None:
        """The mean of a column, or None where less than half of the samples have it."""
        count = self._counts[column]
        return self._sums[column] / (count * _UNITS[column]) if count and count >= len(self._rows) / 2.0 else None

    def means(self) -> Means:
        """The mean of every column, shares as 0–1; None where less than half of the samples have it."""
        if self._means is None:
            half = len(self._rows) / 2.0
            self._means = tuple(
                [
                    total / (count * unit) if count and count >= half else None
                    for total, count, unit in zip(self._sums, self._counts, _UNITS, strict=True)
                ]
            )
        return self._means

    def total(self, column: int) -> float:
        """The sum of a column in its own unit."""
        return self._sums[column] / SCALE

    def count(self, column: int) -> int:
        """How many samples have a column."""
        return self._counts[column]
