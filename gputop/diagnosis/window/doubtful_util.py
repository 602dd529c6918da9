"""Utilisation and clock seen against the other readings of half a minute and more.

The driver's util is what it was in a part of each second. A job whose steps take about as long gets 0 and 99 by turns,
whatever it does; its power, a mean over time, does not follow.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from gputop.model.snapshot import GpuSample

ALIAS_S = 30.0
LOW_UTIL, HIGH_UTIL = 20.0, 80.0
LEAST_SHARE = 0.2
"""Util jumps where each of low and high values are this share of the samples [judged]."""
SAME_POWER = 0.15
"""Power that stays within this part of its mean does not follow util: idle boards draw a tenth to a fifth of what they
draw at work."""
LEAST_POWER = 0.2
"""Share of the limit below which a board may rest in both [judged]: idle ones draw 3 to 15 %."""
LEAST_SAMPLES = 10
VERY_LOW_CLOCK, LOW_CLOCK_UTIL = 1.0 / 3.0, 90.0
"""A clock below a third of its maximum on a busy GPU is no boost behaviour, whatever can be read beside it."""


class _Moment(Struct, frozen=True):
    t: float
    util_pct: float
    power_w: float


class DoubtfulReadings(Struct, frozen=True):
    """Doubts about readings that only the others show."""

    power_spread: float | None = None
    """Part of its mean within which power stays while util jumps; None where it does not jump."""
    low_clock_s: float = 0.0
    """For how long the clock has been below a third of its maximum on a busy GPU."""


NO_DOUBT = DoubtfulReadings()


class ReadingDoubts:
    """Follows util, power and clock of one GPU."""

    def __init__(self) -> None:
        self._moments: deque[_Moment] = deque()
        self._low_clock_since: float | None = None
        self.signs = NO_DOUBT

    def forget(self) -> None:
        """Begin anew, as with another job or after a gap."""
        self._moments.clear()
        self._low_clock_since = None
        self.signs = NO_DOUBT

    def add_sample(self, t: float, dt: float, gpu: GpuSample) -> None:
        """Take one sample in, which covers ``dt`` seconds."""
        self.signs = DoubtfulReadings(self._spread(t, gpu), self._low_clock_s(t, dt, gpu))

    def _spread(self, t: float, gpu: GpuSample) -> float | None:
        moments = self._moments
        if gpu.util_pct is None or gpu.power_w is None:
            moments.clear()
            return None
        moments.append(_Moment(t, gpu.util_pct, gpu.power_w))
        while moments[0].t <= t - ALIAS_S:
            moments.popleft()
        if len(moments) < LEAST_SAMPLES:
            return None
        least = LEAST_SHARE * len(moments)
        low = [moment for moment in moments if moment.util_pct <= LOW_UTIL]
        high = [moment for moment in moments if moment.util_pct >= HIGH_UTIL]
        if len(low) < least or len(high) < least:
            return None
        powers = [moment.power_w for moment in moments]
        mean = sum(powers) / len(powers)
        lowest, highest = min(powers), max(powers)
        # To the last digit the same is no measurement, and a board that rests follows nothing.
        limit = 0.0 if gpu.power_limit_w is None else gpu.power_limit_w
        if mean <= LEAST_POWER * limit or lowest == highest:
            return None
        spread = (highest - lowest) / mean
        return spread if spread <= SAME_POWER else None

    def _low_clock_s(self, t: float, dt: float, gpu: GpuSample) -> float:
        if not has_very_low_clock(gpu):
            self._low_clock_since = None
            return 0.0
        if self._low_clock_since is None or t < self._low_clock_since:
            self._low_clock_since = t - dt
        return t - self._low_clock_since


def has_very_low_clock(gpu: GpuSample) -> bool:
    """True if a busy GPU runs below a third of its clock."""
    clock, most, util = gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.util_pct
    if clock is None or most is None or util is None:
        return False
    return util >= LOW_CLOCK_UTIL and clock < VERY_LOW_CLOCK * most
