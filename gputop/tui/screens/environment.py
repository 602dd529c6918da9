"""The environment of one process, secrets masked until asked for."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.model.inspection import Environment
from gputop.paint.environment import environment_rows
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Row
from gputop.paint.theme import Theme
from gputop.tui.screens.prompt import Prompt
from gputop.tui.screens.rows import RowsScreen


class EnvironmentScreen(RowsScreen):
    """Read once, when it is opened; dropped when the screen closes."""

    KEYS = "v secrets   / find   "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("v", "reveal"),
        # With priority, so that the next key waits for the prompt.
        Binding("slash,f3", "find", priority=True),
        Binding("e", "close", priority=True),
    ]

    def __init__(self, theme: Theme, glyphs: Glyphs, environment: Environment, command: str) -> None:
        super().__init__(theme, glyphs)
        self._environment = environment
        self._command = command
        self._revealed = False
        self._wanted = ""

    def rows(self, width: int) -> list[Row]:
        return environment_rows(
            self._environment, self._command, self._glyphs, width, revealed=self._revealed, wanted=self._wanted
        )

    def action_reveal(self) -> None:
        self._revealed = not self._revealed
        self.paint()

    async def action_find(self) -> None:
        await self.app.push_screen(Prompt("find in names and values:", self._wanted, ()), self._find)

    def _find(self, text: str | None) -> None:
        if text is not None:
            self._wanted = text
            self.action_scroll(-len(self._environment.variables))
