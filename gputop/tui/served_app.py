"""The screen as a browser gets it: to look at and to move about in, with nothing that changes the machine it shows."""

from __future__ import annotations

from gputop.tui.app import GputopApp

WITHHELD = frozenset({"record", "screenshot", "suspend", "signal", "environment", "stacks", "copy"})
"""Actions that write a file, reach another process, show what its environment holds, or need a terminal."""


class ServedApp(GputopApp):
    """The screen without the actions that are withheld."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "act" and parameters[0] in WITHHELD:
            return False
        return super().check_action(action, parameters)
