"""How certain a difference between two recordings is: the means of their columns, with 95 % intervals.

Neighbouring columns of a job resemble each other, so each mean stands on as many independent columns as its
autocorrelation leaves: n (1 - r) / (1 + r) with the lag-one correlation r (Bayley and Hammersley 1946, for an AR(1)).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from statistics import fmean

from msgspec import Struct

from gputop.report.lanes import Pictured

Z95 = 1.96
LEAST_POINTS = 0.5
"""A smaller difference of means rounds to none."""
LEAST_COLUMNS = 8
"""With fewer independent columns the error of a mean cannot be estimated."""


class MeanChange(Struct, frozen=True):
    """A mean before and after, percent, and half the width of the 95 % interval of the difference, or None."""

    measure: str
    before: float
    after: float
    within: float | None

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out no change."""
        return self.within is not None and abs(self.after - self.before) > self.within


def change(before: Pictured, after: Pictured) -> MeanChange | None:
    """SM activity where both have it, else util; over all GPUs. None where either has nothing."""
    for measure in ("SM", "util"):
        pair = [_series(one, measure) for one in (before, after)]
        if all(pair):
            errors = [_error(series) for series in pair]
            spread = [error for error in errors if error is not None]
            within = Z95 * sqrt(sum(error * error for error in spread)) if len(spread) == len(errors) else None
            return MeanChange(measure, fmean(pair[0]), fmean(pair[1]), within)
    return None


def sentence(found: MeanChange | None) -> str:
    """What improved and how sure that is."""
    if found is None:
        return "How certain that is cannot be told: nothing was measured in one of them"
    what = "SM activity" if found.measure == "SM" else "Util (SM activity was not measured in both)"
    moved = found.after - found.before
    text = f"{what} went from {found.before:.0f} to {found.after:.0f} %"
    if found.within is None:
        return f"{text}; too short to tell how certain that is"
    if abs(moved) < LEAST_POINTS:
        return f"{what} stayed at {found.after:.0f} %, ± {found.within:.0f} points at 95 % confidence"
    sure = "sure" if found.is_sure else "not sure: it may be chance"
    return f"{text}: {moved:+.0f} ± {found.within:.0f} points at 95 % confidence, {sure}"


def _series(one: Pictured, measure: str) -> list[float]:
    """Column by column the mean over the GPUs that have a value."""
    rows: list[float] = []
    for columns in zip(*one.lanes.values(), strict=True):
        values = [
            value
            for column in columns
            if column is not None and (value := column.sm_pct if measure == "SM" else column.util_pct) is not None
        ]
        if values:
            rows.append(fmean(values))
    return rows


def _error(series: Sequence[float]) -> float | None:
    """The standard error of a mean of columns that resemble their neighbours."""
    n, mean = len(series), fmean(series)
    if n < LEAST_COLUMNS:
        return None
    square = sum((value - mean) ** 2 for value in series)
    if square == 0.0:
        return 0.0
    r = sum((a - mean) * (b - mean) for a, b in pairwise(series)) / square
    independent = n * (1.0 - min(0.99, max(0.0, r))) / (1.0 + max(0.0, r))
    return sqrt(square / (n - 1) / independent) if independent >= LEAST_COLUMNS / 2 else None
