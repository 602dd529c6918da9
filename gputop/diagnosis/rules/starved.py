"""The starved family, but for the loaders: the GPU waits for demand, a checkpoint, restarts, copies or its own host."""

from __future__ import annotations

from gputop.diagnosis.attribution import IDLE_PCT, MOSTLY, at_least, main_is_unclear
from gputop.diagnosis.rules.base import Rule, Told
from gputop.diagnosis.signals import Pause, Signals
from gputop.diagnosis.types import Level
from gputop.model.quantity import duration, rate, share

ALARM_IDLE = 50.0
"""From this idle time on a starved GPU is an alarm: half of it is lost."""


def starved_level(s: Signals) -> Level:
    """Yellow, red where half of the GPU or more is idle."""
    return "red" if s.idle >= ALARM_IDLE else "yellow"


# --- low demand -----------------------------------------------------------------------------------------------------


def _low_demand(s: Signals) -> bool:
    return s.idle >= IDLE_PCT and s.server is not None and not s.loaders


def _tell_low_demand(s: Signals) -> Told:
    return Told(
        "info",
        (f"{s.server} server: mean util {s.u:.0f} %, GPU idle {s.idle:.0f} %, no loaders: it waits for requests",),
        "nothing to fix: batch, consolidate on fewer GPUs, MIG",
        "batch, consolidate, MIG",
        "medium",
    )


LOW_DEMAND = Rule(
    id="low_demand",
    title="low demand",
    short="low demand",
    condition="idle ≥ 20 %, the command is a server (vllm, sglang, tritonserver, …), no loaders",
    levels="info",
    state="idle_allocated",
    holds=_low_demand,
    tell=_tell_low_demand,
    remedy="none; batch, consolidate, MIG",
)

# --- checkpoint pause -----------------------------------------------------------------------------------------------

PAUSE_S = 0.9, 60.0
"""A pause is one sample or more, and shorter than the idle family (one sample at 1 Hz may measure 0.99 s)."""
CHECKPOINT_BYTES = 50e6
"""Write rate of the job's tree that is a checkpoint, not a log [judged]."""


def _checkpoint(s: Signals) -> Pause | None:
    for pause in reversed(s.pauses):
        if PAUSE_S[0] <= pause.length_s <= PAUSE_S[1] and (pause.write_bytes_per_s or 0.0) >= CHECKPOINT_BYTES:
            return pause
    return None


def _tell_checkpoint(s: Signals) -> Told:
    pause = _checkpoint(s)
    if pause is None:
        return Told("info", ())
    return Told(
        "info",
        (f"GPU paused {pause.length_s:.0f} s, writing {rate(pause.write_bytes_per_s)}",),
        "asynchronous checkpointing (torch.distributed.checkpoint.async_save), less often",
        "async checkpoints",
        "medium",
    )


CHECKPOINT_PAUSE = Rule(
    id="checkpoint_pause",
    title="checkpoint pause",
    short="checkpoint pause",
    condition="a run of 1–60 s without a kernel in which the job's processes write ≥ 50 MB/s",
    levels="info",
    state="starved",
    holds=lambda s: bool(s.pauses) and _checkpoint(s) is not None,
    tell=_tell_checkpoint,
    remedy="async checkpointing, less often",
)

# --- worker restarts ------------------------------------------------------------------------------------------------

CHURN_PER_MIN = 4.0
BIRTH_GAP_S = 0.9
"""A run without a kernel of one sample at 1 Hz."""


def _worker_restart(s: Signals) -> bool:
    return s.idle >= IDLE_PCT and s.churn_per_min >= CHURN_PER_MIN and s.birth_gap_s >= BIRTH_GAP_S


def _tell_worker_restart(s: Signals) -> Told:
    return Told(
        "yellow",
        (f"{s.births} new workers in {s.window_s:.0f} s, beside their births the GPU stops for {s.birth_gap_s:.0f} s",),
        "DataLoader(persistent_workers=True), start workers by fork or forkserver",
        "persistent_workers=True",
    )


WORKER_RESTART = Rule(
    id="worker_restart",
    title="starved: worker restarts",
    short="starved: worker restarts",
    condition="idle ≥ 20 %, ≥ 4 new loaders a minute, and runs of ≥ 1 s without a kernel beside their births",
    levels="yellow",
    state="starved",
    holds=_worker_restart,
    tell=_tell_worker_restart,
    remedy="persistent_workers=True, fork or forkserver",
)

# --- PCIe transfers -------------------------------------------------------------------------------------------------

