"""Screens for processes: environment, stacks, signals and columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.message import Message

from gputop.model.inspection import DeepLook, Environment, ProcessIdentity, SignalOutcome
from gputop.paint.column_choice import HEAD_ROWS, column_rows, listed, moved, toggled
from gputop.paint.deep_look_rows import environment_rows, look_rows, waiting_rows
from gputop.paint.line import Row
from gputop.paint.process_columns import DEFAULT
from gputop.paint.signal_rows import (
    MOST_NAMED,
    Addressee,
    outcome_rows,
    outcome_words,
    signal_choices,
    signal_rows,
)
from gputop.system.worker import Worker
from gputop.tui.screens.prompt import Prompt
from gputop.tui.screens.scrolling import ListScreen, RowsScreen


class EnvironmentScreen(RowsScreen, keys="environment"):
    """Read once, when it is opened; dropped when the screen closes."""

    KEYS = (("secrets", "environment_reveal"), ("find", "environment_find"))

    def __init__(self, environment: Environment, command: str) -> None:
        super().__init__()
        self._environment = environment
        self._command = command
        self._revealed = False
        self._search = ""

    def rows(self, width: int) -> list[Row]:
        return environment_rows(
            self._environment, self._command, width, revealed=self._revealed, search=self._search
        )

    def action_reveal(self) -> None:
        self._revealed = not self._revealed
        self.paint()

    async def action_find(self) -> None:
        await self.app.push_screen(Prompt("find in names and values:", self._search), self._find)

    def _find(self, text: str | None) -> None:
        if text is not None:
            self._search = text
            self.paint_from_top()


class Looked(Message):
    """A deep look has come back."""


class StacksScreen(RowsScreen, keys="stacks"):
    """Stacks of one process and its busiest loader.

    ``look`` blocks for some seconds: a daemon thread calls it, so that leaving never waits."""

    KEYS = (("again", "stacks_again"),)

    def __init__(self, pid: int, command: str, look: Callable[[], DeepLook]) -> None:
        super().__init__()
        self._pid = pid
        self._command = command
        self._inspection: DeepLook | None = None
        self._worker = Worker("look", look, lambda: self.post_message(Looked()))

    def on_mount(self) -> None:
        super().on_mount()
        self.action_again()

    def rows(self, width: int) -> list[Row]:
        if self._inspection is None:
            failed = self._worker.error if self._worker.busy_since is None else None
            return waiting_rows(self._pid, failed, width)
        return look_rows(self._inspection, self._command, width)

    def action_again(self) -> None:
        if self._worker.busy_since is None:
            self._inspection = None
            self._worker.ask()
            self.paint()

    def on_looked(self) -> None:
        self._inspection = None if self._worker.error is not None else self._worker.latest
        self.paint()

    def on_unmount(self) -> None:
        self._worker.stop()


class SignalScreen(ListScreen, keys="signals"):
    """Asks for a signal and sends it after ``y``.

    The screen closes when all were sent; else it shows which were not, and why."""

    KEYS = (("choose", "signals_choose"),)

    def __init__(
        self,
        addressees: Sequence[Addressee],
        send: Callable[[ProcessIdentity, int], SignalOutcome],
        done: Callable[[str], None],
        chosen: int | None = None,
    ) -> None:
        super().__init__()
        self._addressees = addressees
        self._send = send
        self._done = done
        self._choices = signal_choices()
        self._is_chosen = chosen is not None
        self.cursor = next(
            (i for i, choice in enumerate(self._choices) if choice.number == chosen), 0
        )
        self._outcomes: list[SignalOutcome] = []

    def entries(self) -> int:
        return len(self._choices)

    def place(self) -> tuple[int, int]:
        # A title, the processes (one row more counts the rest), an empty row.
        row = 2 + min(len(self._addressees), MOST_NAMED + 1) + self.cursor
        return row, row + 1

    def rows(self, width: int) -> list[Row]:
        if self._outcomes:
            return outcome_rows(self._outcomes, self._choices[self.cursor].name, width)
        return signal_rows(
            self._addressees, self._choices, self.cursor, width, is_chosen=self._is_chosen
        )

    def action_scroll(self, rows: int) -> None:
        if not self._is_chosen:
            super().action_scroll(rows)

    def action_choose(self) -> None:
        self._is_chosen = True
        self.paint()

    def action_back(self) -> None:
        if not self._outcomes:
            self._is_chosen = False
            self.paint()

    def action_close(self) -> None:
        if self._is_chosen and not self._outcomes:
            self.action_back()
        else:
            super().action_close()

    def action_send(self) -> None:
        """Send the chosen signal once.

        The sender checks the identity of each process again."""
        if not self._is_chosen or self._outcomes:
            return
        choice = self._choices[self.cursor]
        self._outcomes = [
            self._send(addressee.identity, choice.number) for addressee in self._addressees
        ]
        self._done(outcome_words(self._outcomes, choice.name))
        if all(outcome.sent for outcome in self._outcomes):
            self.dismiss()
        else:
            self.cursor = self._choices.index(choice)
            self.paint()


class ColumnsScreen(ListScreen, keys="columns"):
    """Chooses and orders columns.

    Calls ``chosen`` with the keys on Enter; Escape changes nothing."""

    KEYS = (
        ("show or hide", "columns_toggle"),
        ("move", "columns_back", "columns_on"),
        ("reset", "columns_reset"),
        ("take it", "columns_take"),
    )

    def __init__(self, columns: tuple[str, ...], chosen: Callable[[tuple[str, ...]], None]) -> None:
        super().__init__()
        self._columns = columns
        self._chosen = chosen

    def entries(self) -> int:
        return len(listed(self._columns))

    def place(self) -> tuple[int, int]:
        return HEAD_ROWS + self.cursor, HEAD_ROWS + self.cursor + 1

    def rows(self, width: int) -> list[Row]:
        return column_rows(self._columns, self._key, width)

    @property
    def _key(self) -> str:
        return listed(self._columns)[self.cursor]

    def action_show_or_hide(self) -> None:
        """Show or hide the column and move to the next one."""
        key = self._key
        below = listed(self._columns)[min(self.cursor + 1, self.entries() - 1)]
        self._change(toggled(self._columns, key), below)

    def action_move(self, step: int) -> None:
        key = self._key
        self._change(moved(self._columns, key, step), key)

    def action_reset(self) -> None:
        self._change(DEFAULT, self._key)

    def action_take(self) -> None:
        self._chosen(self._columns)
        self.dismiss()

    def _change(self, columns: tuple[str, ...], key: str) -> None:
        """Apply a new choice; the cursor follows its column."""
        self._columns = columns
        self.cursor = listed(columns).index(key)
        self.paint()
