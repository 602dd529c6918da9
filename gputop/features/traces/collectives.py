"""How fast the collectives were, for each operation and message size, from what NCCL's kernels say of themselves.

Algorithm bandwidth is the message's size over the time; bus bandwidth is that times a factor that makes operations
comparable with what a link can do, as nccl-tests defines it (doc/PERFORMANCE.md). The time of a kernel includes the
wait for the last rank, so only the fastest call comes near to the link.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import median
from types import MappingProxyType

from msgspec import Struct

from gputop.features.traces.columns import ABSENT, COMM, Collective, Trace
from gputop.features.traces.timeline import DeviceEvents

MOST_RANKS_OF_A_NODE = 8
ELEMENT_BYTES: Mapping[str, int] = MappingProxyType({
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "half": 2, "bfloat16": 2, "short": 2, "float": 4, "int": 4, "double": 8, "long": 8, "complexfloat": 8,
})  # fmt: skip
"""PyTorch's names of scalar types, in lower case (c10/core/ScalarType.h)."""
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
    ranks: int
    calls: int
    total_ms: float
    median_us: float
    best_us: float
    bus_median: float | None
    bus_best: float | None


def comm_rows(trace: Trace, events: DeviceEvents, begin: int, end: int) -> list[CommRow]:
    """Operations and sizes by their time in [begin, end), the longest first; only kernels that say both."""
    if not trace.collectives:
        return []
    times: dict[tuple[str, int, int], list[int]] = {}
    for number, kind, first, last in zip(events.number, events.kind, events.start, events.end, strict=True):
        if kind == COMM and first < end and last > begin and (said := trace.collectives.get(number)) is not None:
            size = message_bytes(said)
            if size > 0 and last > first:
                times.setdefault((operation_of(said.operation), size, said.ranks), []).append(last - first)
    rows = [_row(*key, took) for key, took in times.items()]
    return sorted(rows, key=lambda row: (-row.total_ms, row.operation, row.bytes))


def _row(operation: str, size: int, ranks: int, took: list[int]) -> CommRow:
    factor = bus_factor(operation, ranks)
    middle = median(took)
    return CommRow(
        operation, size, ranks, len(took), sum(took) / 1e6, middle / 1000.0, min(took) / 1000.0,
        None if factor is None else factor * size / (middle * 1e-9),
        None if factor is None else factor * size / (min(took) * 1e-9),
    )  # fmt: skip


def message_bytes(said: Collective) -> int:
    """The size of a collective's message in bytes; -1 where the type or the count is not known."""
    width = ELEMENT_BYTES.get(said.dtype.lower().removeprefix("c10::"))
    elements = max(said.sent, said.received)
    return ABSENT if width is None or elements <= 0 else width * elements


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
