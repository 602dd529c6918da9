"""Keys that always work, and keys that open the selection."""

from __future__ import annotations

from gputop.diagnosis.verdict.summary import group_of
from gputop.paint.process_table import chosen_process, key_of, selected_process
from gputop.paint.view import selected_gpu
from gputop.paint.view_changes import next_counted
from gputop.tui.main_screen import MainScreen


class ScreenKeys(MainScreen):
    """Help, copies, the tour and detail pages.

    Screens are imported when they are opened.
    """

    def press_redraw(self) -> None:
        """Draw everything, whatever another program has written over it."""
        self.refresh(layout=True)

    def press_help(self) -> None:
        from gputop.tui.screens.pages import HelpScreen

        self.push_screen(HelpScreen(self.keys))

    def press_copy(self) -> None:
        self._copy(as_json=False)

    def press_copy_json(self) -> None:
        self._copy(as_json=True)

    def _copy(self, *, as_json: bool) -> None:
        """Copy the selection."""
        frame = self.playback.masked
        if frame is None or not frame.snapshot.gpus:
            self.say("there is no GPU whose verdict could be copied")
            return
        from gputop.output.ticket import ticket_json, ticket_text
        from gputop.tui.screens.text_page import show_copied

        process = chosen_process(frame, self.view)
        indices = [gpu.static.index for gpu in frame.snapshot.gpus]
        position = selected_gpu(frame, self.view)
        if process is not None and process.gpu in indices:
            position = indices.index(process.gpu)
        show_copied(self, (ticket_json if as_json else ticket_text)(frame, position, process))

    def press_counted(self) -> None:
        """Select the next GPU of the group in most need."""
        frame = self.frame
        worst = (
            None
            if frame is None
            else next((d for d in frame.diagnoses if d.uuid == frame.look_first), None)
        )
        if frame is None or worst is None:
            self.say("no GPU needs attention")
        else:
            self.see(next_counted(self.view, frame, group_of(worst)))

    def press_tour(self) -> None:
        """Page through the demo's GPUs and select the last one."""
        if self.remedied is None:
            self.say("the tour walks through the whole node of the demo: gputop demo --tour")
            return
        from gputop.tui.screens.pages import TourScreen

        self.push_screen(TourScreen(self, self.remedied))

    def press_details(self) -> None:
        """Open details of the selected process, without one of the GPU."""
        if self.frame is None or selected_process(self.frame, self.view) is None:
            self.press_gpu_details()
        else:
            self.open_process()

    def press_gpu_details(self) -> None:
        if self.frame is not None and self.frame.snapshot.gpus:
            from gputop.tui.screens.detail_screens import GpuDetailsScreen

            gpu = self.frame.snapshot.gpus[selected_gpu(self.frame, self.view)]
            self.push_screen(GpuDetailsScreen(self, gpu.static.uuid))

    def open_process(self) -> None:
        """Open the selected process."""
        process = None if self.frame is None else selected_process(self.frame, self.view)
        if process is not None:
            from gputop.tui.screens.detail_screens import ProcessDetailsScreen

            # Threads can only be read now: beside the past they would mislead.
            watch = (
                None
                if self.access is None or self.playback.shows_past
                else self.access.watch_threads
            )
            self.push_screen(ProcessDetailsScreen(self, key_of(process), watch))
