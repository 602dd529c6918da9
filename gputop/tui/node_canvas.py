"""The main screen's rows, and the mouse on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from msgspec.structs import replace
from textual import events

from gputop.monitor import Frame
from gputop.output.ansi import Differ
from gputop.paint.glyphs import Depth
from gputop.paint.header import WASTE
from gputop.paint.main_screen import Painter
from gputop.paint.process_columns import column_at
from gputop.paint.process_table import ShownProcess
from gputop.paint.theme import Theme
from gputop.paint.view import View
from gputop.paint.view_changes import next_counted
from gputop.tui.keys.key_handlers import KeyTable
from gputop.tui.keys.key_screen import MainScreen
from gputop.tui.terminal.painted_lines import Lines

WHEEL_ROWS = 3
RIGHT = 3
"""The number of the right mouse button."""
DRAGGED = 3
"""Cells between pressing and releasing a button that are no click."""


class Canvas(Lines):
    """Shows a frame. With ``write``, changes go straight to the terminal, see ``Lines``."""

    def __init__(self, main: MainScreen, keys: KeyTable, depth: Depth, write: Callable[[str], None] | None) -> None:
        super().__init__(main.look, write, Differ(main.look, depth))
        self._main = main
        self._keys = keys
        self._depth = depth
        self._painter = Painter()
        self._pressed_at = (0, 0)

    def show(self, frame: Frame, view: View, width: int, height: int) -> None:
        """Draw a frame."""
        self.set_rows(self._painter.paint(frame, view, width, height).rows)

    def apply_theme(self, theme: Theme) -> None:
        """Draw in other colours, also in screens opened later."""
        self._main.look = theme
        self.set_theme(theme, Differ(theme, self._depth))
        self._main.paint_soon()

    @property
    def page(self) -> int:
        """How many processes are shown at once."""
        return self._painter.process_room

    def process_rows(self, frame: Frame, view: View) -> Sequence[ShownProcess]:
        """All rows of the process table."""
        return self._painter.shown_rows(frame, view)

    def on_mouse_scroll_down(self) -> None:
        self._scroll(WHEEL_ROWS)

    def on_mouse_scroll_up(self) -> None:
        self._scroll(-WHEEL_ROWS)

    def _scroll(self, rows: int) -> None:
        last_first = max(0, self._painter.process_count - self._painter.process_room)
        view = self._main.view
        self._main.see(replace(view, process=None, scroll=max(0, min(last_first, view.scroll + rows))))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._pressed_at = event.screen_x, event.screen_y

    def on_mouse_up(self, event: events.MouseUp) -> None:
        """Who drags wants to select text, which a terminal does only while shift is held."""
        x, y = self._pressed_at
        if abs(event.screen_x - x) + abs(event.screen_y - y) >= DRAGGED:
            self._main.say("to select text with the mouse hold shift (option on a Mac) while you drag; y copies")

    async def on_click(self, event: events.Click) -> None:
        """Select; a second click opens; a column's name sorts."""
        view = self._main.view
        target = self._painter.target(event.screen_y, event.screen_x)
        if target is None:
            return
        # A right click opens at once what a double click opens.
        opens = event.chain == 2 or event.button == RIGHT
        if target.kind == "gpu":
            self._main.see(replace(view, gpu=str(target.key)))
            if opens:
                self._keys.details.open_gpu()
        elif target.kind == "process":
            self._main.see(replace(view, process=target.key))
            if opens:
                self._keys.details.open_process()
        elif target.kind == "count" and target.key == WASTE:
            await self.run_action("app.act('findings')")
        elif target.kind == "count" and target.key is not None and self._main.playback.frame is not None:
            self._main.see(next_counted(view, self._main.playback.frame, str(target.key)))
        elif target.kind == "key" and target.key is not None:
            await self.run_action(f"app.act('{target.key}')")
        elif target.kind == "time":
            label, columns, begin, end = cast("tuple[int, int, float, float]", target.key)
            share = (event.screen_x - label + 0.5) / columns
            self._keys.time.play_on(lambda player: player.seek(begin + max(0.0, min(1.0, share)) * (end - begin)))
        elif target.kind == "header":
            column = column_at(event.screen_x, self.size.width, view.columns)
            if column is not None:
                inverted = not view.inverted if column == view.sort else False
                self._main.see(replace(view, sort=column, inverted=inverted))
