"""The window: sums over the last 30 s, kept up to date sample by sample, so that a tick costs the same at any length.

Values are kept as integers in millionths. Sums of them never drift, and a mean of equal values is that value exactly:
the thresholds of the flags are strict, and 80.0 must not become 79.99999.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import add, and_, is_not, mul, sub
from typing import Final, NamedTuple

from msgspec import Struct

from gputop.diagnosis.host_side import GpuHostActivity, is_on_disk, saves_pct
from gputop.diagnosis.sanity import is_missed, reads_zero_at_work
from gputop.model.derived import POWER_BRAKE, POWER_CAP, THERMAL
from gputop.model.feeders import MainWaits
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, HostSample, ProcessSample

SCALE: Final = 1e6


def ratio(part: float | None, whole: float | None) -> float | None:
    """A part of a whole; None where either is not known or there is nothing to be a part of."""
    return None if part is None or not whole else part / whole


class GpuMeans(NamedTuple):
    """What a GPU did over the window: percent, then shares 0–1. None where it is not known."""

    u: float | None = None
    sm: float | None = None
    occ: float | None = None
    tensor: float | None = None
    fp32: float | None = None
    fp64: float | None = None
    fp16: float | None = None
    integer: float | None = None
    dram: float | None = None
    u_of_sm: float | None = None
    """Util of the samples in which SM was measured: what SM is a part of."""
    u_of_dram: float | None = None
    void: float | None = None
    """Marks the samples in which the counters said nothing, because they were multiplexed: these do not count against a
    counter that is known in the others."""
    pcie_rx: float | None = None
    pcie_tx: float | None = None
    nvlink: float | None = None
    power: float | None = None
    clock: float | None = None
    loud: float = 0.0
    """From here on: in how many of the samples it was so."""
    thermal: float = 0.0
    brake: float = 0.0
    capped: float = 0.0

    @property
    def r(self) -> float | None:
        """SM / util of the same samples, 0–1 and more where clocks swing: how much of the chip kernels use."""
        return None if self.u is None else ratio(self.sm, self.u_of_sm)

    @property
    def d(self) -> float | None:
        """DRAM / util of the same samples."""
        return None if self.u is None else ratio(self.dram, self.u_of_dram)

    @property
    def x(self) -> float | None:
        """Tensor / SM."""
        return ratio(self.tensor, self.sm)

    @property
    def pipes(self) -> tuple[float | None, ...]:
        """The pipes beside the tensor cores, percent."""
        return self.fp64, self.fp32, self.fp16, self.integer

    @property
    def pcie_both_ways(self) -> float | None:
        """The less busy direction of the PCIe link, where both are known."""
        return None if self.pcie_rx is None or self.pcie_tx is None else min(self.pcie_rx, self.pcie_tx)

    @property
    def pcie(self) -> float | None:
        """The busier direction of the PCIe link, as a share of what it can carry."""
        return max([share for share in (self.pcie_rx, self.pcie_tx) if share is not None], default=None)


class HostMeans(NamedTuple):
    """What the host did for a GPU over the window: shares 0–1, counts, cores and bytes a second."""

    main: float | None = None
    """Runnable: on a core, or queued for one."""
    main_queued: float | None = None
    main_disk: float | None = None
    main_network: float | None = None
    main_lock: float | None = None
    main_sleep: float | None = None
    main_poll: float | None = None
    main_pipe: float | None = None
    main_write: float | None = None
    main_other: float | None = None
    main_unread: float | None = None
    main_saves: float | None = None
    """The part of it in which it waited for a file to be written."""
    listens: float | None = None
    workers: float | None = None
    """Mean over loaders of running and queued."""
    running: float | None = None
    queued: float | None = None
    disk: float | None = None
    network: float | None = None
    loaders: float | None = None
    tree: float | None = None
    """Cores that the job's processes used."""
    read: float | None = None
    write: float | None = None
    throttled: float | None = None
    pool: float | None = None

    @property
    def waits(self) -> MainWaits | None:
        """What the main thread waited for; None where it cannot be seen."""
        return None if self.main is None else MainWaits(*[share or 0.0 for share in self[2:11]])


