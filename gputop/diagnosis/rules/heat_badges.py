"""Badges for heat, power and clocks."""

from __future__ import annotations

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.base import BadgeRule, Told
from gputop.diagnosis.rules.low_clock import LOW_CLOCK, low_clock_remedy, low_clock_words
from gputop.diagnosis.signals import LEAST_SAMPLES, Signals
from gputop.diagnosis.types import Badge, VerdictId
from gputop.diagnosis.window.sample_facts import (
    HBM_MAX_C,
    memory_limit_c,
)
from gputop.diagnosis.window.sanity import has_impossible_power
from gputop.diagnosis.window.window import WINDOW_S
from gputop.model.quantity import share

COOL_C = 70.0
"""No GPU slows down for its temperature below this [judged]: thresholds of the driver lie at 83 to 105 °C."""


def _is_slowed(s: Signals, part: float) -> bool:
    return part >= thresholds.SLOWED and s.samples >= min(s.min_samples, LEAST_SAMPLES)


def _clock(s: Signals) -> str:
    return "" if s.mean.clock is None else f", clock {share(s.mean.clock)} of its maximum"


def _thermal(s: Signals, verdict: VerdictId) -> Told:
    if has_impossible_power(s.gpu) and (s.gpu.temp_c or COOL_C) < COOL_C:
        return None
    if not _is_slowed(s, s.mean.thermal):
        return None
    return f"thermal slowdown in {share(s.mean.thermal)} of {WINDOW_S:.0f} s{_clock(s)}"


THERMAL = BadgeRule(
    "thermal", "thermal slowdown", "red", f"software or hardware thermal slowdown in ≥ {100 * thresholds.SLOWED:.0f} "
    "% of "
    f"{WINDOW_S:.0f} s", _thermal,
    "check airflow and fans, lower the power limit", alarm=True,
)  # fmt: skip


def _brake(s: Signals, verdict: VerdictId) -> Told:
    return (
        f"power brake in {share(s.mean.brake)} of {WINDOW_S:.0f} s"
        if _is_slowed(s, s.mean.brake)
        else None
    )


POWER_BRAKE = BadgeRule(
    "power_brake", "power brake", "red", f"external power brake in ≥ {100 * thresholds.SLOWED:.0f} % of {WINDOW_S:.0f} "
    "s", _brake,
    "check the power supply and its cables",
)  # fmt: skip

CAPPED, CAPPED_UTIL, CAPPED_CLOCK = 0.5, 80.0, 0.75
"""Capped with clocks at 75 % of the maximum or more is how a GPU normally runs at full load."""


def _capped(s: Signals, verdict: VerdictId) -> Told:
    if has_impossible_power(s.gpu) or _is_slowed(s, s.mean.thermal):
        # Beside heat it would ask for the opposite of what helps.
        return None
    if (
        s.mean.capped < CAPPED
        or s.util_pct < CAPPED_UTIL
        or s.mean.clock is None
        or s.mean.clock >= CAPPED_CLOCK
    ):
        return None
    return f"power cap in {share(s.mean.capped)} of {WINDOW_S:.0f} s{_clock(s)}"


POWER_CAPPED = BadgeRule(
    "power_capped", "power capped", "info", f"power cap in ≥ {100 * CAPPED:.0f} % of {WINDOW_S:.0f} s, util ≥ "
    f"{CAPPED_UTIL:.0f} %, clock < {100 * CAPPED_CLOCK:.0f} % "
    "of its maximum",
    _capped, "raise the power limit if cooling allows", not_beside=THERMAL.id,
)  # fmt: skip


def _low_clock(s: Signals, verdict: VerdictId) -> Told:
    if not s.conditions.low_clock:
        return None
    return Badge("low_clock", "yellow", LOW_CLOCK.title, low_clock_words(s), low_clock_remedy(s))


LOW_CLOCK_BADGE = BadgeRule(
    "low_clock", LOW_CLOCK.title, "yellow", LOW_CLOCK.condition, _low_clock, LOW_CLOCK.remedy
)


def _memory_hot(s: Signals, verdict: VerdictId) -> Told:
    now, most = s.gpu.mem_temp_c, memory_limit_c(s.gpu)
    return (
        None
        if now is None or most is None or now <= most
        else f"memory at {now:.0f} of {most:.0f} °C"
    )


MEMORY_HOT = BadgeRule(
    "memory_hot", "memory too hot", "yellow",
    f"memory temperature above the driver's limit, or above {HBM_MAX_C:.0f} °C of HBM if the driver names none",
    _memory_hot, "check airflow and the heat sink's contact: the memory may slow down without a throttle reason",
)  # fmt: skip
