"""The starved family except loaders.

The GPU waits for demand, a checkpoint, restarts, copies or its own host.
"""

from __future__ import annotations

from gputop.diagnosis.attribution import IDLE_PCT, main_is_unclear
from gputop.diagnosis.idle_attribution import MOSTLY, NO_LONGER
from gputop.diagnosis.idle_runs import Pause
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding_rules import (
    FOR_BATCH,
    HALTED_WORDS,
    LEAST_RX,
    PURE_WAIT,
    SECOND,
    both_words,
    compiles,
    cores_note,
    front_computes,
    halted_words,
    kind_of,
    main_alone,
    main_runs,
    own_wait,
    restarts,
    waits_for_batch,
    waits_for_ranks,
    works,
)
from gputop.diagnosis.rules.remedy_rows import ALL_LEFT, NOTHING, remedy, spares
from gputop.diagnosis.sample_facts import NOT_MEASURED, PCIE_USABLE, degraded_link, link_words
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import FULL_CACHE_PCT, HALF_RATIO, IDLE, PCIE_FULL
from gputop.diagnosis.types import HOLDING_MEMORY, Level
from gputop.diagnosis.window import WINDOW_S
from gputop.model.feeders import Cause
from gputop.model.quantity import duration, pct, rate, share
from gputop.model.serving import server_forms

ALARM_IDLE = 50.0
"""From this idle time on a starved GPU is an alarm: half of it is lost."""


def starved_level(s: Signals) -> Level:
    """Yellow, red where half of the GPU or more is idle."""
    return "red" if s.idle >= ALARM_IDLE else "yellow"


# --- a full KV cache ------------------------------------------------------------------------------------------------


def _cache_is_full(s: Signals) -> bool:
    row = s.tick.serving
    is_full = row is not None and (row.kv_cache_pct or 0.0) >= FULL_CACHE_PCT and (row.queue or 0.0) > 0.0
    return s.conditions.waits and is_full


def _tell_full_cache(s: Signals) -> RuleResult:
    row = s.tick.serving
    told = "" if row is None else server_forms(row)[0]
    line = f"GPU idle {s.idle:.0f} % while requests wait for a place in the KV cache"
    return RuleResult(starved_level(s), (line, told), confidence="high")


KV_CACHE_FULL = Rule(
    id="kv_cache_full",
    title="short of memory: the KV cache is full",
    short="KV cache full",
    condition=f"idle ≥ {IDLE:.0f} %; the server on this GPU (--server-url) says that its KV cache is ≥ "
    f"{FULL_CACHE_PCT:.0f} % full and requests wait",
    level=f"yellow, red from {ALARM_IDLE:.0f} % idle",
    state="starved",
    matches=_cache_is_full,
    tell=_tell_full_cache,
    remedy="more memory for the cache (vLLM --gpu-memory-utilization, SGLang --mem-fraction-static), an FP8 cache "
    "(--kv-cache-dtype), a shorter --max-model-len, smaller weights, more GPUs",
    remedy_short="FP8 cache, shorter context, more GPUs",
)

# --- low demand -----------------------------------------------------------------------------------------------------


WAITS_FOR_REQUESTS = 0.5
"""Share of the idle time in which a main thread sits in accept or an event loop that makes it a server."""


def _listens(s: Signals) -> bool:
    """A process with a listening socket, its own or its parent's, whose main thread waits for requests."""
    waits = s.host.waits
    f = s.host.feeders
    if waits is None or ((s.host.mean.listens or 0.0) < 0.5 and not s.host.served) or main_runs(s):
        return False
    if s.host.loaders and (f is None or f.feeder_kind not in ("helpers", "beside")):
        return False
    # Threads of a server wait for clients, unless data comes in over connections that the server opened.
    if works(s) and f is not None and (f.feeder_kind != "threads" or (s.host.rx or 0.0) >= LEAST_RX):
        return False
    for_requests = waits.poll + waits.pipe + waits.other if s.host.served else waits.poll
    return for_requests >= WAITS_FOR_REQUESTS * s.idle / 100.0


