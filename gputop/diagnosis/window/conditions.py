"""Conditions of a busy GPU, with hysteresis.

A mean of a real load wanders by some percent. With one threshold a load that happens to lie on it would change its
verdict every minute, although nothing has changed. Ratios are over busy time, of samples that have both values: a
window that mixes idle and busy time moves SM activity, not its ratio to util.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gputop.diagnosis import thresholds
from gputop.diagnosis.thresholds import Threshold
from gputop.diagnosis.types import Flag
from gputop.diagnosis.window.host_activity import is_compute
from gputop.diagnosis.window.sample_facts import is_split, ratio, sm_now
from gputop.diagnosis.window.sanity import has_impossible_power
from gputop.diagnosis.window.window import GpuMeans
from gputop.model.derived import POWER_BRAKE, POWER_CAP, THERMAL
from gputop.model.snapshot import GpuSample, ProcessSample


class Conditions(Struct, frozen=True):
    """Conditions that hold now; all False before anything was judged."""

    flag: Flag | None = None
    moves_data: bool = False
    """Links are busy, and the tensor cores are not."""
    rests: bool = False
    """Tensor cores, memory and board have little to do."""
    memory: bool = False
    much_dram: bool = False
    little_tensor: bool = False
    half: bool = False
    stalled: bool = False
    broad: bool = False
    """Util and SM (or tensor) are as high as on a well-used GPU."""
    witness: bool = False
    """Tensor cores, memory or another pipe show work beside SM activity."""
    shows_work: bool = False
    """A pipe, the memory or the power shows work."""
    unexplained: bool = False
    """SM is busy, but all measured explanations show rest.

    Power then does not show work.
    """
    at_power_limit: bool = False
    draws_little: bool = False
    low_clock: bool = False
    """The SM clock is far below its maximum, and neither heat nor power is the reason."""
    waits: bool = False
    """Idle for so long that the GPU waits for something."""


def update_conditions(
    before: Conditions,
    mean: GpuMeans,
    util: float,
    *,
    may_be_hollow: bool,
    slow_idle: float | None,
    has_nvlink: bool,
    limits_known: bool = True,
    power_is_impossible: bool = False,
) -> Conditions:
    """Return the conditions after another sample, by means over the window.

    ``util`` is the mean or, where that is not known, its lower bound. ``may_be_hollow``: nothing but the ratio speaks
    against flag C. ``slow_idle``: idle percent as a slow mean, where nothing but demand can be seen to cause it.
    ``limits_known``: the throttle reasons or the power are measured, and the GPU does not only draw a desktop.
    """
    sm, tensor, dram, power, x = mean.sm, mean.tensor, mean.dram, mean.power, mean.tensor_ratio
    dram_ratio = mean.dram_ratio if mean.util_pct is not None else ratio(dram, 100.0)
    much = _above(before.much_dram, dram_ratio, thresholds.MUCH_DRAM_RATIO)
    unexplained = _is_unexplained(before.unexplained, mean)
    return Conditions(
        flag=next_flag(before.flag, mean, util, may_be_hollow=may_be_hollow),
        moves_data=_below(before.moves_data, tensor, thresholds.COMM_TENSOR)
        and (
            _above(before.moves_data, mean.nvlink, thresholds.COMM_NVLINK)
            or _above(before.moves_data, mean.pcie_both_ways, thresholds.COMM_PCIE)
        ),
        rests=(tensor is None or _below(before.rests, tensor, thresholds.COMM_TENSOR))
        and _below(before.rests, dram, thresholds.COMM_DRAM)
        and _below(before.rests, power, thresholds.COMM_POWER),
        memory=(
            _above(before.memory, dram, thresholds.MEMORY_DRAM)
            if mean.util_pct is None
            else _above(before.memory, util, thresholds.MEMORY_UTIL)
            and _above(before.memory, mean.dram_ratio, thresholds.MEMORY_RATIO)
        ),
        much_dram=much,
        little_tensor=(
            not much
            and _above(before.little_tensor, sm, thresholds.TENSOR_SM)
            and _below(before.little_tensor, tensor, thresholds.LITTLE_TENSOR)
            and _below(before.little_tensor, x, thresholds.LITTLE_TENSOR_RATIO)
            and (mean.fp64 or 0.0) < thresholds.SOME_FP64
        ),
        half=(
            not much
            and mean.util_pct is not None
            and _above(before.half, util, thresholds.HALF_UTIL)
            and _below(before.half, mean.sm_ratio, thresholds.HALF_RATIO)
        ),
        stalled=_is_stalled(before.stalled, mean, has_nvlink=has_nvlink),
        broad=_above(before.broad, util, thresholds.HEALTHY_UTIL)
        and sm is not None
        and (
            _above(before.broad, sm, thresholds.HEALTHY_SM)
            or _above(before.broad, tensor, thresholds.HEALTHY_TENSOR)
        ),
        witness=much
        or _above(before.witness, x, thresholds.WITNESS_TENSOR_RATIO)
        or any(_above(before.witness, pipe, thresholds.WITNESS_PIPE) for pipe in mean.pipes),
        shows_work=any(
            _above(before.shows_work, pipe, thresholds.SEEN_PIPE) for pipe in (tensor, *mean.pipes)
        )
        or _above(before.shows_work, dram, thresholds.SEEN_DRAM)
        or (not unexplained and _above(before.shows_work, power, thresholds.SEEN_POWER)),
        unexplained=unexplained,
        at_power_limit=_above(before.at_power_limit, util, thresholds.HEALTHY_UTIL)
        and _above(before.at_power_limit, power, thresholds.FULL_POWER),
        draws_little=_above(before.draws_little, util, thresholds.LOW_POWER_UTIL)
        and _below(before.draws_little, power, thresholds.LOW_POWER),
        low_clock=limits_known
        and is_low_clock(before.low_clock, mean, util, power_is_impossible=power_is_impossible),
        waits=_waits(before.waits, round(100.0 - util, 6), slow_idle),
    )


def next_flag(
    before: Flag | None, mean: GpuMeans, util: float, *, may_be_hollow: bool
) -> Flag | None:
    """A, B or C of a GPU that is busy and does not work.

    Strict where the definition is: 80/30 and 50/15 are none.
    """
    if mean.util_with_sm is None or mean.sm_ratio is None:
        return None
    util = min(util, mean.util_with_sm)
    if _above(before == "A", util, thresholds.FLAG_A_UTIL) and _below(
        before == "A", mean.sm, thresholds.FLAG_A_SM
    ):
        return "A"
    is_set = before in ("A", "B")
    if _above(is_set, util, thresholds.FLAG_B_UTIL) and _below(
        is_set, mean.sm_ratio, thresholds.FLAG_B_RATIO
    ):
        return "B"
    if (
        not may_be_hollow
        or mean.sm_ratio <= 0.0
        or (mean.dram_ratio or 0.0) >= thresholds.MUCH_DRAM_RATIO
    ):
        return None
    is_set = before == "C"
    return (
        "C"
        if _above(is_set, util, thresholds.FLAG_C_UTIL)
        and _below(is_set, mean.sm_ratio, thresholds.FLAG_C_RATIO)
        else None
    )


def busy_not_working(
    util: float, sm: float | None, *, dram: float | None = None, may_be_hollow: bool = False
) -> Flag | None:
    """The flag of means in percent, without a past: where it enters.

    C only where ``may_be_hollow``.

    Comparisons are strict where the definition is: 80/30 and 50/15 are none.
    """
    alone = GpuMeans(util_pct=util, sm=sm, dram=dram, util_with_sm=util, util_with_dram=util)
    return next_flag(None, alone, util, may_be_hollow=may_be_hollow)


def flag_now(gpu: GpuSample, processes: Sequence[ProcessSample] = ()) -> Flag | None:
    """A, B or C where this one sample lies in it.

    No verdict; None also where one sample cannot tell.

    ``processes`` are all that are known: C takes one that computes on this GPU, unless none is known at all.
    """
    util, sm = gpu.util_pct, sm_now(gpu)
    if util is None or sm is None or is_split(gpu):
        return None
    gpu_processes = [p for p in processes if p.role == "gpu" and p.gpu == gpu.static.index]
    hollow = (
        all(is_compute(p) for p in gpu_processes)
        if gpu_processes
        else not any(p.role == "gpu" for p in processes)
    )
    return busy_not_working(util, sm, dram=gpu.dram_active_pct, may_be_hollow=hollow)


def is_low_clock(before: bool, mean: GpuMeans, util: float, *, power_is_impossible: bool) -> bool:
    """True if the SM clock is low without heat or power limit.

    A firmware that reads impossible power derives its thermal and power reasons from it: they are not believed.
    """
    is_held = max(mean.thermal, mean.brake, mean.capped) >= thresholds.SLOWED
    has_power_left = mean.power is None or _below(before, mean.power, thresholds.LOW_CLOCK_POWER)
    return (
        _above(before, util, thresholds.LOW_CLOCK_UTIL)
        and _below(before, mean.clock, thresholds.LOW_CLOCK)
        and (power_is_impossible or (has_power_left and not is_held))
    )


def has_low_clock(gpu: GpuSample) -> bool:
    """True if one sample shows a low clock; no verdict."""
    reasons = gpu.throttle_reasons or 0
    means = GpuMeans(
        power=ratio(gpu.power_w, gpu.power_limit_w),
        clock=ratio(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
        thermal=float(bool(reasons & THERMAL)),
        brake=float(bool(reasons & POWER_BRAKE)),
        capped=float(bool(reasons & POWER_CAP)),
    )
    is_known = gpu.throttle_reasons is not None or means.power is not None
    impossible = has_impossible_power(gpu) or (means.power or 0.0) > thresholds.MOST_POWER
    return is_known and is_low_clock(
        False, means, gpu.util_pct or 0.0, power_is_impossible=impossible
    )


def _waits(before: bool, idle: float, slow: float | None) -> bool:
    """True if a GPU idles long enough to wait for something."""
    if slow is None:
        return _above(before, idle, thresholds.IDLE_PCT)
    if before:
        return idle >= thresholds.IDLE_PCT.leave or (
            idle >= thresholds.DEMAND_IDLE_LEAVE and slow >= thresholds.DEMAND_SLOW_LEAVE
        )
    return min(idle, slow) >= thresholds.IDLE_PCT


def _is_unexplained(before: bool, mean: GpuMeans) -> bool:
    counted = [value for value in (mean.tensor, *mean.pipes, mean.dram) if value is not None]
    return (
        bool(counted)
        and _above(before, mean.sm, thresholds.UNEXPLAINED_SM)
        and all(_below(before, value, thresholds.UNEXPLAINED_PIPE) for value in counted)
    )


def _is_stalled(before: bool, mean: GpuMeans, *, has_nvlink: bool) -> bool:
    """True if warps are resident and no other counter shows work.

    One that is missing says nothing.
    """
    pcie = None if mean.pcie_both_ways is None or mean.pcie is None else 100.0 * mean.pcie
    nvlink = None if mean.nvlink is None else 100.0 * mean.nvlink
    links = (pcie, nvlink) if has_nvlink else (pcie,)
    return _above(before, mean.sm, thresholds.STALLED_SM) and all(
        _below(before, value, thresholds.STALLED_PIPE)
        for value in (mean.tensor, *mean.pipes, mean.dram, *links)
    )


def _above(before: bool, value: float | None, bound: Threshold) -> bool:
    return value is not None and value >= (bound.leave if before else bound)


def _below(before: bool, value: float | None, bound: Threshold) -> bool:
    return value is not None and value < (bound.leave if before else bound)
