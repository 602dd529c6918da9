"""One line of text asked for at the bottom of the screen."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from gputop.tui.terminal.closing import ClosesOnce


class Ask(ModalScreen[str | None], ClosesOnce[str | None]):
    """Returns the text on Enter and None on Escape."""

    CSS = """
    Ask { align: left bottom; background: transparent; }
    Ask Horizontal { height: 1; width: 100%; dock: bottom; }
    Ask Label { width: auto; padding: 0 1; text-style: bold; }
    Ask Input { border: none; height: 1; width: 1fr; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", priority=True),
        Binding("enter", "accept", priority=True),
    ]

    def __init__(self, question: str, text: str = "") -> None:
        super().__init__()
        self._question = question
        # Kept here, because a screen that is closed before it is composed is mounted without it.
        self._answer = Input(text, select_on_focus=False)
        self._answer.cursor_blink = False

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self._question, markup=False)
            yield self._answer

    def on_mount(self) -> None:
        # At once: ``focus`` would take effect after the keys already queued.
        self.set_focus(self._answer)

    async def typed(self) -> str:
        """The line with all that was typed before now, which may still wait in the line's own queue."""
        taken = asyncio.Event()
        if self._answer.call_later(taken.set):
            await taken.wait()
        return self._answer.value

    async def action_accept(self) -> None:
        """Close at once: the next key, typed in the same burst perhaps, is for the screen below."""
        self.dismiss(await self.typed())

    def action_cancel(self) -> None:
        self.dismiss(None)
