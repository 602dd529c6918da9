"""The alerts, and the findings below: every change of a verdict or badge. Sticky ones can be acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from textual.binding import BindingType

from gputop.diagnosis.types import Finding
from gputop.model.alert_board import AlertBoard
from gputop.monitor import Frame
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.theme import Theme
from gputop.paint.verdict_history import alert_rows, alert_title, finding_blocks
from gputop.tui.page_keys import FAR, page_bindings
from gputop.tui.screens.scrolling import Hints, RowsScreen

REPAINT_S = 1.0


class Alerts(Protocol):
    """The alerts of a live run."""

    def board(self) -> AlertBoard: ...
    def toggle_silence(self, name: str) -> None: ...


class FindingsScreen(RowsScreen):
    """A list with a cursor on one alert or finding. ``frame`` gives the newest frame whenever it is painted."""

    PAGES: ClassVar[tuple[str, ...]] = ("list", "findings")
    KEYS: Hints = (("acknowledge", "findings_acknowledge"),)
    BINDINGS: ClassVar[list[BindingType]] = page_bindings("findings")

    def __init__(
        self,
        theme: Theme,
        glyphs: Glyphs,
        frame: Callable[[], Frame | None],
        acknowledge: Callable[[int, str], None],
        utc_offset_s: float,
        alerts: Alerts | None = None,
    ) -> None:
        super().__init__(theme, glyphs)
        self._frame = frame
        self._acknowledge = acknowledge
        self._utc_offset_s = utc_offset_s
        self._alerts = alerts
        self._cursor = 0
        self._shown: list[Finding | str] = []
        """What the cursor can be on: names of alerts, then findings."""
        if alerts is not None:
            self.KEYS = (("acknowledge", "findings_acknowledge"), ("silence", "findings_silence"))

    def on_mount(self) -> None:
        super().on_mount()
        if self._alerts is not None:
            self.set_interval(REPAINT_S, self.paint)

    def rows(self, width: int) -> list[Row]:
        frame = self._frame()
        rows: list[Row] = []
        self._shown = []
        last = self._count(frame) - 1
        self._cursor = max(0, min(self._cursor, last))
        if self._alerts is not None and frame is not None:
            board = self._alerts.board()
            rows.append(alert_title(board, self._glyphs, width))
            for alert in board.rows:
                block = alert_rows(alert, frame.snapshot.t, self._glyphs, width, self._utc_offset_s)
                self._add(rows, alert.name, block)
            rows.append(Line().row(width))
        blocks = [] if frame is None else finding_blocks(frame, self._glyphs, width, self._utc_offset_s)
        rows.append(Line().add(f" findings {len(blocks)}", "title").row(width))
        if not blocks:
            rows.append(Line().add("  nothing was found yet: a verdict needs about half a minute", "dim").row(width))
        for finding, block in blocks:
            self._add(rows, finding, block)
        return rows

    def _count(self, frame: Frame | None) -> int:
        if frame is None:
            return 0
        return len(frame.findings) + (0 if self._alerts is None else len(self._alerts.board().rows))

    def _add(self, rows: list[Row], item: Finding | str, block: list[Row]) -> None:
        """Append the rows of one alert or finding, marked where the cursor is on it."""
        if len(self._shown) == self._cursor:
            self._show(len(rows), len(block))
            block = [tuple((text, f"{style}|select") for text, style in row) for row in block]
        self._shown.append(item)
        rows += block

    def _show(self, first: int, count: int) -> None:
        """Scroll so that the rows of the entry at the cursor can be seen."""
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
        finding = self._shown[self._cursor] if self._shown else None
        if isinstance(finding, Finding) and finding.kind == "badge" and finding.sticky:
            self._acknowledge(finding.gpu, finding.id)
            self.paint()

    def action_silence(self) -> None:
        """Silence the alert at the cursor, or let it fire again."""
        name = self._shown[self._cursor] if self._shown else None
        if self._alerts is not None and isinstance(name, str):
            self._alerts.toggle_silence(name)
            self.paint()
