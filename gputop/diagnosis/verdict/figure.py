"""The one number shown beside a verdict: about the verdict, never against it."""

from __future__ import annotations

from gputop.diagnosis.rules import STARVED
from gputop.diagnosis.signals import EFFICIENCY_UTIL, Signals
from gputop.diagnosis.thresholds import COMM_NVLINK
from gputop.diagnosis.types import State, VerdictId
from gputop.model.quantity import clamp_pct

UNDECIDED: frozenset[VerdictId] = frozenset(("collecting", "startup"))
"""What is shown before anything is known: the first verdict need not wait for it."""
NAMED_CAUSES: frozenset[VerdictId] = frozenset(
    rule.id for rule in STARVED if rule.id not in ("low_demand", "take_turns")
)
"""Causes of starvation: "cause not seen" gives way to one of them as if nothing had been said. Demand and turns are
told from minutes, and may wait."""
IDLE_STATES: tuple[State, ...] = ("starved", "idle", "idle_allocated")
STARVED_IDS: frozenset[VerdictId] = frozenset(rule.id for rule in STARVED)
"""Verdicts of the starved family, whatever state their time goes to."""

Figure = tuple[str, float | None]


def efficiency(s: Signals) -> tuple[float | None, str | None]:
    """SM / util x 100 of the means, or None and a reason."""
    if s.sm_off is not None:
        return None, s.sm_off.words
    if s.spin is not None and s.spin.holds_all:
        return 0.0, None
    if s.samples < s.min_samples:
        return None, "collecting"
    if s.mean.sm is None:
        return None, "SM activity was not measured"
    if not s.util_known:
        return None, "util is not measured on a MIG instance"
    if min(s.util_pct, s.mean.util_with_sm or 0.0) < EFFICIENCY_UTIL:
        return None, f"util below {EFFICIENCY_UTIL:.0f} %"
    return (None if s.sm_ratio is None else 100.0 * s.sm_ratio), None


def figure(s: Signals, verdict: VerdictId, state: State) -> Figure | None:
    """Number of a verdict as (word, percent).

    Idle, DRAM or NVLink, else the efficiency, at most 100.
    """
    if s.samples < s.min_samples and verdict in UNDECIDED:
        return None
    if verdict == "memory_bandwidth" and s.mean.dram is not None:
        return "DRAM", s.mean.dram
    if (
        verdict == "communication"
        and s.mean.nvlink is not None
        and s.mean.nvlink >= COMM_NVLINK.leave
    ):
        return "NVLink", 100.0 * s.mean.nvlink
    if s.util_known and (verdict in STARVED_IDS or state in IDLE_STATES):
        return "idle", s.idle
    score, _ = efficiency(s)
    return "efficiency", clamp_pct(score)
