"""One GPU over time: takes a sample and the host's side of it in, gives the signals that the rules read.

Everything kept is bounded, and a tick costs the same whatever went before.
"""

from __future__ import annotations

from gputop.diagnosis import window as col
from gputop.diagnosis.correlation import Correlation
from gputop.diagnosis.health import Health
from gputop.diagnosis.host import HostReader, HostTick, is_compute
from gputop.diagnosis.memory_trend import MemoryTrend
from gputop.diagnosis.runs import Alternations, Births, ZeroRuns
from gputop.diagnosis.signals import (
    LEAST_SAMPLES,
    MEASURED_SOURCES,
    WINDOW_S,
    Signals,
    busy_not_working,
)
from gputop.diagnosis.window import Window, scaled
from gputop.model.snapshot import Event, GpuSample, HostSample, ProcessSample

LOUD_UTIL = 5.0
"""p95 of util below this is the idle family; a sample at or above it is loud."""
LOUD_SHARE = 0.05
RESTART_AFTER_ZERO_S = 60.0
JOB_GONE_S = 3.0
"""A job is over once its processes have been gone this long: process lists may miss a beat."""
GAP_INTERVALS = 3.0
PCIE_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
PCIE_USABLE = 0.8
THERMAL_BITS, BRAKE_BITS, CAP_BITS = 0x60, 0x80, 0x04
FAULT_SAMPLES, FAULT_UTIL, FAULT_POWER = 3, 50.0, 0.25
"""A counter is broken when it reads 0 so often while util and power (share of the limit [judged]) say otherwise."""
NO_TENSOR, SOME_FP32, SOME_FP64, MANY_SM = 1.0, 20.0, 1.0, 50.0
DEGRADED_UTIL = 50.0


