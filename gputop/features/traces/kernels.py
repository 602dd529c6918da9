"""What ran on the GPU: the bound on SM activity from launch grids, the queue, the kernels by time and by category, and
how fast the collectives were.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from heapq import heappop, heappush
from itertools import accumulate, chain, compress
from operator import sub
from statistics import median

from msgspec import Struct, field

from gputop.features.traces.columns import ABSENT, COMM, COMPUTE, COPY, Collective, Trace
from gputop.features.traces.device_events import DeviceEvents
from gputop.features.traces.kernel_names import CATEGORIES, category, short_name

KNOWN_SHARE = 0.8
"""Share of the kernels' time for which occupancy or grid must be known before either is shown."""
_ONE = 1_000_000


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
    has_blocks = any(kind != COPY and blocks != ABSENT for kind, blocks in zip(events.kind, events.blocks, strict=True))
    return 100.0 * covered / _ONE / (end - begin) if has_blocks else None


def queue(trace: Trace, events: DeviceEvents, begin: int, end: int) -> tuple[float | None, float | None]:
    """At how many percent of the kernels that begin in [begin, end) the GPU's queue was empty, so that every kernel
    launched by then had begun; and the median µs from a launch to the begin. None where no launch is known.
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


Like = tuple[int, int, float, float]
"""What alike events share: name, kind, blocks per SM, occupancy."""


Spent = dict[Like, list[int]]
"""Of events that are alike the nanoseconds inside of a window, and how many there were."""


def spent_by_kind(events: DeviceEvents, begin: int, end: int) -> Spent:
    """The events of a device in [begin, end)."""
    spent: Spent = {}
    keys = zip(events.name, events.kind, events.blocks, events.occupancy, strict=True)
    for key, first, last in zip(keys, events.start, events.end, strict=True):
        if first < end and last > begin:
            row = spent.setdefault(key, [0, 0])
            row[0] += min(last, end) - max(first, begin)
            row[1] += 1
    return spent


def kernel_rows(trace: Trace, spent: Spent, window: int) -> list[KernelRow]:
    """Kernels by their time, the longest first. Shares are of the window, in nanoseconds, and may overlap."""
    sums: dict[tuple[str, str], list[float]] = {}
    for (name, kind, blocks, occupancy), (time, calls) in spent.items():
        if kind == COPY:
            continue
        text = trace.names.texts[name]
        row = sums.setdefault((short_name(text), "communication" if kind == COMM else category(text)), [0.0] * 6)
        row[0] += time
        row[1] += calls
        if occupancy != ABSENT:
            row[2] += time
            row[3] += time * occupancy
        if blocks != ABSENT:
            row[4] += time
            row[5] += time * min(1.0, blocks)
    rows = [
        KernelRow(
            label, 100.0 * time / window, int(calls), time / calls / 1000.0,
            _known_mean(occupancy, with_occupancy, time), _known_mean(100.0 * blocks, with_blocks, time),
            group == "communication", group,
        )
        for (label, group), (time, calls, with_occupancy, occupancy, with_blocks, blocks) in sums.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.share_pct, row.name))


def _known_mean(weighted: float, known: float, whole: float) -> float | None:
    """A mean over time; None where it is known for too little of it."""
    return weighted / known if known and known >= KNOWN_SHARE * whole else None


CATEGORY_WORDS = {name: name for name in CATEGORIES} | {"gemm": "GEMM, convolution", "copy": "copy, layout"}


class CategoryRow(Struct, frozen=True):
    """GEMM, attention, normalisation and so on: its events' time in percent of the window, which may overlap, and how
    many there were."""

    category: str
    share_pct: float
    calls: int


def category_rows(trace: Trace, spent: Spent, window: int) -> list[CategoryRow]:
    """Categories by their time, the longest first; memory copies and memsets are ``copy``. ``window`` is in ns."""
    sums: dict[str, list[int]] = {}
    for (name, kind, *_), (time, calls) in spent.items():
        label = "communication" if kind == COMM else "copy" if kind == COPY else category(trace.names.texts[name])
        row = sums.setdefault(label, [0, 0])
        row[0] += time
        row[1] += calls
    rows = [CategoryRow(label, 100.0 * time / window, many) for label, (time, many) in sums.items()]
    return sorted(rows, key=lambda row: (-row.share_pct, CATEGORIES.index(row.category)))


def occupancy_pct(events: DeviceEvents) -> float | None:
    """The kernels' occupancy, weighted by their durations; None where it is known for less than 80 % of their time."""
    known_ns = weighted = kernels = 0.0
    for first, last, kind, occupancy in zip(events.start, events.end, events.kind, events.occupancy, strict=True):
        if kind != COPY:
            kernels += last - first
            known_ns += (last - first) * (occupancy != ABSENT)
            weighted += (last - first) * occupancy * (occupancy != ABSENT)
    return _known_mean(weighted, known_ns, kernels)


