"""Badges about the host around a GPU: fabric, cores, limits, swap, company on the same GPU."""

from __future__ import annotations

from gputop.diagnosis.attribution import IDLE_PCT
from gputop.diagnosis.fabric import LEAST_LINK_ERRORS, LEAST_LOSSES
from gputop.diagnosis.rules.base import BadgeRule
from gputop.diagnosis.rules.dataloader import DATALOADER_CPU
from gputop.diagnosis.rules.feeding_remedies import QUEUED, THROTTLED
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Badge, Level
from gputop.model.quantity import pct, share


def _fabric_errors(s: Signals, verdict: str) -> Badge | None:
    fabric = s.fabric
    # The fabric belongs to the machine: only a job that talks over it suffers from it.
    if fabric is None or not s.nccl:
        return None
    if fabric.links:
        return Badge("fabric_errors", "red", "fabric link", fabric.links, "check cable, transceiver and switch port")
    if not fabric.has_losses:
        return None
    remedy = "check cables and congestion control (PFC, ECN); ibdiagnet or perfquery names the port"
    return Badge("fabric_errors", "yellow", "fabric errors", f"the fabric had {fabric.losses}", remedy)


FABRIC_ERRORS = BadgeRule(
    "fabric_errors",
    f"with NCCL: ≥ {LEAST_LOSSES} drops or retransmits, or ≥ {LEAST_LINK_ERRORS} link errors of the fabric in 30 s; a "
    "link that was up is down, or is slower than it was, than most of ≥ 3 equal adapters, or one lane wide",
    "yellow, red for a link",
    _fabric_errors,
)

PSI_CPU, HOST_CPU = 20.0, 90.0


def _core_shortage(s: Signals, verdict: str) -> Badge | None:
    if verdict != DATALOADER_CPU.id or (s.queue_share or 0.0) < QUEUED:
        return None
    waits = s.psi_cpu is not None and s.psi_cpu >= PSI_CPU
    if not waits and (s.host_cpu is None or s.host_cpu < HOST_CPU):
        return None
    line = f"workers queue for a core {share(s.queue_share)} of their time; host CPU {pct(s.host_cpu)}"
    if s.psi_cpu is not None:
        line += f", tasks wait for a core {pct(s.psi_cpu)}"
    return Badge("core_shortage", "yellow", "too few cores", line, "free cores or ask for more; not more workers")


CORE_SHORTAGE = BadgeRule(
    "core_shortage",
    "with dataloader_cpu: workers queued ≥ 30 % of their time and (CPU pressure ≥ 20 % or host CPU ≥ 90 %)",
    "yellow",
    _core_shortage,
)


def _cpu_limit(s: Signals, verdict: str) -> Badge | None:
    if s.throttled is None or s.throttled < THROTTLED:
        return None
    line = f"the cgroup's CPU limit cut {share(s.throttled)} of the periods short"
    level: Level = "yellow" if s.idle >= IDLE_PCT else "info"
    return Badge("cpu_limit", level, "CPU limit", line, "raise the CPU limit")


CPU_LIMIT = BadgeRule(
    "cpu_limit", "≥ 10 % of scheduling periods throttled by the cgroup", "yellow, info with idle < 20 %", _cpu_limit
)


def _swap(s: Signals, verdict: str) -> Badge | None:
    if s.swapping is None:
        return None
    return Badge("swap", "yellow", "swapping", s.swapping, "fewer workers, smaller prefetch_factor, more memory")


SWAP = BadgeRule(
    "swap", "swap in use and memory pressure ≥ 10 %, or ≥ 1 GB in swap with host memory ≥ 90 % full", "yellow", _swap
)


def _shared(s: Signals, verdict: str) -> Badge | None:
    if s.processes < 2:
        return None
    line = f"{s.processes} compute processes: which of them causes this is uncertain"
    return Badge("shared_gpu", "info", "shared GPU", line)


SHARED_GPU = BadgeRule("shared_gpu", "more than one compute process", "info", _shared)
