"""The screen for a browser: to look at and navigate, without anything that changes the machine it shows."""

from __future__ import annotations

from textual.driver import Driver

from gputop.tui.app import GputopApp
from gputop.tui.served_driver import ServedDriver

WITHHELD = frozenset(
    {"record", "screenshot", "suspend", "signal", "terminate", "kill", "interrupt_process", "environment", "stacks"}
)
"""Actions that write a file, reach another process, show what its environment holds, or need a terminal."""


class ServedApp(GputopApp):
    """The screen without the actions that are withheld."""

    def get_driver_class(self) -> type[Driver]:
        return ServedDriver

    async def action_act(self, key_id: str) -> None:
        if key_id in WITHHELD:
            self.say("the screen in a browser is read-only: use `gputop` in a terminal for this")
        else:
            await super().action_act(key_id)

    def copy_to_clipboard(self, text: str) -> None:
        """A browser's clipboard is left alone."""
