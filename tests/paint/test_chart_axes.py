"""Axes, scales and strips of the charts in full: true at every width, quiet while they move on."""

from __future__ import annotations

from itertools import pairwise

from gputop.paint.charts import area, marks, round_top, with_cursor
from gputop.paint.glyphs import COLOUR, MONO
from gputop.paint.time_axis import TimeAxis, axis_for, axis_spans
from gputop.paint.verdict_history import VerdictSpan, strip, verdict_at
from tests.support.frames import MOMENT


def test_axis_labels_are_true_and_never_overlap() -> None:
    for width in (10, 30, 57, 100, 137, 276):
        for span in (60.0, 300.0, 7200.0, 86400.0):
            axis = axis_for(MOMENT, span, width)
            for cursor in (None, 0, width // 2, width - 1):
                spans = axis_spans(axis, 3600.0, cursor)
                assert sum(len(text) for text, _ in spans) == width
    axis = axis_for(MOMENT, 600.0, 120)
    text = "".join(text for text, _ in axis_spans(axis, 0.0, None))
    assert text.startswith("-10 min") and text.endswith("now")
    label = next(word for word in text.split() if ":" in word)
    t = axis.middle(text.index(label) + len(label) // 2)
    seconds = sum(
        int(part) * unit for part, unit in zip(label.split(":"), (3600, 60, 1), strict=False)
    )
    assert abs(t % 86400 - seconds) <= axis.width_s


def test_an_axis_that_moves_on_in_steps_stands_still_between_them_and_never_covers_less() -> None:
    axes = [axis_for(MOMENT + second / 4, 120.0, 61, 7) for second in range(400)]
    begins = list(dict.fromkeys(axis.begin for axis in axes))
    assert {round((b - a) / axes[0].width_s) for a, b in pairwise(begins)} == {7}
    for second, axis in enumerate(axes):
        now = MOMENT + second / 4
        assert 0 <= (axis.ahead or 0) < 7 and axis.begin <= now - 120.0 + axis.width_s
        assert axis.end - (axis.ahead or 0) * axis.width_s >= now


def test_areas_keep_to_their_scale_and_leave_gaps() -> None:
    rows = area([None, 0.0, 50.0, 100.0, 200.0], 2, "area.bus", 100.0)
    top, bottom = (row[0][0] for row in rows)
    assert (bottom[0], top[0], bottom[1]) == (" ", " ", " ")
    assert bottom[2] in "▇█" and top[2] == " "
    assert top[3] == top[4] == "▇"
    assert area([5.0], 1, "area.bus", None)[0][0][0] == " "
    assert area([0.6], 1, "area.bus", 100.0)[0][0][0] == "▁"


def test_scales_are_round_and_seldom_change() -> None:
    assert [round_top(value) for value in (0.0, 1.0, 1.1, 3.0, 7.0, 11e9)] == [
        1.0,
        1.0,
        2.0,
        5.0,
        10.0,
        2e10,
    ]


def test_the_worst_mark_wins_and_the_hair_line_is_one_cell() -> None:
    spans = marks(
        [("T", "level.red", [0.0, 10.0, None]), ("P", "level.yellow", [100.0, 100.0, 0.0])], 3
    )
    assert spans == [("P", "level.yellow"), ("T", "level.red"), (" ", "text")]
    assert with_cursor([("abc", "dim"), ("de", "text")], 3) == [
        ("abc", "dim"),
        ("│", "strong"),
        ("e", "text"),
    ]
    words = [("a word", "dim")]
    assert with_cursor(words, 3, over_text=False) == words
    assert with_cursor(words, 1, over_text=False) == [
        ("a", "dim"),
        ("│", "strong"),
        ("word", "dim"),
    ]


def test_the_strip_changes_where_the_verdict_does_and_has_a_glyph_for_each_level() -> None:
    axis = TimeAxis(99, 1.0, 40)
    listed = [
        VerdictSpan(60.0, 80.0, "green", "working"),
        VerdictSpan(80.0, None, "red", "starved: disk"),
    ]
    colours, names = strip(listed, axis, MONO)
    assert colours == [("●" * 20, "level.green"), ("■" * 20, "level.red")]
    assert "".join(text for text, _ in names) == "working".ljust(20) + "starved: disk".ljust(20)
    before, _ = strip([VerdictSpan(90.0, None, "info", "x")], axis, COLOUR)
    assert before[0] == (" " * 30, "text")
    assert verdict_at(listed, 79.0) is listed[0]
    assert verdict_at(listed, 10.0) is None
