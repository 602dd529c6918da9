"""What ran on the GPU: utilisation, the bound on SM activity from launch grids, the queue, and the kernels by time."""

from __future__ import annotations

import re
from bisect import bisect_left
from heapq import heappop, heappush
from itertools import accumulate, compress
from operator import sub
from statistics import median

from msgspec import Struct

from gputop.features.traces.columns import ABSENT, COMM, COMPUTE, COPY, Trace
from gputop.features.traces.kernel_names import category, short_name
from gputop.features.traces.timeline import DeviceEvents

KNOWN_SHARE = 0.8
"""Share of the kernels' time for which occupancy or grid must be known before either is shown."""
_ONE = 1_000_000


class Queue(Struct, frozen=True):
    """How full the GPU's queue was when kernels began. ``delay_us`` is the median from launch to begin."""

    empty_pct: float
    delay_us: float
    kernels: int


class KernelRow(Struct, frozen=True):
    """One kernel's share of the window, how often and how long it ran, and how much of the chip it can have used."""

    name: str
    share_pct: float
    calls: int
    mean_us: float
    occupancy_pct: float | None
    sm_high_pct: float | None
    comm: bool
    category: str


def sm_high_pct(events: DeviceEvents, begin: int, end: int) -> float | None:
    """An upper bound of SM activity over the window, in percent: a multiprocessor without a block is idle.

    The sum of ``blocks per SM`` of all kernels that run at a moment, at most 1, over time. Kernels without a grid count
    as the whole chip. None where no kernel has one. Never a lower bound, and never a measurement.
    """
    if end <= begin:
        return None
    running: list[tuple[int, int]] = []
    known = False
    covered, level, since = 0, 0, begin
    for first, last, kind, blocks in zip(events.start, events.end, events.kind, events.blocks, strict=True):
        if kind == COPY:
            continue
        known = known or blocks != ABSENT
        if last <= begin or first >= end:
            continue
        first = max(first, begin)
        while running and running[0][0] <= first:
            over, weight = heappop(running)
            covered += (over - since) * (level if level < _ONE else _ONE)
            level -= weight
            since = over
        if running:
            covered += (first - since) * (level if level < _ONE else _ONE)
        since = first
        # Integers, so that what was added is subtracted exactly.
        weight = _ONE if blocks == ABSENT or blocks >= 1.0 else round(blocks * _ONE)
        heappush(running, (min(last, end), weight))
        level += weight
    while running:
        over, weight = heappop(running)
        covered += (over - since) * min(level, _ONE)
        level -= weight
        since = over
    return 100.0 * covered / _ONE / (end - begin) if known else None


def queue(trace: Trace, events: DeviceEvents, begin: int, end: int) -> Queue | None:
    """The GPU's queue at the begin of each kernel inside of [begin, end); None where no launch is known.

    Empty: every kernel launched by then had begun.
    """
    calls = trace.calls.start
    starts: list[int] = []
    launched: list[int] = []
    for start, kind, launch in zip(events.start, events.kind, events.launch, strict=True):
        if launch != ABSENT and kind != COPY and begin <= start < end:
            starts.append(start)
            launched.append(calls[launch])
    if not starts:
        return None
    delay = median(map(sub, starts, launched))
    launched.sort()
    at = empty = 0
    for begun, start in enumerate(starts, 1):
        while at < len(launched) and launched[at] <= start:
            at += 1
        empty += at <= begun
    return Queue(100.0 * empty / len(starts), delay / 1000.0, len(starts))


Like = tuple[int, int, float, float]
"""What alike events share: name, kind, blocks per SM, occupancy."""