_NAMES: Final = GpuMeans._fields + HostMeans._fields
COLUMNS: Final = len(_NAMES)
_PLACES: Final = {name: place for place, name in enumerate(_NAMES)}
_OF_GPU: Final = len(GpuMeans._fields)
_VOID: Final = _PLACES["void"]
ACTIVITY: Final = ("sm", "occ", "tensor", "fp32", "fp64", "fp16", "integer", "dram", "u_of_sm", "u_of_dram")
"""What the profiling counters say."""
LEAST_PART: Final = 6
"""Of the samples one in so many must have a counter, however many are void."""
_NOT_SHARES = {"u", *ACTIVITY, "loaders", "read", "write"}
_UNITS = tuple(SCALE if name in _NOT_SHARES else 100.0 * SCALE for name in _NAMES)
"""Columns of shares hold percent and are read as shares 0–1."""
_ACTIVE = tuple(name in ACTIVITY for name in _NAMES)

Row = tuple[int | None, ...]
"""One sample: per column the value in millionths, or None where it was not measured."""


class WindowColumns(NamedTuple):
    """The means over the window, None where less than half of the samples that can have a value do."""

    gpu: GpuMeans
    host: HostMeans


_NOTHING: Final = (None,) * COLUMNS

MOST: Final = 1e18
"""Far beyond any value of the catalogue; what exceeds it, or is not a number, counts as not measured."""


def scaled(value: float | None) -> int | None:
    """A value in millionths."""
    return round(value * SCALE) if value is not None and value < MOST else None


class _Sample(Struct, frozen=True, gc=False):
    """One sample of the window: 0 stands where a value was not measured, and ``present`` tells which were."""

    t: float
    values: tuple[int, ...]
    present: tuple[bool, ...]


