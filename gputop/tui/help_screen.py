"""The help as a screen of its own: painted rows that scroll."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from gputop.paint.glyphs import Glyphs
from gputop.paint.help import help_rows
from gputop.paint.line import Line, Row
from gputop.paint.theme import Theme
from gputop.tui.lines import Lines


class HelpScreen(Screen[None]):
    """Shows the help from its first row; every key but scrolling closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,h,f1,enter", "close", priority=True),
        Binding("down,j", "scroll(1)"),
        Binding("up,k", "scroll(-1)"),
        Binding("pagedown,space", "scroll(20)"),
        Binding("pageup", "scroll(-20)"),
        Binding("home,g", "scroll(-9999)"),
        Binding("end,G", "scroll(9999)"),
    ]

    def __init__(self, theme: Theme, glyphs: Glyphs) -> None:
        super().__init__()
        self._theme = theme
        self._glyphs = glyphs
        self._first = 0

    def compose(self) -> ComposeResult:
        yield Lines(self._theme)

    def on_mount(self) -> None:
        self._paint()

    def on_resize(self) -> None:
        self._paint()

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(-3)

    def action_close(self) -> None:
        self.dismiss()

    def action_scroll(self, rows: int) -> None:
        self._first += rows
        self._paint()

    def _paint(self) -> None:
        width, height = self.app.size
        rows = help_rows(self._glyphs, width)
        room = max(1, height - 1)
        self._first = max(0, min(self._first, len(rows) - room))
        shown: list[Row] = rows[self._first : self._first + room]
        shown += [Line().row(width)] * (room - len(shown))
        last = min(len(rows), self._first + room)
        more = f" esc closes   {self._glyphs.up}{self._glyphs.down} scroll   {self._first + 1} to {last} of {len(rows)}"
        self.query_one(Lines).set_rows([*shown, Line().add(more, "dim").row(width, "bar")])
