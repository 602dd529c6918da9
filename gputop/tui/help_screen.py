"""The help, as a screen of its own."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.paint.help import help_rows
from gputop.paint.line import Row
from gputop.tui.rows_screen import RowsScreen


class HelpScreen(RowsScreen):
    """Keys, glossary, verdicts."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark,h,f1,enter", "close", priority=True)]

    def rows(self, width: int) -> list[Row]:
        return help_rows(self._glyphs, width)
