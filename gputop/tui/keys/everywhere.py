"""Keys that always work: leave, suspend, the help, the palette. Screens are imported when they are opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from gputop.diagnosis.types import NOT_WORKING_ALARM, STATE_WORDS
from gputop.paint.keys import Key
from gputop.paint.process_table import chosen_process
from gputop.paint.view import selected_gpu
from gputop.paint.view_changes import next_counted
from gputop.paint.words import group_of
from gputop.tui.keys.screen import MainScreen

BY_NEED = (
    "LOST", NOT_WORKING_ALARM, STATE_WORDS["starved"], STATE_WORDS["unmeasured"], STATE_WORDS["idle"],
    STATE_WORDS["working"],
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
        from gputop.paint.help import Selected
        from gputop.tui.screens.help import HelpScreen

        screen, frame = self._screen, self._screen.playback.frame
        gpus = () if frame is None else frame.diagnoses
        view = screen.view
        selected = Selected(
            gpus[selected_gpu(frame, view)].verdict if frame is not None and gpus else None,
            None if frame is None else chosen_process(frame, view),
            view.columns,
            view.sort,
        )
        screen.push_screen(HelpScreen(screen.look, view.glyphs, self._keys(), selected))

    def release_counters(self) -> None:
        toggle = self._screen.toggle_counters
        self._screen.say("GPU counters are held only by a live screen of this machine" if toggle is None else toggle())

    def copy(self, *, as_json: bool = False) -> None:
        """Copy what is selected, and show it: whether a terminal takes OSC 52 cannot be asked."""
        screen, frame = self._screen, self._screen.playback.masked
        if frame is None or not frame.snapshot.gpus:
            screen.say("there is no GPU whose verdict could be copied")
            return
        from gputop.output.ticket import ticket_json, ticket_text
        from gputop.tui.screens.text import TextScreen
        from gputop.tui.terminal.clipboard import copy_sequence

        process = chosen_process(frame, screen.view)
        indices = [gpu.static.index for gpu in frame.snapshot.gpus]
        at = selected_gpu(frame, screen.view)
        if process is not None and process.gpu in indices:
            at = indices.index(process.gpu)
        text = (ticket_json if as_json else ticket_text)(frame, at, process)
        sequence = copy_sequence(text, os.environ)
        title = "sent to the terminal's clipboard (OSC 52); a terminal that refuses it lets you mark the text here"
        if self._write is None:
            title = "mark the text here: from a browser nothing is put into the clipboard"
        elif sequence is None:
            title = "too long for a terminal's clipboard: mark the text here"
        else:
            self._write(sequence)
        screen.push_screen(TextScreen(screen.look, screen.view.glyphs, title, text))

    def counted(self) -> None:
        """The next GPU of the group in most need."""
        screen, frame = self._screen, self._screen.playback.frame
        if frame is not None:
            groups = {group_of(gpu, d) for gpu, d in zip(frame.snapshot.gpus, frame.diagnoses, strict=True)}
            first = next((group for group in BY_NEED if group in groups), None)
            if first is not None:
                screen.see(next_counted(screen.view, frame, first))

    def tour(self) -> None:
        """Page through the demo's GPUs; the last one shown is selected afterwards."""
        screen = self._screen
        if screen.remedied is None:
            screen.say("the tour walks through the whole node of the demo: gputop demo --tour")
            return
        from gputop.tui.screens.tour import TourScreen

        def seen(uuid: str) -> None:
            screen.see(replace(screen.view, gpu=uuid))

        screen.push_screen(
            TourScreen(screen.look, lambda: screen.view, lambda: screen.playback.frame, screen.remedied, seen)
        )

    def palette(self) -> None:
        from gputop.tui.screens.palette import Palette

        if not isinstance(self._screen.screen_stack[-1], Palette):
            self._screen.push_screen(Palette())


HANDLERS: Mapping[str, Callable[[EverywhereKeys], None]] = MappingProxyType({
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
