"""The findings: every change of a verdict or badge; sticky ones can be acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.diagnosis.types import Finding
from gputop.monitor import Frame
from gputop.paint.findings import finding_blocks
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.theme import Theme
from gputop.tui.screens.rows import FAR, RowsScreen


class FindingsScreen(RowsScreen):
    """A list with a cursor on one finding. ``frame`` gives the newest frame whenever it is painted."""

    KEYS = "a acknowledge   "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("A", "close", priority=True),
        Binding("a", "acknowledge"),
    ]

    def __init__(
        self,
        theme: Theme,
        glyphs: Glyphs,
        frame: Callable[[], Frame | None],
        acknowledge: Callable[[int, str], None],
        utc_offset_s: float,
    ) -> None:
        super().__init__(theme, glyphs)
        self._frame = frame
        self._acknowledge = acknowledge
        self._utc_offset_s = utc_offset_s
        self._cursor = 0
        self._shown: list[Finding] = []

    def rows(self, width: int) -> list[Row]:
        frame = self._frame()
        blocks = [] if frame is None else finding_blocks(frame, self._glyphs, width, self._utc_offset_s)
        self._shown = [finding for finding, _ in blocks]
        self._cursor = max(0, min(self._cursor, len(blocks) - 1))
        rows: list[Row] = [Line().add(f" findings {len(blocks)}", "title").row(width)]
        if not blocks:
            rows.append(Line().add("  nothing was found yet: a verdict needs about half a minute", "dim").row(width))
        for number, (_, block) in enumerate(blocks):
            if number == self._cursor:
                self._show(len(rows), len(block))
                block = [tuple((text, f"{style}|select") for text, style in row) for row in block]
            rows += block
        return rows

    def _show(self, first: int, count: int) -> None:
        """Scroll so that the rows of the finding at the cursor can be seen."""
        room = max(1, self.app.size.height - 1)
        if first + count > self._first + room:
            self._first = first + count - room
        self._first = min(self._first, 0 if self._cursor == 0 else first)

    def action_scroll(self, rows: int) -> None:
        self._cursor = 0 if rows <= -FAR else self._cursor + (1 if rows > 0 else -1)
        if rows >= FAR:
            self._cursor = len(self._shown) - 1
        self.paint()

    def action_acknowledge(self) -> None:
        if self._shown:
            finding = self._shown[self._cursor]
            if finding.kind == "badge" and finding.sticky:
                self._acknowledge(finding.gpu, finding.id)
                self.paint()
