"""Base app of painted screens: painting, messages, keys and palette."""

from __future__ import annotations

import asyncio
import sys
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from rich.console import ConsoleDimensions
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.timer import Timer

from gputop.model.source import unexpected
from gputop.paint.keys import USUAL, Key, keys_of
from gputop.paint.theme import THEMES, Theme
from gputop.system.terminal_size import MOST_COLUMNS, MOST_ROWS
from gputop.tui.terminal.driver import TerminalDriver
from gputop.tui.terminal.guard import TerminalGuard
from gputop.tui.terminal.rows_widget import LiveRows

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
        Binding(
            key.keys or f"unbound_{key.id}",
            _action(key),
            key.does,
            id=key.id,
            show=False,
            priority=True,
        )
        for key in keys
    ]


def _action(key: Key) -> str:
    # Textual recognises its palette by this action, and then binds no key of its own to it.
    return "command_palette" if key.id == "palette" else f"act('{key.id}')"


def keymap(usual: Iterable[Key], now: Iterable[Key]) -> dict[str, str]:
    """Return Textual's keymap of the user's own keys.

    Textual removes a key together with everything else that is bound to it: whatever shares a key with a changed
    command is named as well.
    """
    usual, keys = tuple(usual), {key.id: key.keys for key in now}
    changed = {name for key in usual if keys[key.id] != key.keys for name in key.keys.split(",")}
    return {
        key.id: keys[key.id] or f"unbound_{key.id}"
        for key in usual
        if changed & {*key.keys.split(",")}
    }


ALWAYS = frozenset(("interrupt", "suspend", "palette"))
"""Keys that count in every screen, whatever is awaited."""
ENDING = ("quit", "interrupt")
"""Keys that end the program."""
Shown = TypeVar("Shown", bound=Struct)
"""What a screen shows: frozen, with a ``message``."""


