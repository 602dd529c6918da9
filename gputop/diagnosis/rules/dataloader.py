"""The starved family: loaders. What feeders did while the GPU was idle (DS-Analyzer's prep and fetch stalls).

The busiest feeder is judged, and its shares of useful time add up. Recordings made before feeders were measured know
means over loaders alone, which are judged further down.
"""

from __future__ import annotations

from msgspec.structs import replace

from gputop.diagnosis.attribution import IDLE_PCT, MOSTLY, NOT_THIS, at_least, at_most
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding_rules import (
    LEAST_RX,
    QUEUED,
    SECOND,
    THROTTLED,
    both_words,
    cores_note,
    kind_of,
    least,
    least_of,
    main_cause,
    main_runs,
    own_wait,
    proof,
    restarts,
    waits_for_batch,
    who,
    works,
)
from gputop.diagnosis.rules.remedy_rows import CORES_FREE, remedy
from gputop.diagnosis.rules.starved import CHECKPOINT_BYTES, starved_level
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Confidence
from gputop.diagnosis.window import swapping
from gputop.model.feeders import Cause, Feeders
from gputop.model.quantity import rate, share

# Loaders judged by their means: all that recordings made before feeders were measured have.

# --- CPU-bound ------------------------------------------------------------------------------------------------------


def cpu(s: Signals) -> bool:
    """Loaders runnable in most of the idle time."""
    host = s.host.mean
    return (
        s.idle >= IDLE_PCT
        and s.host.loaders > 0
        and host.workers is not None
        and at_least(host.workers, s.u) >= MOSTLY
        and (host.main is None or at_least(host.main, s.u) < MOSTLY)
    )


def tell_cpu(s: Signals) -> RuleResult:
    """Evidence and remedy of CPU-bound loaders."""
    host = s.host.mean
    workers = host.workers or 0.0
    runnable = round(s.host.loaders * workers)
    line = f"GPU idle {s.idle:.0f} %: {runnable}/{s.host.loaders} workers runnable"
    line += f" (cpu {share(host.running)}, queued {share(host.queued)}), main waits"
    queued = host.queue_share or 0.0
    if host.throttled is not None and host.throttled >= THROTTLED:
        remedy = f"raise the cgroup's CPU limit ({share(host.throttled)} of its periods cut short), not num_workers"
        short = "raise the CPU limit"
    elif queued >= QUEUED:
        remedy = "not more workers: free cores, OMP_NUM_THREADS=1, cheaper transforms"
        short = "free cores, not workers"
    elif s.machine.cpu_pct is None or s.machine.cpu_pct < CORES_FREE:
        remedy = (
            f"raise num_workers (now {s.host.loaders}; `gputop loader` finds how many), move decoding and augmentation "
            "to the GPU (DALI, torchvision v2), cache decoded data"
        )
        short = "num_workers, DALI"
    else:
        remedy = "no core is free: cheaper transforms, decode on the GPU (DALI, torchvision v2), cache decoded data"
        short = "DALI, cheaper transforms"
    notes = () if host.main is not None else ("the main thread could not be measured",)
    return RuleResult(starved_level(s), (line,), remedy, short, "high" if host.main is not None else "medium", notes)


# --- I/O-bound ------------------------------------------------------------------------------------------------------

MAIN_DISK = 0.4
"""Share of the idle time that the main thread spends in disk wait where there are no loaders."""
ASLEEP = 0.2
SPINS_WITHIN = 0.1
"""A main thread within this of the GPU's busy share is spinning on the GPU, and asleep while it idles."""
WAITING = 0.5


def disk(s: Signals) -> bool:
    """Loaders, or a main thread without any, in disk wait."""
    host = s.host.mean
    if s.idle < IDLE_PCT or swapping(s.machine) is not None:
        return False
    if s.host.loaders:
        return host.disk is not None and at_least(host.disk, s.u) >= MOSTLY
    if host.main_disk is None or host.main_disk / (s.idle / 100.0) < MAIN_DISK:
        return False
    writes = host.write or 0.0
    return writes < CHECKPOINT_BYTES or writes < (host.read or 0.0)


