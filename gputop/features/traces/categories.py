"""What the GPU's time went into: GEMM, attention, normalisation and so on, by the names of what ran."""

from __future__ import annotations

from msgspec import Struct

from gputop.features.traces.columns import COMM, COPY, Trace
from gputop.features.traces.kernel_names import CATEGORIES, category
from gputop.features.traces.kernels import Like

CATEGORY_WORDS = {name: name for name in CATEGORIES} | {"gemm": "GEMM, convolution", "copy": "copy, layout"}


class CategoryRow(Struct, frozen=True):
    """One category: its events' time in percent of the window, which may overlap, and how many there were."""

    category: str
    share_pct: float
    calls: int


def category_rows(trace: Trace, spent: dict[Like, int], calls: dict[Like, int], window: int) -> list[CategoryRow]:
    """Categories by their time, the longest first; memory copies and memsets are ``copy``. ``window`` is in ns."""
    sums: dict[str, list[int]] = {}
    for alike, time in spent.items():
        name, kind, *_ = alike
        label = "communication" if kind == COMM else "copy" if kind == COPY else category(trace.names.texts[name])
        row = sums.setdefault(label, [0, 0])
        row[0] += time
        row[1] += calls[alike]
    rows = [CategoryRow(label, 100.0 * time / window, many) for label, (time, many) in sums.items()]
    return sorted(rows, key=lambda row: (-row.share_pct, CATEGORIES.index(row.category)))
