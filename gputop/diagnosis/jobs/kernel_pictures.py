"""How a GPU looks whose kernels only wait: three pictures of one sample.

Few SMs spin (a collective that waits for a rank); all SMs are held by a kernel that spins; or, where SM is not
measured, util is full while power has fallen. Only the job's own power tells the last two from work: they are
no pictures before the job was seen at work.
"""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis import thresholds
from gputop.diagnosis.window.sample_facts import pcie_capacity, ratio
from gputop.model.snapshot import GpuSample

REST_PCT, REST_LINK, REST_POWER = 2.0, 0.05, 0.5
"""A pipe or the memory, percent, that rests; a link and the power, as shares of what they can."""
WORK_UTIL = 20.0
FALLEN_POWER = 0.8
"""Share of the job's own power at work, below which a GPU with all SMs held computes nothing [judged]: with 56 % of it
kernels of a GB200 spun; steps of one job differ by some percent."""
FALLEN_WITHOUT_SM = 0.5
"""The same where power is the only witness: less than half of what the job drew at work [judged]."""
LEAST_WORK_S = 30.0
"""Seconds of work from which on its power is known [judged]."""


class WorkPower(Struct):
    """Mean power of one job while it works."""

    seconds: float = 0.0
    joules: float = 0.0

    def add(self, dt: float, power_w: float | None) -> None:
        """Add a sample of a GPU at work."""
        if power_w is not None:
            self.seconds += dt
            self.joules += dt * power_w

    @property
    def mean_w(self) -> float | None:
        """Mean power; None before enough work was seen."""
        return self.joules / self.seconds if self.seconds >= LEAST_WORK_S else None


def rests(gpu: GpuSample) -> bool:
    """True if all measured pipes but INT, and the memory, have nothing to do."""
    values = (
        gpu.tensor_active_pct,
        gpu.fp64_active_pct,
        gpu.fp32_active_pct,
        gpu.fp16_active_pct,
        gpu.dram_active_pct,
    )
    return all(value is None or value <= REST_PCT for value in values)


def links_rest(gpu: GpuSample) -> bool:
    """True if all measured links have hardly anything to do."""
    link, peak = pcie_capacity(gpu), gpu.static.nvlink_peak_bytes_per_s
    shares = (
        ratio(gpu.pcie_rx_bytes_per_s, link),
        ratio(gpu.pcie_tx_bytes_per_s, link),
        ratio(gpu.nvlink_rx_bytes_per_s, peak),
        ratio(gpu.nvlink_tx_bytes_per_s, peak),
    )
    return all(share is None or share <= REST_LINK for share in shares)


def has_counters(gpu: GpuSample) -> bool:
    """Whether SM and memory activity of a sample are measured."""
    return gpu.sm_active_pct is not None and gpu.dram_active_pct is not None


def is_full(gpu: GpuSample) -> bool:
    """Whether a kernel runs all the time."""
    return gpu.util_pct is not None and gpu.util_pct >= thresholds.LOW_POWER_UTIL


def spins(gpu: GpuSample) -> bool:
    """True if a sample looks like a wait inside a kernel.

    Busy, with few SMs, and nothing that works or moves.
    """
    sm, power = gpu.sm_active_pct, ratio(gpu.power_w, gpu.power_limit_w)
    if not is_full(gpu) or not has_counters(gpu):
        return False
    if sm is None or sm >= thresholds.FLAG_A_SM:
        return False
    return rests(gpu) and links_rest(gpu) and (power is None or power < REST_POWER)


def holds_all(gpu: GpuSample, work: WorkPower) -> bool:
    """True if a kernel holds most SMs while everything else rests and power has fallen.

    Spinning warps count as integer work: INT is no witness.
    """
    sm, power, before = gpu.sm_active_pct, gpu.power_w, work.mean_w
    if not is_full(gpu) or not has_counters(gpu) or power is None or before is None:
        return False
    if sm is None or sm < thresholds.FLAG_A_SM:
        return False
    # Without a pipe that could show work, rest is not known.
    knows_pipes = gpu.tensor_active_pct is not None and gpu.fp32_active_pct is not None
    return knows_pipes and rests(gpu) and links_rest(gpu) and power < FALLEN_POWER * before


def has_fallen(gpu: GpuSample, work: WorkPower) -> bool:
    """True if util is full and power has fallen, where SM is not measured."""
    power, before = gpu.power_w, work.mean_w
    if has_counters(gpu) or not is_full(gpu) or power is None or before is None:
        return False
    of_limit = ratio(power, gpu.power_limit_w)
    if of_limit is not None and of_limit >= REST_POWER:
        return False
    return links_rest(gpu) and power < FALLEN_WITHOUT_SM * before


def is_at_work(gpu: GpuSample) -> bool:
    """True if a sample shows a job at work, as far as its counters go."""
    if gpu.util_pct is None or gpu.util_pct < WORK_UTIL:
        return False
    return not rests(gpu) or not has_counters(gpu)
