"""Badges about the GPU itself: heat, power, links, memory, errors, and a job whose GPUs do unequal work."""

from __future__ import annotations

from datetime import datetime, timezone

from gputop.diagnosis.attribution import IDLE_PCT
from gputop.diagnosis.fabric_window import LEAST_LINK_ERRORS, LEAST_LOSSES
from gputop.diagnosis.job_steps import PERIOD_GROWN
from gputop.diagnosis.readings import is_broken
from gputop.diagnosis.rules.base import BadgeRule
from gputop.diagnosis.rules.dataloader import DATALOADER_CPU
from gputop.diagnosis.rules.feeding_rules import QUEUED, THROTTLED
from gputop.diagnosis.signals import LEAST_SAMPLES, WINDOW_S, Signals
from gputop.diagnosis.types import Badge, Level
from gputop.diagnosis.window import memory_of, ratio, swapping
from gputop.model.quantity import duration, memory, pct, share, step_time
from gputop.model.steps import SOURCE_WORDS

# --- heat and power -------------------------------------------------------------------------------------------------

SLOWED = 0.1
"""Share of the samples with a thermal or power-brake reason from which on the job feels it [judged]."""


def _enough(s: Signals) -> bool:
    return s.n >= min(s.least, LEAST_SAMPLES)


def _thermal(s: Signals, verdict: str) -> Badge | None:
    if s.mean.thermal < SLOWED or not _enough(s):
        return None
    clock = "" if s.mean.clock is None else f", clock {share(s.mean.clock)} of its maximum"
    line = f"thermal slowdown in {share(s.mean.thermal)} of {WINDOW_S:.0f} s{clock}"
    return Badge("thermal", "red", "thermal slowdown", line, "check airflow and fans, lower the power limit")


THERMAL = BadgeRule("thermal", "software or hardware thermal slowdown in ≥ 10 % of 30 s", "red", _thermal, alarm=True)


def _brake(s: Signals, verdict: str) -> Badge | None:
    if s.mean.brake < SLOWED or not _enough(s):
        return None
    line = f"power brake in {share(s.mean.brake)} of {WINDOW_S:.0f} s"
    return Badge("power_brake", "red", "power brake", line, "check the power supply and its cables")


POWER_BRAKE = BadgeRule("power_brake", "external power brake in ≥ 10 % of 30 s", "red", _brake)

CAPPED, CAPPED_UTIL, CAPPED_CLOCK = 0.5, 80.0, 0.75
"""Capped with clocks at 75 % of the maximum or more is how a GPU normally runs at full load."""


def _capped(s: Signals, verdict: str) -> Badge | None:
    if s.mean.capped < CAPPED or s.u < CAPPED_UTIL or s.mean.clock is None or s.mean.clock >= CAPPED_CLOCK:
        return None
    line = f"power cap in {share(s.mean.capped)} of {WINDOW_S:.0f} s, clock {share(s.mean.clock)} of its maximum"
    return Badge("power_capped", "info", "power capped", line, "raise the power limit if cooling allows")


POWER_CAPPED = BadgeRule(
    "power_capped", "power cap in ≥ 50 % of 30 s, util ≥ 80 %, clock < 75 % of its maximum", "info", _capped
)

# --- links ----------------------------------------------------------------------------------------------------------

DEGRADED_S = 30.0


def _pcie_degraded(s: Signals, verdict: str) -> Badge | None:
    if s.degraded_s < DEGRADED_S:
        return None
    line = f"PCIe link {s.degraded} for {duration(s.degraded_s)} while busy"
    return Badge("pcie_degraded", "yellow", "PCIe link degraded", line, "reseat the card or riser, check the slot")


PCIE_DEGRADED = BadgeRule(
    "pcie_degraded", "PCIe width or generation below its maximum for 30 s with util ≥ 50 %", "yellow", _pcie_degraded
)

# --- memory ---------------------------------------------------------------------------------------------------------

LEAK_ALARM_S = 3600.0


def _memory_leak(s: Signals, verdict: str) -> Badge | None:
    leak = s.leak
    if leak is None:
        return None
    level: Level = "red" if leak.full_in_s is not None and leak.full_in_s < LEAK_ALARM_S else "yellow"
    full = "" if leak.full_in_s is None else f", full in {duration(leak.full_in_s)}"
    line = (
        f"{leak.name} (pid {leak.pid}) grows {leak.bytes_per_min / 1e6:.0f} MB/min "
        f"over {duration(leak.over_s)} (R² {leak.r2:.2f}){full}"
    )
    remedy = "look for tensors kept alive: losses without .item(), growing lists, caches"
    return Badge("memory_leak", level, "memory leak", line, remedy)


