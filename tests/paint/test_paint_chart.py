"""The gap chart: heights in eighths, boundaries inside cells, gaps that stay blank; and bars and lanes."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from gputop.paint.charts import Column, bar, gap_chart, lane, with_marks
from gputop.paint.glyphs import ASCII, COLOUR, MONO, Glyphs
from gputop.paint.line import Span


class Case(NamedTuple):
    """A chart of ``rows`` rows, and the spans that each of them has."""

    util: list[Column]
    sm: list[Column]
    spans: list[list[Span]]
    rows: int = 2
    alarm: bool = False
    measured: bool = True
    glyphs: Glyphs = COLOUR


CASES = {
    "work is a solid block": Case([100.0], [100.0], [[("█", "gap.sm")]] * 2),
    "the gap stands between SM and UTIL": Case(
        [100.0], [25.0], [[("█", "gap.gap")], [("▄", "gap.sm_on_gap")]]
    ),
    "with the alarm the gap is red": Case(
        [100.0], [25.0], [[("█", "gap.alarm")], [("▄", "gap.sm_on_alarm")]], alarm=True
    ),
    "above UTIL it is empty": Case([50.0], [50.0], [[(" ", "text")], [("█", "gap.sm")]]),
    "a missing sample is blank, zero is a line on the floor": Case(
        [None, 0.0], [None, 0.0], [[("  ", "text")], [(" ", "text"), ("▁", "rule")]]
    ),
    "without colour zero is no thin floor": Case(
        [0.0, 5.0], [0.0, 5.0], [[("·", "dim"), ("▁", "gap.sm")]], rows=1, glyphs=MONO
    ),
    "one percent is seen": Case([1.0], [0.0], [[("▁", "gap.gap")]], rows=1),
    "SM above UTIL is drawn up to SM": Case([50.0], [60.0], [[("▄", "gap.sm")]], rows=1),
    "without a counter UTIL alone is hatched": Case(
        [100.0, 40.0],
        [None, None],
        [[("▒ ", "gap.unknown")], [("▒▒", "gap.unknown")]],
        measured=False,
    ),
    "so is a column without SM": Case(
        [100.0, 100.0], [100.0, None], [[("▇", "gap.sm"), ("▒", "gap.unknown")]], rows=1
    ),
    "without colour the areas differ by character": Case(
        [100.0], [50.0], [[("░", "gap.alarm")], [("█", "gap.sm")]], alarm=True, glyphs=MONO
    ),
    "neighbours of one style are one span, an eighth is free": Case(
        [100.0] * 50, [100.0] * 50, [[("▇" * 50, "gap.sm")]], rows=1
    ),
    "the ground over work in one row stays free": Case([98.0], [91.0], [[("▆", "gap.sm")]], rows=1),
    "but shows its gap where nothing works": Case(
        [98.0], [8.0], [[("▁", "gap.sm_on_alarm")]], rows=1, alarm=True
    ),
    "one row without colour says busy, not working": Case(
        [97.0] * 3, [8.0] * 3, [[("░░░", "gap.alarm")]], rows=1, alarm=True, glyphs=MONO
    ),
    "one row of work": Case([97.0] * 3, [92.0] * 3, [[("▆▆▆", "gap.sm")]], rows=1, glyphs=MONO),
    "one row of work in ASCII": Case(
        [97.0] * 3, [92.0] * 3, [[("███", "gap.sm")]], rows=1, glyphs=ASCII
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_chart_is_drawn_so(name: str) -> None:
    case = CASES[name]
    drawn = gap_chart(
        case.util, case.sm, case.rows, case.glyphs, alarm=case.alarm, measured=case.measured
    )
    assert drawn == case.spans


def test_a_mark_is_a_line_down_its_column() -> None:
    rows = with_marks(
        gap_chart([100.0] * 4, [50.0] * 4, 2, COLOUR, alarm=False, measured=True), [1]
    )
    assert ["".join(text for text, _ in row) for row in rows] == ["█│██", "█│██"]
    assert rows[0][1] == ("│", "key")


def test_a_bar_fills_in_eighths_and_is_blank_when_unknown() -> None:
    assert bar(50.0, 100.0, 4, COLOUR, "bar.used") == [("██", "bar.used"), ("  ", "bar.used.track")]
    assert bar(1.0, 1000.0, 4, COLOUR, "bar.used")[0] == ("▏", "bar.used")
    assert bar(None, 100.0, 4, COLOUR, "bar.used") == [("    ", "text")]


def test_a_lane_leaves_room_between_itself_and_the_next() -> None:
    assert lane([0.0, 50.0, 100.0, None], "lane.run")[0] == " ▄▇ "
