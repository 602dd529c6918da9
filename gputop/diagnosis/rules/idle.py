"""The idle family: hardly a sample with work in the whole window."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding import is_fed
from gputop.diagnosis.rules.gates import BUSY_CORES, is_cpu_phase
from gputop.diagnosis.rules.remedy_rows import remedy
from gputop.diagnosis.rules.remedy_words import NOTHING
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import HELD_BYTES, IDLE_PCT
from gputop.diagnosis.types import STATE_WORDS
from gputop.diagnosis.why_idle import lasting, why_idle
from gputop.diagnosis.window.sample_facts import LOUD_UTIL, why_no_processes
from gputop.model.quantity import memory

HOLDING = STATE_WORDS["idle_allocated"]
HOLDING_S = 300.0
"""Idle this long with memory held is worth reporting [judged]."""
STOPPED_S = 15.0
"""A GPU that has just stopped is idle, not starved, unless a rule can say what it waits for [judged]."""


LEAST_HOLE_S = 30.0
"""A shorter time without samples is not told: it changes no duration that is told in minutes [judged]."""


def _quiet_words(s: Signals, for_s: float) -> str:
    """How long no kernel ran: ``util 0 % for 3 min (50 min more are not recorded)``."""
    words = f"util {s.util_pct:.0f} % for {lasting(for_s)}"
    if s.quiet and s.quiet_hole_s >= LEAST_HOLE_S:
        words += f" ({lasting(s.quiet_hole_s)} more are not recorded)"
    return words


def no_process_words(s: Signals) -> str:
    """``no process``, or why it is not known whether there is one."""
    why = why_no_processes(s.gpu)
    return "no process" if why is None else f"processes n/a: {why}"


def _held(s: Signals) -> float:
    """Device memory of the GPU's processes.

    The GPU's own figure where the driver does not give theirs.
    """
    if s.tick.process_bytes is None and s.tick.computing:
        return s.gpu.mem_used_bytes or 0.0
    return s.tick.process_bytes or 0.0


def _holding(s: Signals) -> bool:
    holds = s.quiet and s.quiet_s >= HOLDING_S and _held(s) >= HELD_BYTES and s.tick.server is None
    return holds and not is_cpu_phase(s) and not is_fed(s)


def _tell_holding(s: Signals) -> RuleResult:
    holder = s.tick.name if s.tick.pid is None else f"{s.tick.name} (pid {s.tick.pid})"
    why, cause = why_idle(s)
    line = f"{_quiet_words(s, s.quiet_s)}, {holder} holds {memory(_held(s))}"
    words = remedy(f"idle {cause}", s)
    return RuleResult(
        (line,) if why is None else (line, why),
        *(remedy("holding", s) if words == NOTHING else words),
        "high" if s.host.is_measured else "medium",
        () if s.host.is_measured else ("cannot see whether its process computes on the CPU",),
        title=f"{HOLDING}  {lasting(s.quiet_s)}",
        plain_title=HOLDING,
        for_s=s.quiet_s,
        hole_s=s.quiet_hole_s,
        cause=cause,
    )


IDLE_HOLDING_MEMORY = Rule(
    id="idle_holding_memory",
    title=HOLDING,
    condition=f"p95(util) < {LOUD_UTIL:.0f} % for ≥ {HOLDING_S:.0f} s; the GPU's processes hold ≥ "
    f"{HELD_BYTES / 2**30:.0f} GiB, use < {BUSY_CORES:g} core and serve no requests",
    state="idle_allocated",
    matches=_holding,
    tell=_tell_holding,
    remedy="end the process (or an idle server), or free its cache: empty_cache",
)


def _tell_idle(s: Signals) -> RuleResult:
    held_bytes = _held(s)
    for_s = s.quiet_s if s.quiet else s.stopped_s
    notes: tuple[str, ...] = ()
    if s.tick.server is not None and held_bytes >= HELD_BYTES:
        notes = (f"an idle server: {s.tick.server} holds {memory(held_bytes)}",)
    elif not s.tick.computing and (s.gpu.mem_used_bytes or 0.0) >= HELD_BYTES:
        notes = (
            f"{memory(s.gpu.mem_used_bytes or 0.0)} in use by processes that are not visible here",
        )
    why, cause = why_idle(s)
    holder = f"{memory(held_bytes)} held" if held_bytes else no_process_words(s)
    line = f"{_quiet_words(s, for_s)}, {holder}"
    title = HOLDING if held_bytes >= HELD_BYTES else None
    return RuleResult(
        (line,) if why is None else (line, why),
        *remedy(f"idle {cause}", s),
        confidence="high",
        notes=notes,
        cause=cause,
        title=title,
        short=title,
        state="idle" if title is None else "idle_allocated",
        for_s=for_s,
        hole_s=s.quiet_hole_s if s.quiet else 0.0,
    )


IDLE = Rule(
    id="idle",
    title="idle",
    condition=f"p95(util) < {LOUD_UTIL:.0f} % (leaves where p90 is not); not while requests come and go; not while "
    "steps do, each after a wait for workers that work",
    state="idle",
    matches=lambda s: s.quiet and not s.comes_and_goes and not is_fed(s),
    tell=_tell_idle,
    levels=f"info; yellow where ≥ {HELD_BYTES / 2**30:.0f} GiB are held",
)

STOPPED = replace(
    IDLE, matches=lambda s: s.stopped_s >= STOPPED_S and s.idle >= IDLE_PCT and not s.comes_and_goes
)
"""Asked after every cause of starvation, so that a job's end is not called starvation until the window has emptied."""