MEMORY_LEAK = BadgeRule(
    "memory_leak",
    "memory of one process over ≥ 10 min: Theil–Sen slope ≥ 20 MB/min, R² ≥ 0.9, ≥ 3 rises in each third, no "
    "drop > 5 %, full in < 24 h",
    "yellow, red when full in < 1 h",
    _memory_leak,
)

FULL = 0.95


def _memory_full(s: Signals, verdict: str) -> Badge | None:
    filled = ratio(*memory_of(s.gpu, s.machine))
    if filled is None or filled < FULL:
        return None
    line = f"{memory(s.gpu.mem_used_bytes or 0.0)} of {memory(s.gpu.mem_total_bytes or 0.0)} used"
    if s.gpu.static.unified_memory:
        line = f"{share(filled)} of the host's memory used, which this GPU shares"
    # Servers fill the memory with their key-value cache on purpose.
    level: Level = "info" if s.tick.server is not None else "yellow"
    return Badge("memory_full", level, "memory full", line, "smaller batch, activation checkpointing")


MEMORY_FULL = BadgeRule(
    "memory_full",
    "device memory ≥ 95 % used; of a GPU that shares the host's, that",
    "yellow, info for a server",
    _memory_full,
)

# --- errors ---------------------------------------------------------------------------------------------------------


def ecc_badge(errors: tuple[str, ...]) -> Badge | None:
    """New hardware errors; known also while a GPU cannot be judged."""
    if not errors:
        return None
    remedy = "drain the node: nvidia-smi -q -d ECC,ROW_REMAPPER; reset or replace the GPU"
    return Badge("ecc", "red", "hardware error", "; ".join(errors), remedy, sticky=True)


ECC = BadgeRule(
    "ecc",
    "a NEW uncorrected ECC error, row remap failed or pending, Xid 48/63/64/74/79/94/95; stays until acknowledged",
    "red",
    lambda s, verdict: ecc_badge(s.errors),
    alarm=True,
)


def xid_badge(xids: tuple[str, ...]) -> Badge | None:
    """New Xid errors that point at software."""
    if not xids:
        return None
    return Badge("xid", "yellow", "Xid error", "; ".join(xids), "usually the program: see dmesg", sticky=True)


XID = BadgeRule(
    "xid",
    "any other Xid error; stays until acknowledged",
    "yellow",
    lambda s, verdict: xid_badge(s.xids),
    alarm=True,
)


LOST = "lost"


def lost_badge(reason: str) -> Badge:
    """A GPU that can no longer be read. What a reason says after a semicolon is what to do."""
    problem, _, remedy = reason.partition("; ")
    return Badge(LOST, "red", "GPU lost", problem, remedy or "see dmesg for Xid errors; reset the GPU or reboot")


LOST_CONDITION = "the GPU cannot be read: fallen off the bus, needs a reset"


def _counter_fault(s: Signals, verdict: str) -> Badge | None:
    if not is_broken(s.gpu):
        return None
    line = f"SM reads 0 with util {pct(s.u)} and power {share(s.mean.power)} of the limit: not believed"
    return Badge(
        "counter_fault",
        "yellow",
        "SM counter broken",
        line,
        "close the other profiler that holds the counters, or reset the GPU",
    )


COUNTER_FAULT = BadgeRule(
    "counter_fault",
    "SM 0 with util ≥ 50 % and power well above idle for 3 samples",
    "yellow",
    _counter_fault,
    alarm=True,
)

# --- pattern and company --------------------------------------------------------------------------------------------

STOPS = 4


def _stop_start(s: Signals, verdict: str) -> Badge | None:
    if s.falls < STOPS or s.comes_and_goes:
        return None
    line = f"{s.falls} falls from ≥ 60 % to ≤ 20 % util in 30 s"
    return Badge("stop_start", "info", "stop and start", line, "prefetch, asynchronous checkpoints and evaluation")


STOP_START = BadgeRule(
    "stop_start",
    "≥ 4 alternations through 60→20 % util in 30 s; not of a server, or where no process is seen to cause them",
    "info",
    _stop_start,
)


def _step_growth(s: Signals, verdict: str) -> Badge | None:
    period = s.period
    if period is None or period.grown_t is None:
        return None
    slower = 100.0 * (period.period_s / period.first_s - 1.0)
    since = datetime.fromtimestamp(period.grown_t, timezone.utc)
    line = f"a step takes {step_time(period.period_s)} ({SOURCE_WORDS[period.source]}), {slower:.0f} % longer than the "
    line += f"{step_time(period.first_s)} at first, since {since:%H:%M} UTC"
    remedy = "see what changed then: clocks, temperature, input, sequence length, a neighbour on the host"
    return Badge("step_growth", "yellow", "steps grow longer", line, remedy)


