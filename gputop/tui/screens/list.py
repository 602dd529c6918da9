"""A screen of painted rows with a cursor on one entry of a list."""

from __future__ import annotations

from abc import abstractmethod

from gputop.paint.glyphs import Glyphs
from gputop.paint.theme import Theme
from gputop.tui.screens.rows import FAR, RowsScreen


class ListScreen(RowsScreen):
    """Scrolls so that the cursor's row is in sight; ``entries`` and ``above`` give its size and place."""

    def __init__(self, theme: Theme, glyphs: Glyphs) -> None:
        super().__init__(theme, glyphs)
        self.cursor = 0

    @abstractmethod
    def entries(self) -> int:
        """How many entries the list has."""

    @abstractmethod
    def above(self) -> int:
        """How many rows stand above the list."""

    def action_scroll(self, rows: int) -> None:
        last = max(0, self.entries() - 1)
        if abs(rows) >= FAR:
            self.cursor = 0 if rows < 0 else last
        else:
            self.cursor = max(0, min(last, self.cursor + rows))
        self.paint()

    def paint(self) -> None:
        room, row = max(1, self.app.size.height - 1), self.above() + self.cursor
        if row >= self._first + room:
            self._first = row - room + 1
        self._first = min(self._first, 0 if self.cursor == 0 else row)
        super().paint()
