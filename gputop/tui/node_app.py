"""The interactive screen of a node."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import ClassVar, cast

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType

from gputop.config import Settings
from gputop.diagnosis.verdict.summary import role_of
from gputop.model.durations import duration
from gputop.model.inspection import ProcessAccess
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame
from gputop.paint.cells import shorten
from gputop.paint.header import WASTE
from gputop.paint.key_presets import unknown_key, wanted_keys
from gputop.paint.keys import KEYS, PAGE_KEYS, REPLAY_KEYS, Key, page_keys, rebound
from gputop.paint.line import Line, text_row
from gputop.paint.main_screen import Painter
from gputop.paint.process_columns import BY_VERDICT, column_at
from gputop.paint.process_table import ShownProcess, order_words
from gputop.paint.theme import THEMES, Theme
from gputop.paint.view import View
from gputop.paint.view_changes import VIEW_KEYS, after_key, next_counted
from gputop.paint.words import gpu_label
from gputop.session.opening import Opening
from gputop.session.playback import Playback
from gputop.session.preparation import Preparation
from gputop.session.screen_files import end_if_failed
from gputop.tui.keys.common_keys import CommonKeys
from gputop.tui.keys.process_keys import ProcessKeys
from gputop.tui.keys.screen_keys import ScreenKeys
from gputop.tui.keys.time_keys import PLAYER_KEYS, TimeKeys
from gputop.tui.painted_app import ALWAYS, LATE_INTERVALS, bindings, keymap
from gputop.tui.terminal.guard import TerminalGuard
from gputop.tui.terminal.rows_widget import LiveRows

WHEEL_ROWS = 3
RIGHT = 3
"""The number of the right mouse button."""
LAYOUT_WORDS: Mapping[str, str] = {
    "panes": "panes, where all fit",
    "scroll": "panes, [ and ] scroll where not all fit",
    "list": "a line a GPU",
}
LOOK_S = 0.25
"""Distance of two looks at how far a recording is opened."""
DRAWN_AFTER = 0.75
"""Share of an interval after which a frame that is one of several in it is drawn, too."""
LEAST_WATCH_S = 0.5
"""However fast a source is, it is not checked for silence more often than this."""
PLAYING = frozenset(key.id for key in REPLAY_KEYS)
"""Keys that count only while the past shows."""
USUAL = Settings()
"""The settings of somebody who has none."""


class NodeView(LiveRows):
    """Shows a frame and handles the mouse on it."""

    def __init__(self, main: GputopApp) -> None:
        super().__init__()
        self._main = main
        self._painter = Painter()

    def show(self, frame: Frame, view: View, width: int, height: int) -> None:
        """Draw a frame."""
        self.set_rows(self._painter.paint(frame, view, width, height).rows)

    @property
    def page(self) -> int:
        """How many processes are shown at once."""
        return self._painter.process_room

    def process_rows(self, frame: Frame, view: View) -> Sequence[ShownProcess]:
        """All rows of the process table."""
        return self._painter.shown_rows(frame, view)

    def on_mouse_scroll_down(self) -> None:
        self._scroll(WHEEL_ROWS)

    def on_mouse_scroll_up(self) -> None:
        self._scroll(-WHEEL_ROWS)

    def _scroll(self, rows: int) -> None:
        last_first = max(0, self._painter.process_count - self._painter.process_room)
        view = self._main.view
        self._main.change(process=None, scroll=max(0, min(last_first, view.scroll + rows)))

    async def on_click(self, event: events.Click) -> None:
        """Select; a second click opens; a column's name sorts."""
        view = self._main.view
        target = self._painter.target(event.screen_y, event.screen_x)
        if target is None:
            return
        # A right click opens at once what a double click opens.
        opens = event.chain == 2 or event.button == RIGHT
        if target.kind in ("gpu", "process"):
            self._main.change(**{target.kind: target.key})
            if opens:
                (
                    self._main.press_gpu_details
                    if target.kind == "gpu"
                    else self._main.open_process
                )()
        elif target.kind == "key" and target.key is not None:
            await self.run_action(f"app.act('{target.key}')")
        elif target.kind == "count" and target.key == WASTE:
            await self.run_action("app.act('findings')")
        elif target.kind == "count" and target.key is not None and self._main.frame is not None:
            self._main.see(next_counted(view, self._main.frame, str(target.key)))
        elif target.kind == "time":
            label, columns, begin, end = cast("tuple[int, int, float, float]", target.key)
            share = (event.screen_x - label + 0.5) / columns
            self._main.play_on(
                lambda player: player.seek(begin + max(0.0, min(1.0, share)) * (end - begin))
            )
        elif target.kind == "header" and (
            column := column_at(event.screen_x, self.size.width, view.columns)
        ):
            self._main.change(sort=column, inverted=column == view.sort and not view.inverted)


