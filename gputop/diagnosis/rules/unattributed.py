"""Rule for starvation without a known cause: reports the measurements all the same."""

from __future__ import annotations

from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding import (
    FOR_BATCH,
    SECOND,
    compiles,
    front_computes,
    waits_for_batch,
    works,
)
from gputop.diagnosis.rules.feeding_words import both_words, kind_of, loaders_words
from gputop.diagnosis.rules.remedy_rows import remedy
from gputop.diagnosis.rules.remedy_words import NOTHING
from gputop.diagnosis.rules.shown_idle import main_is_unclear
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import HALF_RATIO, IDLE_PCT
from gputop.diagnosis.why_idle import HALTED_WORDS, halted_words, restarts, waits_for_ranks
from gputop.diagnosis.window.sample_facts import NOT_MEASURED, why_no_processes
from gputop.model.durations import duration
from gputop.model.feeders import Cause
from gputop.model.quantity import pct, share

UNSEEN = "the host's side is not visible"
SHOW_PROCESSES = (
    "run gputop where the processes are visible: the host's PID namespace (docker run --pid=host)"
)


def _uses(s: Signals) -> tuple[str, ...]:
    """Note on the small part of the chip that kernels use."""
    if s.sm_ratio is None or s.sm_ratio >= HALF_RATIO or s.conditions.much_dram:
        return ()
    return (f"while kernels run they use {pct(100.0 * s.sm_ratio)} of the SMs",)


def _tell_dark(s: Signals) -> RuleResult:
    """Idle is measured.

    That something was waited for is not, where neither a process nor the host is visible.
    """
    if s.job_ended:
        words = ("its process has ended",)
        return RuleResult(
            words, *NOTHING, confidence="high", title="idle", state="idle", short="idle"
        )
    why = why_no_processes(s.gpu)
    seen = "no process is visible on it" if why is None else f"processes n/a: {why}"
    line = f"the GPU is idle {s.idle:.0f} % of the time (util {pct(s.util_pct)}); {seen}"
    title = f"idle {s.idle:.0f} % of the time: why is not visible without processes"
    return RuleResult(
        (line,),
        SHOW_PROCESSES,
        "show the processes",
        "low",
        _uses(s),
        title,
        "idle",
        short="idle, why is not visible",
    )


def _tell_unattributed(s: Signals) -> RuleResult:
    if s.is_dark:
        return _tell_dark(s)
    notes, cause, f = _uses(s), _unattributed_cause(s), s.host.feeders
    if main_is_unclear(s):
        notes = (*notes, "cannot tell: the main thread spins or computes")
    if s.stopped_s >= 5.0:
        notes = (*notes, f"the GPU has stopped for {duration(s.stopped_s)}")
    words = remedy(f"unseen {cause}", s, f)
    line = f"the GPU is idle {s.idle:.0f} % of the time"
    workers = f", {loaders_words(s)}" if s.host.loaders else ""
    if not s.host.is_measured:
        is_visible = bool(workers) or s.host.reason == NOT_MEASURED
        line += f", {NOT_MEASURED if is_visible else UNSEEN}{workers}"
        return RuleResult((line,), *words, confidence="low", notes=notes, cause=cause)
    line += f", the main thread is busy {share(s.host.mean.main)}"
    line += workers
    if s.host.mean.pool is not None and s.host.mean.pool >= 0.5:
        line += f", host threads on {s.host.mean.pool:.1f} cores"
    if f is not None and f.why_blind is not None:
        notes = (*notes, f"what feeders wait for is not all seen: {f.why_blind}")
    waits = both_words(s) + (f" ({f.count} {kind_of(f)})" if f is not None else "; no workers")
    if cause == "front" and f is not None:
        line = (
            f"{f.name} (pid {f.pid}), which takes the requests, is busy {share(f.busiest.cpu)} of "
            "the time; "
        )
        line += f"the GPU is idle {s.idle:.0f} %"
        return RuleResult(
            (line, waits),
            *words,
            "high",
            notes,
            "starved: the server's front computes",
            cause=cause,
            short="starved: server front",
        )
    if cause == "compiling":
        notes = (*notes, f"compilers run {share(s.host.mean.compiling)} of the time")
    if cause == "ranks":
        notes = (*notes, f"main thread waits for {waits_for_ranks(s)}")
    if cause == "stopped" and s.tick.halted:
        notes = (*notes, f"workers: {halted_words(s)}")
    return RuleResult((line, waits), *words, notes=notes, cause=cause)


def _unattributed_cause(s: Signals) -> Cause:
    """Cause in the workers where that is not I/O."""
    f = s.host.feeders
    if any(
        state is not None and state.state in HALTED_WORDS
        for state in (s.host.main_state, s.host.worker_state)
    ):
        return "stopped"
    if restarts(s):
        return "startup"
    if front_computes(s):
        return "front"
    if compiles(s):
        return "compiling"
    if (
        waits_for_ranks(s)
        and s.host.waits is not None
        and s.host.waits.lock >= FOR_BATCH * s.idle / 100.0
    ):
        return "ranks"
    if f is not None and f.feeder_kind == "beside":
        # A lock or a timer of whom the workers wait for is none of theirs.
        return "unknown"
    if f is None or works(s) or f.feeder_kind == "threads":
        # A thread that waits or sleeps is one of many that have nothing to do: that proves nothing.
        return "unknown"
    if s.host.waits is not None and not waits_for_batch(s, surely=True):
        # Nobody waits for these: a worker whose batches are not taken waits for a lock, or sleeps, as well.
        return "unknown"
    mostly = s.host.named
    if "lock" in mostly or "sleep" in mostly:
        return "lock" if "lock" in mostly else "sleep"
    # Workers that take turns at a lock and sleep while they hold it are in neither state for most of the time.
    if "lock_or_sleep" in mostly:
        return "lock" if f.busiest.lock >= SECOND else "sleep"
    return "unknown"


STARVED_UNATTRIBUTED = Rule(
    id="starved_unattributed",
    title="starved: cause not seen",
    condition=f"idle ≥ {IDLE_PCT:.0f} % (leaves at {IDLE_PCT.leave:.0f} %); none of the above; without a visible "
    "process and without the host's side idle is a fact, and is counted as idle",
    state="starved",
    matches=lambda s: s.conditions.waits,
    tell=_tell_unattributed,
    levels="yellow; info without processes",
    remedy="dump stacks; check locks, RPC",
    checked="a server with a request each five seconds, recorded without its processes",
)