class GpuTrack:
    """What is remembered of one GPU."""

    def __init__(self) -> None:
        self.window = Window(WINDOW_S)
        self.correlation = Correlation()
        self.health = Health()
        self._trend = MemoryTrend()
        self._runs = ZeroRuns()
        self._births = Births()
        self._alternations = Alternations()
        self._job: frozenset[int] = frozenset()
        self._job_seen = 0.0
        self._last_t: float | None = None
        self._quiet_since: float | None = None
        self._fp32_since: float | None = None
        self._degraded_since: float | None = None
        self._zeros = 0
        self._sm_source = ""
        self._util: float | None = None
        self._falls = 0

    @property
    def util_now(self) -> float | None:
        """The latest sample's util, percent."""
        return self._util

    def skip(self, gpu: GpuSample, events: tuple[Event, ...]) -> None:
        """A sample of a GPU that cannot be read: only its errors count, and the window begins afresh afterwards."""
        self.health.observe(gpu, events)
        self._restart()
        self._util = None

    def observe(
        self, t: float, interval_s: float, gpu: GpuSample, tick: HostTick | None, reader: HostReader, host: HostSample,
        events: tuple[Event, ...],
    ) -> Signals | None:  # fmt: skip
        """The signals at this moment, or None while util itself is not measured."""
        since_last = interval_s if self._last_t is None else t - self._last_t
        self._last_t = t
        if since_last > WINDOW_S:
            self._restart()
        self._watch_job(t, tick)
        self.health.observe(gpu, events)
        total, used = gpu.mem_total_bytes, gpu.mem_used_bytes
        if tick is not None:
            self._trend.observe(t, tick.owners, None if total is None or used is None else total - used)
        util = self._util = gpu.util_pct
        dt = since_last if since_last <= GAP_INTERVALS * interval_s else interval_s
        write = None if tick is None else tick.write_bytes
        if util is not None and self._runs.observe(t, dt, util, write) > RESTART_AFTER_ZERO_S:
            self._restart()
        if tick is not None:
            self._births.observe(t, tick.births)
        sm_off = self._sm_off(gpu, util)
        capacity = pcie_capacity(gpu)
        self.window.push(t, _row(gpu, util, None if sm_off else gpu.sm_active_pct, tick, capacity))
        if util is not None:
            self._falls = self._alternations.observe(t, util)
        if util is not None and tick is not None and tick.scheduled:
            self.correlation.add(util, tick.workers / tick.scheduled)
        u = self.window.mean(col.U)
        if u is None and (gpu.static.mig_parent is None or gpu.sm_active_pct is None):
            return None
        return self._signals(t, interval_s, gpu, tick, reader, host, sm_off, capacity, u)

    def _restart(self) -> None:
        self.window.clear()
        self.correlation.clear()
        self._runs.clear()
        self._quiet_since = self._fp32_since = self._degraded_since = None

    def _watch_job(self, t: float, tick: HostTick | None) -> None:
        """When the job that the window describes is over, the window is too."""
        pids = frozenset(p.pid for p in tick.owners) if tick is not None else frozenset()
        if pids & self._job or not self._job:
            if pids:
                self._job, self._job_seen = pids, t
            return
        if pids or t - self._job_seen >= JOB_GONE_S:
            self._job, self._job_seen = pids, t
            self._births.clear()
            self._restart()

    def _sm_off(self, gpu: GpuSample, util: float | None) -> str | None:
        """Why SM activity does not count now; keeps two sources apart and notices a broken counter."""
        source = gpu.sm_source
        if source != self._sm_source:
            if self._sm_source in MEASURED_SOURCES:
                self.window.forget(col.SM, col.OCC, col.TENSOR, col.FP32, col.FP64, col.DRAM)
            self._sm_source = source
            self._zeros = 0
        if gpu.static.mig_enabled and (gpu.static.mig_parent is None or util is not None):
            return "MIG: whole-GPU SM activity says nothing about an instance"
        if source not in MEASURED_SOURCES:
            return gpu.sm_reason or "no SM counter"
        sm = gpu.sm_active_pct
        if sm is not None and sm > 0.0:
            self._zeros = 0
        elif sm is not None and util is not None and util >= FAULT_UTIL:
            power = _share(gpu.power_w, gpu.power_limit_w)
            if power is not None and power >= FAULT_POWER:
                self._zeros += 1
                if self._zeros == FAULT_SAMPLES:
                    self.window.forget(col.SM)
        return "the SM counter reads 0 while the GPU works" if self._zeros >= FAULT_SAMPLES else None

    def _signals(
        self, t: float, interval_s: float, gpu: GpuSample, tick: HostTick | None, reader: HostReader, host: HostSample,
        sm_off: str | None, capacity: float | None, util: float | None,
    ) -> Signals:  # fmt: skip
        window = self.window
        mean = window.mean
        n = len(window)
        sm = None if sm_off else mean(col.SM)
        tensor, fp32, fp64, dram = mean(col.TENSOR), mean(col.FP32), mean(col.FP64), mean(col.DRAM)
        u = max(sm or 0.0, tensor or 0.0, dram or 0.0) if util is None else util
        quiet = util is not None and window.total(col.LOUD) <= LOUD_SHARE * n
        self._quiet_since = _since(self._quiet_since, quiet, window.oldest_t)
        fp32_only = (
            sm is not None and sm >= MANY_SM and tensor is not None and tensor < NO_TENSOR
            and fp32 is not None and fp32 >= SOME_FP32 and (fp64 is None or fp64 < SOME_FP64)
        )  # fmt: skip
        self._fp32_since = _since(self._fp32_since, fp32_only, window.oldest_t)
        degraded = _degraded(gpu) if u >= DEGRADED_UTIL else ""
        self._degraded_since = _since(self._degraded_since, bool(degraded), t)
        run = self._runs.current()
        births, beside = self._births.recent(t, self._runs.ended if run is None else (*self._runs.ended, run))
        primary = tick.primary if tick is not None else None
        main = _share_of(mean(col.MAIN))
        loader_ticks = window.total(col.LOADERS) if tick is not None else 0.0
        loaders = tick.loader_count if tick is not None else 0
        if loaders == 0 and loader_ticks > 0.0:
            loaders = max(1, round(loader_ticks / n))
        host_side = tick is not None and (primary is not None and primary.main_run_pct is not None)
        return Signals(
            t, gpu.static.index, n, min(LEAST_SAMPLES, max(2, int(WINDOW_S / interval_s))), WINDOW_S,
            t - window.oldest_t + interval_s,
            u, round(100.0 - u, 6), util is not None, sm, mean(col.OCC), tensor, fp32, fp64, dram, sm_off,
            None if util is None else busy_not_working(u, sm),
            _share_of(mean(col.PCIE_RX)), _share_of(mean(col.PCIE_TX)), capacity, _share_of(mean(col.NVLINK)),
            _share_of(mean(col.POWER)), _share_of(mean(col.CLOCK)),
            window.total(col.THERMAL) / n, window.total(col.BRAKE) / n, window.total(col.CAPPED) / n,
            quiet, _age(self._quiet_since, t, interval_s), 0.0 if run is None else run.length_s,
            self._runs.ended if run is None else (*self._runs.ended, run),
            self._falls, _age(self._degraded_since, t, interval_s), degraded,
            _age(self._fp32_since, t, interval_s), self._zeros >= FAULT_SAMPLES,
            gpu.mem_used_bytes, gpu.mem_total_bytes, self.health.errors, self.health.xids, self._trend.leak,
            host_side, _host_reason(tick, primary), main, _share_of(mean(col.MAIN_DISK)), loaders,
            _share_of(mean(col.WORKERS)), _share_of(mean(col.RUNNING)), _share_of(mean(col.QUEUED)),
            _share_of(mean(col.DISK)), _share_of(mean(col.NETWORK)),
            tick is None or not tick.loader_count or tick.wait_channels > 0,
            _share_of(mean(col.TREE)), mean(col.READ), mean(col.WRITE),
            tick is None or not tick.loader_count or tick.read_bytes is not None,
            _share_of(mean(col.THROTTLED)), births, births * 60.0 / WINDOW_S, beside,
            host.cpu_pct, host.psi_cpu_pct, _swapping(host),
            sum(1 for p in tick.owners if is_compute(p)) if tick is not None else 0,
            tick.process_bytes if tick is not None else None,
            primary.age_s if primary is not None else None,
            (primary.static.name or "process") if primary is not None else "process",
            primary.static.user if primary is not None else None,
            primary.pid if primary is not None else None,
            reader.server(primary) if primary is not None else None,
            tick is not None and tick.nccl, primary is not None and (primary.type or "") not in ("", "C"),
            tick.kinds if tick is not None else None, tick.pin_memory if tick is not None else None,
            _share_of(mean(col.POOL)),
        )  # fmt: skip