PCIE_BUSY, PCIE_FULL = 0.3, 0.7
"""Shares of the link's usable rate: enough to matter beside idle time; enough on its own [judged]."""
BOTH_WAYS = 0.3
"""Both directions from here on: NCCL over PCIe, not a copy of batches."""
PAGEABLE_MAIN = 0.8


def _pcie(s: Signals) -> bool:
    pcie = s.pcie
    if pcie is None or pcie < PCIE_BUSY:
        return False
    if min(s.pcie_rx or 0.0, s.pcie_tx or 0.0) >= BOTH_WAYS or s.server is not None:
        return False
    return pcie >= PCIE_FULL or (s.idle >= IDLE_PCT and pcie >= s.idle / 200.0)


PINNED = "pin_memory=True with non_blocking=True, send uint8, keep data on the GPU"


def _tell_pcie(s: Signals) -> Told:
    capacity = s.pcie_bytes_per_s or 0.0
    rx = (s.pcie_rx or 0.0) >= (s.pcie_tx or 0.0)
    moved = (s.pcie or 0.0) * capacity
    pageable = s.main is not None and s.main >= PAGEABLE_MAIN
    line = f"PCIe {'RX' if rx else 'TX'} {moved / 1e9:.1f} of {capacity / 1e9:.0f} GB/s while GPU idle {s.idle:.0f} %"
    if pageable:
        line += f", main thread {share(s.main)} runnable: looks pageable"
    return Told(
        "yellow",
        (line,),
        PINNED,
        "pin_memory, send uint8",
        "high" if pageable else "medium",
    )


PCIE_TRANSFER = Rule(
    id="pcie_transfer",
    title="starved: PCIe transfers",
    short="starved: PCIe transfers",
    condition="PCIe ≥ 30 % of the link and ≥ idle/2 with idle ≥ 20 %, or ≥ 70 %; one direction only (both are NCCL)",
    levels="yellow",
    state="starved",
    holds=_pcie,
    tell=_tell_pcie,
    remedy="pin_memory=True + non_blocking=True, send uint8, keep data on the GPU",
)

# --- main process ---------------------------------------------------------------------------------------------------


IN_WORKERS = "DataLoader(num_workers=4–8)"
"""For a main thread that loads the batches itself."""
LIGHTER_HOST = "torch.compile or CUDA graphs, no .item(), print or .cpu() in each step, fused optimizer"


def _main_process(s: Signals) -> bool:
    return s.idle >= IDLE_PCT and s.main is not None and at_least(s.main, s.u) >= MOSTLY


def _tell_main(s: Signals) -> Told:
    least = at_least(s.main or 0.0, s.u)
    line = f"GPU idle {s.idle:.0f} %: main thread runnable at least {share(least)} of that"
    if s.loaders:
        line += f", {s.loaders} workers {share(s.workers)} busy"
        remedy = LIGHTER_HOST
        short = "torch.compile, no .item()"
    else:
        line += ", no workers"
        remedy = f"{IN_WORKERS} if it loads data; else torch.compile, CUDA graphs, no .item() in each step"
        short = "num_workers=4–8, compile"
    return Told(starved_level(s), (line,), remedy, short)


MAIN_PROCESS = Rule(
    id="main_process",
    title="starved: main process",
    short="starved: main process",
    condition="idle ≥ 20 % and the main thread runnable in at least half of the idle time (lower bound)",
    levels="yellow, red from 50 % idle",
    state="starved",
    holds=_main_process,
    tell=_tell_main,
    remedy="no loaders: num_workers=4–8; else torch.compile or CUDA graphs, no .item()/print/.cpu() in each step",
)

# --- not attributed -------------------------------------------------------------------------------------------------


def _tell_unattributed(s: Signals) -> Told:
    line = f"GPU idle {s.idle:.0f} %"
    if not s.host:
        line += ", the host's side cannot be seen"
    else:
        line += f", main thread runnable {share(s.main)} of the time"
        if s.loaders:
            line += f", {s.loaders} workers {share(s.workers)}"
        if s.pool_cores is not None and s.pool_cores >= 0.5:
            line += f", host threads on {s.pool_cores:.1f} cores"
    notes = ("cannot tell: the main thread spins or computes",) if main_is_unclear(s) else ()
    return Told(
        "yellow",
        (line,),
        "dump the stacks (py-spy dump); look for locks, RPC and remote storage",
        "dump stacks",
        "medium" if s.host else "low",
        (*notes, f"the GPU has stopped for {duration(s.stopped_s)}") if s.stopped_s >= 5.0 else notes,
    )


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
