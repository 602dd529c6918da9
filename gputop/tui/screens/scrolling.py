"""Pages of painted rows that scroll: what help, findings and their like have in common, and the keys of pages."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.screen import Screen, ScreenResultType

from gputop.paint.glyphs import Glyphs, keys_shown
from gputop.paint.keys import FAR, USUAL, Key, keys_of
from gputop.paint.line import Line, Row, for_terminal
from gputop.paint.theme import Theme
from gputop.paint.view import key_named_at
from gputop.tui.terminal.painted_lines import Lines


def page_bindings(group: str) -> list[BindingType]:
    """The bindings of the ids that begin with a group's name.

    What closes a page, and what opens another one on the main screen, takes effect before the main screen's keys.
    """
    first = ("users_regroup", "environment_find")
    return [
        Binding(
            key.keys, key.action, key.does, id=key.id, show=False,
            priority=key.id.endswith("_close") or key.id in first,
        )
        for key in keys_of((group,))
    ]  # fmt: skip


def hint(app: App[object], glyphs: Glyphs, words: str, *ids: str) -> str:
    """The first key of each id, and what they do, for the last row of a page; empty where none has a key."""
    table: Mapping[str, Key] = getattr(app, "page_keys", USUAL)
    keys = " ".join(filter(None, (table[key_id].first for key_id in ids)))
    return keys_shown(f"{keys} {words}   ", glyphs) if keys else ""


class ClosesOnce(Screen[ScreenResultType]):
    """A screen under another, or closed already, ignores further requests to close.

    The second of two keys in one burst may reach a screen that the first has closed: Textual would then close the
    screen below, and end the program where there is none.
    """

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()


# The last row of a screen names its keys; a click on one of them is that key.


def press_named(app: App[object], rows: list[Row], event: events.Click) -> bool:
    """Press the key that was clicked in the last row; whether the click was in it."""
    if event.screen_y != len(rows) - 1:
        return False
    key = key_named_at(rows[-1], event.screen_x)
    if key is not None:
        app.simulate_key(key)
    return True


Hints = tuple[tuple[str, ...], ...]
"""(what keys do, their ids) for the last row of a page."""


class RowsScreen(ClosesOnce[None]):
    """Shows ``rows`` from some row on, and a line of keys below."""

    PAGES: ClassVar[tuple[str, ...]] = ("list",)
    """The groups of keys that count here: what their ids begin with."""
    KEYS: Hints = ()
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("list")

    def __init__(self, theme: Theme, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._first = 0
        # Kept here, because a screen that is closed before it is composed is mounted without it.
        self._lines = Lines(theme)

    @abstractmethod
    def rows(self, width: int) -> list[Row]:
        """All rows at a width."""

    def where(self, first: int, last: int, count: int) -> str:
        """Which of ``count`` rows are visible, in words."""
        return f"rows {first + 1} to {last} of {count}"

    def compose(self) -> ComposeResult:
        yield self._lines

    def on_mount(self) -> None:
        self.paint()

    def on_resize(self) -> None:
        self.paint()

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(-3)

    def on_click(self, event: events.Click) -> None:
        press_named(self.app, self._lines.rows, event)

    def action_close(self) -> None:
        self.dismiss()

    def action_page(self, pages: float) -> None:
        self.action_scroll(round(pages * max(1, self.app.size.height - 2)))

    def action_scroll(self, rows: int) -> None:
        self._first += rows
        self.paint()

    def paint(self) -> None:
        """Draw what the scroll position shows."""
        width, height = self.app.size
        rows, glyphs = self.rows(width), self._glyphs
        room = max(1, height - 1)
        self._first = max(0, min(self._first, len(rows) - room))
        shown = rows[self._first : self._first + room]
        last = self._first + len(shown)
        shown += [Line().row(width)] * (room - len(shown))
        where = self.where(self._first, last, len(rows))
        hints = (("closes", "list_close"), ("scroll", "list_up", "list_down"), *self.KEYS)
        hint_texts = [hint(self.app, glyphs, *parts) for parts in hints]
        # Where we are is never cut; the last keys give way to it.
        while len(hint_texts) > 1 and 1 + sum(map(len, hint_texts)) + len(where) > width:
            hint_texts.pop()
        text = f" {''.join(hint_texts)}{where}"
        shown.append(Line().add(text, "dim").row(width, "bar"))
        self._lines.set_rows(for_terminal(shown, glyphs, width))


# A screen of painted rows with a cursor on one entry of a list.


class ListScreen(RowsScreen):
    """Scrolls so that the cursor's row is visible; ``entries`` and ``above`` give its size and place."""

    def __init__(self, theme: Theme, glyphs: Glyphs) -> None:
        super().__init__(theme, glyphs)
        self.cursor = 0

    @abstractmethod
    def entries(self) -> int:
        """How many entries the list has."""

    @abstractmethod
    def above(self) -> int:
        """How many rows stand above the list."""

    def where(self, first: int, last: int, count: int) -> str:
        return f"{min(self.cursor + 1, self.entries())} of {self.entries()}"

    def action_scroll(self, rows: int) -> None:
        last = max(0, self.entries() - 1)
        if abs(rows) >= FAR:
            self.cursor = 0 if rows < 0 else last
        else:
            self.cursor = max(0, min(last, self.cursor + rows))
        self.paint()

    def paint(self) -> None:
        room, row = max(1, self.app.size.height - 1), self.above() + self.cursor
        if row >= self._first + room:
            self._first = row - room + 1
        self._first = min(self._first, 0 if self.cursor == 0 else row)
        super().paint()
