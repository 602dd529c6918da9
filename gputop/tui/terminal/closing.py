"""Screens that close once, however often and from wherever they are asked to."""

from __future__ import annotations

from textual.await_complete import AwaitComplete
from textual.screen import Screen, ScreenResultType


class ClosesOnce(Screen[ScreenResultType]):
    """A screen under another, or closed already, ignores further requests to close.

    The second of two keys in one burst may reach a screen that the first has closed: Textual would then close the
    screen below, and end the program where there is none.
    """

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()
