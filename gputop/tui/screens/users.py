"""Who uses the GPUs, by user or by job; enter shows only theirs in the process table."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.monitor import Frame
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.summary_table import NO_JOB, UNKNOWN, Grouping, groups, summary_head, summary_row
from gputop.paint.theme import Theme
from gputop.tui.screens.list import ListScreen

REPAINT_S = 1.0


class UsersScreen(ListScreen):
    """``frame`` gives the newest frame whenever it is painted; ``chosen`` takes a filter for the process table."""

    KEYS = "tab by user or job   enter only theirs   "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab", "regroup", priority=True),
        Binding("u", "close", priority=True),
        Binding("enter", "take"),
    ]

    def __init__(
        self, theme: Theme, glyphs: Glyphs, frame: Callable[[], Frame | None], chosen: Callable[[str], None]
    ) -> None:
        super().__init__(theme, glyphs)
        self._frame = frame
        self._chosen = chosen
        self._by: Grouping = "user"
        self._names: list[str] = []

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(REPAINT_S, self.paint)

    def entries(self) -> int:
        return len(self._names)

    def above(self) -> int:
        return 2

    def rows(self, width: int) -> list[Row]:
        frame = self._frame()
        if frame is None:
            return [Line().add(" nothing was measured yet", "dim").row(width)]
        found = groups(frame, self._by)
        self._names = [group.name for group in found]
        self.cursor = max(0, min(self.cursor, len(found) - 1))
        title = f" GPU use by {self._by}: {len(found)}"
        rows = [Line().add(title, "title").row(width), summary_head(frame, self._by, width)]
        if not found:
            rows.append(Line().add("  no process holds a GPU context", "dim").row(width))
        return rows + [
            summary_row(frame, group, self._glyphs, width, selected=i == self.cursor) for i, group in enumerate(found)
        ]

    def action_regroup(self) -> None:
        self._by = "job" if self._by == "user" else "user"
        self.cursor = 0
        self.paint()

    def action_take(self) -> None:
        if self._names and (name := self._names[self.cursor]) not in (NO_JOB, UNKNOWN):
            quote = '"' if "'" in name else "'"
            self._chosen(f"{self._by}:{quote}{name}{quote}" if not name.isalnum() else f"{self._by}:{name}")
            self.dismiss()
