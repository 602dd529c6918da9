"""What keys do whatever is shown: leave, suspend, the help, the palette. Screens are imported when they are opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from gputop.paint.keys import Key
from gputop.tui.keys.screen import MainScreen


class EverywhereKeys:
    """``keys`` gives the table of keys as it is now, for the help."""

    def __init__(self, screen: MainScreen, keys: Callable[[], Sequence[Key]]) -> None:
        self._screen = screen
        self._keys = keys

    def leave(self) -> None:
        self._screen.leave()

    def suspend(self) -> None:
        self._screen.action_suspend_process()

    def help(self) -> None:
        from gputop.tui.screens.help import HelpScreen

        self._screen.push_screen(HelpScreen(self._screen.look, self._screen.view.glyphs, self._keys()))

    def release_counters(self) -> None:
        toggle = self._screen.toggle_counters
        self._screen.say("only a live screen of this machine holds GPU counters" if toggle is None else toggle())

    def palette(self) -> None:
        from gputop.tui.textual_internals import Palette

        if not isinstance(self._screen.screen_stack[-1], Palette):
            self._screen.push_screen(Palette())


HANDLERS: Mapping[str, Callable[[EverywhereKeys], None]] = MappingProxyType({
    "quit": EverywhereKeys.leave,
    "interrupt": EverywhereKeys.leave,
    "suspend": EverywhereKeys.suspend,
    "help": EverywhereKeys.help,
    "palette": EverywhereKeys.palette,
    "release_counters": EverywhereKeys.release_counters,
})  # fmt: skip
