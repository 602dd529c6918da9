"""Widgets for painted rows: a scrolling page, a live screen."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
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
from gputop.tui.terminal.row_strip import RowStrip


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
    """Shows rows that change every second."""

    DEFAULT_CSS = "LiveRows { width: 100%; height: 100%; }"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        """The rows on screen."""
        self._strips: list[RowStrip] = []
        self._shown: dict[int, RowStrip] = {}

    def set_rows(self, rows: list[Row]) -> None:
        """Show these rows; refresh those that changed."""
        old, self.rows, width = self.rows, rows, self.app.size.width
        is_alike = (
            len(old) == len(rows) == len(self._strips)
            and bool(rows)
            and self._strips[0].width == width
        )
        if not is_alike:
            self._strips = [self._strip(y, row, width) for y, row in enumerate(rows)]
            self.refresh()
        elif changed := [y for y, row in enumerate(rows) if row is not old[y] and row != old[y]]:
            last = [self._strips[y].row_cells[-1] for y in changed]
            for y in changed:
                self._strips[y] = self._strip(y, rows[y], width)
            # A region without the last cell is an update of the cells that changed, see ``RowStrip``.
            ends = [
                width - (self._strips[y].row_cells[-1] == cell)
                for y, cell in zip(changed, last, strict=True)
            ]
            self.refresh(*[Region(0, y, end, 1) for y, end in zip(changed, ends, strict=True)])

    def _strip(self, y: int, row: Row, width: int) -> RowStrip:
        return RowStrip(strip_of(self.app, row, width), width, y, self._shown)

    def render_lines(self, crop: Region) -> list[Strip]:
        shown: list[Strip] = [*self._strips[crop.y : crop.bottom]]
        shown += [Strip.blank(self.size.width)] * (crop.height - len(shown))
        return (
            shown
            if crop.width == self.size.width
            else [strip.crop(crop.x, crop.right) for strip in shown]
        )

    def apply_theme(self) -> None:
        """Draw the same rows in the app's new colours."""
        self._strips = []
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
