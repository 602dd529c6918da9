"""What opens the screens of one GPU and of one process: a key or a second click. Imported when they are opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from gputop.monitor import Frame
from gputop.paint.process_table import key_of, selected_process
from gputop.paint.view import View, selected_count, selected_gpu
from gputop.paint.view_changes import next_counted
from gputop.tui.keys.screen import MainScreen


class DetailsKeys:
    """Opens details of what the cursor is on."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen

    def open(self) -> None:
        """Of a process; of a GPU while the focus is on GPUs or no process is listed. A count leads to its next GPU."""
        frame, view = self._screen.playback.frame, self._screen.view
        counted = None if frame is None else selected_count(frame, view)
        if frame is not None and counted is not None:
            self._screen.see(next_counted(view, frame, counted))
        elif view.focus == "gpus" or frame is None or selected_process(frame, view) is None:
            self.open_gpu()
        else:
            self.open_process()

    def open_gpu(self) -> None:
        screen, frame = self._screen, self._screen.playback.frame
        if frame is None or not frame.snapshot.gpus:
            return
        from gputop.tui.screens.gpu_details import GpuDetailsScreen

        uuid = frame.snapshot.gpus[selected_gpu(frame, screen.view)].static.uuid
        screen.push_screen(GpuDetailsScreen(screen.look, self._frame, self._view, self._see, uuid))

    def open_process(self) -> None:
        screen, frame = self._screen, self._screen.playback.frame
        process = None if frame is None else selected_process(frame, screen.view)
        if process is None:
            return
        from gputop.tui.screens.process_details import ProcessDetailsScreen

        # Threads can only be read now: beside the past they would mislead.
        watch = None if screen.access is None or screen.playback.shows_past else screen.access.watch_threads
        screen.push_screen(
            ProcessDetailsScreen(screen.look, self._frame, self._view, self._see, key_of(process), watch)
        )

    def _frame(self) -> Frame | None:
        return self._screen.playback.frame

    def _view(self) -> View:
        return self._screen.playback.shown_view(self._screen.view)

    def _see(self, view: View) -> None:
        self._screen.see(replace(view, replay=None, recording=None))


HANDLERS: Mapping[str, Callable[[DetailsKeys], None]] = MappingProxyType({
    "details": DetailsKeys.open,
    "gpu_details": DetailsKeys.open_gpu,
})  # fmt: skip
