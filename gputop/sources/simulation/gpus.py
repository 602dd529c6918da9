"""Samples one simulated GPU at one moment.

Power, heat, clocks and traffic follow from its load.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from math import floor, inf
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from gputop.model.derived import IDLE
from gputop.model.metrics import ACTIVITY_KEYS, GPU_METRICS
from gputop.model.sm import SmLack
from gputop.model.snapshot import GpuSample, GpuStatic
from gputop.model.xid_catalogue import XIDS
from gputop.sources.nvml.gpu_sleep import ASLEEP
from gputop.sources.simulation.life import Chip, GpuLife, Load
from gputop.sources.simulation.noise import busy_share, chance, drift, ripple

GIB = 2.0**30
MIB = 2.0**20
GB = 1e9
DRIVER = "580.65.06"
ALLOCATOR_BLOCK_MIB = 64.0
"""A leak grows by whole blocks of the caching allocator, not smoothly."""
FULL_SHARE = 0.985
UP_BEFORE_S = 20 * 86400.0
"""How long before the program's start the simulated machine was booted."""
LOST_REASON = "GPU is lost: it fell off the bus; see dmesg for its Xid, then reset or reboot"
UNCORRECTED_BEFORE = 2
XID_CONTAINED_ECC = 94

_UTIL, _SM, _PIPES, _POWER, _TRAFFIC, _CYCLE, _TEMP, _THROTTLE = range(8)
_SERIES_PER_GPU = 16
MIG_PROFILE, MIG_SM_COUNT = "3g.40gb", 60
"""Half of an H100, as far as MIG can halve it."""
_OF_INSTANCE = frozenset(("mem_used_bytes", "mem_total_bytes"))
_SPLIT = "the GPU is split by MIG: each instance has its own"
_WHOLE = "the driver gives it for the whole GPU only"
_NOT_SIMULATED = "the demo does not simulate it"
_NO_MARGIN = "this GPU reports a margin to its limit instead"


class _Counters(Struct, frozen=True):
    """Profiling counters in the order of ``ACTIVITY_KEYS``, with their age.

    ``low`` and ``high`` bound SM activity where no counter measures it.
    """

    age_s: float
    measured: tuple[float | None, ...] = ()
    low: float | None = None
    high: float | None = None

    def values(self) -> dict[str, Any]:
        """Return the counters by catalogue key; None is not measured."""
        return dict(zip_longest(ACTIVITY_KEYS, self.measured))


class GpuPlan(Struct, frozen=True):
    """Constant facts of a simulated GPU.

    Series numbers keep the noise of GPUs apart.
    """

    static: GpuStatic
    life: GpuLife
    chip: Chip
    seed: int
    series: int
    offset_s: float
    mean_power_w: float
    unavailable: Mapping[str, str]

    def share(self, t: float, interval_s: float, started: float) -> float:
        """Return the busy share of the time since the last sample."""
        life = self.life
        if life.rests_after_s is not None and t >= started + life.rests_after_s:
            return 0.0
        if life.period_s is None:
            return 1.0
        end = t - self.offset_s
        series = 0 if life.in_step else self.series
        return busy_share(
            self.seed, series + _CYCLE, end - interval_s, end, life.period_s, life.duty
        )

    def lost_since(self, t: float, started: float) -> float | None:
        """Return the Unix time of the GPU's loss, if it is lost."""
        after = self.life.lost_after_s
        return started + after if after is not None and t >= started + after else None


