"""The columns: one for every key, what gives way, widths that hold for every value."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gputop.model.metrics import PROCESS_METRICS, PROCESS_STATIC
from gputop.model.snapshot import CgroupName, ProcessSample, ProcessStatic
from gputop.paint.cells import cells
from gputop.paint.column_choice import column_rows, listed, moved, toggled
from gputop.paint.process_columns import COLUMNS, DEFAULT, column_at, columns_for, existing_columns

HUGE = ProcessSample(
    4194304,
    **{
        name: 9.99e14
        for name in ProcessSample.__struct_fields__
        if name in PROCESS_METRICS and PROCESS_METRICS[name].unit in ("bytes", "bytes/s", "s", "count")
    },
    gpu=15,
    cpu_pct=25600.0,
    static=ProcessStatic(
        user="\x1b[31m漢字漢字漢字", command="x" * 5000, name="e\u0301" * 40, batch_job=CgroupName("\u202eslurm", "1"),
        contained_in=CgroupName("[bold]" * 9),
    ),
)  # fmt: skip
NOTHING = ProcessSample(1)


def test_every_key_of_the_catalogue_has_a_column_that_says_what_it_is() -> None:
    assert {*PROCESS_METRICS, *PROCESS_STATIC} <= set(COLUMNS)
    assert all(column.head and column.definition for column in COLUMNS.values())


def test_sort_letters_are_unique_and_leave_q_to_quitting() -> None:
    letters = [column.letter for column in COLUMNS.values() if column.letter]
    assert sorted(set(letters)) == sorted(letters)
    assert "q" not in letters


@pytest.mark.parametrize("process", [HUGE, NOTHING], ids=["huge", "nothing"])
def test_a_value_never_breaks_its_columns_width(process: ProcessSample) -> None:
    for column in (column for key, column in COLUMNS.items() if key not in ("command", "why")):
        text = column.show(process, ())
        assert (column.key, cells(text)) == (column.key, column.width), text
        assert text.isprintable(), column.key


@pytest.mark.parametrize(
    "chosen", [DEFAULT, tuple(COLUMNS), ("pid",), ("command", "gpu"), ("why", "pid", "user")]
)
def test_columns_fit_and_keep_their_order(chosen: tuple[str, ...]) -> None:
    for width in range(20, 301, 7):
        placed = columns_for(width, chosen)
        assert len(placed) >= min(3, len(chosen)), width
        assert [p.column.key for p in placed] == [
            key for key in chosen if key in {p.column.key for p in placed}
        ], width
        for before, after in pairwise(placed):
            assert after.begin == before.begin + before.width + 2, width
        if len(placed) > 3:
            assert placed[-1].begin + placed[-1].width <= width


def test_the_least_needed_columns_give_way_first() -> None:
    at = {width: {p.column.key for p in columns_for(width)} for width in (60, 80, 120, 160)}
    assert at[60] < at[80] < at[120] <= at[160] == set(DEFAULT)
    assert {"gpu", "pid", "command", "gpu_mem_bytes"} <= at[60]
    assert "job" not in at[80]
    assert "rss_bytes" in at[120]


@pytest.mark.parametrize("width", [100, 120, 140, 160])
def test_command_lines_can_be_told_apart(width: int) -> None:
    assert columns_for(width)[-1].width >= 26


def test_the_command_takes_what_the_others_leave_wherever_it_stands() -> None:
    placed = columns_for(100, ("command", "pid", "gpu"))
    assert placed[0].width == 100 - (7 + 2) - (4 + 2) - 2
    assert placed[-1].begin + placed[-1].width == 98


def test_a_click_finds_the_column_under_it() -> None:
    for width in (80, 160):
        for place in columns_for(width):
            assert column_at(place.begin, width) == place.column.key
            assert column_at(place.begin + place.width - 1, width) == place.column.key
    assert column_at(70, 80, ("pid", "gpu")) is None


def test_unknown_and_repeated_columns_are_left_out() -> None:
    assert existing_columns(["pid", "nonsense", "pid", "user"]) == ("pid", "user")
    assert existing_columns(["nonsense"]) == DEFAULT


def test_choosing_and_ordering_columns() -> None:
    assert toggled(("pid", "command"), "user") == ("pid", "user", "command")
    assert toggled(("pid",), "gpu") == ("pid", "gpu")
    assert toggled(("pid", "command"), "pid") == ("command",)
    assert toggled(("pid",), "pid") == ("pid",)
    assert moved(("a", "b", "c"), "b", -1) == ("b", "a", "c")
    assert moved(("a", "b", "c"), "c", 1) == ("a", "b", "c")
    assert moved(("a",), "z", 1) == ("a",)
    assert sorted(listed(("pid", "why"))) == sorted(COLUMNS)


def test_the_list_of_columns_shows_the_choice_and_what_has_no_room() -> None:
    rows = ["".join(text for text, _ in row) for row in column_rows(tuple(COLUMNS), "pid", 100)]
    assert {cells(row) for row in rows} == {100}
    assert sum("[x]" in row for row in rows) == len(COLUMNS)
    assert sum("no room" in row for row in rows) > 5
