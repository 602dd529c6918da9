"""Widgets for painted rows: a scrolling page, a live screen."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color, ColorSystem
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from gputop.model.clean_text import terminal_safe
from gputop.paint.line import Line, Row
from gputop.paint.theme import THEMES
from gputop.tui.terminal.cell_writer import Cell, changed_text, row_cells

SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
"""A terminal that knows them shows all in between at once; others ignore them."""
_COLOR_SYSTEMS = {
    "standard": ColorSystem.STANDARD,
    "256": ColorSystem.EIGHT_BIT,
    "truecolor": ColorSystem.TRUECOLOR,
}


@lru_cache(maxsize=1024)
def style_of(theme_name: str, name: str) -> Style:
    """Return Textual's style of a style name."""
    theme = THEMES[theme_name]
    look = theme.look(name)
    fg, bg = (
        (None, None)
        if theme.colourless
        else (look.fg or theme.foreground, look.bg or theme.background)
    )
    return Style(
        color=Color.parse(fg) if fg else None,
        bgcolor=Color.parse(bg) if bg else None,
        bold=look.bold,
        dim=look.faint,
        reverse=look.reverse,
        underline=look.underline,
    )


@lru_cache(maxsize=1024)
def sequence_of(theme_name: str, name: str, color_system: str | None) -> str:
    """Return the terminal's sequence that begins a style, as Textual would write it."""
    drawn = style_of(theme_name, name).render(
        "x", color_system=_COLOR_SYSTEMS.get(color_system or "")
    )
    return drawn.partition("x")[0]


def strip_of(app: App[object], row: Row, width: int) -> Strip:
    """Return a row as a strip of exactly this width."""
    theme = getattr(app, "look", THEMES["dark"]).name
    return Strip([Segment(text, style_of(theme, name)) for text, name in row]).adjust_cell_length(
        width, style_of(theme, "text")
    )


class RowsPage(ScrollView, can_focus=False):
    """Shows rows that can be scrolled."""

    DEFAULT_CSS = "RowsPage { width: 100%; height: 100%; overflow: hidden; }"

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[Row] = []
        """The rows on the page."""

    def set_rows(self, rows: list[Row]) -> None:
        """Show these rows."""
        if rows != self.rows:
            self.rows = rows
            self.virtual_size = Size(self.size.width, len(rows))
            self.refresh()

    @property
    def first(self) -> int:
        """The row at the top."""
        return self.scroll_offset.y

    def scroll_to_row(self, first: int) -> None:
        """Put a row at the top, if enough rows follow."""
        self.scroll_to(y=first, animate=False, immediate=True, force=True)

    # Not ``render_line``: its filters would make true colours of a terminal's own.
    def render_lines(self, crop: Region) -> list[Strip]:
        shown = self.rows[self.first + crop.y : self.first + crop.bottom]
        shown += [()] * (crop.height - len(shown))
        return [strip_of(self.app, row, self.size.width).crop(crop.x, crop.right) for row in shown]


class LiveRows(Widget, can_focus=False):
    """Shows rows that change every second.

    Textual draws all rows at first, after something lay above them, and when the size, the theme or
    the number of rows has changed. Between that the changed cells alone are written, past Textual:
    docs/design/rows.md says why.
    """

    DEFAULT_CSS = "LiveRows { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        """The rows on screen."""
        self._cells: dict[int, list[Cell]] = {}
        """The cells of these rows by their place, where they have been needed."""
        self._width = -1
        """Width of the rows in cells; none before the first rows, and after a change of theme."""

    def set_rows(self, rows: list[Row]) -> None:
        """Show these rows."""
        old, self.rows = self.rows, rows
        width = self.app.size.width
        if len(old) != len(rows) or self._width != width:
            self._width = width
            self._cells.clear()
            self.refresh()
            return
        changed = [y for y, row in enumerate(rows) if row is not old[y] and row != old[y]]
        if not changed:
            return
        # Textual's name for the driver is private; its output is what Textual itself writes to.
        driver = self.app._driver
        if driver is not None and self.screen is self.app.screen:
            driver.write(self._changed_cells(changed, old))
        else:
            for y in changed:
                self._cells.pop(y, None)
            self.refresh(*[Region(0, y, width, 1) for y in changed])

    def _changed_cells(self, changed: list[int], old: list[Row]) -> str:
        """Return the text that turns these rows of the terminal into the present ones."""
        parts = [SYNC_START]
        place = self.region.offset
        for y in changed:
            before = self._cells.get(y) or row_cells(old[y], self._width, self._sequence_of)
            now = row_cells(self.rows[y], self._width, self._sequence_of)
            self._cells[y] = now
            parts.append(changed_text(place.y + y, place.x, before, now))
        return "".join([*parts, SYNC_END])

    def _sequence_of(self, name: str) -> str:
        theme = getattr(self.app, "look", THEMES["dark"]).name
        return sequence_of(theme, name, self.app.console.color_system)

    def render_lines(self, crop: Region) -> list[Strip]:
        width = self.size.width
        shown = [strip_of(self.app, row, width) for row in self.rows[crop.y : crop.bottom]]
        shown += [Strip.blank(width)] * (crop.height - len(shown))
        if crop.width == width:
            return shown
        return [strip.crop(crop.x, crop.right) for strip in shown]

    def apply_theme(self) -> None:
        """Draw the same rows in the app's new colours."""
        self._width = -1
        self.set_rows(self.rows)

    def show_error(self, text: str) -> None:
        """Show a line on the last row until other rows come."""
        width, height = self.size
        line = (
            Line()
            .add(" ", "text")
            .add(terminal_safe(text), "alarm.title")
            .row(width, "alarm.title")
        )
        self.set_rows([*self.rows[: height - 1], line])
