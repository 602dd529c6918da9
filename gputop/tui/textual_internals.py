"""Every touch of Textual's private parts, on one page: what to look at when Textual changes.

Written for Textual 8.2.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from textual._styles_cache import StylesCache
from textual._time import get_time
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.command import CommandPalette
from textual.screen import Screen


class QuietApp(App[int]):
    """An app that keeps its crash for one line, and lets the drawn lines of closed screens go."""

    crash: Exception | None = None
    """What ended the screen, if it was not the user."""

    def pop_screen(self) -> AwaitComplete:
        """Close a screen, and let its drawn lines go.

        Textual keeps them: its cache of 1,024 pairs of colours holds the widget that asked first for each of them.
        """
        StylesCache.get_inner_outer.cache_clear()
        # The command palette may be told twice to close, see ``terminal.closing``.
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()

    async def run_bound(self, key: str) -> None:
        """Do what a key is bound to, if it counts now."""
        await self._check_bindings(key, priority=True)

    def _handle_exception(self, error: Exception) -> None:
        """A crash ends in one line, not in a page of traceback over the user's shell."""
        self.crash = error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()


async def opened(screen: Screen[Any]) -> None:
    """Wait until a screen has its widgets and the focus is where it shall be: what is typed from then on arrives."""
    await screen._mounted_event.wait()


class Palette(CommandPalette):
    """The command palette, except that a page key in the moment in which it opens does not end the program."""

    def _action_command_list(self, action: str) -> None:
        # The list knows where its entries stand only once it was drawn.
        with suppress(KeyError):
            super()._action_command_list(action)


class InputParser(XTermParser):
    """Turns what a terminal sends into events, and tells how long it waits for the rest of a sequence."""

    def waits_s(self) -> float | None:
        """Seconds until ``tick`` gives up on a sequence that has begun; None where none has."""
        return None if self._timeout_time is None else max(0.0, self._timeout_time - get_time())
