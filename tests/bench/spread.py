"""A figure that is noisy: the middle of its samples and how far they lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of ``count`` samples, all in the unit of the samples."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Raises StatisticsError when there are no samples."""
        return cls(statistics.median(samples), min(samples), max(samples), len(samples))

    def text(self, decimals: int) -> str:
        """``12.3 (11.9–14.0)``; the range is left out where there is only one sample."""
        middle = f"{self.median:,.{decimals}f}"
        return middle if self.count == 1 else f"{middle} ({self.low:,.{decimals}f}–{self.high:,.{decimals}f})"
