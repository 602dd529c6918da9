"""The starved family except loaders.

The GPU waits for demand, a checkpoint, restarts, copies or its own host.
"""

from __future__ import annotations

from gputop.diagnosis.host.idle_runs import Pause
from gputop.diagnosis.rules.base import Rule, RuleResult
from gputop.diagnosis.rules.feeding import works
from gputop.diagnosis.rules.remedy_words import PINNED_TEMPLATE, spares
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import IDLE_PCT, PCIE_FULL
from gputop.diagnosis.why_idle import restarts
from gputop.diagnosis.window.sample_facts import PCIE_USABLE, degraded_link, link_words
from gputop.diagnosis.window.window import WINDOW_S
from gputop.model.quantity import rate, share

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
        return RuleResult(())
    line = f"the GPU paused for {pause.length_s:.0f} s"
    line += f", the job wrote {rate(pause.write_bytes_per_s)}" if pause.write_bytes_per_s else ""
    line += (
        f", the main thread waited for it {share(pause.main_saves)}"
        if pause.main_saves >= SAVING
        else ""
    )
    return RuleResult((line,))


CHECKPOINT_PAUSE = Rule(
    id="checkpoint_pause",
    title="starved: checkpoint pause",
    short="starved: checkpoint",
    condition=f"a pause of {PAUSE_S[0]:.0f}–{PAUSE_S[1]:.0f} s without a kernel; the job's processes write ≥ "
    f"{CHECKPOINT_BYTES / 1e6:.0f} MB/s in it, or the main thread waits for what it writes in ≥ {100 * SAVING:.0f} % "
    "of it",
    state="starved",
    role="information",
    matches=lambda s: _checkpoint(s) is not None,
    tell=_tell_checkpoint,
    remedy="asynchronous checkpointing (torch.distributed.checkpoint.async_save), less often",
    remedy_short="async checkpoints",
)


CHURN_PER_MIN = 4.0
BIRTH_GAP_S = 0.9
"""A run without a kernel of one sample at 1 Hz."""


def _worker_restart(s: Signals) -> bool:
    found = s.host.restarts
    if (
        s.idle < IDLE_PCT
        or found.count * 60.0 / WINDOW_S < CHURN_PER_MIN
        or found.longest_pause_s < BIRTH_GAP_S
    ):
        return False
    # Importing is computing: where all loaders are new, it is starting them. Where older ones run on and compute most
    # of the time, they do the work of a dataloader.
    return restarts(s) or not works(s)


def _tell_worker_restart(s: Signals) -> RuleResult:
    stops = f"the GPU stops for {s.host.restarts.longest_pause_s:.0f} s when they start"
    evidence = (f"{s.host.restarts.count} new workers in {WINDOW_S:.0f} s; {stops}",)
    if s.host.born_kind is None or s.host.born_kind == "torch" or s.tick.pin_memory:
        return RuleResult(evidence, cause="startup")
    remedy = (
        "keep the pool alive between epochs, or prepare the data before training (map once, cache)"
    )
    return RuleResult(evidence, remedy, "keep the pool", cause="startup")


WORKER_RESTART = Rule(
    id="worker_restart",
    title="starved: worker restarts",
    condition=f"idle ≥ {IDLE_PCT:.0f} %; ≥ {CHURN_PER_MIN:.0f} new loaders a minute; pauses of ≥ {BIRTH_GAP_S:.0f} s "
    "without a kernel when they start",
    state="starved",
    matches=_worker_restart,
    tell=_tell_worker_restart,
    remedy="DataLoader(persistent_workers=True), start workers by fork or forkserver",
    remedy_short="persistent_workers=True",
)


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
    line = (
        f"PCIe {'RX' if is_rx else 'TX'} {moved / 1e9:.1f} of "
        f"{rate_gb:.{0 if rate_gb >= 10.0 else 2}f} GB/s"
    )
    line += f" ({link_words(s.gpu)})" if link else ""
    line += f"; the GPU is idle {s.idle:.0f} % of the time"
    pageable = s.host.mean.main is not None and s.host.mean.main >= PAGEABLE_MAIN
    if pageable:
        line += f", the main thread busy {share(s.host.mean.main)}: copies look pageable"
    if link and (s.mean.pcie or 0.0) >= PCIE_FULL:
        return RuleResult(
            (line,),
            f"{FULL_LINK}; then {PINNED_TEMPLATE}".format(**spares(s)),
            "reseat card, check slot",
            "high",
        )
    return RuleResult((line,), confidence="high" if pageable else "medium")


FULL_LINK = (
    "the link is the bottleneck: reseat the card, check riser, slot and BIOS (lanes, link speed)"
)
PCIE_TRANSFER = Rule(
    id="pcie_transfer",
    title="starved: PCIe transfers",
    condition=f"PCIe ≥ {100 * PCIE_BUSY:.0f} % of the link and ≥ idle/2, with idle ≥ {IDLE_PCT:.0f} %; or PCIe ≥ "
    f"{100 * PCIE_FULL:.0f} %; one direction only (both are NCCL)",
    state="starved",
    matches=_pcie,
    tell=_tell_pcie,
    remedy=PINNED_TEMPLATE,
    remedy_short="pin_memory, send uint8",
)
