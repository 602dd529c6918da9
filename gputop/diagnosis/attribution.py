"""The numbers of the host panel: what filled a GPU's idle time, and whether its loaders move with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import sqrt
from operator import mul

from gputop.diagnosis.account import MOSTLY
from gputop.diagnosis.signals import WINDOW_S, Signals
from gputop.diagnosis.thresholds import IDLE
from gputop.diagnosis.types import Attribution

# The correlation line: whether GPU and loaders move together. Evidence beside a verdict, never its reason.
#
# In steady starvation the coefficient was about 0 at 10 Hz and +0.6 … +0.85 at 1 Hz, and a healthy GPU gave −0.91 out
# of one point of noise; hence the guards, and hence no rule reads this.

LEAST_PAIRS = 60
MOST_PAIRS = 120
LEAST_SPREAD = 10.0
"""Standard deviation, in points, that both series need: below it there is nothing to correlate."""
LEAST_R = 0.5
LEAST_Z = 2.6
"""Two-sided 1 % of a normal distribution, with Bartlett's variance for autocorrelated series."""
BARTLETT_LAGS = 10
REFRESH_SAMPLES = 10


class Correlation:
    """The last two minutes of (util, runnable loaders) in percent, and the line that they make."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[float, float]] = deque(maxlen=MOST_PAIRS)
        self._samples = 0
        self._worded = -REFRESH_SAMPLES
        self._words = ""

    def add(self, util_pct: float, loaders_pct: float) -> None:
        self._pairs.append((util_pct, loaders_pct))
        self._samples += 1

    def words(self) -> str:
        """The line for the screen, computed again every ten samples."""
        n = len(self._pairs)
        if n < LEAST_PAIRS:
            return f"too early to relate the loaders' work to the GPU's: {n} of {LEAST_PAIRS} samples"
        if self._samples - self._worded >= REFRESH_SAMPLES:
            self._worded = self._samples
            self._words = correlate([pair[0] for pair in self._pairs], [pair[1] for pair in self._pairs])
        return self._words


def correlate(gpu: Sequence[float], loaders: Sequence[float]) -> str:
    """The line for two series in percent: differenced, at lag 0 or with the loaders one sample ahead."""
    steady = "the loaders' work or the GPU's does not vary: nothing to relate"
    if min(_spread(gpu), _spread(loaders)) < LEAST_SPREAD:
        return steady
    x = [after - before for before, after in pairwise(loaders)]
    y = [after - before for before, after in pairwise(gpu)]
    best_r, best_z = max((_bartlett(x, y), _bartlett(x[:-1], y[1:])), key=lambda pair: abs(pair[0]))
    if abs(best_r) < LEAST_R or abs(best_z) <= LEAST_Z:
        return "no clear relation between the loaders' work and the GPU's"
    return "the loaders work while the GPU waits" if best_r < 0 else "loaders and GPU work at the same time"


def _spread(series: Sequence[float]) -> float:
    mean = sum(series) / len(series)
    return sqrt(sum([(value - mean) ** 2 for value in series]) / len(series))


def _bartlett(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Pearson's r and its z by Bartlett's formula, whose variance grows with both series' own persistence."""
    n = len(x)
    mean_x, mean_y = sum(x) / n, sum(y) / n
    dx, dy = [value - mean_x for value in x], [value - mean_y for value in y]
    var_x, var_y = _product(dx, dx), _product(dy, dy)
    if var_x <= 0.0 or var_y <= 0.0:
        return 0.0, 0.0
    r = _product(dx, dy) / sqrt(var_x * var_y)
    excess = 0.0
    for lag in range(1, BARTLETT_LAGS + 1):
        excess += (_product(dx, dx[lag:]) / var_x) * (_product(dy, dy[lag:]) / var_y)
    variance = max(1.0 + 2.0 * excess, 0.1) / n
    return r, r / sqrt(variance)


def _product(x: Sequence[float], y: Sequence[float]) -> float:
    """The sum of the products of two series, as far as the shorter one goes."""
    products: Iterable[float] = map(mul, x, y)
    return sum(products)


NOT_THIS = 0.35
"""Where a cause can have filled less than this of the idle time, it did not."""
IDLE_PCT = IDLE
"""Idle time from which on a GPU counts as starved, and below which the account says nothing (TensorFlow's
input-pipeline analyzer uses the same line)."""


def main_is_unclear(s: Signals) -> bool:
    """Whether the main thread may or may not have filled the idle time: CUDA waits spin by default."""
    found = s.host.filled
    return s.host.mean.main is not None and found.main_run < MOSTLY and found.most_main_run >= NOT_THIS


def attribute(s: Signals, correlation: Correlation) -> Attribution:
    """The numbers of the host panel. Loader shares are those of the window; the main thread's is its lower sum."""
    host = s.host
    main = None
    if host.mean.main is not None and not main_is_unclear(s):
        least = host.filled.main_run
        main = 100.0 * (least if least >= MOSTLY else host.mean.main)
    loaders = host.loaders > 0
    return Attribution(
        idle_pct=s.idle,
        window_s=WINDOW_S,
        n=s.n,
        loaders=host.loaders,
        loader_kind=s.tick.kinds,
        running_pct=_percent(host.mean.running) if loaders else None,
        queued_pct=_percent(host.mean.queued) if loaders else None,
        disk_pct=_percent(host.mean.disk) if loaders else None,
        network_pct=_percent(host.mean.network) if loaders and host.waits_known else None,
        main_pct=main,
        pin_memory=s.tick.pin_memory,
        correlation=correlation.words() if loaders else None,
        feeders=host.feeders,
        main_waits=host.waits,
        outsiders=host.outsiders,
        outsider_cores=host.outsider_cores,
        cores=host.cores,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
