"""The one number shown beside a verdict: what the verdict is about, never one that contradicts it."""

from __future__ import annotations

from gputop.diagnosis.rules import STARVED
from gputop.diagnosis.rules.base import Rule
from gputop.diagnosis.rules.busy import COMMUNICATION, MEMORY_BANDWIDTH, NVLINK_BUSY
from gputop.diagnosis.signals import EFFICIENCY_UTIL, Signals
from gputop.diagnosis.types import State
from gputop.model.quantity import of_hundred

IDLE_STATES: tuple[State, ...] = ("starved", "idle", "idle_allocated")
STARVED_IDS = frozenset(rule.id for rule in STARVED)
"""Verdicts of the starved family, whatever state their time goes to."""

Figure = tuple[str, float | None]


def efficiency(s: Signals) -> tuple[float | None, str | None]:
    """SM / util x 100 of the means, or None and why."""
    if s.sm_off is not None:
        return None, s.sm_off
    if s.n < s.least:
        return None, "collecting"
    if s.sm is None:
        return None, "SM activity was not measured"
    if not s.util_known:
        return None, "util is not measured on a MIG instance"
    if s.u < EFFICIENCY_UTIL:
        return None, f"util below {EFFICIENCY_UTIL:.0f} %"
    return 100.0 * s.sm / s.u, None


def figure(s: Signals, rule: Rule, state: State) -> Figure | None:
    """(word, percent) of a verdict: how idle, how much DRAM or NVLink, else the efficiency, at most 100."""
    if s.n < s.least:
        return None
    if rule.id == MEMORY_BANDWIDTH.id and s.dram is not None:
        return "DRAM", s.dram
    if rule.id == COMMUNICATION.id and s.nvlink is not None and s.nvlink >= NVLINK_BUSY:
        return "NVLink", 100.0 * s.nvlink
    if s.util_known and (rule.id in STARVED_IDS or state in IDLE_STATES):
        return "idle", s.idle
    score, _ = efficiency(s)
    return "efficiency", of_hundred(score)
