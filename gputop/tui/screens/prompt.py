"""A question at the bottom of the screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from gputop.tui.screens.box import framed
from gputop.tui.screens.scrolling import ClosesOnce

TYPED_S = 0.5
"""How long an answer waits for keys that are still in the line's queue."""


class Prompt(ModalScreen[str | None], ClosesOnce[str | None]):
    """Returns the text on Enter and None on Escape.

    ``check`` returns the mistake of a text, or None. It is called for every text that is typed, so that it may also
    show what the text does.
    """

    CSS = """
    Prompt { align: left bottom; background: transparent; }
    Prompt Horizontal { height: 3; width: 100%; dock: bottom; border: round $primary; background: $surface; }
    Prompt Horizontal.low { height: 1; border: none; }
    Prompt Label { width: auto; padding: 0 1; text-style: bold; }
    Prompt Input { border: none; height: 1; width: 1fr; padding: 0; background: $surface; color: $foreground; }
    Prompt #mistake { max-width: 60%; color: $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", priority=True),
        Binding("enter", "accept", priority=True),
    ]

    def __init__(
        self, question: str, text: str = "", check: Callable[[str], str | None] = lambda _: None
    ) -> None:
        super().__init__()
        self._question = question
        self._check = check
        # Kept here, because a screen that is closed before it is composed is mounted without it.
        self._answer = Input(text, select_on_focus=False)
        self._answer.cursor_blink = False
        self._mistake = Label("", id="mistake", markup=False)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self._question, markup=False)
            yield self._answer
            yield self._mistake

    def on_mount(self) -> None:
        if not (row := self.query(Horizontal)):
            return  # closed before it was composed, by a later key of one burst
        framed(self, row.first())
        self._mistake.display = False
        # At once: ``focus`` would take effect after the keys already queued.
        self.set_focus(self._answer)

    def on_input_changed(self, event: Input.Changed) -> None:
        mistake = self._check(event.value)
        self._mistake.update(mistake or "")
        self._mistake.display = bool(mistake)

    async def typed(self) -> str:
        """Return the line with all keys typed so far.

        Some may still wait in the line's own queue."""
        taken = asyncio.Event()
        if self._answer.call_later(taken.set):
            # After a second Enter of one burst the line is closed and empties its queue no more.
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(taken.wait(), TYPED_S)
        return self._answer.value

    async def action_accept(self) -> None:
        """Close at once, unless the text has a mistake: the next key is for the screen below."""
        if self._check(text := await self.typed()) is None:
            self.dismiss(text)

    def action_cancel(self) -> None:
        self.dismiss(None)
