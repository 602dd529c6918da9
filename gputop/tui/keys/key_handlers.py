"""Handlers of the main screen's keys, checked at the start.

The tables of keys are in ``gputop.paint.keys``; each id has one handler."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.diagnosis.summary import HALF, LOST_TITLE, WORKING_POORLY, group_of
from gputop.diagnosis.types import HOLDING_MEMORY, NOT_WORKING_ALARM, STATE_WORDS
from gputop.paint.keys import KEYS, PAGE_KEYS, REPLAY_KEYS, Key, page_keys, rebound
from gputop.paint.process_columns import BY_VERDICT
from gputop.paint.process_table import chosen_process, key_of, order_words, selected_process
from gputop.paint.view import selected_count, selected_gpu
from gputop.paint.view_changes import VIEW_KEYS, next_counted
from gputop.paint.words import gpu_label
from gputop.session.screen_files import screenshot, toggle_recording
from gputop.tui.keys.process_keys import ProcessKeys
from gputop.tui.screens import MainScreen

if TYPE_CHECKING:
    from gputop.session.player import Player

PLAYING = frozenset(key.id for key in REPLAY_KEYS)
"""Keys that count only while the past shows."""
ALWAYS = frozenset(("interrupt", "suspend", "palette"))
"""Keys that count in every screen, whatever is awaited."""
LIVE = frozenset((
    "tag", "top", "bottom", "command_left", "command_right", "match_next", "match_previous", "sort_next",
    "sort_previous",
))  # fmt: skip
"""Keys that mean time while the past shows."""


class KeyTableError(Exception):
    """Keys and handlers do not fit together."""


def check(keys: Iterable[Key], handled: Iterable[str]) -> None:
    """Check that keys and handlers match, or raise KeyTableError."""
    key_ids, handled_ids = [key.id for key in keys], list(handled)
    without = [key_id for key_id in key_ids if key_id not in handled_ids]
    unknown = [key_id for key_id in handled_ids if key_id not in key_ids]
    twice = sorted({key_id for key_id in handled_ids if handled_ids.count(key_id) > 1})
    if without or unknown or twice:
        raise KeyTableError(f"keys without a handler: {without}; handlers without a key: {unknown}; twice: {twice}")


BY_NEED = (
    LOST_TITLE, NOT_WORKING_ALARM, STATE_WORDS["starved"], HALF, WORKING_POORLY, HOLDING_MEMORY,
    STATE_WORDS["unmeasured"], STATE_WORDS["idle"], STATE_WORDS["working"],
)  # fmt: skip


class ScreenKeys:
    """Keys that always work, and keys that open the selection.

    ``keys`` gives the current table of keys, for the help. Screens are imported when they are opened.
    """

    def __init__(self, screen: MainScreen, keys: Callable[[], Sequence[Key]]) -> None:
        self._screen = screen
        self._keys = keys

    def handlers(self) -> dict[str, Callable[[], object]]:
        """Return the handlers by key id."""
        screen = self._screen
        return {
            "quit": screen.leave,
            "interrupt": screen.leave,
            "suspend": screen.action_suspend_process,
            # Everything, whatever another program has written over it.
            "redraw": partial(screen.refresh, layout=True),
            "palette": screen.open_palette,
            "help": self.help,
            "copy": self.copy,
            "copy_json": partial(self.copy, as_json=True),
            "tour": self.tour,
            "theme": self.theme,
            "counted": self.counted,
            "release_counters": self.release_counters,
            "details": self.open,
            "gpu_details": self.open_gpu,
        }

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
        screen.push_screen(HelpScreen(self._keys(), selected))

    def release_counters(self) -> None:
        toggle = self._screen.toggle_counters
        self._screen.say("GPU counters are held only by a live screen of this machine" if toggle is None else toggle())

    def copy(self, *, as_json: bool = False) -> None:
        """Copy the selection."""
        screen, frame = self._screen, self._screen.playback.masked
        if frame is None or not frame.snapshot.gpus:
            screen.say("there is no GPU whose verdict could be copied")
            return
        from gputop.output.diagnosis_text import ticket_json, ticket_text
        from gputop.tui.screens.text_box import show_copied

        process = chosen_process(frame, screen.view)
        indices = [gpu.static.index for gpu in frame.snapshot.gpus]
        at = selected_gpu(frame, screen.view)
        if process is not None and process.gpu in indices:
            at = indices.index(process.gpu)
        text = (ticket_json if as_json else ticket_text)(frame, at, process)
        show_copied(screen, text)

    def counted(self) -> None:
        """The next GPU of the group in most need."""
        screen, frame = self._screen, self._screen.playback.frame
        if frame is not None:
            groups = {group_of(d) for d in frame.diagnoses}
            first = next((group for group in BY_NEED if group in groups), None)
            if first is not None:
                screen.see(next_counted(screen.view, frame, first))

    def tour(self) -> None:
        """Page through the demo's GPUs and select the last one."""
        screen = self._screen
        if screen.remedied is None:
            screen.say("the tour walks through the whole node of the demo: gputop demo --tour")
            return
        from gputop.tui.screens.pages import TourScreen

        screen.push_screen(TourScreen(screen, screen.remedied))

    def theme(self) -> None:
        """Ask for a theme, on a screen that previews it."""
        from gputop.tui.screens.menu import choose_theme

        choose_theme(self._screen)

    def open(self) -> None:
        """Open details of the selected process, GPU or count.

        A count leads to its next GPU; without a listed process the GPU opens."""
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
        screen.push_screen(GpuDetailsScreen(screen, uuid))

    def open_process(self) -> None:
        screen, frame = self._screen, self._screen.playback.frame
        process = None if frame is None else selected_process(frame, screen.view)
        if process is None:
            return
        from gputop.tui.screens.detail_screens import ProcessDetailsScreen

        # Threads can only be read now: beside the past they would mislead.
        watch = None if screen.access is None or screen.playback.shows_past else screen.access.watch_threads
        screen.push_screen(ProcessDetailsScreen(screen, key_of(process), watch))


