"""The starved family where no cause can be named. What was measured is reported all the same."""

from __future__ import annotations

from gputop.diagnosis.attribution import IDLE_PCT, MOSTLY, main_is_unclear
from gputop.diagnosis.rules.base import Rule, Told
from gputop.diagnosis.rules.feeding import SECOND, both_words, kind_of, least, works
from gputop.diagnosis.signals import Signals
from gputop.model.feeders import Cause
from gputop.model.quantity import duration, share


def _tell_unattributed(s: Signals) -> Told:
    line = f"GPU idle {s.idle:.0f} %"
    if not s.host:
        line += ", the host's side is not visible"
    else:
        line += f", main thread runnable {share(s.main)} of the time"
        if s.loaders:
            line += f", {s.loaders} workers {share(s.workers)}"
        if s.pool_cores is not None and s.pool_cores >= 0.5:
            line += f", host threads on {s.pool_cores:.1f} cores"
    notes = ("cannot tell: the main thread spins or computes",) if main_is_unclear(s) else ()
    if s.stopped_s >= 5.0:
        notes = (*notes, f"the GPU has stopped for {duration(s.stopped_s)}")
    evidence: tuple[str, ...] = (line,)
    cause = _unattributed_cause(s)
    remedy = UNATTRIBUTED_REMEDIES[cause]
    if s.host and s.knows_feeders:
        f = s.feeders
        if cause == "lock" and f is not None and f.busiest.sleep >= SECOND:
            remedy = ASLEEP_UNDER_A_LOCK
        evidence = (line, both_words(s) + (f" ({f.n} {kind_of(f)})" if f is not None else "; no feeders"))
        if f is not None and f.why_blind is not None:
            notes = (*notes, f"what feeders wait for is not all seen: {f.why_blind}")
    return Told("yellow", evidence, *remedy, "medium" if s.host else "low", notes, cause=cause)


UNATTRIBUTED_REMEDIES: dict[str, tuple[str, str]] = {
    "lock": (
        "workers wait for a lock: look for file locks, a multiprocessing lock or a single index that all share "
        "(py-spy dump shows where)",
        "find the shared lock",
    ),
    "sleep": (
        "workers sleep: look for back-off, rate limits and polling loops in the loading code",
        "find the back-off",
    ),
    "unknown": ("dump the stacks (py-spy dump); look for locks, RPC and remote storage", "dump stacks"),
}
ASLEEP_UNDER_A_LOCK = (
    "workers wait for a lock and sleep: look for code that sleeps, retries or is rate-limited while it holds a lock "
    "that all share (py-spy dump shows where)",
    "find what sleeps under the lock",
)


def _unattributed_cause(s: Signals) -> Cause:
    """What feeders wait for where that is not I/O."""
    f = s.feeders
    if f is None or works(f, s):
        return "unknown"
    lock, sleep = f.busiest.lock, f.busiest.sleep
    if least(lock, s) >= MOSTLY:
        return "lock"
    if least(sleep, s) >= MOSTLY:
        return "sleep"
    # Workers that take turns at a lock and sleep while they hold it are in neither state for most of the time.
    if least(min(1.0, lock + sleep), s) >= MOSTLY:
        return "lock" if lock >= SECOND else "sleep"
    return "unknown"


STARVED_UNATTRIBUTED = Rule(
    id="starved_unattributed",
    title="starved: cause not seen",
    short="starved: cause not seen",
    condition="idle ≥ 20 % and none of the above",
    levels="yellow",
    state="starved",
    holds=lambda s: s.idle >= IDLE_PCT,
    tell=_tell_unattributed,
    remedy="dump stacks; check locks, RPC",
)
