"""The command palette, imported at its first use.

With its widgets it is a tenth of Textual.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, ClassVar

from rich.text import Text
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.css.query import NoMatches
from textual.worker import Worker

from gputop.tui.screens.scrolling import is_ascii

KEY_WIDTH = 10
"""Cells of the key before what it does."""


class Commands(Provider):
    """Commands that contain every typed word, best first.

    Textual's own search finds letters that are strewn over a sentence: "theme" in "sort by the column before".
    """

    async def discover(self) -> Hits:
        for command in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(_shown(command), command.callback, text=command.title)

    async def search(self, query: str) -> Hits:
        words, has_match = query.lower().split(), False
        for command in self.app.get_system_commands(self.screen):
            title = command.title.lower()
            if all(word in title or word in command.help.lower().split() for word in words):
                begins = sum(f" {word}" in f" {title}" for word in words)
                has_match = True
                yield Hit(1.0 + begins, _shown(command), command.callback, text=command.title)
        if not has_match:
            text = f"no command has {query.strip()!r}: backspace, or esc"
            yield Hit(1.0, Text(text, "dim"), _nothing, text=text)


def _nothing() -> None:
    """Do nothing: there is no command."""


def _shown(command: SystemCommand) -> Text:
    """Return a command as one line: key and words."""
    keys = command.help.removeprefix("key ").split("  ")[0]
    return Text.assemble((f"{keys:<{KEY_WIDTH}}", "bold"), (command.title, "not bold"))


class Palette(CommandPalette):
    """The command palette; page keys work while it opens."""

    CSS = """
    Palette { background: transparent; }
    Palette > Vertical { width: 96; max-width: 100%; background: transparent; }
    Palette #--input { border: round $primary; background: $surface; height: 3; padding: 0 1; }
    Palette #--input.--list-visible { border: round $primary; }
    Palette #--input SearchIcon { display: none; }
    Palette #--input CommandInput, Palette #--input CommandInput:focus { border: none; height: 1; }
    Palette CommandList, Palette CommandList:focus {
        border: round $primary; background: $surface; scrollbar-size-vertical: 1; max-height: 60vh;
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pagedown", "turn('page_down')", "Next page", show=False),
        Binding("pageup", "turn('page_up')", "Previous page", show=False),
    ]

    def run_worker(self, work: Callable[[], Awaitable[None]], **options: Any) -> Worker[None]:  # type: ignore[override]
        """Search as Textual does, unless the palette has closed."""

        async def while_open() -> None:
            with suppress(NoMatches):
                await work()

        return super().run_worker(while_open, **options)

    def on_mount(self) -> None:
        if is_ascii(self.app):
            for box in (*self.query("#--input"), *self.query(CommandList)):
                box.styles.border = ("ascii", "white")

    async def action_turn(self, page: str) -> None:
        """A page up or down, as Textual's own keys do it."""
        # The list knows the positions of its entries only once it was drawn.
        with suppress(KeyError):
            await self.app.run_action(page, self.query_one(CommandList))