def network(s: Signals) -> bool:
    """Loaders that wait for network or pipe while main is asleep."""
    host = s.host.mean
    return (
        s.idle >= IDLE_PCT
        and s.host.loaders > 0
        and host.workers is not None
        and host.workers < ASLEEP
        and host.network is not None
        and host.network >= WAITING
        and host.main is not None
        and (at_most(host.main, s.u) < NOT_THIS or abs(host.main - s.u / 100.0) <= SPINS_WITHIN)
    )


def tell_io(s: Signals) -> RuleResult:
    """Evidence and remedy of loaders that wait for data."""
    host = s.host.mean
    if s.host.loaders and disk(s):
        where = "network file wait" if host.network is not None and host.network >= WAITING else "disk wait"
        line = f"GPU idle {s.idle:.0f} %: workers in {where} {share(host.disk)}"
        if s.host.io_known and host.read:
            line += f", reading {rate(host.read)}"
        confidence = "high"
    elif s.host.loaders:
        line = f"GPU idle {s.idle:.0f} %: workers wait for network or pipe {share(host.network)}, "
        line += f"on CPU {share(host.workers)}"
        confidence = "medium"
    else:
        line = f"GPU idle {s.idle:.0f} %: main thread in disk wait {share(host.main_disk)}, no workers"
        confidence = "high"
    notes = () if s.host.io_known else ("disk evidence needs root: read rates of this process are denied",)
    return RuleResult(
        starved_level(s),
        (line,),
        "shard small files (webdataset, Parquet), local NVMe cache, more workers",
        "shards, local NVMe",
        "high" if confidence == "high" else "medium",
        notes,
    )


NO_DISK = 0.2


def _may_blame(s: Signals) -> bool:
    return s.idle >= IDLE_PCT and not main_runs(s) and own_wait(s) is None and not restarts(s)


# --- CPU-bound ------------------------------------------------------------------------------------------------------


def _cpu(s: Signals) -> bool:
    f = s.host.feeders
    if not s.tick.knows_feeders or f is None:
        return cpu(s) if not s.tick.knows_feeders else False
    return _may_blame(s) and works(f, s) and main_cause(f) in ("cpu", "queued")


def _line(s: Signals, f: Feeders, doing: str) -> str:
    second = f.busiest
    line = f"GPU idle {s.idle:.0f} %: {who(f)} {doing}"
    others = [(name, x) for name, x in (("disk", second.disk), ("network", second.network)) if x >= SECOND]
    return line + "".join(f", {name} {share(x)}" for name, x in others if name not in doing)


def _tell_cpu(s: Signals) -> RuleResult:
    f = s.host.feeders
    if f is None:
        return tell_cpu(s)
    doing = f"runnable (cpu {share(f.busiest.run)}, queued {share(f.busiest.queued)})"
    main_is_known = s.host.mean.main is not None
    notes = cores_note(s, f.busiest.queued)
    if not main_is_known:
        notes = (*notes, "the main thread could not be measured")
    confidence: Confidence = (
        "high" if main_is_known and f.by in (None, "child") else "low" if f.by == "kinship" else "medium"
    )
    return RuleResult(
        starved_level(s), (_line(s, f, doing) + ", main waits", _measured_line(s, f)), *remedy("cpu", s, f),
        confidence=confidence, notes=notes, cause=main_cause(f),
    )  # fmt: skip


def _measured_line(s: Signals, f: Feeders) -> str:
    """The second line of evidence: everything measured, and by which rule."""
    words = both_words(s)
    by = proof(f)
    if by is not None:
        words += f" ({by})"
    if f.uneven:
        words += f"; mean of {f.n} {kind_of(f)} only {share(f.mean.useful)}"
    return words


DATALOADER_CPU = Rule(
    id="dataloader_cpu",
    title="starved: dataloader, CPU-bound",
    short="starved: dataloader CPU",
    condition="idle ≥ 20 %, the busiest feeder (loader, helper or host thread) busy with the next batch in at least "
    "half of the idle time (lower bound) and most of that runnable, the main thread neither running nor in a wait of "
    "its own",
    level="yellow",
    levels="yellow, red from 50 % idle",
    state="starved",
    holds=_cpu,
    tell=_tell_cpu,
    remedy="cores free: more loaders, decode on the GPU (DALI, torchvision v2), cache; queued ≥ 30 %: free cores, "
    "OMP_NUM_THREADS=1; throttled: raise the cgroup's CPU limit; few of many: balanced shards, in_order=False",
)

