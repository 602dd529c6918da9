"""The command palette. Imported when it first opens: with its widgets it is a tenth of Textual."""

from __future__ import annotations

from contextlib import suppress

from textual.command import CommandPalette


class Palette(CommandPalette):
    """The command palette, except that a page key in the moment in which it opens does not end the program."""

    def _action_command_list(self, action: str) -> None:
        # The list knows the positions of its entries only once it was drawn.
        with suppress(KeyError):
            super()._action_command_list(action)