STEP_GROWTH = BadgeRule(
    "step_growth",
    f"the step that the GPUs' rhythm shows (samples every 0.25 s) has grown by ≥ {100 * (PERIOD_GROWN - 1):.0f} %",
    "yellow",
    _step_growth,
)


def _straggler(s: Signals, verdict: str) -> Badge | None:
    peer = s.peer
    if peer is None:
        return None
    mine = peer.straggler == s.index
    line = f"GPU {peer.straggler}: {peer.measure} {pct(peer.value)}, "
    line += f"the other {peer.gpus - 1} of the job {pct(peer.median)}"
    line += ": it does more, the others wait" if mine else ": this GPU waits for it"
    remedy = "balance the ranks' data and layers; compare clocks, PCIe and host of that rank"
    if not mine:
        waits, remedy = f"waits for GPU {peer.straggler}", f"see GPU {peer.straggler}: {remedy}"
        return Badge("straggler", "info", waits, line, remedy, about=peer.straggler)
    return Badge("straggler", "yellow", "straggler", line, remedy)


STRAGGLER = BadgeRule(
    "straggler",
    "≥ 3 GPUs of one job, all util ≥ 80 %, one does more than the median of the others by > max(15 points, 3 × 1.4826 "
    "× MAD) in SM (else power) for 60 s",
    "yellow on the straggler, info on those that wait",
    _straggler,
)


# Badges about the host around a GPU: fabric, cores, limits, swap, company on the same GPU.


def _fabric_errors(s: Signals, verdict: str) -> Badge | None:
    fabric = s.fabric
    # The fabric belongs to the machine: only a job that talks over it suffers from it.
    if fabric is None or not s.tick.nccl:
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
    if verdict != DATALOADER_CPU.id or (s.host.mean.queue_share or 0.0) < QUEUED:
        return None
    if s.host.mean.throttled is not None and s.host.mean.throttled >= THROTTLED:
        # Tasks that the cgroup's limit holds back count as pressure: the limit is the shortage, and has its own badge.
        return None
    waits = s.machine.psi_cpu_pct is not None and s.machine.psi_cpu_pct >= PSI_CPU
    if not waits and (s.machine.cpu_pct is None or s.machine.cpu_pct < HOST_CPU):
        return None
    line = f"workers queue for a core {share(s.host.mean.queue_share)} of their time; host CPU {pct(s.machine.cpu_pct)}"
    if s.machine.psi_cpu_pct is not None:
        line += f", tasks wait for a core {pct(s.machine.psi_cpu_pct)}"
    return Badge("core_shortage", "yellow", "too few cores", line, "free cores or ask for more; not more workers")


CORE_SHORTAGE = BadgeRule(
    "core_shortage",
    "with dataloader_cpu: workers queued ≥ 30 % of their time and (CPU pressure ≥ 20 % or host CPU ≥ 90 %), unless the "
    "cgroup's CPU limit holds them back",
    "yellow",
    _core_shortage,
)


def _cpu_limit(s: Signals, verdict: str) -> Badge | None:
    if s.host.mean.throttled is None or s.host.mean.throttled < THROTTLED:
        return None
    line = f"the cgroup's CPU limit cut {share(s.host.mean.throttled)} of the periods short"
    level: Level = "yellow" if s.idle >= IDLE_PCT else "info"
    return Badge("cpu_limit", level, "CPU limit", line, "raise the CPU limit")


CPU_LIMIT = BadgeRule(
    "cpu_limit", "≥ 10 % of scheduling periods throttled by the cgroup", "yellow, info with idle < 20 %", _cpu_limit
)


def _swap(s: Signals, verdict: str) -> Badge | None:
    words = swapping(s.machine)
    if words is None:
        return None
    return Badge("swap", "yellow", "swapping", words, "fewer workers, smaller prefetch_factor, more memory")


SWAP = BadgeRule(
    "swap", "swap in use and memory pressure ≥ 10 %, or ≥ 1 GB in swap with host memory ≥ 90 % full", "yellow", _swap
)


def _shared(s: Signals, verdict: str) -> Badge | None:
    if s.tick.computing < 2:
        return None
    line = f"{s.tick.computing} compute processes: which of them causes this is uncertain"
    return Badge("shared_gpu", "info", "shared GPU", line)


SHARED_GPU = BadgeRule("shared_gpu", "more than one compute process", "info", _shared)
