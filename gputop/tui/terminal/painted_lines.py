"""A full-screen widget that shows painted rows and rewrites only the cells that changed.

Rows come from ``gputop.paint``; this widget turns them into strips once and leaves Textual's own style machinery out
of the hot path. See ``Widget.render_lines`` in Textual: overriding it skips borders, padding and filters, none of
which a painted row needs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gputop.model.quantity import terminal_safe
from gputop.output.ansi import Differ
from gputop.paint.line import Line, Row
from gputop.paint.theme import THEMES, Theme


class Lines(Widget, can_focus=False):
    """Shows rows as wide as itself."""

    DEFAULT_CSS = "Lines { width: 100%; height: 100%; }"

    def __init__(
        self,
        theme: Theme | None = None,
        write: Callable[[str], None] | None = None,
        differ: Differ | None = None,
    ) -> None:
        """Without a theme the colours are the app's, its ``look``.

        With ``write`` and ``differ`` changes go straight to the terminal, when nothing lies above this widget.

        Textual's compositor would write whole segments, each with its colours set and reset. What it draws later, for
        whatever reason, comes from the same rows.
        """
        super().__init__()
        self._theme = theme
        self._write = write
        self._differ = differ
        self._rows: list[Row] = []
        self._strips: dict[int, tuple[Row, Strip]] = {}
        self._styles: dict[str, Style] = {}
        self._drawn: tuple[int, int] | None = None

    @property
    def rows(self) -> list[Row]:
        """The rows on screen."""
        return self._rows

    def set_rows(self, rows: list[Row]) -> None:
        """Show these rows, as many as the widget is high. Rows that are equal to what is shown cost a comparison."""
        old, self._rows = self._rows, rows
        if self._write is None or self._differ is None or not self._is_bare(old, rows):
            if old != rows:
                self._strips.clear()
                self.refresh()
            return
        changes = self._differ.changes(old, rows)
        if changes:
            self._write(changes)

    def tell(self, text: str) -> None:
        """Put a line over the last row; it stays until other rows are shown."""
        width, height = self.size
        line = Line().add(" ", "text").add(terminal_safe(text), "alarm.title").row(width, "alarm.title")
        self.set_rows([*self._rows[: height - 1], line])

    def _is_bare(self, old: list[Row], rows: list[Row]) -> bool:
        """Whether the terminal shows the old rows, all of them, and nothing else."""
        size = (self.size.width, self.size.height)
        return len(old) == len(rows) == size[1] and self._drawn == size and self.app.screen is self.screen

    def set_theme(self, theme: Theme, differ: Differ | None = None) -> None:
        """Draw the same rows in other colours."""
        self._theme, self._differ = theme, differ
        self._styles.clear()
        self._strips.clear()
        self.refresh()

    def render_lines(self, crop: Region) -> list[Strip]:
        width = self.size.width
        if crop.size == self.size:
            self._drawn = (self.size.width, self.size.height)
        strips = [self._strip(y, width) for y in crop.line_range]
        if crop.x == 0 and crop.width == width:
            return strips
        return [strip.crop(crop.x, crop.right) for strip in strips]

    def _strip(self, y: int, width: int) -> Strip:
        row = self._rows[y] if y < len(self._rows) else ()
        cached = self._strips.get(y)
        if cached is not None and cached[0] is row and cached[1].cell_length == width:
            return cached[1]
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
        theme: Theme = getattr(self.app, "look", THEMES["dark"]) if self._theme is None else self._theme
        look = theme.look(name)
        fg, bg = (None, None) if theme.colourless else (look.fg or theme.foreground, look.bg or theme.background)
        return Style(
            color=Color.parse(fg) if fg else None,
            bgcolor=Color.parse(bg) if bg else None,
            bold=look.bold,
            dim=look.faint,
            reverse=look.reverse,
            underline=look.underline,
        )


# The terminal's clipboard by OSC 52, also through tmux. Whether a terminal accepts it cannot be queried.

MOST_BYTES = 74_994
"""xterm takes no more than 100,000 characters of base64 with their frame."""


def copy_sequence(text: str, environ: Mapping[str, str]) -> str | None:
    """What to write to the terminal; None for more than terminals take.

    In tmux the sequence is sent twice: as it is, for ``set-clipboard on``, and passed through to the terminal outside.
    """
    data = text.encode()
    if len(data) > MOST_BYTES:
        return None
    plain = f"\x1b]52;c;{base64.b64encode(data).decode()}\x07"
    if environ.get("TMUX"):
        return plain + "\x1bPtmux;" + plain.replace("\x1b", "\x1b\x1b") + "\x1b\\"
    return plain
