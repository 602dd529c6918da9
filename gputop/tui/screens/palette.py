"""The command palette. Imported when it first opens: with its widgets it is a tenth of Textual."""

from __future__ import annotations

from contextlib import suppress

from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider


class Commands(Provider):
    """The app's commands whose words contain every word that was typed, best first.

    Textual's own search finds letters that are strewn over a sentence: "theme" in "sort by the column before".
    """

    async def discover(self) -> Hits:
        for command in self.app.get_system_commands(self.screen):
            yield DiscoveryHit(command.title, command.callback, help=command.help)

    async def search(self, query: str) -> Hits:
        words = query.lower().split()
        for command in self.app.get_system_commands(self.screen):
            title = command.title.lower()
            if all(word in title or word in command.help.lower().split() for word in words):
                begins = sum(f" {word}" in f" {title}" for word in words)
                yield Hit(1.0 + begins, command.title, command.callback, help=command.help)


class Palette(CommandPalette):
    """The command palette, except that a page key in the moment in which it opens does not end the program."""

    CSS = """
    Palette #--container { width: 90; max-width: 100%; border: round $primary; }
    Palette #--input SearchIcon { display: none; }
    """

    def _action_command_list(self, action: str) -> None:
        # The list knows the positions of its entries only once it was drawn.
        with suppress(KeyError):
            super()._action_command_list(action)
