"""What opens the screens of one GPU and of one process: a key or a second click. Imported when they are opened."""

from __future__ import annotations

from msgspec.structs import replace

from gputop.paint.process_table import key_of
from gputop.paint.view import View, selected_gpu
from gputop.tui.keys.process import ProcessKeys


class DetailsKeys(ProcessKeys):
    """The part of the main screen that opens details. Handlers are called ``_do_`` and the id of their key."""

    def _shown_view(self) -> View:
        """The view as it is painted, with what the screen knows beside the keys."""
        raise NotImplementedError

    def _shows_past(self) -> bool:
        """Whether what is shown is not now."""
        raise NotImplementedError

    def _do_details(self) -> None:
        """Of what the cursor is on: a process, or a GPU while the focus is on GPUs or no process is listed."""
        if self.view.focus == "gpus" or self._selected() is None:
            self._do_gpu_details()
        else:
            self._open_process()

    def _do_gpu_details(self) -> None:
        frame = self.frame
        if frame is None or not frame.snapshot.gpus:
            return
        from gputop.tui.screens.gpu_details import GpuDetailsScreen

        uuid = frame.snapshot.gpus[selected_gpu(frame, self.view)].static.uuid
        self.push_screen(GpuDetailsScreen(self._look, lambda: self.frame, self._shown_view, self._see_details, uuid))

    def _open_process(self) -> None:
        process = self._selected()
        if process is None:
            return
        from gputop.tui.screens.process_details import ProcessDetailsScreen

        # The threads are those of now: beside the past they would tell another story.
        watch = None if self._access is None or self._shows_past() else self._access.watch_threads
        self.push_screen(
            ProcessDetailsScreen(
                self._look, lambda: self.frame, self._shown_view, self._see_details, key_of(process), watch
            )
        )

    def _see_details(self, view: View) -> None:
        self._see(replace(view, replay=None, recording=None))