# Time: pause and replay, record, take pictures, list the findings.

SLICE_S = 0.01
"""How long the loop is left to keys and frames between two slices of the player's pending work."""


class TimeKeys:
    """Shows the past and keeps captures."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self._playback = screen.playback
        self._working = False

    def handlers(self) -> dict[str, Callable[[], object]]:
        """Return the handlers by key id."""
        return {
            "findings": self.findings,
            "record": self.record,
            "screenshot": self.screenshot,
            "pause": self.pause,
            "play": partial(self.play_on, lambda player: player.toggle()),
            "back": partial(self.play_on, lambda player: player.step(-1)),
            "on": partial(self.play_on, lambda player: player.step(1)),
            "jump": self.jump,
            "next_change": partial(self.to_change, 1),
            "previous_change": partial(self.to_change, -1),
            "slower": partial(self.play_on, lambda player: player.faster(-1)),
            "faster": partial(self.play_on, lambda player: player.faster(1)),
            "begin": partial(self.play_on, lambda player: player.to_begin()),
            "end": partial(self.play_on, lambda player: player.to_end()),
        }

    def work_later(self) -> None:
        """Continue the player's pending work when the loop is idle."""
        player = self._playback.player
        if player is not None and player.busy and not self._working:
            self._working = True
            self._screen.set_timer(SLICE_S, self._work)

    def _work(self) -> None:
        self._working = False
        if self._playback.work():
            self._screen.paint_soon()
        self.work_later()

    def findings(self) -> None:
        from gputop.tui.screens.pages import FindingsScreen

        self._screen.push_screen(FindingsScreen(self._screen), lambda _: self._screen.paint())

    def record(self) -> None:
        session = self._playback.session
        self._screen.say("this is a recording already" if session is None else toggle_recording(session))

    def screenshot(self) -> None:
        screen = self._screen
        if self._playback.masked is not None:
            self._screen.say(screenshot(self._playback.masked, screen.view, screen.look, *screen.size))

    def pause(self) -> None:
        """Pause or resume a live run; play or pause a recording."""
        if self._playback.player is None:
            if self._playback.pause(self._screen.ready):
                self._screen.paint()
                self.work_later()
        elif self._playback.session is not None:
            self._playback.go_live()
            self._screen.paint()
        else:
            self.play_on(lambda player: player.toggle())

    def play_on(self, act: Callable[[Player], object]) -> None:
        """Act on the player if the past shows, and paint.

        The frame is made when it is painted, so a held key costs one frame, not one a repeat.
        """
        if self._playback.player is None:
            return
        act(self._playback.player)
        self._screen.paint_soon()
        self.work_later()

    def to_change(self, step: int) -> None:
        """Jump to the next (1) or previous (-1) verdict change."""

        offset = self._screen.view.utc_offset_s
        self.play_on(lambda player: self._screen.say(player.to_change(step, offset)))

    def jump(self) -> None:
        from gputop.tui.screens.prompt import Ask

        self._screen.push_screen(Ask("jump to (12:03, -10m, +1h, an ISO date):"), self._jump_to)

    def _jump_to(self, text: str | None) -> None:
        def go(player: Player) -> None:
            try:
                player.jump_to(text or "")
            except ValueError as error:
                self._screen.say(str(error))

        if text:
            self.play_on(go)