def _low_demand(s: Signals) -> bool:
    if not s.conditions.waits or front_computes(s):
        return False
    return (s.tick.server is not None and not s.host.loaders) or _listens(s)


def _tell_low_demand(s: Signals) -> RuleResult:
    server = f"{s.tick.server} server"
    if s.tick.server is None:
        name = s.tick.name
        server = f"the parent of {name} takes requests" if s.host.served else f"{name} listens on a socket of its own"
    line = f"{server}: mean util {s.util_pct:.0f} %, GPU idle {s.idle:.0f} %, no loaders: it waits for requests"
    return RuleResult("info", (line,))


LOW_DEMAND = Rule(
    id="low_demand",
    title=f"low demand: {HOLDING_MEMORY}",
    short="low demand",
    condition=f"idle ≥ {IDLE:.0f} %; no loaders; the command is a server (vllm, sglang, tritonserver, …), or the main "
    f"thread waits for connections in ≥ {100 * WAITS_FOR_REQUESTS:.0f} % of the idle time, or for a parent that does",
    level="info",
    state="idle_allocated",
    matches=_low_demand,
    tell=_tell_low_demand,
    remedy="nothing to fix: batch{gpu_memory:, consolidate on fewer GPUs}, MIG",
    remedy_short="batch{gpu_memory:, consolidate}, MIG",
)

# --- checkpoint pause -----------------------------------------------------------------------------------------------

PAUSE_S = 0.9, 60.0
"""A pause is one sample or more, and shorter than the idle family (one sample at 1 Hz may measure 0.99 s)."""
CHECKPOINT_BYTES = 50e6
"""Write rate of the job's tree that is a checkpoint, not a log [judged]."""
SAVING = 0.4
"""Share of a pause in which the main thread waits for a file to be written from which on any rate is a checkpoint
[judged]."""


def _checkpoint(s: Signals) -> Pause | None:
    for pause in reversed(s.host.pauses):
        written = pause.write_bytes_per_s or 0.0
        # A main thread that waits for what it writes saves something: the slower the disk, the longer.
        saves = written >= CHECKPOINT_BYTES or pause.main_saves >= SAVING
        if PAUSE_S[0] <= pause.length_s <= PAUSE_S[1] and saves:
            return pause
    return None


def _tell_checkpoint(s: Signals) -> RuleResult:
    pause = _checkpoint(s)
    if pause is None:
        return RuleResult("info", ())
    line = f"GPU paused {pause.length_s:.0f} s"
    line += f", writing {rate(pause.write_bytes_per_s)}" if pause.write_bytes_per_s else ""
    line += f", main waits for that {share(pause.main_saves)}" if pause.main_saves >= SAVING else ""
    return RuleResult("info", (line,))


CHECKPOINT_PAUSE = Rule(
    id="checkpoint_pause",
    title="starved: checkpoint pause",
    short="starved: checkpoint",
    condition=f"a pause of {PAUSE_S[0]:.0f}–{PAUSE_S[1]:.0f} s without a kernel; the job's processes write ≥ "
    f"{CHECKPOINT_BYTES / 1e6:.0f} MB/s in it, or the main thread waits for what it writes in ≥ {100 * SAVING:.0f} % "
    "of it",
    level="info",
    state="starved",
    matches=lambda s: _checkpoint(s) is not None,
    tell=_tell_checkpoint,
    remedy="asynchronous checkpointing (torch.distributed.checkpoint.async_save), less often",
    remedy_short="async checkpoints",
)

# --- worker restarts ------------------------------------------------------------------------------------------------

CHURN_PER_MIN = 4.0
BIRTH_GAP_S = 0.9
"""A run without a kernel of one sample at 1 Hz."""


