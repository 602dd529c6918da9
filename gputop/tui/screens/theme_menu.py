"""Choosing a theme on the screen itself: each one is applied at once, so that the screen is its own preview."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from textual.screen import Screen

from gputop.paint.glyphs import Glyphs
from gputop.paint.theme import THEMES, Theme
from gputop.tui.screens.menu import Menu


class ThemedScreen(Protocol):
    """A screen whose theme can be chosen."""

    look: Theme

    def say(self, text: str) -> None: ...
    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object: ...


def choose_theme(screen: ThemedScreen, glyphs: Glyphs, wear: Callable[[Theme], None]) -> None:
    """Ask for a theme; ``wear`` applies each one that the cursor comes to, and the old one again on Escape."""
    before = screen.look
    if before.colourless:
        screen.say("there is one theme without colours: drop --no-color or NO_COLOR for others")
        return
    names = [name for name, theme in THEMES.items() if not theme.colourless]

    def answered(chosen: tuple[str, bool] | None) -> None:
        if chosen is None:
            wear(before)
            return
        name, _ = chosen
        wear(THEMES[name])
        screen.say(f'theme {name}; to keep it: theme = "{name}" in the configuration (gputop config --path)')

    menu = Menu(
        "theme",
        [(name[0], name, name) for name in names],
        names.index(before.name) if before.name in names else 0,
        here=glyphs.here,
        footer="the arrows try one, esc leaves it",
        tried=lambda name: wear(THEMES[name]),
    )
    screen.push_screen(menu, answered)
