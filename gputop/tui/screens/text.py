"""A text to read or to mark with the mouse, as a screen of its own."""

from __future__ import annotations

from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import folded
from gputop.paint.theme import Theme
from gputop.tui.screens.rows import RowsScreen


class TextScreen(RowsScreen):
    """A title and lines below it, folded to the width."""

    def __init__(self, theme: Theme, glyphs: Glyphs, title: str, text: str) -> None:
        super().__init__(theme, glyphs)
        self._title = title
        self._text = text

    def rows(self, width: int) -> list[Row]:
        rows = [Line().add(f" {line}", "title").row(width) for line in folded(self._title, width - 2)]
        rows.append(Line().row(width))
        for line in self._text.splitlines():
            rows += [Line().add(f" {part}", "text").row(width) for part in folded(line, width - 2)]
        return rows
