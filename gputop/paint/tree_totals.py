"""Totals over a process and all below it: columns of their own, so that one column never means two things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from gputop.model.metrics import PROCESS_METRICS, Metric
from gputop.model.snapshot import ProcessSample, value


def _total_of(key: str, head: str, definition: str) -> Metric:
    return replace(PROCESS_METRICS[key], key=f"tree_{key}", label=head, definition=definition)


SUMMED: Mapping[str, str] = MappingProxyType({
    f"tree_{key}": key for key in ("cpu_pct", "rss_bytes", "read_bytes_per_s", "write_bytes_per_s")
})  # fmt: skip
"""Key of a total → the key of the catalogue that it sums."""
TREE_TOTALS: Mapping[str, Metric] = MappingProxyType({
    "tree_cpu_pct": _total_of(
        "cpu_pct", "TREE-CPU", "CPU time of the process and of all below it, percent of one core"
    ),
    "tree_rss_bytes": _total_of(
        "rss_bytes", "TREE-MEM", "resident host memory of the tree; pages that are shared count twice"
    ),
    "tree_read_bytes_per_s": _total_of(
        "read_bytes_per_s", "TREE-READ", "read from storage by the process and all below it"
    ),
    "tree_write_bytes_per_s": _total_of(
        "write_bytes_per_s", "TREE-WRITE", "written to storage by the process and all below it"
    ),
})  # fmt: skip
"""The totals by key."""


def tree_total(process: ProcessSample, children: Sequence[ProcessSample], key: str) -> float | None:
    """Return the sum over a process and its descendants.

    What is not measured is left out; None when nothing is.
    """
    source = SUMMED[key]
    numbers = [value(one, source) for one in (process, *children)]
    measured = [number for number in numbers if number is not None]
    return sum(measured) if measured else None
