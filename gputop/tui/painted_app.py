"""The app behind every painted screen: a guarded terminal, coalesced painting, messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from gputop.paint.keys import Key
from gputop.tui.page_keys import USUAL
from gputop.tui.terminal.driver import Outlet, guarded_driver
from gputop.tui.terminal.guard import TerminalGuard
from gputop.tui.textual_internals import QuietApp

if TYPE_CHECKING:
    from textual.command import Provider

MESSAGE_S = 8.0
"""How long a message is shown."""
LEAST_REPAINT_S = 0.05
"""Keys that repeat faster than this are painted together."""
LATE_INTERVALS = 2.5
"""After so many intervals without a new frame the screen says STALE."""


def bindings(keys: Iterable[Key]) -> list[BindingType]:
    """Textual's bindings of a table of keys.

    With priority a key takes effect before the next one is looked at. Without, each would pass through the screen's
    queue first, and those typed right after one that opens a prompt would be lost there.
    """
    return [
        Binding(key.keys or f"unbound_{key.id}", _action(key), key.does, id=key.id, show=False, priority=True)
        for key in keys
    ]


def _action(key: Key) -> str:
    # Textual recognises its palette by this action, and then binds no key of its own to it.
    return "command_palette" if key.id == "palette" else f"act('{key.id}')"


class PaintDue(Message):
    """Changes since the last painting are due to be shown."""


def palette_commands() -> type[Provider]:
    """What the palette searches; imported when it first opens."""
    from gputop.tui.screens.palette import Commands

    return Commands


class PaintedApp(QuietApp):
    """Paints at once, or together with further changes within the next moment."""

    AUTO_FOCUS = None
    COMMANDS: ClassVar = {palette_commands}
    page_keys: Mapping[str, str] = USUAL
    """The keys of pages as shown, by id."""
    CSS = "Screen { overflow: hidden; }"

    def __init__(self, guard: TerminalGuard | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.outlet = Outlet()
        super().__init__(driver_class=guarded_driver(guard, self.outlet) if guard else None)
        self.animation_level = "none"
        self._guard = guard
        self._clock = clock
        self._paints_soon = False
        self._painted = 0.0

    def guard_terminal(self) -> None:
        """Let the guard end the program; called once the loop runs."""
        if self._guard is not None:
            # The guard calls from its own thread: only ask the loop to leave.
            loop = asyncio.get_running_loop()
            self._guard.leave_by(
                lambda status: loop.call_soon_threadsafe(partial(self.exit, status, return_code=status))
            )

    def leave(self) -> None:
        """End the program."""
        if self._guard is not None:
            self._guard.hurry(0)
        self.exit(0)

    def paint(self) -> None:
        """Draw now, even if a painting is already scheduled."""
        self._paints_soon = False
        self.draw()
        # Counted from its end: changes during a slow painting are drawn together as well.
        self._painted = self._clock()

    def paint_soon(self) -> None:
        """Paint at once, or together with what comes within the next moment."""
        if self._paints_soon:
            return
        wait = self._painted + LEAST_REPAINT_S - self._clock()
        if wait <= 0:
            self.paint()
        else:
            self._paints_soon = True
            # Not one of Textual's timers: each is a task of its own.
            asyncio.get_running_loop().call_later(wait, self.post_message, PaintDue())

    def on_paint_due(self) -> None:
        if self._paints_soon:
            self.paint()

    def on_resize(self) -> None:
        self.paint_soon()
