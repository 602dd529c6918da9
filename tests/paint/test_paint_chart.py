"""The gap chart: heights in eighths, boundaries inside cells, gaps that stay blank."""

from __future__ import annotations

import pytest

from gputop.paint.charts import bar, gap_chart, lane, with_marks
from gputop.paint.glyphs import ASCII, COLOUR, MONO, Glyphs

Spans = list[list[tuple[str, str]]]


def _text(rows: Spans) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]


def _chart(util: list[float | None], sm: list[float | None], rows: int = 2, **more: bool) -> Spans:
    options = {"alarm": False, "measured": True, **more}
    return gap_chart(util, sm, rows, COLOUR, **options)


def test_a_working_gpu_is_a_solid_block() -> None:
    assert _text(_chart([100.0], [100.0])) == ["█", "█"]
    assert _chart([100.0], [100.0])[0] == [("█", "gap.sm")]


def test_the_gap_stands_between_sm_and_util() -> None:
    top, bottom = _chart([100.0], [25.0])
    assert top == [("█", "gap.gap")]
    assert bottom == [("▄", "gap.sm_on_gap")]


def test_while_the_alarm_is_on_the_gap_is_red() -> None:
    top, bottom = _chart([100.0], [25.0], alarm=True)
    assert (top, bottom) == ([("█", "gap.alarm")], [("▄", "gap.sm_on_alarm")])


def test_above_util_the_chart_is_empty() -> None:
    top, bottom = _chart([50.0], [50.0])
    assert top[0][0] == " "
    assert bottom == [("█", "gap.sm")]


def test_a_missing_sample_is_a_blank_column_and_zero_is_not_drawn_as_something() -> None:
    assert _text(_chart([None, 0.0], [None, 0.0])) == ["  ", "  "]


def test_one_percent_is_seen() -> None:
    assert _text(_chart([1.0], [0.0], rows=1)) == ["▁"]


def test_sm_above_util_is_drawn_up_to_sm() -> None:
    assert _text(_chart([50.0], [60.0], rows=1)) == ["▄"]


def test_without_a_counter_util_alone_is_hatched() -> None:
    rows = _chart([100.0, 40.0], [None, None], measured=False)
    assert _text(rows) == ["▒ ", "▒▒"]
    assert {style for row in rows for text, style in row if text.strip()} == {"gap.unknown"}


def test_a_column_without_sm_inside_a_measured_chart_is_hatched_too() -> None:
    assert _text(_chart([100.0, 100.0], [100.0, None], rows=1)) == ["▇▒"]


def test_without_colour_and_in_ascii_the_two_areas_differ_by_character() -> None:
    mono = gap_chart([100.0], [50.0], 2, MONO, alarm=True, measured=True)
    plain = gap_chart([100.0], [50.0], 2, ASCII, alarm=True, measured=True)
    assert _text(mono) == ["░", "█"]
    assert _text(plain) == [".", "#"]


def test_neighbouring_cells_of_one_style_are_one_span() -> None:
    assert _chart([100.0] * 50, [100.0] * 50, rows=1) == [[("▇" * 50, "gap.sm")]]


def test_a_mark_is_a_line_down_its_column() -> None:
    rows = with_marks(_chart([100.0] * 4, [50.0] * 4), [1], COLOUR)
    assert _text(rows) == ["█│██", "█│██"]
    assert rows[0][1] == ("│", "key")


def test_a_bar_fills_in_eighths_and_is_blank_when_unknown() -> None:
    assert bar(50.0, 100.0, 4, COLOUR, "bar.mem") == [("██", "bar.mem"), ("  ", "bar.mem.track")]
    assert bar(1.0, 1000.0, 4, COLOUR, "bar.mem")[0] == ("▏", "bar.mem")
    assert bar(None, 100.0, 4, COLOUR, "bar.mem") == [("    ", "text")]


def test_a_lane_leaves_room_between_itself_and_the_next() -> None:
    assert lane([0.0, 50.0, 100.0, None], COLOUR, "lane.run")[0] == " ▄▇ "


def test_charts_of_neighbouring_rows_do_not_run_into_each_other() -> None:
    assert _text(_chart([100.0], [100.0], rows=1)) == ["▇"]
    assert _text(_chart([100.0], [100.0], rows=2)) == ["█", "█"]


@pytest.mark.parametrize("glyphs", [MONO, ASCII], ids=lambda g: g.name)
def test_a_chart_of_one_row_shows_busy_but_not_working_without_colour(glyphs: Glyphs) -> None:
    (row,) = gap_chart([97.0] * 3, [8.0] * 3, 1, glyphs, alarm=True, measured=True)
    assert "".join(text for text, _ in row) == glyphs.gap * 3
    (row,) = gap_chart([97.0] * 3, [92.0] * 3, 1, glyphs, alarm=False, measured=True)
    # An eighth stays free above it, so that two such charts do not run together.
    assert "".join(text for text, _ in row) == ("###" if glyphs is ASCII else "▆▆▆")
