"""Rule for the rank that the other ranks of its job wait for."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.rules.base import RuleResult
from gputop.diagnosis.rules.idle import IDLE
from gputop.diagnosis.rules.remedy_rows import remedy
from gputop.diagnosis.rules.remedy_words import NOTHING
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.why_idle import why_idle
from gputop.model.quantity import pct

COMPUTES = 0.5
"""Share of the time on a core from which on a main thread computes."""


def _tell_culprit(s: Signals) -> RuleResult:
    """What the rank waits for that holds the others up."""
    who = "1 GPU hangs" if s.holds_up == 1 else f"{s.holds_up} GPUs hang"
    why, cause = why_idle(s)
    if why is None:
        computes = (s.host.mean.main or 0.0) >= COMPUTES
        why = "the main thread computes" if computes else "what it waits for is not seen"
    line = f"{who} and wait for this one: util {pct(s.util_pct)}"
    pid = s.tick.pid
    tells = "its log and dmesg" if pid is None else f"py-spy dump --pid {pid}; its log and dmesg"
    words = remedy(f"idle {cause}", s)
    if words == NOTHING:
        words = tells, "py-spy dump"
    title = f"holds up {s.holds_up} other GPU{'s' * (s.holds_up != 1)}"
    return RuleResult(
        (why, line),
        *words,
        "high",
        title=title,
        short="holds others up",
        state="idle_allocated",
        role="not_working",
        cause=cause,
    )


HOLDS_UP = replace(IDLE, matches=lambda s: s.holds_up > 0, tell=_tell_culprit)
"""The rank that the others wait for: asked first, since its own GPU is merely idle."""
