"""Rule for a busy GPU whose clock is held down."""

from __future__ import annotations

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.busy_words import activity_words, power_part
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import SLOW_PSTATE
from gputop.diagnosis.types import LOW_CLOCK as LOW_CLOCK_TITLE
from gputop.diagnosis.types import Confidence
from gputop.diagnosis.window.sanity import has_impossible_power
from gputop.model.derived import (
    APPLICATION_CLOCKS,
    DISPLAY_CLOCKS,
    HARDWARE_SLOWDOWN,
    SYNC_BOOST,
    WORDS,
)
from gputop.model.quantity import share

WHY_LOW_CLOCK = (
    "nvidia-smi -q -d CLOCK,PERFORMANCE shows limits; nvidia-smi -rgc and -rac remove those that were set; else cold "
    "boot, driver and firmware"
)
FROZEN_POWER = (
    "the firmware holds the clock by a wrong power reading: shut down and cut the power (cold "
    "boot), new driver"
)
_GIVEN = APPLICATION_CLOCKS | SYNC_BOOST | DISPLAY_CLOCKS | HARDWARE_SLOWDOWN


def low_clock_words(s: Signals) -> str:
    """``SM clock 345 of 1980 MHz (17 %), reason: application clocks``."""
    gpu, reasons = s.gpu, s.gpu.throttle_reasons
    most = gpu.sm_clock_max_mhz or 0.0
    given = (
        [] if reasons is None else [word for bit, word in WORDS.items() if bit & _GIVEN & reasons]
    )
    if gpu.pstate is not None and gpu.pstate >= SLOW_PSTATE:
        given.append(f"P{gpu.pstate}")
    if reasons is None:
        given.append("not readable here")
    clock = f"SM clock {(s.mean.clock or 0.0) * most:.0f} of {most:.0f} MHz ({share(s.mean.clock)})"
    if has_impossible_power(gpu):
        return f"{clock}, power reading: {gpu.unavailable['power_w']}"
    return f"{clock}, reason: {', '.join(given) or 'none given'}"


def low_clock_remedy(s: Signals) -> str:
    """Remedy for a low clock: by hand, or by a firmware that reads impossible power."""
    return FROZEN_POWER if has_impossible_power(s.gpu) else WHY_LOW_CLOCK


UNREADABLE_S = 105.0
"""How long a clock below a third of its maximum must stand where neither limits nor reasons are readable: told after
two minutes, with the time in which a verdict must hold [judged]."""


def is_very_low(s: Signals) -> bool:
    """True if the clock has been very low for minutes, and nothing else is readable."""
    cannot_read = s.gpu.throttle_reasons is None and s.mean.power is None
    return cannot_read and s.doubts.low_clock_s >= UNREADABLE_S and not s.tick.draws


def _tell_low_clock(s: Signals) -> RuleResult:
    sure: Confidence = "high" if s.gpu.throttle_reasons is not None else "medium"
    if is_very_low(s):
        sure = "low"
    return RuleResult(
        (low_clock_words(s), f"{activity_words(s)}{power_part(s)}"),
        low_clock_remedy(s),
        "nvidia-smi -rgc, cold boot",
        sure,
        title=f"{LOW_CLOCK_TITLE}: {share(s.mean.clock)} of its maximum",
        plain_title=LOW_CLOCK_TITLE,
    )


LOW_CLOCK = Rule(
    id="low_clock",
    title=LOW_CLOCK_TITLE,
    condition=f"util ≥ {thresholds.LOW_CLOCK_UTIL:.0f} %; SM clock < {100 * thresholds.LOW_CLOCK:.0f} % of its "
    f"maximum (leaves at "
    f"{100 * thresholds.LOW_CLOCK.leave:.0f} %); power < {100 * thresholds.LOW_CLOCK_POWER:.0f} % of its limit; a "
    f"thermal or power "
    f"reason in < {100 * thresholds.SLOWED:.0f} % of the samples; or impossible power; or, with low confidence, a "
    "clock below a third of its maximum at that util for two minutes where neither limits nor reasons are readable",
    state="working",
    role="waiting",
    matches=lambda s: s.conditions.low_clock or is_very_low(s),
    tell=_tell_low_clock,
    remedy=WHY_LOW_CLOCK,
    remedy_short="nvidia-smi -rgc, cold boot",
    checked="recordings after public reports (345 of 1980 MHz at SM 92); a busy H200 had 86 % at the lowest",
)
