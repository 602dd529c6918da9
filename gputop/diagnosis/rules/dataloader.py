"""The starved family: loaders.

What feeders did while the GPU was idle (DS-Analyzer's prep and fetch stalls).

The busiest feeder is judged, and its shares of useful time add up.
"""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.host.idle_attribution import MOSTLY, NO_LONGER
from gputop.diagnosis.host.workers import BY_NAME, LEAST_TOLD
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding import (
    ALL_COMPUTE,
    LEAST_RX,
    SECOND,
    compiles,
    computes_unread,
    has_read_waits,
    main_cause,
    main_leads,
    own_wait,
    take_turns,
    waits_for_batch,
    works,
)
from gputop.diagnosis.rules.feeding_words import (
    active_workers,
    both_words,
    cores_note,
    kind_of,
    proof,
    workers_words,
)
from gputop.diagnosis.rules.remedy_rows import remedy
from gputop.diagnosis.signals import TRAINS_S, Signals
from gputop.diagnosis.thresholds import IDLE_PCT
from gputop.diagnosis.types import Confidence
from gputop.diagnosis.why_idle import restarts
from gputop.diagnosis.window.sample_facts import swapping
from gputop.model.feeders import Cause, Feeders
from gputop.model.quantity import rate, share

NO_DISK, MAIN_ASLEEP = 0.2, 0.1


def _may_blame(s: Signals) -> bool:
    f = s.host.feeders
    if f is None or f.feeder_kind == "front" or (f.feeder_kind == "children" and compiles(s)):
        return False
    # While workers start, nobody is accused by a name alone.
    if f.resolved_by == BY_NAME and s.host.restarts.count:
        return False
    return s.idle >= IDLE_PCT and not main_leads(s) and own_wait(s) is None and not restarts(s)


def _cpu(s: Signals) -> bool:
    f = s.host.feeders
    if f is None or not _may_blame(s):
        return False
    return (works(s) and main_cause(s, f) in ("cpu", "queued")) or computes_unread(s)


def _tell_cpu(s: Signals) -> RuleResult:
    f = s.host.feeders
    assert f is not None
    busiest = f.busiest
    parts = [f"CPU {share(busiest.run)}", f"waiting for a core {share(busiest.queued)}"]
    parts += [
        f"{name} {share(x)}"
        for name, x in (("disk", busiest.disk), ("network", busiest.network))
        if x >= SECOND
    ]
    verb = "is" if active_workers(f) == 1 else "are"
    line = (
        f"{workers_words(f)} {verb} busy ({', '.join(parts)}); the GPU waits for data {s.idle:.0f} "
        "% of the time"
    )
    confidence: Confidence = "medium"
    notes = cores_note(s, f.busiest.queued)
    if s.host.mean.main is None:
        notes = (*notes, "the main thread was not measured")
    # A main thread that hardly runs waits, whatever for.
    is_asleep = works(s) and s.host.mean.main is not None and s.host.mean.main < MAIN_ASLEEP
    is_read = has_read_waits(s) or f.feeder_kind == "threads"
    if not is_read and not is_asleep:
        # However much they run: nobody has seen that the main thread waits for them.
        confidence, notes = "low", (*notes, "what the main thread waits for was not read")
    elif s.host.mean.main is None:
        pass
    elif f.resolved_by in (None, "child") and "cpu" in s.host.named:
        confidence = "high"
    return RuleResult(
        (line, _measured_line(s, f)),
        *remedy("cpu", s, f),
        confidence=confidence,
        notes=notes,
        cause=main_cause(s, f),
    )


def _measured_line(s: Signals, f: Feeders) -> str:
    """The second line of evidence: everything measured, and by which rule."""
    words = both_words(s)
    by = proof(f)
    if by is not None:
        words += f" ({by})"
    if take_turns(s):
        words += f"; the {f.count} take turns at a lock, one works at a time"
    elif f.uneven:
        words += f"; mean of {f.count} {kind_of(f)} only {share(f.mean.useful)}"
    return words


DATALOADER_CPU = Rule(
    id="dataloader_cpu",
    title="starved: dataloader, CPU-bound",
    short="starved: dataloader CPU",
    condition=f"idle ≥ {IDLE_PCT:.0f} %; the busiest feeder (loader, helper or host thread) is busy with the next "
    f"batch in ≥ {100 * MOSTLY:.0f} % of the idle time (leaves below {100 * NO_LONGER:.0f} %), and runnable in most "
    "of that; the main thread neither runs in as much of it nor is in a wait of its own; or all loaders run ≥ "
    f"{100 * ALL_COMPUTE:.0f} % and what the main thread waits for was not read (low confidence); a job that was seen "
    f"starting has trained for {TRAINS_S:.0f} s",
    state="starved",
    matches=_cpu,
    tell=_tell_cpu,
    remedy="cores free: more loaders, decode on the GPU (DALI, torchvision v2), cache; queued ≥ 30 %: free cores, "
    "OMP_NUM_THREADS=1; throttled: raise the cgroup's CPU limit; few of many: balanced shards, in_order=False",
)


