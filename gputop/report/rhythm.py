"""The rhythm of a job as its GPU's util shows it: the length of a step or an epoch, when it is visible at all.

Most steps are shorter than a sample and leave no trace; None is the normal answer.
"""

from __future__ import annotations

from collections import deque
from math import sqrt

SAMPLES = 600
LEAST_SAMPLES = 60
LEAST_SPREAD_PCT = 10.0
LEAST_CORRELATION = 0.5
"""Of the series with itself one period later; the same bounds as for the correlation line of the diagnosis."""
LEAST_LAG = 3
LEAST_PERIODS = 3


class Rhythm:
    """The last samples of util."""

    def __init__(self) -> None:
        self.samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)

    def add(self, t: float, util_pct: float | None) -> None:
        """Add util at a Unix time; None is left out."""
        if util_pct is not None:
            self.samples.append((t, util_pct))


def rhythm_s(rhythm: Rhythm) -> float | None:
    """The period of util in seconds, by the first clear peak of its autocorrelation; None when there is none."""
    samples = rhythm.samples
    n = len(samples)
    if n < LEAST_SAMPLES:
        return None
    values = [value for _, value in samples]
    mean = sum(values) / n
    centred = [value - mean for value in values]
    power = sum(value * value for value in centred)
    if sqrt(power / n) < LEAST_SPREAD_PCT:
        return None
    lags = range(1, n // LEAST_PERIODS + 2)
    r = [1.0] + [sum(map(float.__mul__, centred, centred[lag:])) / power * n / (n - lag) for lag in lags]
    # Before its first fall below 0 the correlation is high only because the lag is short.
    fall = next((lag for lag in lags if r[lag] < 0.0), None)
    if fall is None:
        return None
    for lag in range(max(fall, LEAST_LAG), len(r) - 1):
        if r[lag] >= LEAST_CORRELATION and r[lag - 1] <= r[lag] > r[lag + 1]:
            return lag * (samples[-1][0] - samples[0][0]) / (n - 1)
    return None
