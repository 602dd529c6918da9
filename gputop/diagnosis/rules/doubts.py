"""Doubts about util that the other readings raise: they weaken the words on idle time."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.rules.base import RuleResult
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import State
from gputop.model.quantity import share


def has_doubtful_util(s: Signals) -> bool:
    """True if util jumps and power does not, and no other counter is there to ask."""
    return s.doubts.power_spread is not None and s.mean.sm is None


def alias_note(s: Signals) -> str:
    """``util may alias with the step: it jumps while power stays within 4 % of its mean``."""
    return (
        "util may alias with the step: it jumps between low and high while power stays within "
        f"{share(s.doubts.power_spread)} of its mean; the idle share may be wrong"
    )


def with_doubts(result: RuleResult, state: State, s: Signals) -> RuleResult:
    """Return the result, weakened where util cannot be believed."""
    rests_on_util = state == "starved" or (state == "unmeasured" and s.util_known)
    if not (rests_on_util and has_doubtful_util(s)):
        return result
    return replace(result, confidence="low", notes=(alias_note(s), *result.notes))