def _disk(s: Signals) -> bool:
    f = s.host.feeders
    return (
        f is not None
        and _may_blame(s)
        and swapping(s.machine) is None
        and works(s)
        and main_cause(s, f) == "disk"
    )


def _network(s: Signals) -> bool:
    f = s.host.feeders
    if f is None or not _may_blame(s):
        return False
    return main_cause(s, f) == "network" if works(s) else _fetches(s, f)


def _fetches(s: Signals, f: Feeders) -> bool:
    """True if workers wait for something outside, by elimination.

    Main waits for a batch, nothing computes or reads a disk, and its worker polls.
    """
    if (
        not s.tick.knows_feeders
        or f.feeder_kind == "threads"
        or f.resolved_by in ("no socket", "task queue", "client", "peer")
        or not waits_for_batch(s)
    ):
        return False
    if f.any_unread >= NO_DISK or f.busiest.unread >= SECOND:
        # What was not looked at yet rules nothing out.
        return False
    shares = f.busiest
    return (
        shares.poll >= max(shares.cpu, LEAST_TOLD)
        and "outside" in s.host.named
        and f.any_disk < NO_DISK
        and "cpu" not in s.host.named
    )


def _tell_io(s: Signals) -> RuleResult:
    f = s.host.feeders
    assert f is not None
    cause: Cause = "fetch"
    confidence: Confidence = "medium"
    proven = (f.rx_bytes_per_s or 0.0) >= LEAST_RX
    verb = "waits" if active_workers(f) == 1 else "wait"
    doing = (
        f"{verb} for something outside (polling {share(f.busiest.poll)}), none computes or reads a "
        "disk"
    )
    if _disk(s):
        cause = "disk"
        confidence = (
            "high" if f.resolved_by != BY_NAME and s.host.named & {"disk", "any_disk"} else "medium"
        )
        doing = f"{verb} for the disk ({share(f.busiest.disk)})"
        if s.host.why_no_reads is None and s.host.mean.read:
            doing += f", reading {rate(s.host.mean.read)}"
    elif works(s):
        cause = "pipe" if f.resolved_by == "pipe" else main_cause(s, f)
        confidence = (
            "high"
            if proven or f.resolved_by == "thread"
            else "low"
            if f.resolved_by == BY_NAME
            else "medium"
        )
        where = (
            "a pipe from outside"
            if cause == "pipe"
            else "the network"
            if cause == "network"
            else "the disk"
        )
        address = f" at {f.address}" if cause == "network" and f.address else ""
        waited = f.busiest.disk if cause == "disk" else f.busiest.network
        doing = f"{verb} for {where}{address} ({share(waited)})"
    if proven:
        doing += f", receiving {rate(f.rx_bytes_per_s)}"
    if f.busiest.cpu >= SECOND:
        doing += f", busy {share(f.busiest.cpu)}"
    notes: tuple[str, ...] = ()
    if s.host.why_no_reads is not None:
        notes = (f"no proof by bytes read: {s.host.why_no_reads}",)
    if f.why_blind is not None and not proven:
        notes = (*notes, f"no proof by bytes received: {f.why_blind}")
    return RuleResult(
        (
            f"{workers_words(f)} {doing}; the GPU waits for data {s.idle:.0f} % of the time",
            _measured_line(s, f),
        ),
        *remedy(cause, s, f),
        confidence=confidence,
        notes=notes,
        cause=cause,
    )


DATALOADER_DISK = Rule(
    id="dataloader_io",
    title="starved: dataloader, I/O-bound",
    short="starved: dataloader I/O",
    condition=f"idle ≥ {IDLE_PCT:.0f} %; the busiest feeder waits for a disk or the network in ≥ {100 * MOSTLY:.0f} % "
    f"of the idle time (leaves below {100 * NO_LONGER:.0f} %), where workers in turns count together, and polling "
    "counts where its sockets receive data; or by elimination: the main thread waits for a batch, no feeder runs or "
    "waits for a disk, and they poll",
    state="starved",
    matches=_disk,
    tell=_tell_io,
    remedy="shard small files (webdataset, Parquet), local NVMe cache, more workers; network: more workers, or "
    "threads in __getitems__",
)

DATALOADER_NETWORK = replace(DATALOADER_DISK, matches=_network)
"""The wait channel is weaker evidence than CPU time, so this is tried after the main thread."""
