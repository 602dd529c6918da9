"""Screens above the main one, and the interface they use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from textual.geometry import Size
from textual.screen import Screen

from gputop.model.inspection import ProcessAccess
from gputop.monitor import Frame
from gputop.paint.theme import Theme
from gputop.paint.view import View
from gputop.session.playback import Playback


class Clipboard(Protocol):
    """A terminal with a clipboard."""

    def copy(self, text: str) -> bool:
        """Copy a text; False when it is too long."""
        ...


class MainScreen(Protocol):
    """The main screen, as pages and keys use it."""

    view: View
    look: Theme
    playback: Playback
    access: ProcessAccess | None
    toggle_counters: Callable[[], str] | None
    remedied: Callable[[], Frame] | None

    @property
    def terminal(self) -> Clipboard | None: ...
    @property
    def size(self) -> Size: ...
    @property
    def screen_stack(self) -> list[Screen[Any]]: ...

    def see(self, view: View) -> None:
        """Show the main screen in another state."""

    def change(self, **fields: object) -> None:
        """Show it with other values in these fields of its view."""

    def say(self, text: str) -> None:
        """Show a message for some seconds."""

    def paint(self) -> None:
        """Paint the main screen."""

    def paint_soon(self) -> None:
        """Paint now, or together with changes of the next moment."""

    def ready(self) -> None:
        """Take note of a new snapshot; called from any thread."""

    def open_palette(self) -> None:
        """Open the command palette, unless it is open."""

    def apply_theme(self, theme: Theme) -> None:
        """Draw in other colours, also in screens opened later."""

    def leave(self) -> None:
        """End the program."""

    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object: ...
    def refresh(self, *, repaint: bool = True, layout: bool = False) -> object: ...
    def set_timer(self, delay: float, callback: Callable[[], None]) -> object: ...
    def action_suspend_process(self) -> None: ...
