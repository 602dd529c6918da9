"""Numbers derived from one sample: GAP, WORK, and causes of low clocks."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gputop.model.quantity import known
from gputop.model.snapshot import GpuSample

IDLE = 0x1
APPLICATION_CLOCKS = 0x2
POWER_CAP = 0x4
HARDWARE_SLOWDOWN = 0x8
SYNC_BOOST = 0x10
SOFTWARE_THERMAL = 0x20
HARDWARE_THERMAL = 0x40
POWER_BRAKE = 0x80
DISPLAY_CLOCKS = 0x100

WORDS = {
    IDLE: "idle",
    APPLICATION_CLOCKS: "application clocks",
    POWER_CAP: "power cap",
    HARDWARE_SLOWDOWN: "hardware slowdown",
    SYNC_BOOST: "sync boost",
    SOFTWARE_THERMAL: "software thermal",
    HARDWARE_THERMAL: "hardware thermal",
    POWER_BRAKE: "power brake",
    DISPLAY_CLOCKS: "display clocks",
}
THERMAL = SOFTWARE_THERMAL | HARDWARE_THERMAL
NOT_THROTTLING = IDLE | APPLICATION_CLOCKS | DISPLAY_CLOCKS
"""Reasons that slow nothing down: idle, or clocks set by hand."""


def throttle_words(mask: int) -> list[str]:
    """Return the reasons in a mask that slow a GPU down."""
    return [word for bit, word in WORDS.items() if mask & bit & ~NOT_THROTTLING]


DRAM_PRACTICAL_PEAK = 0.8
"""About 80 % of the theoretical DRAM bandwidth is the most that kernels reach (NVIDIA's DCGM documentation)."""


class Work(Struct, frozen=True):
    """Utilization of the arithmetic pipes or the memory.

    ``pct`` is percent; ``kind`` is C for compute, M for memory.
    """

    pct: float
    kind: Literal["C", "M"]


def work(gpu: GpuSample) -> Work | None:
    """Return the larger of compute and memory utilization, if measured.

    Compute is the busiest arithmetic pipe, memory is DRAM activity over its practical peak.
    """
    driven = [Work(value, "C") for value in known(gpu.pipes)]
    if gpu.dram_active_pct is not None:
        driven.append(Work(min(100.0, gpu.dram_active_pct / DRAM_PRACTICAL_PEAK), "M"))
    return max(driven, key=lambda work: work.pct, default=None)


def lacks_sm(gpu: GpuSample) -> bool:
    """Return whether only SM activity is missing.

    The source in use measures other counters of this GPU.
    """
    others = (
        gpu.tensor_active_pct,
        gpu.dram_active_pct,
        gpu.sm_occupancy_pct,
        gpu.graphics_active_pct,
    )
    return (
        gpu.sm_active_pct is None
        and gpu.sm_lack is not None
        and any(value is not None for value in others)
    )


def gap_pct(gpu: GpuSample) -> float | None:
    """Return UTIL − SM in points, never below 0.

    SM is weighted by cycles and may exceed UTIL when clocks swing.
    """
    if gpu.util_pct is None or gpu.sm_active_pct is None:
        return None
    return max(0.0, gpu.util_pct - gpu.sm_active_pct)


def slowed(gpu: GpuSample) -> dict[str, float | None]:
    """Return causes of low clocks in this sample.

    Each is 100 or 0, so that a mean is a share of time. ``slowed_heat_pct``: software or hardware thermal slowdown.
    ``slowed_brake_pct``: power brake, or a hardware slowdown that is not heat. ``slowed_cap_pct``: the power cap, which
    is how a busy GPU normally runs.
    """
    mask = gpu.throttle_reasons
    if mask is None:
        return {"slowed_heat_pct": None, "slowed_brake_pct": None, "slowed_cap_pct": None}
    # The driver sets the hardware bit together with the bit of the reason.
    brake = mask & POWER_BRAKE or (mask & HARDWARE_SLOWDOWN and not mask & THERMAL)
    return {
        "slowed_heat_pct": 100.0 if mask & THERMAL else 0.0,
        "slowed_brake_pct": 100.0 if brake else 0.0,
        "slowed_cap_pct": 100.0 if mask & POWER_CAP else 0.0,
    }
