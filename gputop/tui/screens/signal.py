"""Sending a signal: choose it, confirm it, see the outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.model.inspection import Identity, SignalOutcome
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Row
from gputop.paint.signal_list import MOST_NAMED, Addressee, outcome_rows, outcome_words, signal_choices, signal_rows
from gputop.paint.theme import Theme
from gputop.tui.screens.list import ListScreen


class SignalScreen(ListScreen):
    """Nothing is sent before ``y``. When all were sent the screen closes; else it says which were not, and why."""

    KEYS = "enter choose   "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "choose"),
        Binding("y", "send"),
        Binding("n", "back"),
    ]

    def __init__(
        self,
        theme: Theme,
        glyphs: Glyphs,
        who: Sequence[Addressee],
        send: Callable[[Identity, int], SignalOutcome],
        done: Callable[[str], None],
        chosen: int | None = None,
    ) -> None:
        super().__init__(theme, glyphs)
        self._who = who
        self._send = send
        self._done = done
        self._choices = signal_choices()
        self._asked = chosen is not None
        self.cursor = next((i for i, choice in enumerate(self._choices) if choice.number == chosen), 0)
        self._outcomes: list[SignalOutcome] = []

    def entries(self) -> int:
        return len(self._choices)

    def above(self) -> int:
        # A title, the processes (one row more counts the rest), an empty row.
        return 2 + min(len(self._who), MOST_NAMED + 1)

    def rows(self, width: int) -> list[Row]:
        if self._outcomes:
            return outcome_rows(self._outcomes, self._choices[self.cursor].name, self._glyphs, width)
        return signal_rows(self._who, self._choices, self.cursor, self._glyphs, width, asked=self._asked)

    def action_scroll(self, rows: int) -> None:
        if not self._asked:
            super().action_scroll(rows)

    def action_choose(self) -> None:
        self._asked = True
        self.paint()

    def action_back(self) -> None:
        if not self._outcomes:
            self._asked = False
            self.paint()

    def action_close(self) -> None:
        if self._asked and not self._outcomes:
            self.action_back()
        else:
            super().action_close()

    def action_send(self) -> None:
        """Send the chosen signal, once; the identity of each process is checked again by whoever sends."""
        if not self._asked or self._outcomes:
            return
        choice = self._choices[self.cursor]
        self._outcomes = [self._send(one.identity, choice.number) for one in self._who]
        self._done(outcome_words(self._outcomes, choice.name))
        if all(outcome.sent for outcome in self._outcomes):
            self.dismiss()
        else:
            self.cursor = self._choices.index(choice)
            self.paint()