def plan_gpu(life: GpuLife, chip: Chip, index: int, seed: int, parent_uuid: str | None) -> GpuPlan:
    """Return a GPU's facts, with reasons for values it does not have."""
    missing: dict[str, str] = {"temp_slowdown_c": _NO_MARGIN}
    missing |= {} if chip.has_fan else {"fan_pct": "this board has no fan"}
    if chip.nvlink_gb_per_s is None:
        missing |= dict.fromkeys(
            ("nvlink_rx_bytes_per_s", "nvlink_tx_bytes_per_s"), "this board has no NVLink"
        )
    if chip.unified:
        missing |= {
            **dict.fromkeys(("power_limit_w", "mem_clock_mhz"), "not supported by this GPU"),
            "graphics_active_pct": "this GPU does not count it: it stays 0 while its multiprocessors work",
        }
    counter = life.counter
    if counter.source == "bound":
        missing |= dict.fromkeys(ACTIVITY_KEYS, counter.reason or "")
    elif counter.source == "dcgm-exporter":
        missing |= dict.fromkeys(ACTIVITY_KEYS[3:], counter.reason or "")
    if life.mig_instances:
        missing |= dict.fromkeys(("util_pct", "mem_util_pct", *ACTIVITY_KEYS), _SPLIT)
    if parent_uuid is not None:
        missing = dict.fromkeys(GPU_METRICS.keys() - set(ACTIVITY_KEYS) - _OF_INSTANCE, _WHOLE)
    static = GpuStatic(
        index,
        _uuid(seed, index, "GPU"),
        chip.name,
        chip.architecture,
        chip.sm_count,
        f"00000000:{0x18 + 0x11 * index:02X}:00.0",
        DRIVER,
        None if chip.nvlink_gb_per_s is None else chip.nvlink_gb_per_s * GB,
        bool(life.mig_instances),
        unified_memory=chip.unified or None,
    )
    if parent_uuid is not None:
        name, uuid = f"{chip.name} MIG {MIG_PROFILE}", _uuid(seed, index, "MIG")
        static = replace(
            static,
            uuid=uuid,
            name=name,
            sm_count=MIG_SM_COUNT,
            mig_enabled=True,
            mig_parent=parent_uuid,
            mig_instance=f"{index}/0",
        )
    mean_power = life.resting.power_w + (life.busy.power_w - life.resting.power_w) * life.duty
    offset_s = float(floor(chance(seed, 0 if life.in_step else index, 0) * (life.period_s or 1.0)))
    return GpuPlan(
        static, life, chip, seed, (index + 1) * _SERIES_PER_GPU, offset_s, mean_power, missing
    )


def sample_gpu(
    plan: GpuPlan, t: float, interval_s: float, started: float, share: float
) -> GpuSample:
    """Return the GPU's sample at ``t`` after a busy ``share``."""
    since = plan.lost_since(t, started)
    if since is not None:
        return GpuSample(plan.static, lost_reason=LOST_REASON, lost_since=since)
    if plan.life.asleep:
        return GpuSample(
            plan.static,
            sm_lack=SmLack((ASLEEP,)),
            asleep=True,
            unavailable=dict.fromkeys(GPU_METRICS, ASLEEP),
        )
    life, chip, counter = plan.life, plan.chip, plan.life.counter
    pairs = zip(astuple(life.busy), astuple(life.resting), strict=True)
    now = (
        life.busy if share == 1.0 else Load(*(rest + (busy - rest) * share for busy, rest in pairs))
    )
    wobble = drift(plan.seed, plan.series + _UTIL, t)
    util = float(round(_around(now.util, wobble)))
    counters = _read_counters(plan, now, util, t)
    used = (
        min(
            chip.memory_gib * life.mig_share * FULL_SHARE,
            life.used_gib + grown_gib(life, t, started),
        )
        * GIB
    )
    if plan.static.mig_parent is not None:
        return _instance(plan, counters, used, interval_s)
    split = life.mig_instances > 0
    values = {
        "util_pct": None if split else util,
        "mem_util_pct": None if split else float(round(min(util, 1.2 * now.dram))),
        "mem_used_bytes": used,
        "mem_total_bytes": chip.memory_gib * GIB,
        "encoder_pct": 0.0,
        "decoder_pct": 0.0,
        **counters.values(),
        **({"graphics_active_pct": None} if chip.unified else {}),
        **_board(plan, now, t, started, wobble),
        **_links(plan, now, t),
        **_errors(plan, t, started),
    }
    absent = GPU_METRICS.keys() - values.keys()
    why = _SPLIT if split else counter.reason if counter.source == "bound" else None
    return GpuSample(
        plan.static,
        sm_source="none" if split else counter.source,
        sm_window_s=None if split else counter.window_s or interval_s,
        sm_age_s=None if split else counters.age_s,
        sm_low_pct=counters.low,
        sm_high_pct=counters.high,
        sm_lack=None if why is None else SmLack((why,)),
        unavailable={**plan.unavailable, **dict.fromkeys(absent, _NOT_SIMULATED)}
        if absent
        else plan.unavailable,
        **values,
    )


