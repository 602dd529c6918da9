"""What the fleet's keys and rows need of the screen that they act on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from textual.geometry import Size
from textual.screen import Screen

from gputop.fleet.frame import FleetFrame
from gputop.fleet.watch import FleetWatch
from gputop.paint.fleet_view import FleetView
from gputop.paint.keys import Key
from gputop.paint.theme import Theme
from gputop.tui.terminal.driver import Outlet


class FleetMain(Protocol):
    """The fleet's screen: what it shows, and how to show something else."""

    view: FleetView
    look: Theme
    watched: FleetWatch
    outlet: Outlet
    table: tuple[Key, ...]
    frame: FleetFrame | None

    @property
    def size(self) -> Size: ...
    @property
    def page(self) -> int: ...
    @property
    def screen_stack(self) -> list[Screen[Any]]: ...
    def see(self, view: FleetView) -> None: ...
    def say(self, text: str) -> None: ...
    def press(self, key_id: str) -> None: ...
    def paint_soon(self) -> None: ...
    def leave(self) -> None: ...
    def apply_theme(self, theme: Theme) -> None: ...
    def action_suspend_process(self) -> None: ...
    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object: ...