# --- I/O-bound ------------------------------------------------------------------------------------------------------


def _disk(s: Signals) -> bool:
    f = s.host.feeders
    if not s.tick.knows_feeders:
        return disk(s)
    if f is None or not _may_blame(s) or swapping(s.machine) is not None:
        return False
    if works(f, s) and main_cause(f) != "disk":
        return False
    return least(f.busiest.disk, s) >= MOSTLY or (
        least(f.any_disk, s) >= MOSTLY and waits_for_batch(s) and f.busiest.disk >= SECOND
    )


def _network(s: Signals) -> bool:
    f = s.host.feeders
    if not s.tick.knows_feeders:
        return network(s)
    if f is None or not _may_blame(s):
        return False
    if works(f, s):
        return main_cause(f) in ("disk", "network")
    return _fetches(s, f)


def _fetches(s: Signals, f: Feeders) -> bool:
    """By elimination: main waits for a batch, nothing computes or reads a disk, and its feeder polls."""
    if f.what == "threads" or f.by in ("no socket", "task queue", "client", "peer") or not waits_for_batch(s):
        return False
    if f.any_unread >= NO_DISK or f.busiest.unread >= SECOND:
        # What was not looked at yet rules nothing out.
        return False
    shares = f.busiest
    return (
        shares.poll >= shares.cpu
        and least_of(shares, s, shares.poll) >= MOSTLY
        and f.any_disk < NO_DISK
        and at_least(shares.cpu, s.u) < MOSTLY
    )


def _tell_io(s: Signals) -> RuleResult:
    f = s.host.feeders
    if f is None:
        return tell_io(s)
    cause: Cause
    proven = (f.rx_bytes_per_s or 0.0) >= LEAST_RX
    if _disk(s):
        cause, confidence = "disk", "high"
        doing = f"in disk wait {share(max(f.busiest.disk, 0.0))}"
        if s.host.io_known and s.host.mean.read:
            doing += f", reading {rate(s.host.mean.read)}"
    elif works(f, s):
        cause = "pipe" if f.by == "pipe" else main_cause(f)
        confidence = "high" if proven or f.by == "thread" else "low" if f.by == "kinship" else "medium"
        where = "a pipe from outside" if cause == "pipe" else "the network" if cause == "network" else "the disk"
        doing = f"waiting for {where} {share(f.busiest.disk if cause == 'disk' else f.busiest.network)}"
    else:
        cause, confidence = "fetch", "medium"
        doing = f"waiting for something outside (poll {share(f.busiest.poll)}), none on a core or a disk"
    if proven:
        doing += f", receiving {rate(f.rx_bytes_per_s)}"
    if f.busiest.cpu >= SECOND:
        doing += f", runnable {share(f.busiest.cpu)}"
    notes = () if s.host.io_known else ("disk evidence needs root: read rates of this process are denied",)
    if f.why_blind is not None and not proven:
        notes = (*notes, f"no proof by bytes received: {f.why_blind}")
    sure: Confidence = "high" if confidence == "high" else "low" if confidence == "low" else "medium"
    return RuleResult(
        starved_level(s), (f"GPU idle {s.idle:.0f} %: {who(f)} {doing}", _measured_line(s, f)),
        *remedy(cause, s, f), confidence=sure, notes=notes, cause=cause,
    )  # fmt: skip


DATALOADER_DISK = Rule(
    id="dataloader_io",
    title="starved: dataloader, I/O-bound",
    short="starved: dataloader I/O",
    condition="idle ≥ 20 % and the busiest feeder in disk or network wait in at least half of the idle time (lower "
    "bound; polling counts where its sockets receive data); or by elimination: main waits for a batch, no feeder runs "
    "or waits for a disk, and they poll",
    level="yellow",
    levels="yellow, red from 50 % idle",
    state="starved",
    holds=_disk,
    tell=_tell_io,
    remedy="shard small files (webdataset, Parquet), local NVMe cache, more workers; network: more workers, or "
    "threads in __getitems__",
)

DATALOADER_NETWORK = replace(DATALOADER_DISK, holds=_network)
"""The wait channel is weaker evidence than CPU time, so this is tried after the main thread."""
