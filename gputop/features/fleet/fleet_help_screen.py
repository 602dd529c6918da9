"""The help of the fleet's screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from gputop.features.fleet.fleet_screen import help_rows
from gputop.paint.glyphs import Glyphs
from gputop.paint.keys import Key
from gputop.paint.line import Row
from gputop.paint.theme import Theme
from gputop.tui.page_keys import page_bindings
from gputop.tui.screens.scrolling import RowsScreen


class FleetHelpScreen(RowsScreen):
    """What the screen shows, and its keys."""

    BINDINGS: ClassVar[list[BindingType]] = page_bindings("help")

    def __init__(self, theme: Theme, glyphs: Glyphs, keys: Sequence[Key]) -> None:
        super().__init__(theme, glyphs)
        self._keys = keys

    def rows(self, width: int) -> list[Row]:
        return help_rows(self._glyphs, width, self._keys)
