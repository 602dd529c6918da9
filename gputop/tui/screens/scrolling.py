"""Pages of painted rows that scroll, and their keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.screen import Screen, ScreenResultType

from gputop.paint.glyphs import COLOUR, Glyphs, keys_shown
from gputop.paint.keys import FAR, USUAL, Key, keys_of
from gputop.paint.line import Line, Row, Target, for_terminal
from gputop.tui.terminal.rows_widget import RowsPage


def page_bindings(group: str) -> list[BindingType]:
    """The bindings of the ids that begin with a group's name.

    What closes a page, and what opens another one on the main screen, takes effect before the main screen's keys.
    """
    first = ("users_regroup", "environment_find", "help_find")
    return [
        Binding(
            key.keys,
            key.action,
            key.does,
            id=key.id,
            show=False,
            priority=key.id.endswith("_close") or key.id in first,
        )
        for key in keys_of((group,))
    ]


def glyphs_of(app: App[Any]) -> Glyphs:
    """The characters that the screen below is drawn with."""
    view = getattr(app, "view", None)
    return COLOUR if view is None else view.glyphs


def is_ascii(app: App[Any]) -> bool:
    return glyphs_of(app).name == "ascii"


Hints = tuple[tuple[str, ...], ...]
"""(what keys do, their ids) for the last row of a page."""


def hints_of(app: App[object], hints: Hints) -> list[tuple[str, str]]:
    """Return hints as (text, key that a click presses).

    Hints without keys are left out."""
    table: Mapping[str, Key] = getattr(app, "page_keys", USUAL)
    texts = []
    for words, *ids in hints:
        if keys := [table[key_id] for key_id in ids if table[key_id].keys]:
            shown = keys_shown(" ".join(key.first for key in keys), glyphs_of(app))
            texts.append((f"{shown} {words}", keys[0].keys.partition(",")[0]))
    return texts


def press(app: App[object], target: Target | None) -> None:
    """Press the key that was clicked in a last row."""
    if target is not None and target.key is not None:
        app.simulate_key(str(target.key))


class ClosesOnce(Screen[ScreenResultType]):
    """A screen that closes only while it is on top.

    The second of two keys in one burst may reach a screen that the first has closed: Textual would then close the
    screen below, and end the program if there is none.

    A page is a class with ``keys``: a group of keys that count there, beside those of the class it derives from.
    """

    PAGES: ClassVar[tuple[str, ...]] = ()
    """The groups of keys that count here: what their ids begin with."""

    def __init_subclass__(cls, keys: str = "", **options: Any) -> None:
        if keys:
            cls.PAGES, cls.BINDINGS = (*cls.PAGES, keys), page_bindings(keys)
        super().__init_subclass__(**options)

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.is_active else AwaitComplete()


class RowsScreen(ClosesOnce[None], keys="list"):
    """Shows ``rows`` and a line of keys below."""

    DEFAULT_CSS = """
    RowsScreen #page { height: 1fr; }
    RowsScreen #keys { height: 1; }
    """
    KEYS: Hints = ()
    is_live = False
    """Whether it shows the newest frame, and is drawn every second."""

    def __init__(self) -> None:
        super().__init__()
        self._target = Line().target()
        # Kept here, because a screen that is closed before it is composed is mounted without them.
        self._page, self._keys_row = RowsPage("page"), RowsPage("keys")

    @property
    def _glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    @property
    def room(self) -> int:
        """Rows that are visible at once."""
        return max(1, self.app.size.height - 1)

    @abstractmethod
    def rows(self, width: int) -> list[Row]:
        """All rows at a width."""

    def where(self, first: int, last: int, count: int) -> str:
        """Return in words which of ``count`` rows are visible."""
        return f"rows {first + 1} to {last} of {count}"

    def compose(self) -> ComposeResult:
        yield self._page
        yield self._keys_row

    def on_mount(self) -> None:
        self.paint()
        if self.is_live:
            self.set_interval(1.0, self.paint)

    def on_resize(self) -> None:
        self.paint()

    def on_mouse_scroll_down(self) -> None:
        self.action_scroll(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_scroll(-3)

    def on_click(self, event: events.Click) -> None:
        if event.screen_y == self.app.size.height - 1:
            press(self.app, self._target.at_column(event.screen_x))

    def action_close(self) -> None:
        self.dismiss()

    def action_page(self, pages: float) -> None:
        self.action_scroll(round(pages * max(1, self.app.size.height - 2)))

    def action_scroll(self, rows: int) -> None:
        self._page.scroll_to_row(self._page.first + rows)
        self._paint_keys()

    def paint(self) -> None:
        """Draw the page and the line below it."""
        width = self.app.size.width
        self._page.set_rows(for_terminal(self.rows(width), self._glyphs, width))
        self._paint_keys()

    def paint_from_top(self) -> None:
        """Draw other rows, from the first one on."""
        self._page.scroll_to_row(0)
        self.paint()

    def _paint_keys(self) -> None:
        width, first, count = self.app.size.width, self._page.first, len(self._page.rows)
        where = self.where(first, min(count, first + self.room), count)
        hints = hints_of(
            self.app, (("closes", "list_close"), ("scroll", "list_up", "list_down"), *self.KEYS)
        )
        # Where we are is never cut; the last keys give way to it.
        while len(hints) > 1 and 1 + sum(len(text) + 3 for text, _ in hints) + len(where) > width:
            hints.pop()
        line = Line().add(" ", "dim")
        for text, key in hints:
            line.add(text, "dim", key).add("   ", "dim")
        self._target = line.target()
        self._keys_row.set_rows(
            for_terminal([line.add(where, "dim").row(width, "bar")], self._glyphs, width)
        )


class ListScreen(RowsScreen):
    """A page with a cursor, whose rows stay visible."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor = 0

    @abstractmethod
    def entries(self) -> int:
        """How many entries the list has."""

    @abstractmethod
    def place(self) -> tuple[int, int]:
        """Return the first and the end row of the entry at the cursor."""

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
        super().paint()
        first, end = self.place()
        self._page.scroll_to_row(
            min(0 if self.cursor == 0 else first, max(self._page.first, end - self.room))
        )
        self._paint_keys()