class KeyTable:
    """Keys of one screen; ``keys`` includes the user's own."""

    def __init__(
        self,
        screen: MainScreen,
        change_view: Callable[[str], None],
        user_keys: Mapping[str, str],
    ) -> None:
        """Check and bind the keys.

        ``change_view`` is called with an id of ``VIEW_KEYS``; ``user_keys`` are the user's own keys."""
        self._screen = screen
        self.screen = ScreenKeys(screen, lambda: self.keys)
        self.time = TimeKeys(screen)
        groups: list[dict[str, Callable[[], object]]] = [
            self.screen.handlers(),
            ProcessKeys(screen).handlers(),
            self.time.handlers(),
            {key_id: partial(change_view, key_id) for key_id in VIEW_KEYS},
        ]
        check((*KEYS, *REPLAY_KEYS), chain.from_iterable(groups))
        self._handlers: Mapping[str, Callable[[], object]] = dict(ChainMap(*groups))
        self.bind(user_keys)

    def bind(self, user_keys: Mapping[str, str]) -> Mapping[str, str]:
        """Apply the user's own keys; return the changed bindings."""
        main, past = ([key.id for key in table] for table in (KEYS, REPLAY_KEYS))
        self.keys = (*rebound(KEYS, user_keys, past)[0], *rebound(REPLAY_KEYS, user_keys, main)[0])
        if user_keys or self._screen.view.past_keys:
            from gputop.paint.replay_bar import shown_keys

            self._screen.view = replace(self._screen.view, past_keys=shown_keys(self.keys))
        self.pages = {key.id: key for key in page_keys(user_keys)}
        usual = {key.id: key.keys for key in (*KEYS, *REPLAY_KEYS, *PAGE_KEYS)}
        return {key.id: key.keys for key in (*self.keys, *self.pages.values()) if key.keys != usual[key.id]}

    def counts(self, key_id: str) -> bool:
        """Whether a key has a command now."""
        if key_id in ALWAYS:
            return True
        # While another screen is open, letters are not commands.
        if len(self._screen.screen_stack) > 1:
            return False
        # In the past the space bar plays, and the arrows move through time.
        return key_id not in LIVE if self._screen.playback.shows_past else key_id not in PLAYING

    def press(self, key_id: str) -> None:
        """Run the command of one key, unless it means nothing now."""
        if self.counts(key_id):
            self._handlers[key_id]()

    def offered(self) -> list[Key]:
        """The keys whose commands the palette offers."""
        return [key for key in self.keys if key.id not in PLAYING or self._screen.playback.shows_past]

    def choices(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Return palette entries beside the keys: (words, function)."""
        screen = self._screen
        for key in (BY_VERDICT, *screen.view.columns):
            yield f"sort by {order_words(key)}", partial(screen.change, sort=key, inverted=False)
        frame = screen.playback.frame
        for gpu in () if frame is None else frame.snapshot.gpus:
            yield f"go to GPU {gpu_label(gpu)}", partial(screen.change, gpu=gpu.static.uuid)
