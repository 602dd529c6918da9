"""The shortest way from one screen to the next: after it a terminal shows exactly the second."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st

from gputop.output.ansi import Differ, ansi_text
from gputop.paint.line import Line, Row
from gputop.paint.theme import THEMES
from tests.support.examples import looks, text_of

WIDTH, HEIGHT = 30, 4
STYLES = ("text", "dim", "level.red", "select", "gap.sm_on_gap", "alarm.title")
spans = st.tuples(text_of("ab█▄ 訓", 12, 1), st.sampled_from(STYLES))
parts = st.lists(spans, max_size=5)
rows = parts.map(lambda spans: Line().add_all(spans).row(WIDTH))
screens = st.lists(rows, min_size=HEIGHT, max_size=HEIGHT)


@st.composite
def _alike(draw: st.DrawFn) -> tuple[Row, Row]:
    """Two rows of which the second keeps much of the first: its text in another style, or its style with another."""
    before = draw(parts)
    other = st.tuples(st.booleans(), st.booleans(), spans)
    now = [
        (new[0] if takes_text else text, new[1] if takes_style else style)
        for (text, style), (takes_text, takes_style, new) in zip(
            before, draw(st.lists(other, min_size=len(before), max_size=len(before))), strict=True
        )
    ]
    return Line().add_all(before).row(WIDTH), Line().add_all(now).row(WIDTH)


def _shown(text: str) -> list[list[object]]:
    screen = pyte.Screen(WIDTH, HEIGHT)
    pyte.Stream(screen).feed(text)
    return [[screen.buffer[y][x] for x in range(WIDTH)] for y in range(HEIGHT)]


@looks(25)
@given(screens, screens)
def test_a_terminal_that_gets_the_changes_shows_the_second_screen(before: list[Row], now: list[Row]) -> None:
    _shows_the_second(before, now)


@looks(50)
@given(st.lists(_alike(), min_size=HEIGHT, max_size=HEIGHT))
def test_so_it_does_where_much_of_a_row_stays_and_only_text_or_style_changes(pairs: list[tuple[Row, Row]]) -> None:
    _shows_the_second([before for before, _ in pairs], [now for _, now in pairs])


@looks(15)
@given(screens, screens, screens)
def test_so_it_does_whatever_was_shown_before(one: list[Row], two: list[Row], three: list[Row]) -> None:
    differ = Differ(THEMES["dark"], "truecolor")
    for before, now in ((one, two), (two, three), (one, three), (three, three[:2] + two[2:])):
        _shows_the_second(before, now, differ)


def _shows_the_second(before: list[Row], now: list[Row], differ: Differ | None = None) -> None:
    theme = THEMES["dark"]
    first = ansi_text(before, theme, newline="\r\n")
    changes = (differ or Differ(theme, "truecolor")).changes(before, now)
    assert _shown(first + changes) == _shown("\x1b[H" + ansi_text(now, theme, newline="\r\n"))


def test_equal_screens_cost_no_byte() -> None:
    screen = [Line().add("same", "text").row(WIDTH)] * HEIGHT
    assert Differ(THEMES["dark"], "256").changes(screen, list(screen)) == ""


def test_a_number_that_changes_costs_a_few_bytes() -> None:
    before = [Line().add("UTIL  97", "text").row(WIDTH)]
    now = [Line().add("UTIL  98", "text").row(WIDTH)]
    assert Differ(THEMES["mono"], "none").changes(before, now) == "\x1b[1;8H\x1b[0m8\x1b[0m"


def test_runs_that_are_close_are_written_as_one() -> None:
    before = [Line().add("a" * 40, "text").row(40)]
    now = [Line().add("b" + "a" * 5 + "b" + "a" * 20 + "b" + "a" * 12, "text").row(40)]
    assert Differ(THEMES["mono"], "none").changes(before, now) == "\x1b[1;1H\x1b[0mbaaaaab\x1b[1;28Hb\x1b[0m"
