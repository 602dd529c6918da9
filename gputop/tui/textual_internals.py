"""Every use of Textual's private API but that of the two drivers, on one page: what to check when Textual changes.

Written for Textual 8.2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from textual._styles_cache import StylesCache
from textual._time import get_time
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import BindingsMap
from textual.dom import DOMNode
from textual.screen import Screen


class QuietApp(App[int]):
    """An app that reports a crash in one line and frees the drawn lines of closed screens.

    It draws on its first screen, above which others open, and does not draw while one of them covers it.
    """

    crash: Exception | None = None
    """What ended the screen, if it was not the user."""
    _at_rest: tuple[Screen[Any], Mapping[str, str], list[tuple[DOMNode, BindingsMap]]] | None = None
    """The bindings while no other screen is open, and what they are made of: a screen and the user's own keys."""

    _uncovers = False

    @abstractmethod
    def draw(self) -> None:
        """Draw everything now, unless it ``is_covered``."""

    @property
    def is_covered(self) -> bool:
        """Whether a page hides all of the first screen. Questions and the command palette leave it visible."""
        above = self.screen_stack[1 : -1 if self._uncovers else None]
        return any(not screen.is_modal for screen in above)

    def pop_screen(self) -> AwaitComplete:
        """Close a screen, and free its drawn lines. What a page has covered is drawn before it shows again.

        Textual keeps them: its cache of 1,024 pairs of colours holds the widget that asked first for each of them.
        """
        was_covered, self._uncovers = self.is_covered, True
        try:
            if was_covered and not self.is_covered:
                self.draw()
        finally:
            self._uncovers = False
        StylesCache.get_inner_outer.cache_clear()
        # The command palette may be told twice to close, see ``ClosesOnce``.
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()

    async def _check_bindings(self, key: str, priority: bool = False) -> bool:
        """Run what a key is bound to; whether it is bound.

        Textual copies all bindings at each key and asks of each of them whether a widget consumes it. With no other
        screen open and nothing focused, only another table of keys can change what they are.
        """
        screen, keys = self.screen, self._keymap
        if not priority or len(self.screen_stack) > 1 or screen.focused is not None:
            return await super()._check_bindings(key, priority)
        cached = self._at_rest
        if cached is None or cached[0] is not screen or cached[1] is not keys:
            cached = self._at_rest = (screen, keys, screen._binding_chain[::-1])
        for namespace, bindings in cached[2]:
            for binding in bindings.key_to_bindings.get(key, ()):
                if binding.priority and await self.run_action(binding.action, namespace):
                    return True
        return False

    def _handle_exception(self, error: Exception) -> None:
        """A crash ends in one line, not in a page of traceback over the user's shell."""
        self.crash = error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()


async def opened(screen: Screen[Any]) -> None:
    """Wait until a screen has its widgets and the focus is set: what is typed from then on arrives."""
    await screen._mounted_event.wait()


class InputParser(XTermParser):
    """Turns what a terminal sends into events, and tells how long it waits for the rest of a sequence."""

    def waits_s(self) -> float | None:
        """Seconds until ``tick`` gives up on a sequence that has begun; None where none has."""
        return None if self._timeout_time is None else max(0.0, self._timeout_time - get_time())
