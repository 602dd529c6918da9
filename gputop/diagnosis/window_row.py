"""One sample as a row of the window, and what else a single sample shows: link, swap, why the host's side is dark."""

from __future__ import annotations

from gputop.diagnosis import window as col
from gputop.diagnosis.host import HostTick
from gputop.diagnosis.signals import busy_not_working
from gputop.diagnosis.types import Flag
from gputop.diagnosis.window import scaled
from gputop.model.feeders import RAN, waits_in
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, HostSample, ProcessSample
from gputop.model.throttle import POWER_BRAKE, POWER_CAP, THERMAL

LOUD_UTIL = 5.0
"""p95 of util below this is the idle family; a sample at or above it is loud."""
PCIE_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
PCIE_USABLE = 0.8
MOST_SHARE = 100.0
"""A share above this means that the limit is wrong."""
SWAP_PSI = 10.0
SWAP_FULL = 0.9
SWAP_BYTES = 1e9


FAULT_UTIL, FAULT_POWER = 50.0, 0.25
"""An SM counter that reads 0 while util and power (share of the limit [judged]) are above these may be broken."""


def is_split(gpu: GpuSample) -> bool:
    """Whether SM activity of a whole GPU in MIG mode stands beside the util of something else."""
    return bool(gpu.static.mig_enabled) and (gpu.static.mig_parent is None or gpu.util_pct is not None)


def reads_zero_at_work(gpu: GpuSample) -> bool:
    """Whether the SM counter of a GPU that seems to work reads 0, as a broken one does."""
    if gpu.sm_active_pct != 0.0 or gpu.util_pct is None or gpu.util_pct < FAULT_UTIL:
        return False
    power = ratio(gpu.power_w, gpu.power_limit_w)
    return power is not None and power >= FAULT_POWER


def flag_now(gpu: GpuSample) -> Flag | None:
    """A or B where this one sample lies in it. No verdict; None also where one sample cannot tell."""
    if gpu.util_pct is None or gpu.sm_source not in MEASURED or is_split(gpu) or reads_zero_at_work(gpu):
        return None
    return busy_not_working(gpu.util_pct, gpu.sm_active_pct)


def pcie_capacity(gpu: GpuSample) -> float | None:
    """Usable bytes per second of the PCIe link in one direction, as it is now: 80 % of the raw rate."""
    lane = PCIE_LANE_BYTES.get(gpu.pcie_gen or 0)
    return None if lane is None or not gpu.pcie_width else lane * gpu.pcie_width * PCIE_USABLE