def pcie_capacity(gpu: GpuSample) -> float | None:
    """Usable bytes per second of the PCIe link in one direction, as it is now: 80 % of the raw rate."""
    lane = PCIE_LANE_BYTES.get(gpu.pcie_gen or 0)
    return None if lane is None or not gpu.pcie_width else lane * gpu.pcie_width * PCIE_USABLE


def _row(
    gpu: GpuSample, util: float | None, sm: float | None, tick: HostTick | None, capacity: float | None
) -> col.Row:
    reasons = gpu.throttle_reasons or 0
    peak = gpu.static.nvlink_peak_bytes_per_s
    nvlink = gpu.nvlink_rx_bytes_per_s
    if gpu.nvlink_tx_bytes_per_s is not None and (nvlink is None or gpu.nvlink_tx_bytes_per_s > nvlink):
        nvlink = gpu.nvlink_tx_bytes_per_s
    one = 1_000_000
    gpu_side = (
        scaled(util), scaled(sm), scaled(gpu.sm_occupancy_pct), scaled(gpu.tensor_active_pct),
        scaled(gpu.fp32_active_pct), scaled(gpu.fp64_active_pct), scaled(gpu.dram_active_pct),
        _scaled_share(gpu.pcie_rx_bytes_per_s, capacity), _scaled_share(gpu.pcie_tx_bytes_per_s, capacity),
        _scaled_share(nvlink, peak), _scaled_share(gpu.power_w, gpu.power_limit_w),
        _scaled_share(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
        one if util is not None and util >= LOUD_UTIL else None, one if reasons & THERMAL_BITS else None,
        one if reasons & BRAKE_BITS else None, one if reasons & CAP_BITS else None,
    )  # fmt: skip
    return gpu_side + (_NO_HOST if tick is None else _host_side(tick))


_NO_HOST: col.Row = (None,) * (col.COLUMNS - col.MAIN)


def _host_side(tick: HostTick) -> col.Row:
    p = tick.primary
    main = main_disk = None
    if p is not None:
        if p.main_run_pct is not None:
            main = scaled(min(100.0, p.main_run_pct + (p.main_wait_pct or 0.0)))
        if p.main_state is not None:
            main_disk = 100_000_000 if p.main_state == "D" else 0
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
    return (
        main, main_disk, *loading, scaled(tick.tree_pct), scaled(tick.read_bytes), scaled(tick.write_bytes),
        scaled(tick.throttled), scaled(tick.pool_pct),
    )  # fmt: skip


def _scaled_share(value: float | None, limit: float | None) -> int | None:
    return None if value is None or not limit else round(value * 1e8 / limit)


def _share(value: float | None, limit: float | None) -> float | None:
    return None if value is None or not limit else value / limit


def _share_of(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0


def _since(since: float | None, holds: bool, begin: float) -> float | None:
    return (begin if since is None else since) if holds else None


def _age(since: float | None, t: float, interval_s: float) -> float:
    """How long something has held; a sample stands for the interval before it."""
    return 0.0 if since is None else t - since + interval_s


def _degraded(gpu: GpuSample) -> str:
    """What of the PCIe link is below its best, in words; empty when nothing is."""
    words = []
    if gpu.pcie_gen is not None and gpu.pcie_gen_max is not None and gpu.pcie_gen < gpu.pcie_gen_max:
        words.append(f"gen {gpu.pcie_gen} of {gpu.pcie_gen_max}")
    if gpu.pcie_width is not None and gpu.pcie_width_max is not None and gpu.pcie_width < gpu.pcie_width_max:
        words.append(f"x{gpu.pcie_width} of x{gpu.pcie_width_max}")
    return ", ".join(words)


def _host_reason(tick: HostTick | None, primary: ProcessSample | None) -> str | None:
    """Why the host's side is dark; None when it is not."""
    if tick is None or primary is None:
        return "no process visible on this GPU"
    if primary.main_run_pct is not None:
        return None
    return primary.unavailable.get("main_run_pct") or "the processes live in another PID namespace or are hidden"


SWAP_PSI = 10.0
SWAP_FULL = 0.9
SWAP_BYTES = 1e9


def _swapping(host: HostSample) -> str | None:
    """What shows that the host swaps, or None. Swap that is merely occupied is old and harmless [judged]."""
    swap = host.swap_used_bytes
    if not swap:
        return None
    if host.psi_mem_pct is not None and host.psi_mem_pct >= SWAP_PSI:
        return f"{swap / 1e9:.1f} GB in swap, tasks wait for memory {host.psi_mem_pct:.0f} % of the time"
    full = _share(host.mem_used_bytes, host.mem_total_bytes)
    if swap >= SWAP_BYTES and full is not None and full >= SWAP_FULL:
        return f"{swap / 1e9:.1f} GB in swap and host memory {100.0 * full:.0f} % full"
    return None
