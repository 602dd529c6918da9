"""Numbers that follow from one sample alone: GAP and WORK."""

from __future__ import annotations

from typing import Literal, NamedTuple

from gputop.model.snapshot import GpuSample

DRAM_PRACTICAL_PEAK = 0.8
"""About 80 % of the theoretical DRAM bandwidth is the most that kernels reach (NVIDIA's DCGM documentation)."""


class Work(NamedTuple):
    """How hard the arithmetic pipes or the memory were driven, in percent, and which of the two it was."""

    pct: float
    kind: Literal["C", "M"]


def work(gpu: GpuSample) -> Work | None:
    """The larger of compute (the busiest arithmetic pipe) and memory (DRAM over its practical peak), if measured."""
    pipes = [
        value
        for value in (gpu.tensor_active_pct, gpu.fp64_active_pct, gpu.fp32_active_pct, gpu.fp16_active_pct)
        if value is not None
    ]
    compute = max(pipes) if pipes else None
    memory = None if gpu.dram_active_pct is None else min(100.0, gpu.dram_active_pct / DRAM_PRACTICAL_PEAK)
    if compute is None:
        return None if memory is None else Work(memory, "M")
    if memory is not None and memory > compute:
        return Work(memory, "M")
    return Work(compute, "C")


def gap_pct(gpu: GpuSample) -> float | None:
    """UTIL − SM in points, never below 0: SM is weighted by cycles and may exceed UTIL when clocks swing."""
    if gpu.util_pct is None or gpu.sm_active_pct is None:
        return None
    return max(0.0, gpu.util_pct - gpu.sm_active_pct)