def _board(plan: GpuPlan, now: Load, t: float, started: float, wobble: float) -> dict[str, Any]:
    """Power, heat and clocks."""
    life, chip, seed, series = plan.life, plan.chip, plan.seed, plan.series
    throttled = life.throttle and chance(seed, series + _THROTTLE, floor(t)) < life.throttle_share
    limit = chip.power_limit_w if life.power_limit_w is None else life.power_limit_w
    power = min(limit or inf, now.power_w * (1.0 + 0.012 * drift(seed, series + _POWER, t)))
    temp = life.temp_c + 1.4 * ripple(seed, series + _TEMP, t, 23.0)
    return {
        "power_w": round(power, 1),
        "power_limit_w": limit,
        "energy_j": float(round(plan.mean_power_w * (t - started + UP_BEFORE_S))),
        "temp_c": float(round(temp)),
        "mem_temp_c": float(round(temp + 6.0)),
        "sm_clock_mhz": _clock(chip, life, wobble),
        "sm_clock_max_mhz": chip.sm_clock_mhz,
        "mem_clock_mhz": chip.mem_clock_mhz,
        "fan_pct": float(round(max(0.0, 30.0 + 1.3 * (temp - 45.0)))) if chip.has_fan else None,
        "pstate": 0,
        "throttle_reasons": life.throttle if throttled else IDLE if now.util < 0.5 else 0,
    }


def _links(plan: GpuPlan, now: Load, t: float) -> dict[str, Any]:
    """Traffic over PCIe and NVLink."""
    chip, has_nvlink = plan.chip, plan.chip.nvlink_gb_per_s is not None
    traffic = 1.0 + 0.12 * drift(plan.seed, plan.series + _TRAFFIC, t)
    return {
        "pcie_rx_bytes_per_s": float(round(now.pcie_rx * traffic * GB)),
        "pcie_tx_bytes_per_s": float(round(now.pcie_tx * traffic * GB)),
        "pcie_gen": chip.pcie_gen,
        "pcie_gen_max": chip.pcie_gen,
        "pcie_width": 1 if chip.unified else 16,
        "pcie_width_max": 16,
        "nvlink_rx_bytes_per_s": float(round(now.nvlink_rx * traffic * GB)) if has_nvlink else None,
        "nvlink_tx_bytes_per_s": float(round(now.nvlink_tx * traffic * GB)) if has_nvlink else None,
    }


_XID: Mapping[str, Any] = {
    "xid": XID_CONTAINED_ECC,
    "xid_class": XIDS[XID_CONTAINED_ECC].cause,
    "xid_action": XIDS[XID_CONTAINED_ECC].action,
}
LINKS = 18
"""NVLinks of a Hopper GPU."""


