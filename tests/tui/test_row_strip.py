"""What is written when rows change: after it a terminal shows exactly the new rows."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment
from rich.style import Style

from gputop.paint.cells import cells
from gputop.tui.terminal.row_strip import RowStrip
from tests.support.examples import looks, text_of

WIDTH = 30
CONSOLE = Console(force_terminal=True, color_system="truecolor", width=WIDTH)
STYLES = [
    Style.parse(words)
    for words in ("white on black", "bold red on black", "green on blue", "reverse", "dim")
]
spans = st.lists(st.tuples(text_of("ab█▄ 訓", 12, 1), st.sampled_from(STYLES)), max_size=5)


def _segments(spans: list[tuple[str, Style]]) -> list[Segment]:
    """Exactly as wide as the row."""
    kept, room = list[Segment](), WIDTH
    for text, style in spans:
        while cells(text) > room:
            text = text[:-1]
        room -= cells(text)
        kept.append(Segment(text, style))
    return [*kept, Segment(" " * room, STYLES[0])]


def _shown(text: str) -> list[object]:
    screen = pyte.Screen(WIDTH, 1)
    pyte.Stream(screen).feed(text)
    return [screen.buffer[0][x] for x in range(WIDTH)]


@looks(60)
@given(st.lists(spans, min_size=2, max_size=5))
def test_a_terminal_that_gets_the_changes_shows_the_new_row(
    rows: list[list[tuple[str, Style]]],
) -> None:
    shown: dict[int, RowStrip] = {}
    strips = [RowStrip(_segments(row), WIDTH, 0, shown) for row in rows]
    written = strips[0].render(CONSOLE)
    before = strips[0]
    for strip in strips[1:]:
        is_whole = strip.row_cells[-1] != before.row_cells[-1]
        written += "\r" + (strip if is_whole else strip.crop(0, WIDTH - 1)).render(CONSOLE)
        before = strip
        assert _shown(written) == _shown(RowStrip(strip, WIDTH, 0, {}).render(CONSOLE))


def test_a_row_that_was_covered_in_part_is_written_whole() -> None:
    shown: dict[int, RowStrip] = {}
    old, new = (
        RowStrip(_segments([(text, STYLES[0])]), WIDTH, 0, shown) for text in ("one", "two")
    )
    old.render(CONSOLE)
    assert len(new.crop(0, WIDTH - 1).render(CONSOLE)) < 40
    old.render(CONSOLE)
    old.divide([10, WIDTH])
    assert new.crop(0, WIDTH - 1).text == f"two{' ' * (WIDTH - 4)}"
