"""Totals of a job's processes are columns and filters of their own."""

from __future__ import annotations

import pytest

from gputop.model.snapshot import ProcessSample
from gputop.paint.process_columns import COLUMNS, columns_for, existing_columns
from gputop.paint.process_filter import parse, passes

MAIN = ProcessSample(pid=10, gpu=0, cpu_pct=2.0, rss_bytes=1e9, read_bytes_per_s=5e6)
WORKERS = [
    ProcessSample(
        pid=11, ppid=10, role="loader", cpu_pct=98.0, rss_bytes=2e9, read_bytes_per_s=1e6
    ),
    ProcessSample(pid=12, ppid=10, role="loader", cpu_pct=100.0, rss_bytes=2e9),
]


@pytest.mark.parametrize(
    ("key", "total"),
    [
        ("tree_cpu_pct", 200.0),
        ("tree_rss_bytes", 5e9),
        ("tree_read_bytes_per_s", 6e6),
        ("tree_write_bytes_per_s", None),
    ],
)
def test_a_total_counts_the_process_and_all_below_it(key: str, total: float | None) -> None:
    column = COLUMNS[key]
    assert column.value(MAIN, WORKERS) == total
    assert len(column.show(MAIN, WORKERS)) == column.width


def test_totals_are_chosen_and_filtered_by_their_keys() -> None:
    assert existing_columns(["pid", "tree_cpu_pct"]) == ("pid", "tree_cpu_pct")
    assert columns_for(80, ("pid", "tree_cpu_pct"))[1].column.head == "TREE-CPU"
    assert passes(parse("tree_cpu_pct>150"), MAIN, WORKERS, "")
    assert not passes(parse("cpu_pct>150"), MAIN, WORKERS, "")
    assert passes(parse("tree_rss_bytes>4G"), MAIN, WORKERS, "")
