"""A page with a text to read, mark or copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputop.paint.cells import folded
from gputop.paint.line import Row, heading, text_row
from gputop.tui.screens.scrolling import RowsScreen

if TYPE_CHECKING:
    from gputop.tui.painted_app import PaintedApp


class TextPage(RowsScreen):
    """A text without a frame, so that a mark by mouse holds the text alone."""

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self.text = text
        self._title = title

    def rows(self, width: int) -> list[Row]:
        lines = [part.rstrip() for line in self.text.splitlines() for part in folded(line, width)]
        return [heading(self._title, width, "title"), *(text_row(line, width) for line in lines)]


def show_copied(screen: PaintedApp[Any], text: str) -> None:
    """Copy a text and show it.

    Whether a terminal takes OSC 52 cannot be asked."""
    if screen.terminal is None:
        title = "not copied: a browser's clipboard is out of reach; mark the text"
    elif screen.terminal.copy(text):
        title = "sent to the terminal's clipboard; if it refused, mark the text"
    else:
        title = "not copied: too long for a terminal's clipboard; mark the text"
    screen.push_screen(TextPage(title, text))
