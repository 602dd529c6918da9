"""The command palette, which may be told to turn a page before there is one."""

from __future__ import annotations

from contextlib import suppress

from textual.command import CommandPalette


class Palette(CommandPalette):
    """Textual's own, except that a page key in the moment in which it opens does not end the program."""

    def _action_command_list(self, action: str) -> None:
        # The list knows where its entries stand only once it was drawn.
        with suppress(KeyError):
            super()._action_command_list(action)
