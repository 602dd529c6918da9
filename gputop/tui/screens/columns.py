"""The column picker: which columns the process table has, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.paint.column_choice import column_rows, heading_rows, listed, moved, toggled
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Row
from gputop.paint.process_columns import DEFAULT
from gputop.paint.theme import Theme
from gputop.tui.screens.list import ListScreen


class ColumnsScreen(ListScreen):
    """Calls ``chosen`` with the keys on enter; escape leaves everything as it was."""

    KEYS = "space show or hide   < > move   r reset   enter take it   "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "show_or_hide"),
        Binding("less_than_sign,left,shift+up", "move(-1)"),
        Binding("greater_than_sign,right,shift+down", "move(1)"),
        Binding("r", "reset"),
        Binding("enter", "take"),
    ]

    def __init__(
        self, theme: Theme, glyphs: Glyphs, columns: tuple[str, ...], chosen: Callable[[tuple[str, ...]], None]
    ) -> None:
        super().__init__(theme, glyphs)
        self._columns = columns
        self._chosen = chosen

    def entries(self) -> int:
        return len(listed(self._columns))

    def above(self) -> int:
        return len(heading_rows(self._columns, self.app.size.width))

    def rows(self, width: int) -> list[Row]:
        return column_rows(self._columns, self._key, self._glyphs, width)

    @property
    def _key(self) -> str:
        return listed(self._columns)[self.cursor]

    def action_show_or_hide(self) -> None:
        """Show or hide the column; the cursor goes on to the next one, so that several can be taken in a row."""
        key = self._key
        below = listed(self._columns)[min(self.cursor + 1, self.entries() - 1)]
        self._change(toggled(self._columns, key), below)

    def action_move(self, step: int) -> None:
        key = self._key
        self._change(moved(self._columns, key, step), key)

    def action_reset(self) -> None:
        self._change(DEFAULT, self._key)

    def action_take(self) -> None:
        self._chosen(self._columns)
        self.dismiss()

    def _change(self, columns: tuple[str, ...], key: str) -> None:
        """Apply a new choice; the cursor follows its column."""
        self._columns = columns
        self.cursor = listed(columns).index(key)
        self.paint()