def _worker_restart(s: Signals) -> bool:
    found = s.host.restarts
    if s.idle < IDLE_PCT or found.count * 60.0 / WINDOW_S < CHURN_PER_MIN or found.longest_pause_s < BIRTH_GAP_S:
        return False
    # Importing is computing: where all loaders are new, it is starting them. Where older ones run on and compute most
    # of the time, they do the work of a dataloader.
    return restarts(s) or not works(s)


def _tell_worker_restart(s: Signals) -> RuleResult:
    stops = f"the GPU stops for {s.host.restarts.longest_pause_s:.0f} s when they start"
    evidence = (f"{s.host.restarts.count} new workers in {WINDOW_S:.0f} s; {stops}",)
    if s.host.born_kind is None or s.host.born_kind == "torch" or s.tick.pin_memory:
        return RuleResult("yellow", evidence, cause="startup")
    remedy = "keep the pool alive between epochs, or prepare the data before training (map once, cache)"
    return RuleResult("yellow", evidence, remedy, "keep the pool", cause="startup")


WORKER_RESTART = Rule(
    id="worker_restart",
    title="starved: worker restarts",
    condition=f"idle ≥ {IDLE_PCT:.0f} %; ≥ {CHURN_PER_MIN:.0f} new loaders a minute; pauses of ≥ {BIRTH_GAP_S:.0f} s "
    "without a kernel when they start",
    level="yellow",
    state="starved",
    matches=_worker_restart,
    tell=_tell_worker_restart,
    remedy="DataLoader(persistent_workers=True), start workers by fork or forkserver",
    remedy_short="persistent_workers=True",
)

# --- PCIe transfers -------------------------------------------------------------------------------------------------

PCIE_BUSY = 0.3
"""Share of the link's usable rate that matters beside idle time [judged]."""
BOTH_WAYS = 0.3
"""From here on in both directions it is NCCL over PCIe, not a copy of batches."""
PAGEABLE_MAIN = 0.8


def _pcie(s: Signals) -> bool:
    pcie = s.mean.pcie
    if pcie is None or pcie < PCIE_BUSY:
        return False
    if min(s.mean.pcie_rx or 0.0, s.mean.pcie_tx or 0.0) >= BOTH_WAYS or s.tick.server is not None:
        return False
    return pcie >= PCIE_FULL or (s.idle >= IDLE_PCT and pcie >= s.idle / 200.0)


def _tell_pcie(s: Signals) -> RuleResult:
    is_rx = (s.mean.pcie_rx or 0.0) >= (s.mean.pcie_tx or 0.0)
    usable = s.pcie_bytes_per_s or 0.0
    moved = (s.mean.pcie or 0.0) * usable
    link = degraded_link(s.gpu)
    # The rate by which people know a link: of one that is at its best the part that can be used.
    rate_gb = usable / 1e9 / (PCIE_USABLE if link else 1.0)
    line = f"PCIe {'RX' if is_rx else 'TX'} {moved / 1e9:.1f} of {rate_gb:.{0 if rate_gb >= 10.0 else 2}f} GB/s"
    line += f" ({link_words(s.gpu)})" if link else ""
    line += f" while GPU idle {s.idle:.0f} %"
    pageable = s.host.mean.main is not None and s.host.mean.main >= PAGEABLE_MAIN
    if pageable:
        line += f", main thread {share(s.host.mean.main)} runnable: looks pageable"
    if link and (s.mean.pcie or 0.0) >= PCIE_FULL:
        return RuleResult(
            "yellow", (line,), f"{FULL_LINK}; then {_PINNED}".format(**spares(s)), "reseat card, check slot", "high"
        )
    return RuleResult("yellow", (line,), confidence="high" if pageable else "medium")