class Window:
    """Samples of the last ``seconds`` with their sums and counts by column."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._samples: deque[_Sample] = deque()
        self._sums = [0] * COLUMNS
        self._counts = [0] * COLUMNS
        self._means: WindowColumns | None = None
        """The means of all columns; None once a sum or a count has changed."""

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def oldest_t(self) -> float:
        """Time of the oldest sample kept."""
        return self._samples[0].t

    def push(self, t: float, row: Row) -> None:
        """Add a sample and drop those older than the window."""
        samples = self._samples
        presence = tuple(map(is_not, row, _NOTHING))
        if samples and samples[-1].present == presence:
            presence = samples[-1].present
        now = _Sample(t, tuple([value or 0 for value in row]), presence)
        samples.append(now)
        if samples[0].t <= self._horizon(self._seconds) < samples[1].t:
            # One goes as one comes: mostly the same columns are known, and often nothing has changed at all.
            oldest = samples.popleft()
            if oldest.present != presence:
                self._add_counts(add, presence)
                self._add_counts(sub, oldest.present)
            if oldest.values != now.values:
                self._means = None
                self._sums = list(map(sub, map(add, self._sums, now.values), oldest.values))
            return
        self._means = None
        self._sums = list(map(add, self._sums, now.values))
        self._add_counts(add, presence)
        self.keep(self._seconds)

    def _add_counts(self, operation: Callable[[int, int], int], presence: tuple[bool, ...]) -> None:
        self._counts = list(map(operation, self._counts, presence))
        self._means = None

    def keep(self, seconds: float) -> None:
        """Drop what is more than ``seconds`` older than the latest sample."""
        horizon = self._horizon(seconds)
        while self._samples[0].t <= horizon:
            oldest = self._samples.popleft()
            self._sums = list(map(sub, self._sums, oldest.values))
            self._add_counts(sub, oldest.present)

    def _horizon(self, seconds: float) -> float:
        # Half a millisecond: Unix times carry a rounding error, and the sample 30 s ago must not count by chance.
        return self._samples[-1].t - seconds + 0.0005

    def latest(self, seconds: float, columns: Sequence[str]) -> list[tuple[float, float] | None]:
        """Per column the mean of the last ``seconds`` and of what came before, in its unit; None without both."""
        pairs: list[tuple[float, float] | None] = []
        horizon = self._horizon(seconds)
        for column in map(_PLACES.__getitem__, columns):
            total = count = 0
            for sample in reversed(self._samples):
                if sample.t <= horizon:
                    break
                total += sample.values[column]
                count += sample.present[column]
            others = self._counts[column] - count
            unit = _UNITS[column]
            pairs.append(
                (total / (count * unit), (self._sums[column] - total) / (others * unit)) if count and others else None
            )
        return pairs

    def forget(self, *columns: str) -> None:
        """Drop a column's past: two sources of one metric never mix, and a broken counter's zeros do not count."""
        factors = [name not in columns for name in _NAMES]
        self._samples = deque(
            _Sample(sample.t, tuple(map(mul, sample.values, factors)), tuple(map(and_, sample.present, factors)))
            for sample in self._samples
        )
        self._means = None
        for name in columns:
            self._sums[_PLACES[name]] = self._counts[_PLACES[name]] = 0

    def _least(self) -> tuple[float, float]:
        """How many samples must have a column, and how many a counter of activity: half of those that can."""
        n = len(self)
        return n / 2.0, max((n - self._counts[_VOID]) / 2.0, n / LEAST_PART)

    def means(self) -> WindowColumns:
        """The mean of every column."""
        if self._means is None:
            least = self._least()
            means = [
                total / (count * unit) if count and count >= least[active] else None
                for total, count, unit, active in zip(self._sums, self._counts, _UNITS, _ACTIVE, strict=True)
            ]
            self._means = WindowColumns(GpuMeans._make(means[:_OF_GPU]), HostMeans._make(means[_OF_GPU:]))
        return self._means

    def total(self, column: str) -> float:
        """The sum of a column in its own unit."""
        return self._sums[_PLACES[column]] / SCALE


# One sample as a row of the window, and what else a single sample shows: link, swap, why the host's side is dark.

LOUD_UTIL = 5.0
"""p95 of util below this is the idle family; a sample at or above it is loud."""
PCIE_LANE_BYTES = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
PCIE_USABLE = 0.8
MOST_SHARE = 100.0
"""A share above this means that the limit is wrong."""
SWAP_PSI = 10.0
SWAP_FULL = 0.9
SWAP_BYTES = 1e9


STALE_S = 60.0
"""Counters that are this old describe another moment than util does. The slowest exporters publish every 30 s."""


def is_stale(gpu: GpuSample) -> bool:
    """Whether the counters are too old to stand beside the util of this sample."""
    return gpu.sm_age_s is not None and gpu.sm_age_s > max(STALE_S, 2.0 * (gpu.sm_window_s or 0.0))


def is_split(gpu: GpuSample) -> bool:
    """Whether SM activity of a whole GPU in MIG mode stands beside the util of something else."""
    return bool(gpu.static.mig_enabled) and (gpu.static.mig_parent is None or gpu.util_pct is not None)


def sm_now(gpu: GpuSample) -> float | None:
    """SM activity of one sample, percent; None where it was not measured then, or is not to be believed."""
    if gpu.sm_source not in MEASURED or reads_zero_at_work(gpu) or is_stale(gpu) or "sm_active_pct" in gpu.doubts:
        return None
    return gpu.sm_active_pct


def clock_share(gpu: GpuSample) -> float | None:
    """SM clock as a share of its maximum."""
    return ratio(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz)


def pcie_capacity(gpu: GpuSample) -> float | None:
    """Usable bytes per second of the PCIe link in one direction, as it is now: 80 % of the raw rate."""
    lane = PCIE_LANE_BYTES.get(gpu.pcie_gen or 0)
    return None if lane is None or not gpu.pcie_width else lane * gpu.pcie_width * PCIE_USABLE


def row_of(
    gpu: GpuSample, util: float | None, sm: float | None, tick: GpuHostActivity | None, capacity: float | None
) -> Row:
    """The row of a sample; ``util`` and ``sm`` in percent, ``capacity`` of the PCIe link in bytes a second."""
    reasons = gpu.throttle_reasons or 0
    peak = gpu.static.nvlink_peak_bytes_per_s
    nvlink = gpu.nvlink_rx_bytes_per_s
    if gpu.nvlink_tx_bytes_per_s is not None and (nvlink is None or gpu.nvlink_tx_bytes_per_s > nvlink):
        nvlink = gpu.nvlink_tx_bytes_per_s
    return (
        scaled(util), *_counters(gpu, util, sm),
        _scaled_share(gpu.pcie_rx_bytes_per_s, capacity), _scaled_share(gpu.pcie_tx_bytes_per_s, capacity),
        _scaled_share(nvlink, peak), _scaled_share(gpu.power_w, gpu.power_limit_w),
        _scaled_share(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
        _always(util is not None and util >= LOUD_UTIL), _always(reasons & THERMAL), _always(reasons & POWER_BRAKE),
        _always(reasons & POWER_CAP),
        *(_NO_HOST if tick is None else _host_side(tick)),
    )  # fmt: skip


_NO_HOST: Row = (None,) * (COLUMNS - _OF_GPU)
_STALE: Row = (None,) * (_VOID - _PLACES["sm"] + 1)


def _always(condition: bool | int) -> int:
    """Whether something was so in a sample, as a share of it."""
    return 100_000_000 if condition else 0


def _counters(gpu: GpuSample, util: float | None, sm: float | None) -> Row:
    """The columns from SM to VOID."""
    if is_stale(gpu):
        return _STALE
    u, dram, active = scaled(util), scaled(gpu.dram_active_pct), scaled(sm)
    return (
        active, scaled(gpu.sm_occupancy_pct), scaled(gpu.tensor_active_pct), scaled(gpu.fp32_active_pct),
        scaled(gpu.fp64_active_pct), scaled(gpu.fp16_active_pct), scaled(gpu.int_active_pct), dram,
        None if active is None else u, None if dram is None else u, 1_000_000 if is_missed(gpu) else None,
    )  # fmt: skip


def _host_side(tick: GpuHostActivity) -> list[int | None]:
    """A list: CPython 3.11 keeps freed tuples of exactly 20 values, up to 2,000, and never reuses them."""
    p = tick.primary
    main = main_disk = None
    if p is not None:
        main = scaled(p.main_pct)
        if p.state is not None:
            main_disk = 100_000_000 if is_on_disk(p) else 0
        if p.main.disk is not None:
            main_disk = scaled(p.main.disk)
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
    queued = saves = listens = None
    if p is not None and p.main_run_pct is not None:
        queued, saves = scaled(p.main_wait_pct or 0.0), scaled(saves_pct(p))
        listens = None if p.listens is None else _always(p.listens)
    return [
        main, queued, main_disk, *_main_waits(p), saves, listens, *loading, scaled(tick.tree_pct),
        scaled(tick.read_bytes), scaled(tick.write_bytes), scaled(tick.throttled), scaled(tick.pool_pct),
    ]  # fmt: skip


def _main_waits(p: ProcessSample | None) -> list[int | None]:
    """What the main thread waited for beside a disk, in the time that it did not run. A known sample counts, zeros
    included."""
    if p is None or p.main_pct is None:
        return [None] * 8
    main = p.main
    if main.unread is not None:
        waits = main.network, main.lock, main.sleep, main.poll, main.pipe, main.write, main.other, main.unread
        return [scaled(wait) for wait in waits]
    return [None] * 8


def _scaled_share(value: float | None, limit: float | None) -> int | None:
    share = ratio(value, limit)
    return round(share * 1e8) if share is not None and share < MOST_SHARE else None


def memory_of(gpu: GpuSample, host: HostSample) -> tuple[float | None, float | None]:
    """Bytes in use and in all of the memory that a job on this GPU can fill.

    A GPU without memory of its own is full when the host is, or the cgroup: ``MemAvailable`` counts, not which process
    holds it.
    """
    if gpu.static.unified_memory:
        return host.mem_used_bytes, host.mem_total_bytes
    return gpu.mem_used_bytes, gpu.mem_total_bytes


def degraded_link(gpu: GpuSample) -> str:
    """In which way the PCIe link is below its best, in words; empty when it is not.

    A GPU that shares the host's memory does not copy over PCIe: the link that it shows is narrow and unused.
    """
    if gpu.static.unified_memory:
        return ""
    words = []
    if gpu.pcie_gen is not None and gpu.pcie_gen_max is not None and gpu.pcie_gen < gpu.pcie_gen_max:
        words.append(f"gen {gpu.pcie_gen} of {gpu.pcie_gen_max}")
    if gpu.pcie_width is not None and gpu.pcie_width_max is not None and gpu.pcie_width < gpu.pcie_width_max:
        words.append(f"x{gpu.pcie_width} of x{gpu.pcie_width_max}")
    return ", ".join(words)


def missing_host_reason(primary: ProcessSample | None) -> str | None:
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