class PaintedApp(App[int], Generic[Shown]):
    """Paints now, or together with changes of the next moment.

    Keys are acts by id: ``counts`` says whether one has a command now, ``press`` runs it, ``offered`` and ``choices``
    are what the palette lists of them and beside them.
    """

    AUTO_FOCUS = None
    page_keys: Mapping[str, Key] = USUAL
    """The keys of pages by id, with the user's own in them."""
    CSS = "Screen { overflow: hidden; }"
    view: Shown
    look: Theme

    def __init__(self, guard: TerminalGuard | None) -> None:
        # Without a guard there is no terminal: a test's pilot, or a browser.
        super().__init__(driver_class=None if guard is None else TerminalDriver)
        # Until the driver knows the window, Textual takes the size from COLUMNS, which can be any number.
        columns, rows = self.console.size
        if columns > MOST_COLUMNS or rows > MOST_ROWS:
            self.console.size = ConsoleDimensions(min(columns, MOST_COLUMNS), min(rows, MOST_ROWS))
        self.animation_level = "none"
        self.guard = guard
        self.terminal: TerminalDriver | None = None
        """Set by the driver itself."""
        self.follows_background = False
        """Whether no theme was chosen, so that the terminal's background decides."""
        self.crash: BaseException | None = None
        """What ended the screen, if it was not the user."""
        self._clock = time.monotonic
        self._due: asyncio.TimerHandle | None = None
        """The painting that changes of this moment wait for."""
        self._painted = 0.0
        self._forgets: Timer | None = None
        self._opened: Awaitable[None] | None = None

    @abstractmethod
    def draw(self) -> None:
        """Draw everything now."""

    @abstractmethod
    def apply_theme(self, theme: Theme) -> None:
        """Draw in other colours, also in screens opened later."""

    def use_background(self, *, is_light: bool) -> None:
        """Use the theme for the terminal's background, where only that decides."""
        if self.follows_background and not self.look.colourless:
            self.apply_theme(THEMES["light" if is_light else "dark"])

    def _fatal_error(self) -> None:
        """End after a crash without Textual's page of traceback.

        It would hold local values and cover the user's shell."""
        self.crash = self.crash or sys.exc_info()[1]
        self.exit(1, return_code=1)

    def guard_terminal(self) -> None:
        """Let the guard end the program; called once the loop runs."""
        if self.guard is not None:
            # The guard calls from its own thread: only ask the loop to leave.
            loop = asyncio.get_running_loop()
            self.guard.leave_by(
                lambda status: loop.call_soon_threadsafe(
                    partial(self.exit, status, return_code=status)
                )
            )

    def leave(self) -> None:
        """End the program."""
        if self.guard is not None:
            self.guard.hurry(0)
        self.exit(0)

    @contextmanager
    def show_errors(self) -> Iterator[None]:
        """Show unexpected errors on the last row; keep running.

        Without a guarded terminal it is raised, for the test or the viewer's process that runs the app.
        """
        try:
            yield
        except Exception as error:
            if self.guard is None:
                raise
            for widget in self.screen_stack[0].query(LiveRows):
                widget.show_error(unexpected(error))

    def paint(self) -> None:
        """Draw now, or once the terminal has taken the last picture."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        terminal = self.terminal
        if terminal is not None and terminal.is_behind:
            self._paint_in(LEAST_REPAINT_S)
            return
        if terminal is not None and terminal.has_dropped:
            terminal.has_dropped = False
            self.refresh()
        with self.show_errors():
            self.draw()
        # Counted from its end: changes during a slow painting are drawn together as well.
        self._painted = self._clock()

    def paint_soon(self) -> None:
        """Paint now, or together with changes of the next moment."""
        wait_s = self._painted + LEAST_REPAINT_S - self._clock()
        if wait_s <= 0 and self._due is None:
            self.paint()
        elif self._due is None:
            self._paint_in(wait_s)

    def _paint_in(self, seconds: float) -> None:
        # Not by one of Textual's timers: each is a task of its own.
        self._due = asyncio.get_running_loop().call_later(seconds, self.paint)

    def on_resize(self) -> None:
        self.paint_soon()

    def see(self, view: Shown) -> None:
        """Show the screen in another state."""
        if view != self.view:
            self.view = view
            self.paint_soon()

    def change(self, **fields: object) -> None:
        """Show the screen with changed fields of its state."""
        self.see(replace(self.view, **fields))

    def say(self, text: str) -> None:
        """Show a message for some seconds."""
        self.change(message=text)
        if self._forgets is not None:
            self._forgets.stop()
        self._forgets = self.set_timer(MESSAGE_S, lambda: self.change(message=None))

    # -- keys -------------------------------------------------------------------------------------------------------

    @abstractmethod
    def counts(self, key_id: str) -> bool:
        """Whether a key has a command now."""

    @abstractmethod
    def press(self, key_id: str) -> None:
        """Run the command of one key."""

    @abstractmethod
    def offered(self) -> Iterable[Key]:
        """The keys whose commands the palette offers."""

    @abstractmethod
    def choices(self) -> Iterable[tuple[str, Callable[[], None]]]:
        """Return palette entries beside the keys: (words, function)."""

    def themes(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The themes as choices of the palette; none without colours."""
        if not self.look.colourless:
            for name, theme in THEMES.items():
                if not theme.colourless:
                    yield f"theme: {name}", partial(self.apply_theme, theme)

    def push_screen(self, screen: Any, *args: Any, **options: Any) -> Any:
        """As Textual's; ``action_act`` waits until the screen is there."""
        self._opened = opened = super().push_screen(screen, *args, **options)
        return opened

    def pop_screen(self) -> AwaitComplete:
        """Close the top screen, but never the last one.

        A second key in one burst may close a screen that is closed already."""
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "act" or self.counts(str(parameters[0]))

    async def action_act(self, key_id: str) -> None:
        """Run a key's command; wait for a screen that it opens."""
        with self.show_errors():
            self.press(key_id)
        if self._opened is not None:
            await self._opened
            self._opened = None

    async def action_command_palette(self) -> None:  # type: ignore[override]  # Textual awaits what an action returns
        await self.action_act("palette")

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the palette's commands; above a page the page's own."""
        if groups := getattr(screen, "PAGES", ()):
            for key in keys_of(groups):
                run = partial(self.run_action, key.action, screen)
                yield SystemCommand(key.does, f"key {self.page_keys[key.id].shown}", run)
            return
        # What ends the program comes last: Enter in the palette that has just opened takes the first.
        for key in sorted(self.offered(), key=lambda key: key.id in ENDING):
            yield SystemCommand(
                key.does, f"key {key.shown}", partial(self.run_action, f"act('{key.id}')")
            )
        for words, does in self.choices():
            yield SystemCommand(words, "", does)
