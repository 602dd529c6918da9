"""Pages of rows: help, tour, users and findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gputop.diagnosis.types import Finding
from gputop.monitor import Frame
from gputop.paint.finding_rows import alert_rows, alert_title, finding_blocks
from gputop.paint.help_rows import help_rows
from gputop.paint.keys import FAR, Key
from gputop.paint.line import Line, Row, text_row
from gputop.paint.process_groups import NO_JOB, UNKNOWN, Grouping, groups, summary_head, summary_row
from gputop.paint.process_table import nothing_words
from gputop.paint.tour_rows import STEPS, position_of, tour_rows
from gputop.paint.view import View
from gputop.tui.main_screen import MainScreen
from gputop.tui.screens.prompt import Prompt
from gputop.tui.screens.scrolling import Hints, ListScreen, RowsScreen


class HelpScreen(RowsScreen, keys="help"):
    """Keys, glossary, verdicts."""

    KEYS = (("find", "help_find"),)

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__()
        self._keys = keys
        self._search = ""
        self._match = -1
        """The row that was found last."""

    async def action_find(self) -> None:
        """Ask for a word and go to it."""
        await self.app.push_screen(Prompt("find in the help:"), self._find)

    def _find(self, text: str | None) -> None:
        if text:
            self._search, self._match = text.lower(), -1
            self.action_next()

    def action_next(self) -> None:
        """Go to the next match; from the last to the first."""
        rows = ["".join(text for text, _ in row).lower() for row in self._page.rows]
        found = [y for y, row in enumerate(rows) if self._search and self._search in row]
        if found:
            self._match = next((y for y in found if y > self._match), found[0])
            self._page.scroll_to_row(self._match)
            self._paint_keys()

    def rows(self, width: int) -> list[Row]:
        return help_rows(self._glyphs, width, self._keys)


class TourScreen(RowsScreen, keys="tour"):
    """Tour of the demo, a page for each GPU.

    ``after`` gives the newest frame of the node with its remedies."""

    is_live = True
    KEYS = (
        ("next", "tour_next"),
        ("back", "tour_back"),
        ("first", "tour_go_1"),
        ("last", f"tour_go_{len(STEPS)}"),
    )

    def __init__(self, main: MainScreen, after: Callable[[], Frame]) -> None:
        super().__init__()
        self._main = main
        self._after = after
        self._at = 0

    def rows(self, width: int) -> list[Row]:
        now = self._main.frame
        if now is None:
            return [text_row(" nothing was measured yet", width, "dim")]
        return tour_rows(
            now, self._after(), self._at, self._main.view, width, self.app.size.height - 1
        )

    def action_step(self, steps: int) -> None:
        """Go ``steps`` pages on; after the last one the screen closes."""
        if self._at + steps >= len(STEPS):
            self.action_close()
        else:
            self.action_go(max(0, self._at + steps))

    def action_go(self, at: int) -> None:
        """To a page."""
        self._at = at
        self.paint_from_top()

    def action_close(self) -> None:
        now = self._main.frame
        position = None if now is None else position_of(now, self._at)
        if now is not None and position is not None:
            self._main.change(gpu=now.snapshot.gpus[position].static.uuid)
        super().action_close()


class UsersScreen(ListScreen, keys="users"):
    """``chosen`` takes a filter for the process table."""

    is_live = True
    KEYS = (("by user or job", "users_regroup"), ("show only theirs", "users_take"))

    def __init__(self, main: MainScreen, chosen: Callable[[str], None]) -> None:
        super().__init__()
        self._main = main
        self._chosen = chosen
        self._by: Grouping = "user"
        self._names: list[str] = []

    def entries(self) -> int:
        return len(self._names)

    def place(self) -> tuple[int, int]:
        return 2 + self.cursor, 3 + self.cursor

    def rows(self, width: int) -> list[Row]:
        frame = self._main.frame
        if frame is None:
            return [text_row(" nothing was measured yet", width, "dim")]
        user_groups = groups(frame, self._by)
        self._names = [group.name for group in user_groups]
        self.cursor = max(0, min(self.cursor, len(user_groups) - 1))
        title = f" GPU use by {self._by}: {len(user_groups)}"
        rows = [text_row(title, width, "title"), summary_head(self._by, width)]
        if not user_groups:
            rows.append(text_row(f"  {nothing_words(frame, View())}", width, "dim"))
        return rows + [
            summary_row(group, width, selected=i == self.cursor)
            for i, group in enumerate(user_groups)
        ]

    def action_regroup(self) -> None:
        self._by = "job" if self._by == "user" else "user"
        self.cursor = 0
        self.paint()

    def action_take(self) -> None:
        if self._names and (name := self._names[self.cursor]) not in (NO_JOB, UNKNOWN):
            quote = '"' if "'" in name else "'"
            self._chosen(
                f"{self._by}:{quote}{name}{quote}" if not name.isalnum() else f"{self._by}:{name}"
            )
            self.dismiss()


class FindingsScreen(ListScreen, keys="findings"):
    """List of alerts and findings, with a cursor."""

    KEYS: Hints = (("acknowledge", "findings_acknowledge"),)

    def __init__(self, main: MainScreen) -> None:
        super().__init__()
        self._main = main
        self._alerts = None if main.playback.session is None else main.playback.session.alerts
        self.is_live = self._alerts is not None
        self._listed: list[tuple[Finding | None, list[Row]]] = []
        """What the cursor can be on, with its rows: alerts, then findings."""
        self._place = 0, 0

    def entries(self) -> int:
        return len(self._listed)

    def place(self) -> tuple[int, int]:
        return self._place

    def rows(self, width: int) -> list[Row]:
        frame, offset_s = self._main.frame, self._main.view.utc_offset_s
        board = None if self._alerts is None or frame is None else self._alerts.board()
        alerts = [] if board is None else board.rows
        found = [] if frame is None else finding_blocks(frame, width, offset_s)
        now = 0.0 if frame is None else frame.snapshot.t
        self._listed = [
            *((None, alert_rows(alert, now, width, offset_s)) for alert in alerts),
            *found,
        ]
        self.cursor = max(0, min(self.cursor, len(self._listed) - 1))
        rows: list[Row] = [] if board is None else [alert_title(board, width)]
        for i, (_, block) in enumerate(self._listed):
            if i == len(alerts):
                rows += self._findings_title(len(found), width, apart=bool(rows))
            if i == self.cursor:
                self._place = len(rows), len(rows) + len(block)
                block = [tuple((text, f"{style}|select") for text, style in row) for row in block]
            rows += block
        if not found:
            rows += self._findings_title(0, width, apart=bool(rows))
            rows.append(
                text_row("  nothing was found yet: a verdict needs 5 to 13 seconds", width, "dim")
            )
        return rows

    @staticmethod
    def _findings_title(count: int, width: int, *, apart: bool) -> list[Row]:
        return [*[Line().row(width)] * apart, text_row(f" findings {count}", width, "title")]

    def action_scroll(self, rows: int) -> None:
        super().action_scroll(rows if abs(rows) >= FAR else 1 if rows > 0 else -1)

    def action_acknowledge(self) -> None:
        finding = self._listed[self.cursor][0] if self._listed else None
        if finding is not None and finding.kind == "badge" and finding.sticky:
            self._main.playback.acknowledge(finding.gpu, finding.id)
            self.paint()
