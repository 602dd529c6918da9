"""Whether a cost grows along a straight line: least squares, and the words for how well it fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

STRAIGHT_R2 = 0.995
STRAIGHT_PCT = 3.0
"""Also straight is what keeps this close to its line: a cost that hardly grows has no R² worth the name."""


@dataclass(frozen=True, slots=True)
class Fit:
    """``y ≈ base + slope · x``. ``r2`` is the share of the variance that the line explains; None when y never varies.

    ``off_pct`` is how far the point at ``off_x`` lies from the line, of all the farthest, and ``noise_pct`` how far
    the samples of one point lie from their middle, both in percent of the largest y. ``late`` is the slope between
    the last two points by the slope of the line; None for a flat line.
    """

    slope: float
    base: float
    r2: float | None
    off_pct: float
    off_x: float
    noise_pct: float
    late: float | None

    @property
    def straight(self) -> bool:
        """Whether the line explains the points, as well as their own noise allows."""
        near = abs(self.off_pct) <= max(STRAIGHT_PCT, self.noise_pct)
        return near or (self.r2 is not None and self.r2 >= STRAIGHT_R2)

    def words(self, x_unit: str) -> str:
        verdict = "a straight line"
        if not self.straight:
            verdict = "NOT a straight line"
            if self.late is not None:
                verdict += f" (its last stretch is {self.late:.2f} times as steep)"
        explained = "" if self.r2 is None else f"R² {self.r2:.3f}, "
        off = f"farthest off {self.off_pct:+.1f} % of the largest, at {self.off_x:g} {x_unit}"
        return f"{verdict}: {explained}{off}; runs differ by ±{self.noise_pct:.1f} %"


def fit(points: Sequence[tuple[float, float]], noise: float = 0.0) -> Fit:
    """The line through (x, y) points in the order of x, two different x at least.

    ``noise`` is how far samples of one point lie from their middle, in the unit of y. Raises ZeroDivisionError when
    all x are the same.
    """
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    base = mean_y - slope * mean_x
    off = [(y - base - slope * x, x) for x, y in points]
    variance = sum((y - mean_y) ** 2 for _, y in points)
    r2 = 1 - sum(error**2 for error, _ in off) / variance if variance > 0 else None
    farthest, at = max(off, key=lambda pair: abs(pair[0]))
    percent = 100 / (max(abs(y) for _, y in points) or 1.0)
    (before_x, before_y), (last_x, last_y) = points[-2:]
    late = (last_y - before_y) / (last_x - before_x) / slope if slope else None
    return Fit(slope, base, r2, farthest * percent, at, noise * percent, late)
