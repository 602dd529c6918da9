"""The window: the samples of the last 30 s, and their means.

``Second`` is one sample. The window is a ``deque[Second]``; nothing is summed up incrementally: recomputing the means
of 30 samples takes about 40 µs. Means are rounded to six digits, so that a mean of equal values is that value: the
thresholds of the flags are strict, and 80.0 must not become 79.99999.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.window.host_activity import FeederRow, GpuHostActivity, known
from gputop.diagnosis.window.host_side import HostMeans, host_second
from gputop.diagnosis.window.sample_facts import LOUD_UTIL, is_stale, pcie_capacity, ratio
from gputop.diagnosis.window.sanity import is_missed
from gputop.model.derived import POWER_BRAKE, POWER_CAP, THERMAL
from gputop.model.feeders import WaitEnd
from gputop.model.snapshot import GpuSample
from gputop.model.source import FAST_S

WINDOW_S = 30.0
"""Rules are evaluated on means over this many seconds, whatever the interval."""
EPSILON_S = 0.0005
"""Unix times carry a rounding error, and the sample 30 s ago must not count by chance."""
DIGITS = 6
MOST_SHARE = 100.0
"""A share above this means that the limit is wrong."""


class GpuMeans(NamedTuple):
    """Values of a GPU, of one sample or as means.

    Percent, from ``pcie_rx`` on shares 0–1. None if not known.
    """

    util_pct: float | None = None
    sm: float | None = None
    occ: float | None = None
    tensor: float | None = None
    fp32: float | None = None
    fp64: float | None = None
    fp16: float | None = None
    integer: float | None = None
    dram: float | None = None
    util_with_sm: float | None = None
    """Util of samples with measured SM."""
    util_with_dram: float | None = None
    multiplexed: float | None = None
    """1 if DCGM multiplexing left a sample without counters.

    Such samples do not lower a counter's coverage.
    """
    pcie_rx: float | None = None
    pcie_tx: float | None = None
    nvlink: float | None = None
    power: float | None = None
    clock: float | None = None
    loud: float = 0.0
    """First of the shares of samples in which a condition held."""
    thermal: float = 0.0
    brake: float = 0.0
    capped: float = 0.0

    @property
    def sm_ratio(self) -> float | None:
        """SM / util of the same samples, 0–1.

        The part of the chip that kernels use, and more than 1 where clocks swing.
        """
        return None if self.util_pct is None else ratio(self.sm, self.util_with_sm)

    @property
    def dram_ratio(self) -> float | None:
        """DRAM / util of the same samples."""
        return None if self.util_pct is None else ratio(self.dram, self.util_with_dram)

    @property
    def tensor_ratio(self) -> float | None:
        """Tensor / SM."""
        return ratio(self.tensor, self.sm)

    @property
    def pipes(self) -> tuple[float | None, ...]:
        """The pipes beside the tensor cores, percent."""
        return self.fp64, self.fp32, self.fp16, self.integer

    @property
    def pcie_both_ways(self) -> float | None:
        """The less busy direction of the PCIe link, if both are known."""
        return (
            None
            if self.pcie_rx is None or self.pcie_tx is None
            else min(self.pcie_rx, self.pcie_tx)
        )

    @property
    def pcie(self) -> float | None:
        """The busier direction of the PCIe link, as a share of its capacity."""
        return max(
            [share for share in (self.pcie_rx, self.pcie_tx) if share is not None], default=None
        )


class Second(Struct, frozen=True):
    """One sample of one GPU and its host side.

    It covers the ``dt`` seconds up to Unix time ``t``.
    """

    t: float
    dt: float
    gpu: GpuMeans
    host: HostMeans | None = None
    """None if the processes were not read again."""
    workers: Sequence[FeederRow] = ()
    waits_for: tuple[WaitEnd, ...] = ()
    """Wait targets of the main thread, most frequent first."""
    most_disk: float = 0.0
    most_network: float = 0.0
    """Largest disk and network waits of any process."""
    fetches: bool = False
    """The main thread polls a socket of its own process that receives data."""

    def has_moved(self, before: Second | None) -> bool:
        """True if any value differs from the sample before: the counters were renewed."""
        if before is None or self.gpu != before.gpu:
            return True
        return self.host is not None and self.host != before.host

    def without_sm(self) -> Second:
        """The sample without its SM activity, which does not count."""
        return replace(self, gpu=self.gpu._replace(sm=None, util_with_sm=None))

    def without_counters(self) -> Second:
        """The sample without what the profiling counters say."""
        return replace(self, gpu=self.gpu._replace(**WITHOUT_COUNTERS))  # type: ignore[arg-type]


def second_of(
    t: float, dt: float, gpu: GpuSample, sm: float | None, tick: GpuHostActivity | None
) -> Second:
    """One sample; ``sm`` is None if it does not count, and ``tick`` if the processes were not read again."""
    if tick is None:
        return Second(t, dt, gpu_second(gpu, sm))
    processes = [row.shares for row in tick.rows if row.key >= 0]
    return Second(
        t,
        dt,
        gpu_second(gpu, sm),
        host_second(tick),
        tick.rows,
        tick.ends,
        max([shares.disk for shares in processes], default=0.0),
        max([shares.network for shares in processes], default=0.0),
        tick.primary is not None and tick.primary.feed_by == "main socket",
    )


ACTIVITY = (
    "sm",
    "occ",
    "tensor",
    "fp32",
    "fp64",
    "fp16",
    "integer",
    "dram",
    "util_with_sm",
    "util_with_dram",
)
"""What the profiling counters say."""
WITHOUT_COUNTERS: dict[str, float | None] = dict.fromkeys((*ACTIVITY, "multiplexed"))
STEADY_PCT, STEADY_S = 10.0, 4.0
"""Of a steady window util in its halves, and SM activity in those of so many seconds, differ by at most so many points:
SM activity of the first kernels is that of a warm-up [judged]."""
LEAST_PART = 6
"""Of the samples one in so many must have a counter, however many are multiplexed."""
_IS_ACTIVITY = tuple(name in ACTIVITY for name in GpuMeans._fields)
_MULTIPLEXED = GpuMeans._fields.index("multiplexed")
_NO_HOST = HostMeans()
_READ_WHILE_BUSY = ("main", "main_queued", "workers", "queued", "tree", "throttled")
_read_while_busy = attrgetter(*_READ_WHILE_BUSY)


def mean(values: Sequence[float | None], least: float) -> float | None:
    """Mean of the known values, rounded.

    None if fewer than ``least`` are known.
    """
    try:
        return round(sum(values) / len(values), DIGITS)  # type: ignore[arg-type] # the usual case: all are known
    except TypeError:
        known = [value for value in values if value is not None]
        return round(sum(known) / len(known), DIGITS) if known and len(known) >= least else None


def gpu_means(seconds: Iterable[Second]) -> GpuMeans:
    """Means of the window.

    A counter must be known in half of the samples that can have it.
    """
    columns = list(zip(*[second.gpu for second in seconds], strict=True))
    n = len(columns[0])
    least = n / 2.0
    least_activity = max(columns[_MULTIPLEXED].count(None) / 2.0, n / LEAST_PART)
    return GpuMeans(
        *[  # type: ignore[arg-type] # shares of the samples are never None
            mean(column, least_activity if is_activity else least)
            for column, is_activity in zip(columns, _IS_ACTIVITY, strict=True)
        ]
    )


def host_means(seconds: Iterable[Second], *, is_idle: bool = True) -> HostMeans:
    """Means of the window.

    A sample without process data counts as one in which nothing is known.

    Of a GPU that is not idle, only those that rules for busy GPUs read.
    """
    rows = [second.host or _NO_HOST for second in seconds]
    least = len(rows) / 2.0
    if is_idle:
        return HostMeans(*[mean(column, least) for column in zip(*rows, strict=True)])
    columns = zip(*map(_read_while_busy, rows), strict=True)
    return HostMeans(
        **{
            name: mean(column, least)
            for name, column in zip(_READ_WHILE_BUSY, columns, strict=True)
        }
    )


def evenly(seconds: Sequence[Second]) -> Sequence[Second]:
    """Repeat long samples where lengths differ, so that plain means weigh by time.

    At a start four samples a second are followed by one.
    """
    spans = [second.dt for second in seconds]
    shortest = max(min(spans), FAST_S)
    if max(spans) < 2.0 * shortest:
        return seconds
    return [second for second in seconds for _ in range(max(1, round(second.dt / shortest)))]


def is_steady(seconds: Sequence[Second]) -> bool:
    """True if util was alike in both halves of the window, and SM activity in both halves of its last seconds."""
    newest = samples_after(seconds, seconds[-1].t - STEADY_S)
    columns = [second.gpu.util_pct for second in seconds], [second.gpu.sm for second in newest]
    for column in columns:
        half = len(column) // 2
        before, now = mean(column[:half], 1.0) if half else None, mean(column[half:], 1.0)
        if before is not None and now is not None and abs(now - before) > STEADY_PCT:
            return False
    return True


def samples_after(seconds: Sequence[Second], t: float) -> list[Second]:
    """Samples later than Unix time ``t``."""
    return [second for second in seconds if second.t > t + EPSILON_S]


def gpu_second(gpu: GpuSample, sm: float | None) -> GpuMeans:
    """The GPU's part of one sample.

    ``sm`` in percent, None if it does not count.
    """
    reasons, util = gpu.throttle_reasons or 0, known(gpu.util_pct)
    counters: Sequence[float | None] = (None,) * len(WITHOUT_COUNTERS)
    if not is_stale(gpu):
        dram, active = known(gpu.dram_active_pct), known(sm)
        counters = (
            active, known(gpu.sm_occupancy_pct), known(gpu.tensor_active_pct), known(gpu.fp32_active_pct),
            known(gpu.fp64_active_pct), known(gpu.fp16_active_pct), known(gpu.int_active_pct), dram,
            None if active is None else util, None if dram is None else util, 1.0 if is_missed(gpu) else None,
        )  # fmt: skip
    nvlink = max(
        [x for x in (gpu.nvlink_rx_bytes_per_s, gpu.nvlink_tx_bytes_per_s) if x is not None],
        default=None,
    )
    capacity = pcie_capacity(gpu)
    return GpuMeans(  # type: ignore[call-arg] # as many counters as there are fields
        util,
        *counters,  # type: ignore[arg-type]
        _share(gpu.pcie_rx_bytes_per_s, capacity),
        _share(gpu.pcie_tx_bytes_per_s, capacity),
        _share(nvlink, gpu.static.nvlink_peak_bytes_per_s),
        _share(gpu.power_w, gpu.power_limit_w),
        _share(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
        float(util is not None and util >= LOUD_UTIL),
        float(bool(reasons & THERMAL)),
        float(bool(reasons & POWER_BRAKE)),
        float(bool(reasons & POWER_CAP)),
    )


def _share(value: float | None, limit: float | None) -> float | None:
    share = ratio(value, limit)
    return share if share is not None and share < MOST_SHARE else None
