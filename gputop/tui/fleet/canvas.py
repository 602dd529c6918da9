"""The fleet's rows, and the mouse on them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace
from textual import events

from gputop.fleet.frame import FleetFrame
from gputop.output.ansi_diff import Differ
from gputop.paint.fleet_screen import FleetPainted, fleet_screen, waiting_screen
from gputop.paint.fleet_view import FleetView, moved, rows_of, sorted_by
from gputop.paint.terminal import Depth
from gputop.paint.theme import Theme
from gputop.tui.fleet.screen import FleetMain
from gputop.tui.terminal.lines import Lines

WHEEL_ROWS = 3


class FleetCanvas(Lines):
    """Shows a frame. With ``write``, changes go straight to the terminal, see ``Lines``."""

    def __init__(self, main: FleetMain, depth: Depth, write: Callable[[str], None] | None) -> None:
        super().__init__(main.look, write, Differ(main.look, depth))
        self._main = main
        self._depth = depth
        self._painted: FleetPainted | None = None

    @property
    def page(self) -> int:
        """Rows of the list that are shown at once."""
        return 1 if self._painted is None else self._painted.page

    def show(self, frame: FleetFrame | None, view: FleetView, width: int, height: int) -> None:
        """Draw a frame, or say what is awaited."""
        if frame is None:
            text = view.error or f"asking {self._main.watched.fleet.source} …"
            self.set_rows(waiting_screen(text, width, height))
            return
        self._painted = fleet_screen(frame, view, width, height)
        self.set_rows(self._painted.rows)

    def apply_theme(self, theme: Theme) -> None:
        """Draw in other colours, also in screens opened later."""
        self._main.look = theme
        self.set_theme(theme, Differ(theme, self._depth))
        self._main.paint_soon()

    def on_mouse_scroll_down(self) -> None:
        self._scroll(WHEEL_ROWS)

    def on_mouse_scroll_up(self) -> None:
        self._scroll(-WHEEL_ROWS)

    def _scroll(self, rows: int) -> None:
        frame, view = self._main.frame, self._main.view
        if frame is not None and view.panel != "host":
            self._main.see(moved(rows_of(frame, view), view, rows, self.page))

    def on_click(self, event: events.Click) -> None:
        """Select; a second click opens; a column's head sorts; a key's words are that key."""
        painted, view = self._painted, self._main.view
        if painted is None or event.screen_y >= len(painted.targets):
            return
        target = painted.targets[event.screen_y]
        target = None if target is None else target.at(event.screen_x)
        if target is None or target.key is None:
            return
        if target.kind == "row":
            self._main.see(replace(view, cursor=str(target.key)))
            if event.chain == 2:
                self._main.press("open")
        elif target.kind == "head":
            self._main.see(sorted_by(view, str(target.key)))
        elif target.kind == "key":
            self._main.press(str(target.key))
