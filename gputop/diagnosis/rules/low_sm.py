"""Rules for kernels that leave most of the chip unused."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis import thresholds
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.busy_words import chip_share, or_stuck
from gputop.diagnosis.rules.remedy_conditions import is_launch_bound
from gputop.diagnosis.rules.remedy_words import (
    LARGER_SHORT_TEMPLATE,
    LARGER_WORK_TEMPLATE,
)
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Confidence
from gputop.model.quantity import pct, share

HOLLOW = "hollow: warps are hardly resident on any multiprocessor"


def _flag_confidence(s: Signals) -> Confidence:
    """Low SM under high util is measured.

    Who runs the kernels, and what the host does, may not be.
    """
    return "high" if s.host.is_measured and s.tick.computing else "medium"


def _tell_small(s: Signals) -> RuleResult:
    launch = is_launch_bound(s)
    line = f"util {pct(s.util_pct)}, SM {pct(s.mean.sm)}, DRAM {pct(s.mean.dram)}"
    if s.host.mean.main is not None:
        line += f", main thread busy {share(s.host.mean.main)}"
    line += ": many tiny kernels" if launch else ": kernels too small for this GPU"
    notes = ("launch-bound: the main thread cannot launch faster",) if launch else ()
    if s.flag == "C":
        notes = (*notes, f"{HOLLOW}: while kernels run they use {chip_share(s)} of the SMs")
    sure = _flag_confidence(s) if s.spin is None else "low"
    return RuleResult((line,), confidence=sure, notes=(*notes, *or_stuck(s)))


SMALL_KERNELS = Rule(
    id="small_kernels",
    title="small kernels",
    condition="A, B or C; neither memory-bound nor communication; launch-bound where the main thread is ≥ "
    f"{100 * thresholds.LAUNCH_BOUND_MAIN:.0f} % runnable",
    state="busy_not_working",
    matches=lambda s: s.flag is not None and s.mean.dram is not None,
    tell=_tell_small,
    remedy=LARGER_WORK_TEMPLATE,
    remedy_short=LARGER_SHORT_TEMPLATE,
    checked="a loop of 64-element additions on a T4 (C: SM / util 0.010); the lowest load that does work has "
    "0.341. A and B: simulated loads alone",
)


def _tell_low_sm(s: Signals) -> RuleResult:
    line = f"util {pct(s.util_pct)} but SM {pct(s.mean.sm)}; memory bandwidth is not measured here"
    notes: tuple[str, ...] = ("the cause cannot be measured here: no DRAM counter",)
    if s.flag == "C":
        notes = (*notes, f"{HOLLOW}: while kernels run they use {chip_share(s)} of the SMs")
    return RuleResult((line,), notes=notes)


LOW_SM = replace(
    SMALL_KERNELS,
    id="low_sm",
    title="low SM activity",
    condition="A, B or C; DRAM not measured",
    matches=lambda s: s.flag is not None and s.mean.dram is None,
    tell=_tell_low_sm,
    checked="simulated loads alone",
)
