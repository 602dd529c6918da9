"""A full-width widget that shows painted rows and repaints only the spans that changed.

Rows come from ``gputop.paint``; this widget turns them into strips once and leaves Textual's own style machinery out
of the hot path. See ``Widget.render_lines`` in Textual: overriding it skips borders, padding and filters, none of
which a painted row needs.
"""

from __future__ import annotations

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.paint.line import Row
from gputop.paint.text import cells
from gputop.paint.theme import Theme

LEAST_UNCHANGED = 12
"""Changed spans closer than this many cells are repainted as one: a cursor move costs about as many bytes."""


class Lines(Widget, can_focus=False):
    """Shows rows as wide as itself."""

    DEFAULT_CSS = "Lines { width: 100%; height: 100%; }"

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._rows: list[Row] = []
        self._strips: dict[int, tuple[Row, Strip]] = {}
        self._styles: dict[str, Style] = {}

    def set_rows(self, rows: list[Row]) -> None:
        """Show these rows. Rows that are equal to what is shown cost one comparison."""
        old, self._rows = self._rows, rows
        if len(old) != len(rows):
            self._strips.clear()
            self.refresh()
            return
        changed = [
            Region(begin, y, end - begin, 1)
            for y, (before, now) in enumerate(zip(old, rows, strict=True))
            if before is not now and before != now
            for begin, end in changed_cells(before, now)
        ]
        # refresh() without a region would repaint everything.
        if changed:
            self.refresh(*changed)

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        self._styles.clear()
        self._strips.clear()
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        width = self.size.width
        strips = [self._strip(y, width) for y in crop.line_range]
        if crop.x == 0 and crop.width == width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _strip(self, y: int, width: int) -> Strip:
        row = self._rows[y] if y < len(self._rows) else ()
        known = self._strips.get(y)
        if known is not None and known[0] is row and known[1].cell_length == width:
            return known[1]
        styles = self._styles
        segments = []
        for text, name in row:
            style = styles.get(name)
            if style is None:
                style = styles[name] = self._style(name)
            segments.append(Segment(text, style))
        strip = Strip(segments)
        if strip.cell_length != width:
            strip = strip.adjust_cell_length(width, self._style("text"))
        self._strips[y] = (row, strip)
        return strip

    def _style(self, name: str) -> Style:
        theme = self._theme
        look = theme.look(name)
        if theme.colourless:
            return Style(bold=look.bold, dim=look.faint, reverse=look.reverse, underline=look.underline)
        fg, bg = look.fg or theme.foreground, look.bg or theme.background
        return Style(
            color=Color.parse(fg) if fg else None,
            bgcolor=Color.parse(bg) if bg else None,
            bold=look.bold,
            dim=look.faint,
            reverse=look.reverse,
            underline=look.underline,
        )


def changed_cells(before: Row, now: Row) -> list[tuple[int, int]]:
    """(begin, end) columns that differ between two rows of the same width, close ones joined."""
    if [style for _, style in before] == [style for _, style in now] and all(
        len(a) == len(b) for (a, _), (b, _) in zip(before, now, strict=True)
    ):
        found: list[tuple[int, int]] = []
        x = 0
        for (old, _), (new, _) in zip(before, now, strict=True):
            end = x + cells(new)
            if old != new:
                if found and x - found[-1][1] < LEAST_UNCHANGED:
                    found[-1] = (found[-1][0], end)
                else:
                    found.append((x, end))
            x = end
        return found
    begin = 0
    for a, b in zip(before, now, strict=False):
        if a != b:
            break
        begin += cells(a[0])
    back = 0
    for a, b in zip(reversed(before), reversed(now), strict=False):
        if a != b:
            break
        back += cells(a[0])
    width = sum(cells(text) for text, _ in now)
    return [(begin, max(width - back, begin + 1))] if begin < width else [(0, width)]
