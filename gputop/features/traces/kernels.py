"""Kernels by time and category, SM bound, launch queue."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from heapq import heappop, heappush
from itertools import accumulate, chain, compress
from operator import sub
from statistics import median

from msgspec import Struct

from gputop.features.traces.columns import ABSENT, COMM, COMPUTE, COPY, Trace
from gputop.features.traces.device_events import DeviceEvents
from gputop.features.traces.kernel_names import CATEGORIES, category, short_name

KNOWN_SHARE = 0.8
"""Share of a kernel's time for which the grid must be known before its bound is shown."""
_ONE = 1_000_000


class KernelRow(Struct, frozen=True):
    """One kernel: share, calls, duration, SM bound, category, estimated occupancy."""

    name: str
    share_pct: float
    calls: int
    mean_us: float
    sm_high_pct: float | None
    comm: bool
    category: str
    occupancy_pct: float | None = None


def sm_high_pct(events: DeviceEvents, begin: int, end: int) -> float | None:
    """Upper bound of SM activity over the window, in percent.

    A multiprocessor without a block is idle.

    The sum of ``blocks per SM`` of all kernels that run at a moment, at most 1, over time. Kernels without a grid count
    as the whole chip. None where no kernel has one. Never a lower bound, and never a measurement.
    """
    running: list[tuple[int, int]] = []
    covered, level, since = 0, 0, begin
    rows = zip(events.start, events.end, events.kind, events.blocks, strict=True)
    for first, last, kind, blocks in chain(rows, [(end, end, COMPUTE, ABSENT)]):
        if kind == COPY or last <= begin or first > end:
            continue
        first = max(first, begin)
        while running and running[0][0] <= first:
            over, weight = heappop(running)
            covered += (over - since) * min(level, _ONE)
            level -= weight
            since = over
        covered += (first - since) * min(level, _ONE)
        since = first
        # Integers, so that what was added is subtracted exactly.
        weight = _ONE if blocks == ABSENT or blocks >= 1.0 else round(blocks * _ONE)
        heappush(running, (min(last, end), weight))
        level += weight
    has_blocks = any(
        kind != COPY and blocks != ABSENT
        for kind, blocks in zip(events.kind, events.blocks, strict=True)
    )
    return 100.0 * covered / _ONE / (end - begin) if has_blocks else None


def queue(
    trace: Trace, events: DeviceEvents, begin: int, end: int
) -> tuple[float | None, float | None]:
    """Percent of kernels that found an empty queue, and median delay.

    Only kernels that begin in [begin, end) count. The queue is empty if every kernel launched by then has begun; the
    delay is the median from launch to begin in µs. None if no launch is known.
    """
    calls = trace.calls.start
    pairs = [
        (start, calls[launch])
        for start, kind, launch in zip(events.start, events.kind, events.launch, strict=True)
        if launch != ABSENT and kind != COPY and begin <= start < end
    ]
    if not pairs:
        return None, None
    launched = sorted(launch for _, launch in pairs)
    empty = sum(bisect_right(launched, start) <= begun for begun, (start, _) in enumerate(pairs, 1))
    return 100.0 * empty / len(pairs), median(start - launch for start, launch in pairs) / 1000.0


Like = tuple[int, int, float]
"""Key of alike events: name, kind, blocks per SM."""


class AlikeEvents(Struct):
    """Alike events inside of a window: their number, their time, and what of it counts in shares.

    Times are in nanoseconds. On a stream whose events overlap, as they cannot, each moment counts once.
    """

    calls: int = 0
    time: int = 0
    counted: int = 0


Spent = dict[Like, AlikeEvents]


def spent_by_kind(trace: Trace, events: DeviceEvents, begin: int, end: int) -> Spent:
    """The events of a device in [begin, end), grouped."""
    spent: Spent = {}
    until = {stream: begin for device, stream in trace.doubts.tangled if device == events.index}
    streams = trace.gpu.stream
    keys = zip(events.name, events.kind, events.blocks, strict=True)
    rows = zip(keys, events.number, events.start, events.end, strict=True)
    for key, number, first, last in rows:
        if first >= end or last <= begin:
            continue
        first, last = max(first, begin), min(last, end)
        alike = spent.get(key)
        if alike is None:
            alike = spent[key] = AlikeEvents()
        alike.calls += 1
        alike.time += last - first
        stream = streams[number]
        if stream in until:
            first = max(first, until[stream])
            until[stream] = max(last, until[stream])
        alike.counted += max(0, last - first)
    return spent


