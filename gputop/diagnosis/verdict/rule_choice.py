"""Choice of the rule that holds now."""

from __future__ import annotations

from gputop.diagnosis.rules import CAUSES, END, GATES, IDLE_FAMILY, STARVED, UNATTRIBUTED, WORKS
from gputop.diagnosis.rules.bandwidth import MEMORY_BANDWIDTH
from gputop.diagnosis.rules.base import Rule
from gputop.diagnosis.rules.doubts import has_doubtful_util
from gputop.diagnosis.rules.gates import COLLECTING
from gputop.diagnosis.rules.serving import LOW_DEMAND
from gputop.diagnosis.rules.unattributed import STARVED_UNATTRIBUTED
from gputop.diagnosis.rules.working import HEALTHY, NO_BOTTLENECK_SEEN, WORKING
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import IDLE_PCT
from gputop.model.feeders import Cause

SOON: frozenset[Cause] = frozenset(("disk", "network", "fetch", "pipe", "lock", "sleep"))
"""What a job that has just begun to train is told to wait for as soon as its account says so. What runs may be its
warm-up, and what is not seen yet may still be."""

PROVEN_BY_SM: tuple[Rule, ...] = (*GATES, MEMORY_BANDWIDTH, HEALTHY, WORKING)
"""The rules for a MIG instance, whose util is not measured: SM and DRAM activity are lower bounds of it."""

NEVER_EARLY = frozenset(rule.id for rule in (*IDLE_FAMILY, *UNATTRIBUTED, LOW_DEMAND, *END))
"""All-clears, and what is said where nothing better is known: a few seconds may lie between two pauses, or in one."""


def candidate(s: Signals) -> Rule:
    """The rule that holds now, early only where it names a fault."""
    rule = _candidate(s)
    return (
        COLLECTING if s.is_early and rule.id in NEVER_EARLY and s.samples >= s.min_samples else rule
    )


def _candidate(s: Signals) -> Rule:
    """The rule that holds now.

    Starvation without a cause that can be named yields to A/B: B lies wholly where the GPU is idle ≥ 20 %, and "low SM
    while kernels run" says more than "idle, cause not seen".
    """
    if not s.util_known:
        return next((rule for rule in PROVEN_BY_SM if rule.matches(s)), COLLECTING)
    gate = next((rule for rule in GATES if rule.matches(s)), None)
    if gate is not None and s.begins and s.idle >= IDLE_PCT:
        rule = next((rule for rule in STARVED if rule.matches(s)), STARVED_UNATTRIBUTED)
        return rule if rule.tell(s).cause in SOON else gate
    # Util that its power contradicts shows no starvation of which nothing else is seen.
    may_starve = s.flag is None and not has_doubtful_util(s)
    unseen = UNATTRIBUTED if may_starve else UNATTRIBUTED[:1]
    return gate or next(
        (rule for rule in (*CAUSES, *unseen, *WORKS) if rule.matches(s)), NO_BOTTLENECK_SEEN
    )
