"""One GPU in full, with its neighbours a key away."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from msgspec.structs import replace
from textual.binding import Binding, BindingType

from gputop.monitor import Frame
from gputop.paint.details import DetailsPainted
from gputop.paint.gpu_details import gpu_details
from gputop.paint.theme import Theme
from gputop.paint.view import View
from gputop.paint.view_changes import other_gpu
from gputop.tui.screens.details import DetailsScreen


class GpuDetailsScreen(DetailsScreen):
    """One GPU by its UUID. It stays the same when another one comes to need more attention."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left_square_bracket", "other(-1)"),
        Binding("right_square_bracket", "other(1)"),
    ]

    def __init__(
        self,
        theme: Theme,
        frame: Callable[[], Frame | None],
        view: Callable[[], View],
        see: Callable[[View], None],
        uuid: str,
    ) -> None:
        super().__init__(theme, frame, view, see)
        self._uuid = uuid

    def details(self, frame: Frame, width: int, height: int) -> DetailsPainted:
        return gpu_details(frame, self.state, self._uuid, width, height)

    def action_other(self, step: int) -> None:
        """The next or previous GPU; the main screen selects it, too."""
        frame = self.newest()
        if frame is not None and frame.snapshot.gpus:
            view = other_gpu(replace(self.view(), gpu=self._uuid), frame, step)
            self._uuid = view.gpu or self._uuid
            self.see(view)
            self.paint()
