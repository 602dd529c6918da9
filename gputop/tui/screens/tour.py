"""The tour of the demo, a page for each GPU. The charts keep moving while it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from gputop.monitor import Frame
from gputop.paint.line import Line, Row
from gputop.paint.theme import Theme
from gputop.paint.tour import STEPS, position_of, tour_rows
from gputop.paint.view import View
from gputop.tui.screens.rows import FAR, RowsScreen

REPAINT_S = 1.0


class TourScreen(RowsScreen):
    """``frame`` gives the demo's newest frame, ``after`` that of the node with its remedies, ``seen`` the last GPU."""

    KEYS = f"→ next   ← back   1-{len(STEPS)} go to   "
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f7", "close", priority=True),
        Binding("right,l,n,enter,space", "step(1)"),
        Binding("left,backspace,p", "step(-1)"),
        *(Binding(str(number), f"go({number - 1})") for number in range(1, len(STEPS) + 1)),
    ]

    def __init__(
        self,
        theme: Theme,
        view: Callable[[], View],
        frame: Callable[[], Frame | None],
        after: Callable[[], Frame],
        seen: Callable[[str], None],
    ) -> None:
        super().__init__(theme, view().glyphs)
        self._view = view
        self._frame = frame
        self._after = after
        self._seen = seen
        self._at = 0

    def on_mount(self) -> None:
        super().on_mount()
        self.set_interval(REPAINT_S, self.paint)

    def rows(self, width: int) -> list[Row]:
        now = self._frame()
        if now is None:
            return [Line().add(" nothing was measured yet", "dim").row(width)]
        return tour_rows(now, self._after(), self._at, self._view(), width, self.app.size.height - 1)

    def action_step(self, steps: int) -> None:
        """Go ``steps`` pages on; after the last one the screen closes."""
        if self._at + steps >= len(STEPS):
            self.action_close()
        else:
            self.action_go(max(0, self._at + steps))

    def action_go(self, at: int) -> None:
        """To a page."""
        self._at = at
        self.action_scroll(-FAR)

    def action_close(self) -> None:
        now = self._frame()
        position = None if now is None else position_of(now, self._at)
        if now is not None and position is not None:
            self._seen(now.snapshot.gpus[position].static.uuid)
        super().action_close()
