"""A question at the bottom of the screen, with a history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
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


class Ask(ModalScreen[str | None], ClosesOnce[str | None]):
    """Returns the text on Enter and None on Escape."""

    CSS = """
    Ask { align: left bottom; background: transparent; }
    Ask Horizontal { height: 3; width: 100%; dock: bottom; border: round $primary; background: $surface; }
    Ask Horizontal.low { height: 1; border: none; }
    Ask Label { width: auto; padding: 0 1; text-style: bold; }
    Ask Input { border: none; height: 1; width: 1fr; padding: 0; background: $surface; color: $foreground; }
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
        if not (row := self.query(Horizontal)):
            return  # closed before it was composed, by a later key of one burst
        framed(self, row.first())
        # At once: ``focus`` would take effect after the keys already queued.
        self.set_focus(self._answer)

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
        """Close at once: the next key is for the screen below."""
        self.dismiss(await self.typed())

    def action_cancel(self) -> None:
        self.dismiss(None)


class Prompt(Ask):
    """Returns the text on Enter and None on Escape.

    ``check`` returns the mistake of a text, or None.

    ``check`` is called for every text that is typed, so that it may also show what the text does. Arrow keys walk
    through ``history``, whose last entry is the newest.
    """

    # A screen's CSS counts for its own type only, not for those derived from it.
    CSS = f"""{Ask.CSS.replace("Ask ", "Prompt ")}
    Prompt #mistake {{ width: auto; max-width: 60%; padding: 0 1; text-style: bold; color: $warning; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "walk(-1)", priority=True),
        Binding("down", "walk(1)", priority=True),
    ]

    def __init__(
        self, question: str, text: str, history: Sequence[str], check: Callable[[str], str | None] | None = None
    ) -> None:
        super().__init__(question, text)
        self._history = (*history, text)
        self._at = len(history)
        self._check = check or (lambda _: None)
        self._mistake = Label("", id="mistake", markup=False)

    def compose(self) -> ComposeResult:
        with Horizontal():
            yield Label(self._question, markup=False)
            yield self._answer
            yield self._mistake

    def on_input_changed(self, event: Input.Changed) -> None:
        mistake = self._check(event.value)
        self._mistake.update(mistake or "")
        self._mistake.display = bool(mistake)

    async def action_accept(self) -> None:
        """Close, unless the text has a mistake."""
        if self._check(text := await self.typed()) is None:
            self.dismiss(text)

    async def action_walk(self, step: int) -> None:
        """Show an older (-1) or newer (1) text of the history."""
        await self.typed()
        self._at = max(0, min(len(self._history) - 1, self._at + step))
        self._answer.value = self._history[self._at]
        self._answer.cursor_position = len(self._answer.value)
