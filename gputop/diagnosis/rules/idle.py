"""The idle family: hardly a sample with work in the whole window."""

from __future__ import annotations

from gputop.diagnosis.attribution import IDLE_PCT
from gputop.diagnosis.rules.base import HELD_BYTES, Rule, Told, is_cpu_phase
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import STATE_WORDS
from gputop.model.quantity import duration, memory

HOLDING = STATE_WORDS["idle_allocated"]
HOLDING_S = 300.0
"""Idle this long with memory held is worth reporting [judged]."""
ALARM_S = 3600.0
STOPPED_S = 15.0
"""A GPU that has just stopped is idle, not starved, unless a rule can say what it waits for [judged]."""


def _held(s: Signals) -> float:
    """Device memory of the GPU's processes; the GPU's own figure where the driver does not give theirs."""
    if s.process_bytes is None and s.processes:
        return s.mem_used or 0.0
    return s.process_bytes or 0.0


def _holding(s: Signals) -> bool:
    return s.quiet and s.quiet_s >= HOLDING_S and _held(s) >= HELD_BYTES and s.server is None and not is_cpu_phase(s)


def _tell_holding(s: Signals) -> Told:
    who = s.name if s.pid is None else f"{s.name} (pid {s.pid})"
    return Told(
        "red" if s.quiet_s >= ALARM_S else "yellow",
        (f"util {s.u:.0f} % for {duration(s.quiet_s)}, {who} holds {memory(_held(s))}",),
        "end the process (a notebook: shut its kernel down), or free its cache: torch.cuda.empty_cache()",
        "stop it, empty_cache()",
        "high" if s.host else "medium",
        () if s.host else ("cannot see whether its process computes on the CPU",),
        title=f"{HOLDING}  {duration(s.quiet_s)}",
    )


IDLE_HOLDING_MEMORY = Rule(
    id="idle_holding_memory",
    title=HOLDING,
    short=HOLDING,
    condition="p95(util) < 5 % for ≥ 300 s, the GPU's processes hold ≥ 1 GiB, use < 0.5 core and serve no requests",
    levels="yellow, red from 60 min",
    state="idle_allocated",
    holds=_holding,
    tell=_tell_holding,
    remedy="end the process (or an idle server), or free its cache: empty_cache",
)


def _tell_idle(s: Signals) -> Told:
    held = _held(s)
    for_s = s.quiet_s if s.quiet else s.stopped_s
    notes: tuple[str, ...] = ()
    if s.server is not None and held >= HELD_BYTES:
        notes = (f"an idle server: {s.server} holds {memory(held)}",)
    elif not s.processes and (s.mem_used or 0.0) >= HELD_BYTES:
        notes = (f"{memory(s.mem_used or 0.0)} in use by processes that are not visible here",)
    return Told(
        "grey",
        (f"util {s.u:.0f} % for {duration(for_s)}, " + (f"{memory(held)} held" if held else "no process"),),
        notes=notes,
        state="idle_allocated" if held >= HELD_BYTES else "idle",
    )


IDLE = Rule(
    id="idle",
    title="idle",
    short="idle",
    condition="p95(util) < 5 %",
    levels="grey",
    state="idle",
    holds=lambda s: s.quiet,
    tell=_tell_idle,
)

STOPPED = Rule(
    id=IDLE.id,
    title=IDLE.title,
    short=IDLE.short,
    condition=IDLE.condition,
    levels=IDLE.levels,
    state="idle",
    holds=lambda s: s.stopped_s >= STOPPED_S and s.idle >= IDLE_PCT,
    tell=_tell_idle,
)
"""Asked after every cause of starvation, so that a job's end is not called starvation until the window has emptied."""
