"""Widgets that show painted rows: a page that scrolls, and a live screen."""

from __future__ import annotations

from math import ceil

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from gputop.model.quantity import terminal_safe
from gputop.paint.line import Line, Row
from gputop.paint.theme import THEMES, Theme

TILE = 32
"""Columns of a tile. Textual writes a row that changed from its left end on. Measured with the demo at 160×50, in kB/s
and % of a core: whole rows 6.4 and 1.77; tiles of 32 columns 4.2 and 1.97; tiles of 16 columns 3.9 and 2.30."""


class StripMaker:
    """Makes Textual's strips of painted rows, in the colours of the app."""

    def __init__(self) -> None:
        self._styles: dict[str, Style] = {}
        self._theme: Theme | None = None

    def strip(self, app: App[object], row: Row, width: int) -> Strip:
        """Return a row as a strip of exactly this width."""
        theme = getattr(app, "look", THEMES["dark"])
        if theme is not self._theme:
            self._theme, self._styles = theme, {}
        strip = Strip([Segment(text, self._style(name, theme)) for text, name in row])
        return strip if strip.cell_length == width else strip.adjust_cell_length(width, self._style("text", theme))

    def _style(self, name: str, theme: Theme) -> Style:
        style = self._styles.get(name)
        if style is None:
            look = theme.look(name)
            fg, bg = (None, None) if theme.colourless else (look.fg or theme.foreground, look.bg or theme.background)
            style = self._styles[name] = Style(
                color=Color.parse(fg) if fg else None,
                bgcolor=Color.parse(bg) if bg else None,
                bold=look.bold,
                dim=look.faint,
                reverse=look.reverse,
                underline=look.underline,
            )
        return style


class RowsPage(ScrollView, can_focus=False):
    """Shows rows as wide as itself; more rows than it is high can be scrolled."""

    DEFAULT_CSS = "RowsPage { width: 100%; height: 100%; overflow: hidden; }"

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self.rows: list[Row] = []
        """The rows on the page."""
        self._maker = StripMaker()

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
        """Put a row at the top, as far as there are rows below it."""
        self.scroll_to(y=first, animate=False, immediate=True, force=True)

    # Not ``render_line``: its filters would make true colours of a terminal's own.
    def render_lines(self, crop: Region) -> list[Strip]:
        shown = self.rows[self.first + crop.y : self.first + crop.bottom]
        shown += [()] * (crop.height - len(shown))
        return [self._maker.strip(self.app, row, self.size.width).crop(crop.x, crop.right) for row in shown]


class RowsTile(Widget, can_focus=False):
    """Some columns of a live screen."""

    DEFAULT_CSS = "RowsTile { height: 100%; }"

    def __init__(self, begin: int) -> None:
        super().__init__()
        self._begin = begin
        self._lines: list[Strip] = []
        self.styles.width = TILE

    def show(self, strips: list[Strip]) -> None:
        """Show its columns of these strips, and refresh the lines that changed."""
        begin, end = self._begin, self._begin + TILE
        old, self._lines = self._lines, [strip.crop(begin, end) for strip in strips]
        if len(old) != len(strips):
            self.refresh()
        elif changed := [y for y, line in enumerate(self._lines) if line is not old[y] and line != old[y]]:
            self.refresh(*[Region(0, y, TILE, 1) for y in changed])

    def render_lines(self, crop: Region) -> list[Strip]:
        shown = self._lines[crop.y : crop.bottom]
        return shown + [Strip.blank(crop.width)] * (crop.height - len(shown))


class LiveRows(Widget, can_focus=False):
    """Shows rows that change every second; of each row the tiles that changed are written."""

    DEFAULT_CSS = "LiveRows { layout: horizontal; width: 100%; height: 100%; overflow: hidden; }"

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []
        """The rows on screen."""
        self._strips: list[Strip] = []
        self._tiles: list[RowsTile] = []
        self._maker = StripMaker()

    def set_rows(self, rows: list[Row]) -> None:
        """Show these rows, as many as the widget is high."""
        old, self.rows, width = self.rows, rows, self.app.size.width
        self._add_tiles(width)
        is_alike = len(old) == len(rows) and bool(self._strips) and self._strips[0].cell_length == width
        self._strips = [
            self._strips[y] if is_alike and row == old[y] else self._maker.strip(self.app, row, width)
            for y, row in enumerate(rows)
        ]
        for tile in self._tiles:
            tile.show(self._strips)

    def _add_tiles(self, width: int) -> None:
        new = [RowsTile(begin) for begin in range(TILE * len(self._tiles), TILE * ceil(width / TILE), TILE)]
        if new:
            self._tiles += new
            self.mount(*new)

    def apply_theme(self) -> None:
        """Draw the same rows in the app's new colours."""
        self._strips = []
        self.set_rows(self.rows)

    def show_error(self, text: str) -> None:
        """Show a line on the last row until other rows come."""
        width, height = self.size
        line = Line().add(" ", "text").add(terminal_safe(text), "alarm.title").row(width, "alarm.title")
        self.set_rows([*self.rows[: height - 1], line])