class _KernelSum(AlikeEvents):
    """All events of one kernel; ``with_blocks`` is the time of those whose grid is known."""

    with_blocks: int = 0
    weighted: float = 0.0

    @property
    def bound_pct(self) -> float | None:
        """Upper bound of SM activity, where most of the grids are known."""
        if not self.with_blocks or self.with_blocks < KNOWN_SHARE * self.time:
            return None
        return 100.0 * self.weighted / self.with_blocks


def kernel_rows(trace: Trace, spent: Spent, window: int) -> list[KernelRow]:
    """Kernels by their time, the longest first.

    Shares are of the window, in nanoseconds, and may overlap.
    """
    sums: dict[tuple[str, str], _KernelSum] = {}
    for (name, kind, blocks), alike in spent.items():
        if kind == COPY:
            continue
        text = trace.names.texts[name]
        group = "communication" if kind == COMM else category(text)
        kernel = sums.setdefault((short_name(text), group), _KernelSum())
        kernel.calls += alike.calls
        kernel.time += alike.time
        kernel.counted += alike.counted
        if blocks != ABSENT:
            kernel.with_blocks += alike.time
            kernel.weighted += alike.time * min(1.0, blocks)
    rows = []
    for (label, group), kernel in sums.items():
        share = 100.0 * kernel.counted / window
        mean_us = kernel.time / kernel.calls / 1000.0
        is_comm = group == "communication"
        rows.append(
            KernelRow(label, share, kernel.calls, mean_us, kernel.bound_pct, is_comm, group)
        )
    return sorted(rows, key=lambda row: (-row.share_pct, row.name))


CATEGORY_WORDS = {name: name for name in CATEGORIES} | {
    "gemm": "GEMM, convolution",
    "copy": "copy, layout",
}


class CategoryRow(Struct, frozen=True):
    """One category, such as GEMM or attention.

    ``share_pct`` is its events' time in percent of the window, which may overlap.
    """

    category: str
    share_pct: float
    calls: int


def category_rows(trace: Trace, spent: Spent, window: int) -> list[CategoryRow]:
    """Categories by their time, the longest first.

    Memory copies and memsets are ``copy``. ``window`` is in ns.
    """
    sums: dict[str, AlikeEvents] = {}
    for (name, kind, _), alike in spent.items():
        if kind == COMM:
            label = "communication"
        elif kind == COPY:
            label = "copy"
        else:
            label = category(trace.names.texts[name])
        row = sums.setdefault(label, AlikeEvents())
        row.calls += alike.calls
        row.counted += alike.counted
    rows = [
        CategoryRow(label, 100.0 * row.counted / window, row.calls) for label, row in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.share_pct, CATEGORIES.index(row.category)))


def median_kernel_us(events: DeviceEvents) -> float | None:
    """Median duration of computing kernels, weighted by itself, in µs."""
    is_compute = map(COMPUTE.__eq__, events.kind)
    times = sorted(compress(map(sub, events.end, events.start), is_compute))
    sums = list(accumulate(times))
    return times[bisect_left(sums, sums[-1] / 2.0)] / 1000.0 if times else None


_FP32_GEMM = re.compile(r"sgemm", re.IGNORECASE)
_TENSOR_CORE_GEMM = re.compile(
    r"tensorop|16816|1688|hmma|wgmma|gmma|tf32|bf16|f16|fp16|mma_", re.IGNORECASE
)


def fp32_gemm_pct(trace: Trace, events: DeviceEvents) -> float | None:
    """Share of compute time in FP32 matrix products.

    None if others use the tensor cores, or none ran.
    """
    texts = trace.names.texts
    computed = 0
    by_name: dict[int, int] = {}
    for name, kind, first, last in zip(
        events.name, events.kind, events.start, events.end, strict=True
    ):
        if kind == COMPUTE:
            computed += last - first
            by_name[name] = by_name.get(name, 0) + last - first
    if not computed or any(_TENSOR_CORE_GEMM.search(texts[name]) for name in by_name):
        return None
    return (
        100.0
        * sum(spent for name, spent in by_name.items() if _FP32_GEMM.search(texts[name]))
        / computed
    )
