"""Screens of one GPU and of one process.

The view is the main screen's own, so that both show the same span and the same GPU.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult

from gputop.model.inspection import ProcessIdentity, ThreadList, WatchedThreads
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint.detail_page import LABEL_WIDTH, DetailsPainted, DetailsView, after_key
from gputop.paint.gpu_page import gpu_details
from gputop.paint.process_page import find, process_details
from gputop.paint.view import ProcessKey, View
from gputop.paint.view_changes import other_gpu
from gputop.tui.main_screen import MainScreen
from gputop.tui.screens.scrolling import ClosesOnce, press
from gputop.tui.terminal.rows_widget import LiveRows

LOOK_S = 0.25
"""How often the screen checks for a new frame, which costs nothing; only a new frame is painted."""
WHEEL_ROWS = 3


class DetailsScreen(ClosesOnce[None], keys="details"):
    """Painted rows on a time axis, in the main screen's view."""

    def __init__(self, main: MainScreen) -> None:
        super().__init__()
        self.main = main
        self.state = DetailsView(self._view())
        self._shown: Frame | None = None
        self._painted: DetailsPainted | None = None
        # Kept here, because a screen that is closed before it is composed is mounted without it.
        self._lines = LiveRows()

    def _view(self) -> View:
        return self.main.playback.shown_view(self.main.view)

    def _see(self, view: View) -> None:
        self.main.see(replace(view, replay=None, recording=None))

    @abstractmethod
    def details(self, frame: Frame, width: int, height: int) -> DetailsPainted:
        """The screen's rows for its state."""

    def compose(self) -> ComposeResult:
        yield self._lines

    def on_mount(self) -> None:
        self.set_interval(LOOK_S, self._look)
        self.paint()

    def on_resize(self) -> None:
        self.paint()

    def _look(self) -> None:
        if self.main.frame is not self._shown or self._view() != self.state.view:
            self.paint()

    def paint(self) -> None:
        """Draw the newest frame."""
        frame = self._shown = self.main.frame
        width, height = self.app.size
        self.state = replace(self.state, view=self._view())
        if frame is not None and width and height:
            self._painted = self.details(frame, width, height)
            self._lines.set_rows(self._painted.rows)

    def action_close(self) -> None:
        self.dismiss()

    def action_change(self, key_id: str) -> None:
        """Change the page by a key id of ``detail_page.after_key``."""
        if self._painted is None:
            return
        self.state = after_key(self.state, key_id, self._painted)
        if self.state.view != self._view():
            self._see(self.state.view)
        self.paint()

    def on_mouse_scroll_down(self) -> None:
        self._wheel(WHEEL_ROWS)

    def on_mouse_scroll_up(self) -> None:
        self._wheel(-WHEEL_ROWS)

    def _wheel(self, rows: int) -> None:
        most_first = 0 if self._painted is None else self._painted.most_first
        self.state = replace(
            self.state, first=max(0, min(most_first, min(self.state.first, most_first) + rows))
        )
        self.paint()

    def on_click(self, event: events.Click) -> None:
        """Read the clicked moment, or press the clicked key."""
        painted, column = self._painted, event.screen_x - LABEL_WIDTH
        if painted is not None and event.screen_y == len(painted.rows) - 1:
            press(self.app, painted.last_row.at_column(event.screen_x))
        elif painted is not None and 0 <= column < painted.axis.columns:
            self.state = replace(self.state, cursor_t=painted.axis.middle(column))
            self.paint()


class GpuDetailsScreen(DetailsScreen, keys="onegpu"):
    """One GPU by its UUID, whichever needs attention."""

    def __init__(self, main: MainScreen, uuid: str) -> None:
        super().__init__(main)
        self._uuid = uuid

    def details(self, frame: Frame, width: int, height: int) -> DetailsPainted:
        return gpu_details(frame, self.state, self._uuid, width, height)

    def action_other(self, step: int) -> None:
        """The next or previous GPU; the main screen selects it, too."""
        frame = self.main.frame
        if frame is not None and frame.snapshot.gpus:
            view = other_gpu(replace(self._view(), gpu=self._uuid), frame, step)
            self._uuid = view.gpu or self._uuid
            self._see(view)
            self.paint()


READING = ThreadList(0.0, reason="reading them")


class ProcessDetailsScreen(DetailsScreen):
    """One process, with its threads where they can be read.

    ``watch`` opens their reader; None in a replay."""

    def __init__(
        self,
        main: MainScreen,
        key: ProcessKey,
        watch: Callable[[ProcessIdentity], WatchedThreads | None] | None,
    ) -> None:
        super().__init__(main)
        self._key = key
        self._last: ProcessSample | None = None
        self._threads = None if watch is None else watch(ProcessIdentity(key[0], key[1]))
        self._listed: ThreadList | None = None

    def on_unmount(self) -> None:
        if self._threads is not None:
            self._threads.close()

    def _look(self) -> None:
        super()._look()
        if self._threads is not None and self._threads.latest is not self._listed:
            self.paint()

    def details(self, frame: Frame, width: int, height: int) -> DetailsPainted:
        self._last = find(frame, self._key) or self._last
        if self._threads is not None:
            self._threads.ask()
            self._listed = self._threads.latest
        threads = None if self._threads is None else self._listed or READING
        return process_details(frame, self.state, self._key, self._last, threads, width, height)
