"""What the GPU's time went into: GEMM, attention, normalisation and so on, by the names of what ran."""

from __future__ import annotations

from msgspec import Struct

from gputop.features.traces.columns import COMM, COPY, Trace
from gputop.features.traces.kernel_names import CATEGORIES, category
from gputop.features.traces.timeline import DeviceEvents

CATEGORY_WORDS = {name: name for name in CATEGORIES} | {"gemm": "GEMM, convolution", "copy": "copy, layout"}


class CategoryRow(Struct, frozen=True):
    """One category: its events' time in percent of the window, which may overlap, and how many there were."""

    category: str
    share_pct: float
    calls: int


def category_rows(trace: Trace, events: DeviceEvents, begin: int, end: int) -> list[CategoryRow]:
    """Categories by their time in [begin, end), the longest first; memory copies and memsets are ``copy``."""
    spent: dict[tuple[int, int], list[int]] = {}
    for name, kind, first, last in zip(events.name, events.kind, events.start, events.end, strict=True):
        if first < end and last > begin:
            row = spent.setdefault((name, kind), [0, 0])
            row[0] += min(last, end) - max(first, begin)
            row[1] += 1
    sums: dict[str, list[int]] = {}
    for (name, kind), (time, calls) in spent.items():
        label = "communication" if kind == COMM else "copy" if kind == COPY else category(trace.names.texts[name])
        row = sums.setdefault(label, [0, 0])
        row[0] += time
        row[1] += calls
    window = end - begin
    rows = [CategoryRow(label, 100.0 * time / window, calls) for label, (time, calls) in sums.items()]
    return sorted(rows, key=lambda row: (-row.share_pct, CATEGORIES.index(row.category)))