def median_kernel_us(events: DeviceEvents) -> float | None:
    """The duration, weighted by itself, below which half of the computing kernels' time is spent; microseconds."""
    is_compute = map(COMPUTE.__eq__, events.kind)
    times = sorted(compress(map(sub, events.end, events.start), is_compute))
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


# How fast the collectives were, for each operation and message size, from what NCCL's kernels say of themselves.
#
# Algorithm bandwidth is the message's size over the time; bus bandwidth is that times a factor that makes operations
# comparable with what a link can do, as nccl-tests defines it (doc/PERFORMANCE.md). The time of a kernel includes the
# wait for the last rank, so only the fastest call comes near to the link.

MOST_RANKS_OF_A_NODE = 8
SCALAR_TYPES = {
    1: ("byte", "char", "bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"),
    2: ("half", "bfloat16", "short"),
    4: ("float", "int"),
    8: ("double", "long", "complexfloat"),
}
"""PyTorch's names of scalar types, in lower case (c10/core/ScalarType.h), by their bytes."""
_LINKS: tuple[tuple[re.Pattern[str], str, float], ...] = (
    (re.compile(r"\bGB200|\bB200|\bB300|\bB100"), "NVLink 5", 900e9),
    (re.compile(r"\bH100.*(HBM3|SXM)|\bH200|\bGH200"), "NVLink 4", 450e9),
    (re.compile(r"\bA100.*(SXM|PG509)|\bA100-PG509"), "NVLink 3", 300e9),
    (re.compile(r"\bV100.*SXM"), "NVLink 2", 150e9),
)
"""GPU → its link and bytes a second in one direction, from NVIDIA's data sheets (half of their two-way figures)."""


class CommRow(Struct, frozen=True):
    """Calls of one operation with one size. Bandwidths are in bytes a second, of the bus unless they say otherwise.

    ``bytes`` is the size as nccl-tests counts it: the larger one of what a rank gives and gets. ``bus_best`` is the
    fastest call's, ``bus_median`` that of the median duration, waits for late ranks included.
    """

    operation: str
    bytes: int
    ranks: int | None
    calls: int
    total_ms: float
    median_us: float
    best_us: float
    bus_median: float | None = field(name="bus_median_bytes_per_s")
    bus_best: float | None = field(name="bus_best_bytes_per_s")


def comm_rows(trace: Trace, events: DeviceEvents, begin: int, end: int) -> list[CommRow]:
    """Operations and sizes by their time in [begin, end), the longest first; only kernels that say both."""
    if not trace.collectives:
        return []
    times: dict[tuple[str, int, int], list[int]] = {}
    for number, kind, first, last in zip(events.number, events.kind, events.start, events.end, strict=True):
        if kind == COMM and first < end and last > begin and (collective := trace.collectives.get(number)) is not None:
            size = message_bytes(collective)
            if size > 0 and last > first:
                times.setdefault((operation_of(collective.operation), size, collective.ranks), []).append(last - first)
    rows = [_row(*key, took) for key, took in times.items()]
    return sorted(rows, key=lambda row: (-row.total_ms, row.operation, row.bytes))


def _row(operation: str, size: int, ranks: int, took: list[int]) -> CommRow:
    factor = bus_factor(operation, ranks)
    middle, best = median(took), min(took)
    bus = (None, None) if factor is None else (factor * size / (middle * 1e-9), factor * size / (best * 1e-9))
    times = sum(took) / 1e6, middle / 1000.0, best / 1000.0
    return CommRow(operation, size, ranks if ranks > 0 else None, len(took), *times, *bus)


def message_bytes(collective: Collective) -> int:
    """The size of a collective's message in bytes; -1 where the type or the count is not known."""
    kind = collective.dtype.lower().removeprefix("c10::")
    width = next((width for width, names in SCALAR_TYPES.items() if kind in names), 0)
    return width * max(collective.sent, collective.received, 0) or ABSENT


def operation_of(name: str) -> str:
    """An operation's name in one spelling: ``_allgather_base`` and ``all_gather`` are ``allgather``."""
    plain = name.lower().strip("_").removesuffix("_base").replace("_", "").removesuffix("coalesced")
    return {"alltoallv": "alltoall", "allreducecoalesced": "allreduce"}.get(plain, plain)


def bus_factor(operation: str, ranks: int) -> float | None:
    """Bus over algorithm bandwidth of an operation among so many ranks; None where it is not defined."""
    if ranks < 2:
        return None
    if operation.startswith("allreduce"):
        return 2.0 * (ranks - 1) / ranks
    if operation.startswith(("allgather", "reducescatter", "alltoall")):
        return (ranks - 1) / ranks
    return 1.0 if operation.startswith(("broadcast", "reduce", "send", "recv")) else None


def link_of(gpu: str | None) -> tuple[str, float] | None:
    """The link between the GPUs of a node and its bytes a second in one direction, where the name tells the board."""
    for pattern, link, speed in _LINKS:
        if gpu is not None and pattern.search(gpu):
            return link, speed
    return None
