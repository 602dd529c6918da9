"""The idle family: hardly a sample with work in the whole window."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from gputop.diagnosis.host.idle_runs import SteadyState
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding_rules import (
    HALTED_WORDS,
    halted_words,
    is_fed,
    restarts,
    waits_for_ranks,
)
from gputop.diagnosis.rules.gates import BUSY_CORES, HELD_BYTES, is_cpu_phase
from gputop.diagnosis.rules.remedy_conditions import NOTHING
from gputop.diagnosis.rules.remedy_rows import remedy
from gputop.diagnosis.rules.shown_idle import IDLE_PCT
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import STATE_WORDS
from gputop.diagnosis.window.sample_facts import LOUD_UTIL, why_no_processes
from gputop.diagnosis.window.window import WINDOW_S
from gputop.model.durations import duration
from gputop.model.feeders import WHERE_RANKS_MEET, Cause
from gputop.model.quantity import memory

lasting = partial(duration, whole=True)
"""Times of minutes and hours, which seldom change."""
HOLDING = STATE_WORDS["idle_allocated"]
HOLDING_S = 300.0
"""Idle this long with memory held is worth reporting [judged]."""
STOPPED_S = 15.0
"""A GPU that has just stopped is idle, not starved, unless a rule can say what it waits for [judged]."""


STANDS_S = 5.0
"""What a thread has been in for less is not said [judged]."""
RENDEZVOUS_PORTS = (":29500", ":29400")
"""Where torch.distributed's store and torchrun's rendezvous listen unless they are told otherwise (their
documentation)."""
_MAIN_WORDS: dict[str, tuple[str, Cause | None]] = {
    "disk": ("waits for the disk", "disk"),
    "network": ("waits on a socket", "network"),
    "lock": ("waits for a lock", None),
    "sleep": ("sleeps by a timer", "sleep"),
    "poll": ("polls", None),
    "pipe": ("waits for data of a pipe", None),
    "write": ("waits for the reader of a full pipe", "pipe"),
}


def why_idle(s: Signals) -> tuple[str | None, Cause | None]:
    """State of the main thread or workers since the GPU idles, and cause."""
    main, feeders = s.host.main_state, s.host.worker_state
    if main is not None and main.state in HALTED_WORDS:
        return f"the main thread is {HALTED_WORDS[main.state]} for {lasting(main.for_s)}", "stopped"
    if feeders is not None and feeders.state in HALTED_WORDS:
        return f"workers: {halted_words(s)} for {lasting(feeders.for_s)}", "stopped"
    if feeders is not None and feeders.state == "lock":
        if main is not None and main.state == "pipe" and min(main.for_s, feeders.for_s) >= STANDS_S:
            # A worker that is ahead waits for a lock as well, but then there would be data for the main thread.
            return (
                f"the main thread waits for data of its workers, and they for a lock, for {lasting(feeders.for_s)}",
                "lock",
            )
    elif feeders is not None and feeders.for_s >= STANDS_S:
        if feeders.mount is not None:
            return f"the workers wait on {feeders.mount} for {lasting(feeders.for_s)}", "mount"
        return f"the workers are in {feeders.state} wait for {lasting(feeders.for_s)}", _MAIN_WORDS[
            feeders.state
        ][1]
    return (None, None) if main is None or main.for_s < STANDS_S else _why_main(s, main)


def _why_main(s: Signals, main: SteadyState) -> tuple[str, Cause | None]:
    """Wait of the main thread in words, and its cause."""
    if restarts(s):
        count = s.host.restarts.count
        return (
            f"the main thread waits for workers that start anew, {count} in {WINDOW_S:.0f} s",
            "startup",
        )
    if main.mount is not None:
        return (
            f"the main thread waits on the file system {main.mount} for {lasting(main.for_s)}",
            "mount",
        )
    ranks = waits_for_ranks(s)
    if ranks and main.state in ("lock", "sleep"):
        return f"the main thread waits for {ranks} for {lasting(main.for_s)}", "ranks"
    since = f"for {lasting(main.for_s)}" if s.has_worked else "since the start"
    if main.state in ("network", "poll") and s.tick.server is None:
        if s.tick.is_notebook:
            return f"the notebook's kernel waits for its next cell {since}", None
        address = next(
            (end.detail for end in s.tick.ends if end.via == "network" and end.detail), ""
        )
        if s.tick.nccl or address.endswith(RENDEZVOUS_PORTS) or WHERE_RANKS_MEET in address:
            where = f", at {address}" if address else ""
            return f"the main thread waits {since} for other ranks of its job{where}", "ranks"
        if address:
            return f"the main thread waits for {address} {since}", "network"
    words, cause = _MAIN_WORDS[main.state]
    return f"the main thread {words} for {lasting(main.for_s)}", cause


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