def time_and_calls(events: DeviceEvents, begin: int, end: int) -> tuple[dict[Like, int], dict[Like, int]]:
    """Nanoseconds in [begin, end), and how many there were, of events that are alike."""
    spent: dict[Like, int] = {}
    calls: dict[Like, int] = {}
    keys = zip(events.name, events.kind, events.blocks, events.occupancy, strict=True)
    for key, first, last in zip(keys, events.start, events.end, strict=True):
        if first < end and last > begin:
            if first < begin or last > end:
                first, last = max(first, begin), min(last, end)
            spent[key] = spent.get(key, 0) + last - first
            calls[key] = calls.get(key, 0) + 1
    return spent, calls


def kernel_rows(trace: Trace, spent: dict[Like, int], calls: dict[Like, int], window: int) -> list[KernelRow]:
    """Kernels by their time, the longest first. Shares are of the window, in nanoseconds, and may overlap."""
    sums: dict[tuple[str, str], list[float]] = {}
    shorter: dict[int, tuple[str, str]] = {}
    for key, time in spent.items():
        name, kind, blocks, occupancy = key
        if kind == COPY:
            continue
        if name not in shorter:
            text = trace.names.texts[name]
            shorter[name] = (short_name(text), "communication" if kind == COMM else category(text))
        row = sums.setdefault(shorter[name], [0.0] * 6)
        row[0] += time
        row[1] += calls[key]
        if occupancy != ABSENT:
            row[2] += time
            row[3] += time * occupancy
        if blocks != ABSENT:
            row[4] += time
            row[5] += time * min(1.0, blocks)
    rows = [_kernel_row(label, group, row, window) for (label, group), row in sums.items()]
    return sorted(rows, key=lambda row: (-row.share_pct, row.name))


def _kernel_row(label: str, group: str, row: list[float], window: int) -> KernelRow:
    time, calls, with_occupancy, occupancy, with_blocks, blocks = row
    return KernelRow(
        label,
        100.0 * time / window,
        int(calls),
        time / calls / 1000.0,
        occupancy / with_occupancy if with_occupancy and with_occupancy >= KNOWN_SHARE * time else None,
        100.0 * blocks / with_blocks if with_blocks and with_blocks >= KNOWN_SHARE * time else None,
        group == "communication",
        group,
    )


def occupancy_pct(events: DeviceEvents) -> float | None:
    """The kernels' occupancy, weighted by their durations; None where it is known for less than 80 % of their time."""
    known = weighted = 0.0
    kernels = 0
    for first, last, kind, occupancy in zip(events.start, events.end, events.kind, events.occupancy, strict=True):
        if kind != COPY:
            kernels += last - first
            if occupancy != ABSENT:
                known += last - first
                weighted += (last - first) * occupancy
    return weighted / known if known and known >= KNOWN_SHARE * kernels else None


def median_kernel_us(events: DeviceEvents) -> float | None:
    """The duration, weighted by itself, below which half of the computing kernels' time is spent; microseconds."""
    wanted = map(COMPUTE.__eq__, events.kind)
    times = sorted(compress(map(sub, events.end, events.start), wanted))
    sums = list(accumulate(times))
    return times[bisect_left(sums, sums[-1] / 2.0)] / 1000.0 if times else None


_FP32_GEMM = re.compile(r"sgemm", re.IGNORECASE)
_TENSOR_CORE_GEMM = re.compile(r"tensorop|16816|1688|hmma|wgmma|gmma|tf32|bf16|f16|fp16|mfma|mma_", re.IGNORECASE)


def fp32_gemm_pct(trace: Trace, events: DeviceEvents) -> float | None:
    """The share of the compute time in FP32 matrix products; None where others use the tensor cores, or none ran."""
    texts = trace.names.texts
    computed = 0
    by_name: dict[int, int] = {}
    for name, kind, first, last in zip(events.name, events.kind, events.start, events.end, strict=True):
        if kind == COMPUTE:
            computed += last - first
            by_name[name] = by_name.get(name, 0) + last - first
    if not computed or any(_TENSOR_CORE_GEMM.search(texts[name]) for name in by_name):
        return None
    return 100.0 * sum(spent for name, spent in by_name.items() if _FP32_GEMM.search(texts[name])) / computed