def _errors(plan: GpuPlan, t: float, started: float) -> dict[str, Any]:
    """Return memory errors, with the Xid of a new one."""
    life = plan.life
    error = life.ecc_after_s is not None and t >= started + life.ecc_after_s
    return {
        "ecc_uncorrected": UNCORRECTED_BEFORE + error if life.ecc_after_s is not None else 0,
        "ecc_corrected": 0,
        "ecc_uncorrected_volatile": int(error),
        "ecc_corrected_volatile": 0,
        "remap_pending": error,
        "remap_failed": False,
        "remapped_rows_corrected": 0,
        "remapped_rows_uncorrected": 0,
        "retired_pending": False,
        "ecc_corrected_per_s": 0.0,
        "recovery_action": 0,
        **_link_states(plan),
        **(_XID if error else {}),
    }


def _link_states(plan: GpuPlan) -> dict[str, Any]:
    """Return the NVLinks, all of them up."""
    if plan.static.nvlink_peak_bytes_per_s is None:
        return {}
    return {"nvlink_count": LINKS, "nvlink_active": LINKS, "nvlink_down": "none"}


def _instance(plan: GpuPlan, counters: _Counters, used: float, interval_s: float) -> GpuSample:
    """Return a MIG instance's sample: memory and counters only."""
    return GpuSample(
        plan.static,
        mem_used_bytes=used,
        mem_total_bytes=plan.chip.memory_gib * plan.life.mig_share * GIB,
        sm_source="gpm",
        sm_window_s=interval_s,
        sm_age_s=counters.age_s,
        unavailable=plan.unavailable,
        **counters.values(),
    )


def grown_gib(life: GpuLife, t: float, started: float) -> float:
    """Return a leak's growth since the start, in whole blocks.

    Negative before the start.
    """
    if not life.growth_mib_per_min:
        return 0.0
    blocks = floor(life.growth_mib_per_min * (t - started) / 60.0 / ALLOCATOR_BLOCK_MIB)
    return blocks * ALLOCATOR_BLOCK_MIB * MIB / GIB


def _read_counters(plan: GpuPlan, now: Load, util: float, t: float) -> _Counters:
    """Return SM activity and other counters that this GPU's source has."""
    seed, series, counter = plan.seed, plan.series, plan.life.counter
    if plan.life.mig_instances:
        return _Counters(0.0)
    if counter.source == "bound":
        return _Counters(0.0, low=round(util / (plan.static.sm_count or 1), 2), high=util)
    if counter.faulty:
        return _Counters(0.0, (0.0,) * len(ACTIVITY_KEYS))
    read_at = t if counter.window_s is None else floor(t / counter.window_s) * counter.window_s
    pipes = drift(seed, series + _PIPES, read_at)
    age = round(t - read_at, 3)
    sm = round(_around(now.sm, drift(seed, series + _SM, read_at)), 2)
    occ = round(_around(now.occ, pipes), 2)
    tensor = round(_around(now.tensor, pipes), 2)
    if counter.source != "gpm":
        return _Counters(age, (sm, occ, tensor))
    dram = round(_around(now.dram, -pipes), 2)
    fp32 = round(_around(now.fp32, pipes), 2)
    fp16 = round(_around(0.2 * now.fp32, -pipes), 2)
    integer = round(_around(0.3 * now.fp32, -pipes), 2)
    # All simulated tensor work is in half precision.
    return _Counters(age, (sm, occ, tensor, tensor, 0.0, 0.0, dram, 0.0, fp32, fp16, integer, util))


def _around(value: float, noise: float) -> float:
    """Add noise to a percentage; values below 1 stay exact."""
    if value < 1.0:
        return value
    return min(100.0, max(0.0, value + noise * (0.5 + 0.014 * value)))


def _clock(chip: Chip, life: GpuLife, wobble: float) -> float:
    if life.clock_share == 1.0:
        return chip.sm_clock_mhz
    return 15.0 * round(chip.sm_clock_mhz * (life.clock_share + 0.012 * wobble) / 15.0)


def _uuid(seed: int, index: int, prefix: str) -> str:
    digits = "".join(f"{floor(chance(seed, 77 + index, i) * 2**32):08x}" for i in range(4))
    return f"{prefix}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
