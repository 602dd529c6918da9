"""Badges: heat, power, links, memory, errors, company and host."""

from __future__ import annotations

from gputop.diagnosis.rules.base import BadgeRule, Told
from gputop.diagnosis.rules.device_badges import (
    COUNTER_FAULT,
    FULL_MEMORY,
    MEMORY_LEAK,
    PCIE_DEGRADED,
)
from gputop.diagnosis.rules.feeding import QUEUED, THROTTLED
from gputop.diagnosis.rules.health_badges import (
    CORRECTED_ECC,
    NVLINK_DOWN,
    RECOVERY,
    REMAPPED_ROWS,
    UNOWNED_MEMORY,
)
from gputop.diagnosis.rules.heat_badges import (
    LOW_CLOCK_BADGE,
    MEMORY_HOT,
    POWER_BRAKE,
    POWER_CAPPED,
    THERMAL,
)
from gputop.diagnosis.rules.job_badges import SHARED_GPU, STEP_GROWTH, STOP_START, STRAGGLER
from gputop.diagnosis.rules.xid_badges import ECC, XID
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.thresholds import IDLE_PCT
from gputop.diagnosis.types import Badge, VerdictId
from gputop.diagnosis.window.fabric_window import LEAST_LINK_ERRORS, LEAST_LOSSES
from gputop.diagnosis.window.sample_facts import (
    SWAP_BYTES,
    SWAP_FULL,
    SWAP_PSI,
    ratio,
    swapping,
)
from gputop.diagnosis.window.window import WINDOW_S
from gputop.model.quantity import pct, share


def _fabric_errors(s: Signals, verdict: VerdictId) -> Told:
    fabric = s.fabric
    # The fabric belongs to the machine: only a job that talks over it suffers from it.
    if fabric is None or not s.tick.nccl:
        return None
    if fabric.links:
        return Badge(
            "fabric_errors",
            "red",
            "fabric link",
            fabric.links,
            "check cable, transceiver and switch port",
        )
    return f"the fabric had {fabric.losses}" if fabric.has_losses else None


FABRIC_ERRORS = BadgeRule(
    "fabric_errors", "fabric errors", "yellow",
    f"with NCCL: ≥ {LEAST_LOSSES} drops or retransmits, or ≥ {LEAST_LINK_ERRORS} link errors of the fabric in "
    f"{WINDOW_S:.0f} s; a "
    "link that was up is down, or is slower than it was, than most of ≥ 3 equal adapters, or one lane wide",
    _fabric_errors, "check cables and congestion control (PFC, ECN); ibdiagnet or perfquery names the port",
    "yellow, red for a link",
)  # fmt: skip

PSI_CPU, HOST_CPU = 20.0, 90.0


def _core_shortage(s: Signals, verdict: VerdictId) -> Told:
    # How much of the loaders' runnable time was spent queued for a core.
    queued, psi = ratio(s.host.mean.queued, s.host.mean.workers) or 0.0, s.machine.psi_cpu_pct
    # Tasks that the cgroup's limit holds back count as pressure: the limit is the shortage, and has its own badge.
    if (
        verdict != "dataloader_cpu"
        or queued < QUEUED
        or (s.host.mean.throttled or 0.0) >= THROTTLED
    ):
        return None
    if (psi or 0.0) < PSI_CPU and (s.machine.cpu_pct or 0.0) < HOST_CPU:
        return None
    line = (
        f"workers queue for a core {share(queued)} of their time; host CPU {pct(s.machine.cpu_pct)}"
    )
    return line if psi is None else f"{line}, tasks wait for a core {pct(psi)}"


CORE_SHORTAGE = BadgeRule(
    "core_shortage", "too few cores", "yellow",
    f"with dataloader_cpu: workers queued ≥ {100 * QUEUED:.0f} % of their time and (CPU pressure ≥ {PSI_CPU:.0f} % or "
    "host "
    f"CPU ≥ {HOST_CPU:.0f} %), unless the "
    "cgroup's CPU limit holds them back",
    _core_shortage, "free cores or ask for more; not more workers",
)  # fmt: skip


def _cpu_limit(s: Signals, verdict: VerdictId) -> Told:
    if (s.host.mean.throttled or 0.0) < THROTTLED:
        return None
    line = f"the cgroup's CPU limit cut {share(s.host.mean.throttled)} of the periods short"
    return CPU_LIMIT.badge(line, None if s.idle >= IDLE_PCT else "info")


CPU_LIMIT = BadgeRule(
    "cpu_limit", "CPU limit", "yellow", f"≥ {100 * THROTTLED:.0f} % of scheduling periods throttled by the "
    "cgroup", _cpu_limit,
    "raise the CPU limit", f"yellow, info with idle < {IDLE_PCT:.0f} %",
)  # fmt: skip

SWAP = BadgeRule(
    "swap", "swapping", "yellow",
    f"swap in use and memory pressure ≥ {SWAP_PSI:.0f} %, or ≥ {SWAP_BYTES / 1e9:.0f} GB in swap with host memory ≥ "
    f"{100 * SWAP_FULL:.0f} % full",
    lambda s, verdict: swapping(s.machine), "fewer workers, smaller prefetch_factor, more memory",
)  # fmt: skip

BADGES = (
    RECOVERY, ECC, UNOWNED_MEMORY, NVLINK_DOWN, CORRECTED_ECC, REMAPPED_ROWS,
    THERMAL, POWER_BRAKE, LOW_CLOCK_BADGE, MEMORY_HOT, XID, COUNTER_FAULT, MEMORY_LEAK, FULL_MEMORY, STRAGGLER,
    STEP_GROWTH, PCIE_DEGRADED, FABRIC_ERRORS, CORE_SHORTAGE, CPU_LIMIT, SWAP, POWER_CAPPED, STOP_START, SHARED_GPU,
)  # fmt: skip
"""In the order in which they are shown: what stops a GPU comes first."""