FULL_LINK = "the link is the bottleneck: reseat the card, check riser, slot and BIOS (lanes, link speed)"
_PINNED = "pin_memory=True with non_blocking=True, send uint8{gpu_memory:, keep data on the GPU}"
PINNED = _PINNED.format(**ALL_LEFT)
PCIE_TRANSFER = Rule(
    id="pcie_transfer",
    title="starved: PCIe transfers",
    condition=f"PCIe ≥ {100 * PCIE_BUSY:.0f} % of the link and ≥ idle/2, with idle ≥ {IDLE_PCT:.0f} %; or PCIe ≥ "
    f"{100 * PCIE_FULL:.0f} %; one direction only (both are NCCL)",
    level="yellow",
    state="starved",
    matches=_pcie,
    tell=_tell_pcie,
    remedy=_PINNED,
    remedy_short="pin_memory, send uint8",
)


# The starved family where no cause can be named. What was measured is reported all the same.

UNSEEN = "the host's side is not visible"
SHOW_PROCESSES = "run gputop where the processes are visible: the host's PID namespace (docker run --pid=host)"


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
        return RuleResult("grey", words, *NOTHING, confidence="high", title="idle", state="idle", short="idle")
    line = f"util {pct(s.util_pct)}, GPU idle {s.idle:.0f} %: no process is visible on this GPU"
    title = f"idle {s.idle:.0f} % of the time: why is not visible without processes"
    return RuleResult(
        "grey", (line,), SHOW_PROCESSES, "show the processes", "low", _uses(s), title, "idle",
        short="idle, why is not visible",
    )  # fmt: skip


def _tell_unattributed(s: Signals) -> RuleResult:
    if s.is_dark:
        return _tell_dark(s)
    notes, cause, f = _uses(s), _unattributed_cause(s), s.host.feeders
    if main_is_unclear(s):
        notes = (*notes, "cannot tell: the main thread spins or computes")
    if s.stopped_s >= 5.0:
        notes = (*notes, f"the GPU has stopped for {duration(s.stopped_s)}")
    words = remedy(f"unseen {cause}", s, f)
    line = f"GPU idle {s.idle:.0f} %"
    workers = f", {s.host.loaders} workers {share(s.host.mean.workers)}" if s.host.loaders else ""
    if not s.host.is_measured:
        is_visible = bool(workers) or s.host.reason == NOT_MEASURED
        line += f", {NOT_MEASURED if is_visible else UNSEEN}{workers}"
        return RuleResult("yellow", (line,), *words, confidence="low", notes=notes, cause=cause)
    line += f", main thread runnable {share(s.host.mean.main)} of the time"
    line += workers
    if s.host.mean.pool is not None and s.host.mean.pool >= 0.5:
        line += f", host threads on {s.host.mean.pool:.1f} cores"
    if f is not None and f.why_blind is not None:
        notes = (*notes, f"what feeders wait for is not all seen: {f.why_blind}")
    waits = both_words(s) + (f" ({f.count} {kind_of(f)})" if f is not None else "; no feeders")
    if cause == "front" and f is not None:
        line = f"GPU idle {s.idle:.0f} %: {f.name} (pid {f.pid}), which takes the requests, computes "
        line += f"{share(f.busiest.cpu)} of the time"
        return RuleResult(
            "yellow", (line, waits), *words, "high", notes, "starved: the server's front computes", cause=cause,
            short="starved: server front",
        )  # fmt: skip
    if cause == "compiling":
        notes = (*notes, f"compilers run {share(s.host.mean.compiling)} of the time")
    if cause == "ranks":
        notes = (*notes, f"main thread waits for {waits_for_ranks(s)}")
    if cause == "stopped" and s.tick.halted:
        notes = (*notes, f"workers: {halted_words(s)}")
    return RuleResult("yellow", (line, waits), *words, notes=notes, cause=cause)


