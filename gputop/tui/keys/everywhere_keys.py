"""Keys that always work: leave, suspend, the help, the palette. Screens are imported when they are opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from gputop.diagnosis.telling import HALF, LOST_TITLE, WORKING_POORLY, group_of
from gputop.diagnosis.types import HOLDING_MEMORY, NOT_WORKING_ALARM, STATE_WORDS
from gputop.monitor import Frame
from gputop.paint.keys import Key
from gputop.paint.process_table import chosen_process, key_of, selected_process
from gputop.paint.theme import Theme
from gputop.paint.view import View, selected_count, selected_gpu
from gputop.paint.view_changes import next_counted
from gputop.tui.keys.key_screen import MainScreen

BY_NEED = (
    LOST_TITLE, NOT_WORKING_ALARM, STATE_WORDS["starved"], HALF, WORKING_POORLY, HOLDING_MEMORY,
    STATE_WORDS["unmeasured"], STATE_WORDS["idle"], STATE_WORDS["working"],
)  # fmt: skip


class EverywhereKeys:
    """``keys`` gives the table of keys as it is now, for the help; ``write`` writes to a terminal, if there is one."""

    def __init__(
        self,
        screen: MainScreen,
        keys: Callable[[], Sequence[Key]],
        write: Callable[[str], None] | None,
    ) -> None:
        self._screen = screen
        self._keys = keys
        self._write = write

    def leave(self) -> None:
        self._screen.leave()

    def suspend(self) -> None:
        self._screen.action_suspend_process()

    def redraw(self) -> None:
        """Redraw everything, whatever another program has written over it."""
        self._screen.refresh(layout=True)

    def help(self) -> None:
        from gputop.paint.help_rows import Selected
        from gputop.tui.screens.pages import HelpScreen

        screen, frame = self._screen, self._screen.playback.frame
        gpus = () if frame is None else frame.diagnoses
        view = screen.view
        selected = Selected(
            gpus[selected_gpu(frame, view)].verdict if frame is not None and gpus else None,
            None if frame is None else chosen_process(frame, view),
            view.columns,
            view.sort,
            screen.playback.shows_past,
        )
        screen.push_screen(HelpScreen(screen.look, view.glyphs, self._keys(), selected))

    def release_counters(self) -> None:
        toggle = self._screen.toggle_counters
        self._screen.say("GPU counters are held only by a live screen of this machine" if toggle is None else toggle())

    def copy(self, *, as_json: bool = False) -> None:
        """Copy what is selected."""
        screen, frame = self._screen, self._screen.playback.masked
        if frame is None or not frame.snapshot.gpus:
            screen.say("there is no GPU whose verdict could be copied")
            return
        from gputop.output.diagnosis_text import ticket_json, ticket_text
        from gputop.tui.screens.box import show_copied

        process = chosen_process(frame, screen.view)
        indices = [gpu.static.index for gpu in frame.snapshot.gpus]
        at = selected_gpu(frame, screen.view)
        if process is not None and process.gpu in indices:
            at = indices.index(process.gpu)
        text = (ticket_json if as_json else ticket_text)(frame, at, process)
        show_copied(screen, text, self._write)

    def counted(self) -> None:
        """The next GPU of the group in most need."""
        screen, frame = self._screen, self._screen.playback.frame
        if frame is not None:
            groups = {group_of(d) for d in frame.diagnoses}
            first = next((group for group in BY_NEED if group in groups), None)
            if first is not None:
                screen.see(next_counted(screen.view, frame, first))

    def tour(self) -> None:
        """Page through the demo's GPUs; the last one shown is selected afterwards."""
        screen = self._screen
        if screen.remedied is None:
            screen.say("the tour walks through the whole node of the demo: gputop demo --tour")
            return
        from gputop.tui.screens.pages import TourScreen

        def seen(uuid: str) -> None:
            screen.see(replace(screen.view, gpu=uuid))

        screen.push_screen(
            TourScreen(screen.look, lambda: screen.view, lambda: screen.playback.frame, screen.remedied, seen)
        )

    def palette(self) -> None:
        self._screen.open_palette()


EVERYWHERE_HANDLERS: Mapping[str, Callable[[EverywhereKeys], None]] = MappingProxyType({
    "quit": EverywhereKeys.leave,
    "interrupt": EverywhereKeys.leave,
    "suspend": EverywhereKeys.suspend,
    "help": EverywhereKeys.help,
    "palette": EverywhereKeys.palette,
    "copy": EverywhereKeys.copy,
    "copy_json": lambda keys: keys.copy(as_json=True),
    "redraw": EverywhereKeys.redraw,
    "tour": EverywhereKeys.tour,
    "counted": EverywhereKeys.counted,
    "release_counters": EverywhereKeys.release_counters,
})  # fmt: skip


class ThemeChoice:
    """``wear`` applies a theme."""

    def __init__(self, screen: MainScreen, wear: Callable[[Theme], None]) -> None:
        self._screen = screen
        self._wear = wear

    def begin(self) -> None:
        """Ask for a theme, on a screen that previews it."""
        from gputop.tui.screens.box import choose_theme

        choose_theme(self._screen, self._screen.view.glyphs, self._wear)


THEMES_HANDLERS: Mapping[str, Callable[[ThemeChoice], None]] = MappingProxyType({"theme": ThemeChoice.begin})


# What opens the screens of one GPU and of one process: a key or a second click. Imported when they are opened.


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
        from gputop.tui.screens.detail_screens import GpuDetailsScreen

        uuid = frame.snapshot.gpus[selected_gpu(frame, screen.view)].static.uuid
        screen.push_screen(GpuDetailsScreen(screen.look, self._frame, self._view, self._see, uuid))

    def open_process(self) -> None:
        screen, frame = self._screen, self._screen.playback.frame
        process = None if frame is None else selected_process(frame, screen.view)
        if process is None:
            return
        from gputop.tui.screens.detail_screens import ProcessDetailsScreen

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


DETAILS_HANDLERS: Mapping[str, Callable[[DetailsKeys], None]] = MappingProxyType({
    "details": DetailsKeys.open,
    "gpu_details": DetailsKeys.open_gpu,
})  # fmt: skip
