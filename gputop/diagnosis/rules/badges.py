"""Badges: heat, power, links, memory, errors, company and host."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from msgspec import Struct

from gputop.diagnosis import thresholds
from gputop.diagnosis.attribution import IDLE_PCT
from gputop.diagnosis.fabric_window import LEAST_LINK_ERRORS, LEAST_LOSSES
from gputop.diagnosis.hardware_health import (
    FULL_WITHIN_S,
    LEAST_R2,
    LEAST_RISES,
    LEAST_SLOPE,
    LEAST_SPAN_S,
    MOST_DROP,
)
from gputop.diagnosis.idle_runs import ALTERNATION_S, BUSY_UTIL, IDLE_UTIL
from gputop.diagnosis.job_steps import PERIOD_GROWN
from gputop.diagnosis.rules.busy import LOW_CLOCK, low_clock_remedy, low_clock_words
from gputop.diagnosis.rules.dataloader import DATALOADER_CPU
from gputop.diagnosis.rules.feeding_rules import QUEUED, THROTTLED
from gputop.diagnosis.sample_facts import (
    HBM_MAX_C,
    MEMORY_FULL,
    SWAP_BYTES,
    SWAP_FULL,
    SWAP_PSI,
    memory_limit_c,
    memory_of,
    ratio,
    swapping,
)
from gputop.diagnosis.sanity import BROKEN_SAMPLES, BROKEN_UTIL, has_impossible_power, is_broken
from gputop.diagnosis.signals import LEAST_SAMPLES, Signals
from gputop.diagnosis.stragglers import ALL_UTIL, FOR_S, LEAST_GPUS, LEAST_POINTS
from gputop.diagnosis.thresholds import HALF_RATIO
from gputop.diagnosis.types import Badge, Level
from gputop.diagnosis.window import WINDOW_S
from gputop.model.quantity import duration, memory, pct, share, step_time
from gputop.model.steps import SOURCE_WORDS

Told = str | Badge | None
"""The evidence of a badge, a badge that is not as the rule has it, or none."""


class BadgeRule(Struct, frozen=True):
    """One badge: ``tell`` gives it for the signals and the id of the verdict that they make.

    ``levels`` are all levels in words where there are others. An ``alarm`` shows at once; the others need eight of ten
    ticks, as verdicts do. ``sticky`` ones stay until they are acknowledged.
    """

    id: str
    title: str
    level: Level
    condition: str
    tell: Callable[[Signals, str], Told]
    remedy: str = ""
    levels: str = ""
    alarm: bool = False
    sticky: bool = False
    not_beside: str = ""
    """Id of a badge that asks for the opposite, and goes first."""

    def badge(self, evidence: str, level: Level | None = None) -> Badge:
        """The badge with this evidence."""
        return Badge(self.id, level or self.level, self.title, evidence, self.remedy, self.sticky)

    def check(self, s: Signals, verdict: str) -> Badge | None:
        """The badge, where it is due."""
        told = self.tell(s, verdict)
        return self.badge(told) if isinstance(told, str) else told


# --- heat and power -------------------------------------------------------------------------------------------------

COOL_C = 70.0
"""No GPU slows down for its temperature below this [judged]: thresholds of the driver lie at 83 to 105 °C."""


def _is_slowed(s: Signals, part: float) -> bool:
    return part >= thresholds.SLOWED and s.samples >= min(s.min_samples, LEAST_SAMPLES)


def _clock(s: Signals) -> str:
    return "" if s.mean.clock is None else f", clock {share(s.mean.clock)} of its maximum"


def _thermal(s: Signals, verdict: str) -> Told:
    if has_impossible_power(s.gpu) and (s.gpu.temp_c or COOL_C) < COOL_C:
        return None
    if not _is_slowed(s, s.mean.thermal):
        return None
    return f"thermal slowdown in {share(s.mean.thermal)} of {WINDOW_S:.0f} s{_clock(s)}"


THERMAL = BadgeRule(
    "thermal", "thermal slowdown", "red", f"software or hardware thermal slowdown in ≥ {100 * thresholds.SLOWED:.0f} "
    "% of "
    f"{WINDOW_S:.0f} s", _thermal,
    "check airflow and fans, lower the power limit", alarm=True,
)  # fmt: skip


def _brake(s: Signals, verdict: str) -> Told:
    return f"power brake in {share(s.mean.brake)} of {WINDOW_S:.0f} s" if _is_slowed(s, s.mean.brake) else None


POWER_BRAKE = BadgeRule(
    "power_brake", "power brake", "red", f"external power brake in ≥ {100 * thresholds.SLOWED:.0f} % of {WINDOW_S:.0f} "
    "s", _brake,
    "check the power supply and its cables",
)  # fmt: skip

CAPPED, CAPPED_UTIL, CAPPED_CLOCK = 0.5, 80.0, 0.75
"""Capped with clocks at 75 % of the maximum or more is how a GPU normally runs at full load."""


def _capped(s: Signals, verdict: str) -> Told:
    if has_impossible_power(s.gpu) or _is_slowed(s, s.mean.thermal):
        # Beside heat it would ask for the opposite of what helps.
        return None
    if s.mean.capped < CAPPED or s.util_pct < CAPPED_UTIL or s.mean.clock is None or s.mean.clock >= CAPPED_CLOCK:
        return None
    return f"power cap in {share(s.mean.capped)} of {WINDOW_S:.0f} s{_clock(s)}"


POWER_CAPPED = BadgeRule(
    "power_capped", "power capped", "info", f"power cap in ≥ {100 * CAPPED:.0f} % of {WINDOW_S:.0f} s, util ≥ "
    f"{CAPPED_UTIL:.0f} %, clock < {100 * CAPPED_CLOCK:.0f} % "
    "of its maximum",
    _capped, "raise the power limit if cooling allows", not_beside=THERMAL.id,
)  # fmt: skip


def _low_clock(s: Signals, verdict: str) -> Told:
    if not s.conditions.low_clock:
        return None
    return Badge(LOW_CLOCK.id, "yellow", LOW_CLOCK.title, low_clock_words(s), low_clock_remedy(s))


LOW_CLOCK_BADGE = BadgeRule(LOW_CLOCK.id, LOW_CLOCK.title, "yellow", LOW_CLOCK.condition, _low_clock, LOW_CLOCK.remedy)


def _memory_hot(s: Signals, verdict: str) -> Told:
    now, most = s.gpu.mem_temp_c, memory_limit_c(s.gpu)
    return None if now is None or most is None or now <= most else f"memory at {now:.0f} of {most:.0f} °C"


MEMORY_HOT = BadgeRule(
    "memory_hot", "memory too hot", "yellow",
    f"memory temperature above the driver's limit, or above {HBM_MAX_C:.0f} °C of HBM if the driver names none",
    _memory_hot, "check airflow and the heat sink's contact: the memory may slow down without a throttle reason",
)  # fmt: skip

# --- links and memory -----------------------------------------------------------------------------------------------


def _pcie_degraded(s: Signals, verdict: str) -> Told:
    if s.degraded_s < thresholds.DEGRADED_S:
        return None
    line = f"PCIe link {s.degraded} for {duration(s.degraded_s)} while busy"
    full = s.mean.pcie
    return line if full is None or full < thresholds.PCIE_FULL else f"{line}, and {share(full)} of its rate is used"


PCIE_DEGRADED = BadgeRule(
    "pcie_degraded", "PCIe link degraded", "yellow",
    f"PCIe width or generation below its maximum for {thresholds.DEGRADED_S:.0f} s with util ≥ "
    f"{thresholds.DEGRADED_UTIL:.0f} %, or "
    f"with ≥ {100 * thresholds.PCIE_FULL:.0f} % of its rate in use", _pcie_degraded,
    "reseat the card or riser, check the slot",
)  # fmt: skip

LEAK_ALARM_S = 3600.0


def _memory_leak(s: Signals, verdict: str) -> Told:
    leak = s.leak
    if leak is None:
        return None
    full = "" if leak.full_in_s is None else f", full in {duration(leak.full_in_s)}"
    line = f"{leak.name} (pid {leak.pid}) grows {leak.bytes_per_min / 1e6:.0f} MB/min "
    line += f"over {duration(leak.over_s)} (R² {leak.r2:.2f}){full}"
    is_soon = leak.full_in_s is not None and leak.full_in_s < LEAK_ALARM_S
    return MEMORY_LEAK.badge(line, "red" if is_soon else None)


MEMORY_LEAK = BadgeRule(
    "memory_leak", "memory leak", "yellow",
    f"memory of one process over ≥ {LEAST_SPAN_S / 60:.0f} min: Theil–Sen slope ≥ {LEAST_SLOPE / 1e6:.0f} MB/min, R² ≥ "
    f"{LEAST_R2:g}, ≥ {LEAST_RISES} rises in each third, no drop > {100 * MOST_DROP:.0f} %, full in < "
    f"{FULL_WITHIN_S / 3600:.0f} h",
    _memory_leak, "look for tensors kept alive: losses without .item(), growing lists, caches",
    "yellow, red when full in < 1 h",
)  # fmt: skip


def _memory_full(s: Signals, verdict: str) -> Told:
    filled = ratio(*memory_of(s.gpu, s.machine))
    if filled is None or filled < MEMORY_FULL:
        return None
    line = f"{memory(s.gpu.mem_used_bytes or 0.0)} of {memory(s.gpu.mem_total_bytes or 0.0)} used"
    if s.gpu.static.unified_memory:
        line = f"{share(filled)} of the host's memory used, which this GPU shares"
    # Servers fill the memory with their key-value cache on purpose.
    return line if s.tick.server is None else Badge(FULL_MEMORY.id, "info", FULL_MEMORY.title, line)


FULL_MEMORY = BadgeRule(
    "memory_full", "memory full", "yellow", f"device memory ≥ {100 * MEMORY_FULL:.0f} % used; of a GPU that shares the "
    "host's, that",
    _memory_full, "smaller batch, activation checkpointing", "yellow, info for a server",
)  # fmt: skip

# --- errors ---------------------------------------------------------------------------------------------------------

ECC = BadgeRule(
    "ecc", "hardware error", "red",
    "a NEW uncorrected ECC error, row remap failed or pending, Xid 48/63/64/74/79/94/95; stays until acknowledged",
    lambda s, verdict: "; ".join(s.errors) or None,
    "drain the node: nvidia-smi -q -d ECC,ROW_REMAPPER; reset or replace the GPU", alarm=True, sticky=True,
)  # fmt: skip

XID = BadgeRule(
    "xid", "Xid error", "yellow", "any other Xid error; stays until acknowledged",
    lambda s, verdict: "; ".join(s.xids) or None, "usually the program: see dmesg", alarm=True, sticky=True,
)  # fmt: skip

LOST = "lost"
LOST_CONDITION = "the GPU cannot be read: fallen off the bus, needs a reset"


DEVICES_WITHDRAWN = (
    "a container that lost its devices (systemctl daemon-reload, cgroup driver systemd): restart it, best with CDI "
    "devices; else see dmesg for Xid errors, reset the GPUs or reboot"
)


def lost_badge(reason: str, *, all_at_once: bool = False) -> Badge:
    """A GPU that can no longer be read.

    The part of a reason after a semicolon is the remedy.
    """
    problem, _, remedy = reason.partition("; ")
    if all_at_once and not remedy:
        return Badge(LOST, "red", "GPU lost", f"all GPUs at once: {problem}", DEVICES_WITHDRAWN)
    return Badge(LOST, "red", "GPU lost", problem, remedy or "see dmesg for Xid errors; reset the GPU or reboot")


def _counter_fault(s: Signals, verdict: str) -> Told:
    if not is_broken(s.gpu):
        return None
    return f"SM reads 0 with util {pct(s.util_pct)} and power {share(s.mean.power)} of the limit: not believed"


COUNTER_FAULT = BadgeRule(
    "counter_fault", "SM counter broken", "yellow", f"SM 0 with util ≥ {BROKEN_UTIL:.0f} % and power well above idle "
    f"for {BROKEN_SAMPLES} samples",
    _counter_fault, "close the other profiler that holds the counters, or reset the GPU", alarm=True,
)  # fmt: skip

# --- pattern and company --------------------------------------------------------------------------------------------

STOPS = 4

STOP_START = BadgeRule(
    "stop_start", "stop and start", "info",
    f"≥ {STOPS} alternations through {BUSY_UTIL:.0f}→{IDLE_UTIL:.0f} % util in {ALTERNATION_S:.0f} s; not of a "
    "server, or where no process is seen to cause them",
    lambda s, verdict: (
        None if s.falls < STOPS or s.comes_and_goes else f"{s.falls} falls from ≥ {BUSY_UTIL:.0f} % to ≤ "
        f"{IDLE_UTIL:.0f} % util in {ALTERNATION_S:.0f} s"
    ),
    "prefetch, asynchronous checkpoints and evaluation",
)  # fmt: skip


def _step_growth(s: Signals, verdict: str) -> Told:
    period = s.period
    if period is None or period.grown_t is None:
        return None
    slower = 100.0 * (period.period_s / period.first_s - 1.0)
    since = datetime.fromtimestamp(period.grown_t, timezone.utc)
    line = f"a step takes {step_time(period.period_s)} ({SOURCE_WORDS[period.source]}), {slower:.0f} % longer than the "
    return line + f"{step_time(period.first_s)} at first, since {since:%H:%M} UTC"


STEP_GROWTH = BadgeRule(
    "step_growth", "steps grow longer", "yellow",
    f"the step that the GPUs' rhythm shows (samples every 0.25 s) has grown by ≥ {100 * (PERIOD_GROWN - 1):.0f} %",
    _step_growth, "see what changed then: clocks, temperature, input, sequence length, a neighbour on the host",
)  # fmt: skip


def _straggler(s: Signals, verdict: str) -> Told:
    peer = s.peer
    if peer is None:
        return None
    line = f"GPU {peer.straggler}: {peer.measure} {pct(peer.value)}, "
    line += f"the other {peer.gpus - 1} of the job {pct(peer.median)}"
    if peer.straggler == s.index:
        waiting = "the others wait" if len(peer.waits) == peer.gpus - 1 else f"{len(peer.waits)} of them wait"
        return f"{line}: it does more" + (f", {waiting}" if peer.waits else "")
    if s.index not in peer.waits:
        return None
    waits, remedy = f"waits for GPU {peer.straggler}", f"see GPU {peer.straggler}: {STRAGGLER.remedy}"
    return Badge("straggler", "info", waits, f"{line}: this GPU waits for it", remedy, about=peer.straggler)


STRAGGLER = BadgeRule(
    "straggler", "straggler", "yellow",
    f"≥ {LEAST_GPUS} GPUs of one job (no MIG instances), all util ≥ {ALL_UTIL:.0f} %, one does more than the median of "
    f"the others by > max({LEAST_POINTS:.0f} points, 3 × 1.4826 × MAD) in SM (else power) for {FOR_S:.0f} s; "
    f"those wait whose SM / util is below {HALF_RATIO:g}, or who are busy and do not work",
    _straggler, "balance the ranks' data and layers; compare clocks, PCIe and host of that rank",
    "yellow on the straggler, info on those that wait",
)  # fmt: skip

SHARED_GPU = BadgeRule(
    "shared_gpu", "shared GPU", "info", "more than one compute process",
    lambda s, verdict: (
        None if (n := s.tick.computing) < 2 else f"{n} compute processes: which of them causes this is uncertain"
    ),
)  # fmt: skip

# --- the host -------------------------------------------------------------------------------------------------------


def _fabric_errors(s: Signals, verdict: str) -> Told:
    fabric = s.fabric
    # The fabric belongs to the machine: only a job that talks over it suffers from it.
    if fabric is None or not s.tick.nccl:
        return None
    if fabric.links:
        return Badge("fabric_errors", "red", "fabric link", fabric.links, "check cable, transceiver and switch port")
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


def _core_shortage(s: Signals, verdict: str) -> Told:
    # How much of the loaders' runnable time was spent queued for a core.
    queued, psi = ratio(s.host.mean.queued, s.host.mean.workers) or 0.0, s.machine.psi_cpu_pct
    # Tasks that the cgroup's limit holds back count as pressure: the limit is the shortage, and has its own badge.
    if verdict != DATALOADER_CPU.id or queued < QUEUED or (s.host.mean.throttled or 0.0) >= THROTTLED:
        return None
    if (psi or 0.0) < PSI_CPU and (s.machine.cpu_pct or 0.0) < HOST_CPU:
        return None
    line = f"workers queue for a core {share(queued)} of their time; host CPU {pct(s.machine.cpu_pct)}"
    return line if psi is None else f"{line}, tasks wait for a core {pct(psi)}"


CORE_SHORTAGE = BadgeRule(
    "core_shortage", "too few cores", "yellow",
    f"with dataloader_cpu: workers queued ≥ {100 * QUEUED:.0f} % of their time and (CPU pressure ≥ {PSI_CPU:.0f} % or "
    "host "
    f"CPU ≥ {HOST_CPU:.0f} %), unless the "
    "cgroup's CPU limit holds them back",
    _core_shortage, "free cores or ask for more; not more workers",
)  # fmt: skip


def _cpu_limit(s: Signals, verdict: str) -> Told:
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
    ECC, THERMAL, POWER_BRAKE, LOW_CLOCK_BADGE, MEMORY_HOT, XID, COUNTER_FAULT, MEMORY_LEAK, FULL_MEMORY, STRAGGLER,
    STEP_GROWTH, PCIE_DEGRADED, FABRIC_ERRORS, CORE_SHORTAGE, CPU_LIMIT, SWAP, POWER_CAPPED, STOP_START, SHARED_GPU,
)  # fmt: skip
"""In the order in which they are shown: what stops a GPU comes first."""