def _unattributed_cause(s: Signals) -> Cause:
    """Cause in the workers where that is not I/O."""
    f = s.host.feeders
    if any(state is not None and state.state in HALTED_WORDS for state in (s.host.main_state, s.host.worker_state)):
        return "stopped"
    if restarts(s):
        return "startup"
    if front_computes(s):
        return "front"
    if compiles(s):
        return "compiling"
    if waits_for_ranks(s) and s.host.waits is not None and s.host.waits.lock >= FOR_BATCH * s.idle / 100.0:
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
    condition=f"idle ≥ {IDLE:.0f} % (leaves at {IDLE.leave:.0f} %); none of the above; without a visible process "
    "and without the host's side idle is a fact, and is counted as idle",
    level="yellow; grey without processes",
    state="starved",
    matches=lambda s: s.conditions.waits,
    tell=_tell_unattributed,
    remedy="dump stacks; check locks, RPC",
    checked="a server with a request each five seconds, recorded without its processes",
)


# The starved family: the main thread itself, running or waiting for something of its own.


def _main_process(s: Signals) -> bool:
    return s.idle >= IDLE_PCT and (main_runs(s) or own_wait(s) is not None or main_alone(s) is not None)


OWN_WAITS = {
    "network": "waits for the network itself",
    "disk": "waits for a disk itself",
    "pipe": "waits for the reader of a pipe that is full",
    "sleep": "sleeps",
}


def _tell_main(s: Signals) -> RuleResult:
    host, level, line = s.host, starved_level(s), f"GPU idle {s.idle:.0f} %: main thread"
    wait = None if main_runs(s) else own_wait(s)
    alone = None if main_runs(s) or wait is not None else main_alone(s)
    if wait is not None:
        address = f" ({host.address})" if wait[0] == "network" and host.address else ""
        line += f" {OWN_WAITS[wait[0]]}{address} {share(wait[1])} of the time"
        if wait[0] == "network" and (host.rx or 0.0) >= LEAST_RX:
            line += f", receiving {rate(host.rx)}"
    elif alone in ("sleep", "unknown"):
        line += " runs or sleeps by a timer, and waits for nobody"
    found = wait[0] if wait is not None else alone
    if found is not None and found not in ("cpu", "queued"):
        return RuleResult(level, (line, both_words(s)), *remedy(f"main {found}", s), cause=found)
    if alone is not None:
        line += f" runnable {share(host.mean.main)} of the time, and waits for nobody"
    else:
        line += f" runnable at least {share(host.attribution.main_run)} of that"
    line += f", {host.loaders} workers {share(host.mean.workers)} busy" if host.loaders else ", no workers"
    if compiles(s):
        notes = (f"compilers run {share(host.mean.compiling)} of the time",)
        return RuleResult(level, (line, both_words(s)), *remedy("unseen compiling", s), notes=notes, cause="compiling")
    cause: Cause = "queued" if 2.0 * (host.mean.main_queued or 0.0) >= (host.mean.main or 1.0) else "cpu"
    return RuleResult(
        level, (line, both_words(s)), *remedy(f"main {cause}", s), confidence="high" if alone is None else "medium",
        notes=cores_note(s, host.mean.main_queued), cause=cause,
    )  # fmt: skip


MAIN_PROCESS = Rule(
    id="main_process",
    title="starved: main process",
    condition=f"idle ≥ {IDLE_PCT:.0f} %; the main thread is runnable, or waits for a disk, the network, a full pipe or "
    f"a timer of its own, in ≥ {100 * MOSTLY:.0f} % of the idle time (leaves below {100 * NO_LONGER:.0f} %); or it may "
    f"have waited for a disk, the network or a full pipe in ≥ {100 * PURE_WAIT:.0f} % of it; or running and such waits "
    "together fill half of it while no feeder works",
    level=f"yellow, red from {ALARM_IDLE:.0f} % idle",
    state="starved",
    matches=_main_process,
    tell=_tell_main,
    remedy="no loaders: num_workers=4–8; else torch.compile or CUDA graphs, no .item()/print/.cpu() in each step; what "
    "it waits for itself: do it in a loader, asynchronously, or not at all",
)
