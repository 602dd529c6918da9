"""Badges for the device: its link, its memory, its errors."""

from __future__ import annotations

from gputop.diagnosis import thresholds
from gputop.diagnosis.memory_trend import (
    FULL_WITHIN_S,
    LEAST_R2,
    LEAST_RISES,
    LEAST_SLOPE,
    LEAST_SPAN_S,
    MOST_DROP,
)
from gputop.diagnosis.rules.base import BadgeRule, Told
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Badge, BadgeId, VerdictId
from gputop.diagnosis.window.sample_facts import (
    MEMORY_FULL,
    memory_of,
    ratio,
)
from gputop.diagnosis.window.sanity import BROKEN_SAMPLES, BROKEN_UTIL, is_broken
from gputop.model.durations import duration
from gputop.model.quantity import memory, pct, share


def _pcie_degraded(s: Signals, verdict: VerdictId) -> Told:
    if s.degraded_s < thresholds.DEGRADED_S:
        return None
    line = f"PCIe link {s.degraded} for {duration(s.degraded_s)} while busy"
    full = s.mean.pcie
    return (
        line
        if full is None or full < thresholds.PCIE_FULL
        else f"{line}, and {share(full)} of its rate is used"
    )


PCIE_DEGRADED = BadgeRule(
    "pcie_degraded", "PCIe link degraded", "yellow",
    f"PCIe width or generation below its maximum for {thresholds.DEGRADED_S:.0f} s with util ≥ "
    f"{thresholds.DEGRADED_UTIL:.0f} %, or "
    f"with ≥ {100 * thresholds.PCIE_FULL:.0f} % of its rate in use", _pcie_degraded,
    "reseat the card or riser, check the slot",
)  # fmt: skip

LEAK_ALARM_S = 3600.0


def _memory_leak(s: Signals, verdict: VerdictId) -> Told:
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


def _memory_full(s: Signals, verdict: VerdictId) -> Told:
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


LOST: BadgeId = "lost"
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
    return Badge(
        LOST,
        "red",
        "GPU lost",
        problem,
        remedy or "see dmesg for Xid errors; reset the GPU or reboot",
    )


def _counter_fault(s: Signals, verdict: VerdictId) -> Told:
    if not is_broken(s.gpu):
        return None
    return (
        f"SM reads 0 with util {pct(s.util_pct)} and power {share(s.mean.power)} of the limit: not "
        "believed"
    )


COUNTER_FAULT = BadgeRule(
    "counter_fault", "SM counter broken", "yellow", f"SM 0 with util ≥ {BROKEN_UTIL:.0f} % and power well above idle "
    f"for {BROKEN_SAMPLES} samples",
    _counter_fault, "close the other profiler that holds the counters, or reset the GPU", alarm=True,
)  # fmt: skip