def row_of(
    gpu: GpuSample, util: float | None, sm: float | None, tick: HostTick | None, capacity: float | None
) -> col.Row:
    """The row of a sample; ``util`` and ``sm`` in percent, ``capacity`` of the PCIe link in bytes a second."""
    reasons = gpu.throttle_reasons or 0
    peak = gpu.static.nvlink_peak_bytes_per_s
    nvlink = gpu.nvlink_rx_bytes_per_s
    if gpu.nvlink_tx_bytes_per_s is not None and (nvlink is None or gpu.nvlink_tx_bytes_per_s > nvlink):
        nvlink = gpu.nvlink_tx_bytes_per_s
    one = 1_000_000
    return (
        scaled(util), scaled(sm), scaled(gpu.sm_occupancy_pct), scaled(gpu.tensor_active_pct),
        scaled(gpu.fp32_active_pct), scaled(gpu.fp64_active_pct), scaled(gpu.dram_active_pct),
        _scaled_share(gpu.pcie_rx_bytes_per_s, capacity), _scaled_share(gpu.pcie_tx_bytes_per_s, capacity),
        _scaled_share(nvlink, peak), _scaled_share(gpu.power_w, gpu.power_limit_w),
        _scaled_share(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
        one if util is not None and util >= LOUD_UTIL else None, one if reasons & THERMAL else None,
        one if reasons & POWER_BRAKE else None, one if reasons & POWER_CAP else None,
        *(_NO_HOST if tick is None else _host_side(tick)),
    )  # fmt: skip


_NO_HOST: col.Row = (None,) * (col.COLUMNS - col.MAIN)


def _host_side(tick: HostTick) -> list[int | None]:
    """A list: CPython 3.11 keeps freed tuples of exactly 20 values, up to 2,000, and never reuses them."""
    p = tick.primary
    main = main_disk = None
    if p is not None:
        if p.main_run_pct is not None:
            main = scaled(min(100.0, p.main_run_pct + (p.main_wait_pct or 0.0)))
        if p.main_state is not None:
            main_disk = 100_000_000 if p.main_state == "D" else 0
        if p.main_waits is not None:
            counts = waits_in(p.main_waits)
            main_disk = scaled(100.0 * counts.get("disk", 0) / max(1, sum(counts.values())))
    count, scheduled, states = tick.loader_count, tick.scheduled, tick.states
    if count:
        loading = (
            scaled(tick.workers / scheduled) if scheduled else None,
            scaled(tick.running / scheduled) if scheduled else None,
            scaled(tick.queued / scheduled) if scheduled else None,
            scaled(100.0 * tick.disk / states) if states else None,
            scaled(100.0 * tick.network / tick.wait_channels) if tick.wait_channels else None,
            scaled(count),
        )
    else:
        # No loaders at this moment: none of them ran, and none waited.
        loading = (0, 0, 0, 0, 0, None) if main is not None else (None,) * 6
    return [
        main, main_disk, *loading, scaled(tick.tree_pct), scaled(tick.read_bytes), scaled(tick.write_bytes),
        scaled(tick.throttled), scaled(tick.pool_pct), *_main_waits(p),
    ]  # fmt: skip


_MAIN_WAITS = ("network", "lock", "sleep", "queue", "pipe")
_NO_WAITS: col.Row = (None,) * len(_MAIN_WAITS)


def _main_waits(p: ProcessSample | None) -> col.Row:
    """What the main thread waited for, in the time that it did not run: a sample in which it runs says nothing."""
    if p is None or p.main_run_pct is None:
        return (*_NO_WAITS, None, None)
    counts = waits_in(p.main_waits)
    listens = None if p.listens is None else 100_000_000 if p.listens else 0
    queued = p.main_wait_pct or 0.0
    rest = 100.0 - min(100.0, p.main_run_pct + queued)
    waited = sum(counts.values()) - counts.get(RAN, 0)
    if waited > 0:
        return (*[scaled(rest * counts.get(wait, 0) / waited) for wait in _MAIN_WAITS], listens, scaled(queued))
    if counts or p.main_state == "R" or p.waiting_on is None:
        return (*_NO_WAITS, listens, scaled(queued))
    waits = [scaled(rest) if p.waiting_on == wait else 0 for wait in _MAIN_WAITS]
    return (*waits, listens, scaled(queued))


def _scaled_share(value: float | None, limit: float | None) -> int | None:
    share = ratio(value, limit)
    return round(share * 1e8) if share is not None and share < MOST_SHARE else None


def ratio(value: float | None, limit: float | None) -> float | None:
    """A part of its limit, or None where either is unknown."""
    return None if value is None or not limit else value / limit


def degraded_link(gpu: GpuSample) -> str:
    """In which way the PCIe link is below its best, in words; empty when it is not."""
    words = []
    if gpu.pcie_gen is not None and gpu.pcie_gen_max is not None and gpu.pcie_gen < gpu.pcie_gen_max:
        words.append(f"gen {gpu.pcie_gen} of {gpu.pcie_gen_max}")
    if gpu.pcie_width is not None and gpu.pcie_width_max is not None and gpu.pcie_width < gpu.pcie_width_max:
        words.append(f"x{gpu.pcie_width} of x{gpu.pcie_width_max}")
    return ", ".join(words)


def why_dark(primary: ProcessSample | None) -> str | None:
    """Why the host's side is dark; None when it is not."""
    if primary is None:
        return "no process visible on this GPU"
    if primary.main_run_pct is not None:
        return None
    return primary.unavailable.get("main_run_pct") or "the processes live in another PID namespace or are hidden"


def swapping(host: HostSample) -> str | None:
    """What shows that the host swaps, or None. Swap that is merely occupied is old and harmless [judged]."""
    swap = host.swap_used_bytes
    if not swap:
        return None
    if host.psi_mem_pct is not None and host.psi_mem_pct >= SWAP_PSI:
        return f"{swap / 1e9:.1f} GB in swap, tasks wait for memory {host.psi_mem_pct:.0f} % of the time"
    full = ratio(host.mem_used_bytes, host.mem_total_bytes)
    if swap >= SWAP_BYTES and full is not None and full >= SWAP_FULL:
        return f"{swap / 1e9:.1f} GB in swap and host memory {100.0 * full:.0f} % full"
    return None
