"""Choosing a theme on the screen itself: each one is applied at once, so that the screen is its own preview."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from gputop.paint.theme import THEMES, Theme
from gputop.tui.keys.screen import MainScreen

STEPS = {"right": 1, "down": 1, "j": 1, "l": 1, "T": 1, "left": -1, "up": -1, "k": -1, "h": -1}


class ThemeChoice:
    """``wear`` applies a theme. While ``active`` all keys go to ``take``."""

    def __init__(self, screen: MainScreen, wear: Callable[[Theme], None]) -> None:
        self._screen = screen
        self._wear = wear
        self._before = screen.look
        self.active = False

    def begin(self) -> None:
        """Show the list on the message line, and apply the next theme."""
        if self._screen.look.colourless:
            self._screen.say("there is one theme without colours: drop --no-color or NO_COLOR for others")
            return
        self._before, self.active = self._screen.look, True
        self._step(1)

    def take(self, key: str) -> bool:
        """Move, keep or cancel; whether the key was for the list. Any other key keeps the current theme."""
        if key in STEPS:
            self._step(STEPS[key])
            return True
        self.active = False
        if key == "escape":
            self._wear(self._before)
            self._screen.see(replace(self._screen.view, message=None))
            return True
        name = self._screen.look.name
        self._screen.say(f'theme {name}; to keep it: theme = "{name}" in the configuration (gputop config --path)')
        return key == "enter"

    def _step(self, step: int) -> None:
        names = [name for name, theme in THEMES.items() if not theme.colourless]
        at = names.index(self._screen.look.name) if self._screen.look.name in names else -1
        chosen = names[(at + step) % len(names)]
        self._wear(THEMES[chosen])
        listed = "  ".join(f"[{name}]" if name == chosen else name for name in names)
        text = f"theme: {listed}   ← → try   enter keep   esc as it was"
        if len(text) > self._screen.size.width - 2:
            text = f"theme: {listed}   ← →   enter   esc"
        self._screen.see(replace(self._screen.view, message=text))


HANDLERS: Mapping[str, Callable[[ThemeChoice], None]] = MappingProxyType({"theme": ThemeChoice.begin})
