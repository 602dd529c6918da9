"""The screen for a browser: Textual's own driver for pages, and an app without what changes the machine."""

from __future__ import annotations

from textual.driver import Driver
from textual.drivers.web_driver import WebDriver
from textual.messages import ExitApp

from gputop.tui.node_app import GputopApp


class ServedDriver(WebDriver):
    """Ends the screen with its input."""

    def run_input_thread(self) -> None:
        try:
            super().run_input_thread()
        finally:
            if not self.exit_event.is_set():
                # The server has gone, or sent what cannot be read.
                self._app.post_message(ExitApp())


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
