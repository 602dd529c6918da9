"""Keys of every screen: the end, suspension, themes and the palette."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gputop.paint.theme import THEMES
from gputop.tui.painted_app import PaintedApp, Shown

if TYPE_CHECKING:
    from textual.command import Provider


def palette_commands() -> type[Provider]:
    """Return the palette's provider, imported at its first use."""
    from gputop.tui.screens.palette import Commands

    return Commands


class CommonKeys(PaintedApp[Shown]):
    """Leaves, suspends, and chooses by name."""

    COMMANDS: ClassVar = {palette_commands}

    def press_quit(self) -> None:
        self.leave()

    def press_interrupt(self) -> None:
        self.leave()

    def press_suspend(self) -> None:
        self.action_suspend_process()

    def press_theme(self) -> None:
        """Draw in the next theme."""
        names = [name for name, theme in THEMES.items() if not theme.colourless]
        if self.look.colourless:
            self.say("there is one theme without colours: drop --no-color or NO_COLOR for others")
            return
        name = names[(names.index(self.look.name) + 1) % len(names)]
        self.apply_theme(THEMES[name])
        self.say(f"theme {name}; the palette (:) saves it in the configuration")

    def press_palette(self) -> None:
        """Open the command palette, unless it is open."""
        from gputop.tui.screens.box import coloured
        from gputop.tui.screens.palette import Palette

        if not isinstance(self.screen_stack[-1], Palette):
            # Before it opens: Textual keeps its own screens apart from a change of colours.
            coloured(self)
            self.push_screen(Palette())