class GputopApp(ScreenKeys, ProcessKeys, TimeKeys, CommonKeys[View]):
    """Shows a playback's frames according to a view.

    Keys and mouse change the view or open a screen above."""

    # Those of the past come first: while it shows they have precedence over others of the same key.
    BINDINGS: ClassVar[list[BindingType]] = bindings((*REPLAY_KEYS, *KEYS))

    def __init__(
        self,
        view: View,
        theme: str,
        playback: Playback,
        *,
        access: ProcessAccess | None = None,
        guard: TerminalGuard | None = None,
        settings: Settings = USUAL,
    ) -> None:
        super().__init__(guard)
        self.view, self.look, self.playback, self.access = view, THEMES[theme], playback, access
        self.opening = ""
        """What is said first, such as where a recording was opened."""
        self.opens: Opening | None = None
        """A recording that is still being opened; None once it is, and where there is none."""
        self.save: Callable[[str, object], str] | None = None
        """Saves a setting in the configuration and says so; None where that is not the user's own."""
        self.begins_with = ""
        """The id of a key that is pressed as soon as the screen is there."""
        self._show_secrets(settings.show_secrets)
        self._has_bell = settings.bell
        self._is_over = False
        """Whether the screen has ended: a source may deliver once more while it is closed."""
        self._heard = self._clock()
        self._shown_verdicts: list[tuple[str, str]] = []
        self._bind(wanted_keys(settings.key_preset, settings.keys))
        self._node_view = NodeView(self)

    # -- life -------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield self._node_view

    def on_mount(self) -> None:
        self.guard_terminal()
        self.set_interval(max(LEAST_WATCH_S, self.playback.interval_s), self._watch)
        self.playback.take_over()
        self._take()
        self.paint()
        if self.playback.preparation is not None:
            self.run_worker(self._prepare(self.playback.preparation), "preparation")
        self.work_later()
        if self.playback.source is not None:
            self.run_worker(self.playback.source.run(self.deliver), "pollers")
        if self.playback.player is not None:
            self.play_past()
        if self.opens is not None:
            self.run_worker(self._open(self.opens), "opening")
        if self.opening:
            self.say(self.opening)
        if self.begins_with:
            self.call_after_refresh(self.press, self.begins_with)

    def on_unmount(self) -> None:
        self._is_over = True
        self.playback.close()

    async def _open(self, opening: Opening) -> None:
        """Show how far a recording is opened, then play it; an error ends the screen."""
        while not await opening.ended(LOOK_S):
            self.paint()
        try:
            opened = opening.opened()
        except Exception as error:  # noqa: BLE001 - told by the command, once the terminal is in order
            self._fail(error)
            return
        self.opens = None
        self.playback.player = opened.player
        self._take()
        self.paint()
        self.work_later()
        self.play_past()
        if opened.said:
            self.say(opened.said)

    async def _prepare(self, preparation: Preparation) -> None:
        """Say how far the past is judged, then show it; an error ends the screen."""
        while not await preparation.ended(LOOK_S):
            self.change(message=preparation.words())
        try:
            self.playback.end_preparation()
        except Exception as error:  # noqa: BLE001 - told by the command, once the terminal is in order
            self._fail(error)
            return
        self._take()
        self.change(message=None)
        self.paint()

    def _fail(self, error: Exception) -> None:
        """End the screen with an error, which the command tells."""
        self.crash = error
        self.exit(1, return_code=1)

    def play_past(self) -> None:
        """Play the recording, or the run's own past, in the loop."""
        if self.playback.player is not None:
            self.run_worker(self.playback.player.source.run(self._deliver_past), "past")

    def deliver(self, snapshot: Snapshot) -> None:
        """Take a snapshot; called in the loop by the source."""
        if not self._is_over:
            self.playback.add(snapshot)
            self._show_new()

    def _deliver_past(self, snapshot: Snapshot) -> None:
        player = self.playback.player
        if player is not None and not self._is_over:
            player.add(snapshot)
            self._show_new()

    def _show_new(self) -> None:
        """Paint the delivered frame, unless it can wait."""
        try:
            with self.show_errors():
                is_new = self._take() or self.playback.shows_past
                if is_new and not self._can_wait():
                    self.paint()
        except Exception as error:  # noqa: BLE001 - without a terminal of its own it ends the screen
            self.call_later(_raise, error)

    def _can_wait(self) -> bool:
        """Whether the newest frame is one of several in an interval and has the verdicts that are shown."""
        frame, interval_s = self.playback.newest, self.playback.interval_s
        if frame is None or self.playback.shows_past:
            return False
        shown, self._shown_verdicts = (
            self._shown_verdicts,
            [(d.uuid, d.verdict) for d in frame.diagnoses],
        )
        is_soon = self._clock() - self._painted < DRAWN_AFTER * interval_s
        return is_soon and frame.snapshot.interval_s < interval_s and shown == self._shown_verdicts

    def _take(self) -> bool:
        """Take new snapshots; return whether the frame changed."""
        before = self.playback.newest
        new = self.playback.take()
        now = self.playback.newest
        if now is None or now is before:
            return new
        self._heard = self._clock()
        if self.playback.session is not None:
            if (failure := end_if_failed(self.playback.session)) is not None:
                self.say(failure)
            if (alerts := self.playback.session.alerts) is not None and alerts.messages:
                self.say(alerts.messages.popleft())
            if self._has_bell and before is not None and newly_red(before, now):
                self.bell()
        if self.view.stale_s is not None and not self.playback.shows_past:
            self.view = replace(self.view, stale_s=None)
        return new

    def _watch(self) -> None:
        """Poll in case a wake-up was lost, and show the screen's age."""
        if self.playback.source is None or self.playback.preparation is not None:
            return
        late = self._clock() - self._heard
        if late <= LATE_INTERVALS * self.playback.interval_s:
            return
        with self.show_errors():
            if self._take():
                self.paint()
            elif not self.playback.shows_past:
                self.view = replace(self.view, stale_s=late)
                self.paint()

    def _bind(self, user_keys: Mapping[str, str]) -> None:
        """Apply the user's own keys."""
        main, past = ([key.id for key in table] for table in (KEYS, REPLAY_KEYS))
        self.keys = (*rebound(KEYS, user_keys, past)[0], *rebound(REPLAY_KEYS, user_keys, main)[0])
        self.page_keys = {key.id: key for key in page_keys(user_keys)}
        if user_keys or self.view.past_keys:
            from gputop.paint.replay_bar import shown_keys

            self.view = replace(self.view, past_keys=shown_keys(self.keys))
        self.set_keymap(
            keymap((*KEYS, *REPLAY_KEYS, *PAGE_KEYS), (*self.keys, *self.page_keys.values()))
        )

    def _show_secrets(self, shows: bool) -> None:
        """Show or mask secrets on command lines.

        A replay, a demo and a browser have masked ones only."""
        may = shows and self.access is not None
        if not may or self.access is None:
            self.playback.revealed = None
        elif self.playback.revealed is None:
            from gputop.session.revealed_commands import Revealed

            self.playback.revealed = Revealed(self.access.command)

    # -- painting ---------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        width, height = self.size
        self.playback.take_past()
        if self.frame is not None:
            # Of the moment that shows: summer time begins and ends while a screen is open.
            offset_s = float(time.localtime(self.frame.snapshot.t).tm_gmtoff)
            if offset_s != self.view.utc_offset_s:
                self.view = replace(self.view, utc_offset_s=offset_s)
        # A message that asks for this may come before the widget is there, or while the program leaves.
        if not (self._node_view.is_attached and width and height):
            return
        if self.opens is not None:
            words = text_row(shorten(self.opens.words(), width - 3), width, "text", 2)
            self._node_view.set_rows([words] + [Line().row(width)] * (height - 1))
        elif self.frame is not None:
            self._node_view.show(self.frame, self.playback.shown_view(self.view), width, height)

    def apply_theme(self, theme: Theme) -> None:
        self.look = theme
        self._node_view.apply_theme()

    # -- keys -------------------------------------------------------------------------------------------------------

    async def on_key(self, event: events.Key) -> None:
        """Say where the help is after an unknown key."""
        if len(self.screen_stack) == 1:
            self.say(unknown_key(event.key))

    def counts(self, key_id: str) -> bool:
        if key_id in ALWAYS:
            return True
        # While another screen is open, letters are not commands.
        return len(self.screen_stack) == 1 and (self.playback.shows_past or key_id not in PLAYING)

    def press(self, key_id: str) -> None:
        if key_id in PLAYER_KEYS:
            self.play_on(PLAYER_KEYS[key_id])
        elif key_id in VIEW_KEYS:
            self._change_view(key_id)
        else:
            getattr(self, f"press_{key_id}")()

    def offered(self) -> Iterable[Key]:
        return [key for key in self.keys if key.id not in PLAYING or self.playback.shows_past]

    def choices(self) -> Iterable[tuple[str, Callable[[], None]]]:
        yield from self.themes()
        if self.save is not None:
            yield "save these columns in the configuration", partial(self._save, "columns")
            if not self.look.colourless:
                yield "save this theme in the configuration", partial(self._save, "theme")
        for key in (BY_VERDICT, *self.view.columns):
            yield f"sort by {order_words(key)}", partial(self.change, sort=key, inverted=False)
        for gpu in () if self.frame is None else self.frame.snapshot.gpus:
            yield f"go to GPU {gpu_label(gpu)}", partial(self.change, gpu=gpu.static.uuid)

    def _save(self, name: str) -> None:
        if self.save is not None:
            self.say(self.save(name, self.look.name if name == "theme" else self.view.columns))

    def _change_view(self, key_id: str) -> None:
        if key_id == "release" and self.playback.shows_past and self.playback.session is not None:
            self.press_pause()
        elif self.frame is not None:
            rows = self._node_view.process_rows(self.frame, self.view)
            self.see(after_key(self.view, key_id, self.frame, self._node_view.page, rows))
            if key_id == "layout":
                self.say(f"layout: {LAYOUT_WORDS[self.view.layout]}")
            if key_id in ("longer", "shorter"):
                self.say(f"charts show the last {duration(self.view.span_s)}")


def _raise(error: Exception) -> None:
    raise error


def newly_red(before: Frame, now: Frame) -> bool:
    """Return whether a verdict turned red between two frames."""
    red = {(d.uuid, d.verdict) for d in before.diagnoses if role_of(d) == "not_working"}
    return any((d.uuid, d.verdict) not in red for d in now.diagnoses if role_of(d) == "not_working")
