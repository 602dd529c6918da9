"""The interactive screen: keys become view states, frames become painted rows. Decides nothing about what they say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial

from msgspec.structs import replace
from textual import events
from textual._styles_cache import StylesCache
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.message import Message

from gputop.config import Reload
from gputop.model.inspection import ProcessAccess
from gputop.model.source import PlayedSource, Source
from gputop.monitor import Frame, Monitor
from gputop.output.ansi_diff import Differ
from gputop.paint.main_screen import Painter
from gputop.paint.process_columns import COLUMNS, column_at
from gputop.paint.terminal import Depth
from gputop.paint.theme import THEMES, Theme
from gputop.paint.view import View
from gputop.recording.encode import rounded
from gputop.recording.memory import Past
from gputop.session.player import Player
from gputop.tui.commands import NO_KEYS, Commands
from gputop.tui.terminal.driver import Outlet, guarded_driver
from gputop.tui.terminal.guard import TerminalGuard
from gputop.tui.terminal.lines import Lines

HINT_S = 30.0
"""How long the first keys are shown."""
LEAST_REPAINT_S = 0.05
"""Keys that repeat faster than this are painted together."""
LATE_INTERVALS = 2.5
"""Without a new snapshot for so many intervals the screen says STALE."""


class SnapshotReady(Message):
    """A source has a new snapshot. Several that wait count as one."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotReady)


class PaintDue(Message):
    """What came since the last painting is to be shown now."""


class GputopApp(Commands):
    """Shows a live source, or plays a recording.

    Live, ``source`` and ``monitor`` are given and ``replay_past`` makes a played source of what the run keeps of
    itself; for a recording only ``player`` is.
    """

    AUTO_FOCUS = None
    CSS = "Screen { overflow: hidden; }"

    def __init__(
        self,
        view: View,
        theme: str,
        *,
        source: Source | None = None,
        monitor: Monitor | None = None,
        player: Player | None = None,
        first: Frame | None = None,
        replay_past: Callable[[Past], PlayedSource] | None = None,
        access: ProcessAccess | None = None,
        guard: TerminalGuard | None = None,
        bell: bool = False,
        keys: Mapping[str, str] = NO_KEYS,
        reload: Callable[[float], Reload | None] | None = None,
        depth: Depth = "truecolor",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        outlet = Outlet()
        super().__init__(
            THEMES[theme],
            source=source,
            monitor=monitor,
            player=player,
            replay_past=replay_past,
            access=access,
            driver_class=guarded_driver(guard, outlet) if guard else None,
        )
        # Without a guard there is no terminal: a test's pilot reads what the compositor draws.
        self._outlet = outlet if guard else None
        self._depth = depth
        self.animation_level = "none"
        self.view = view
        self.frame = first
        self._guard = guard
        self._bell = bell
        self._reload = reload
        self._bind(keys)
        self._clock = clock
        self._seen = clock()
        self._painter = Painter()
        self._dirty = self._sorting = False
        self._painted = 0.0
        self._error: Exception | None = None
        self._lines: Lines | None = None

    # -- life -------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        self._lines = Lines(self._look, None if self._outlet is None else self._outlet.write, self._differ())
        yield self._lines

    def _differ(self) -> Differ:
        return Differ(self._look, self._depth)

    def _wear(self, theme: Theme) -> None:
        self._look = theme
        if self._lines is not None:
            self._lines.set_theme(theme, self._differ())

    def on_mount(self) -> None:
        if self._guard is not None:
            # The handler runs in the main thread, between any two steps of the loop: only ask the loop to leave.
            loop = asyncio.get_running_loop()
            self._guard.leave_by(lambda status: loop.call_soon_threadsafe(partial(self._exit_with, status)))
        self.set_interval(1.0 if self._source is None else max(0.5, self._source.interval_s), self._watch)
        if self.view.hint:
            self.set_timer(HINT_S, self._drop_hint)
        self._take()
        self._paint()
        self._work_later()

    def on_unmount(self) -> None:
        self._evidence.close()
        if self._player is not None:
            self._player.source.close()

    def pop_screen(self) -> AwaitComplete:
        """Close a screen, and let its drawn lines go.

        Textual 8.2 keeps them: its cache of 1,024 pairs of colours holds the widget that asked first for each of them.
        """
        StylesCache.get_inner_outer.cache_clear()
        # The command palette may be told twice to close, see ``closing``.
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()

    def _drop_hint(self) -> None:
        self._see(replace(self.view, hint=()))

    def _exit_with(self, status: int) -> None:
        self.exit(status, return_code=status)

    def ready(self) -> None:
        """Called by a source, from any thread."""
        self.post_message(SnapshotReady())

    def on_snapshot_ready(self) -> None:
        if self._take():
            self._paint()

    def _take(self) -> bool:
        """Take in what the sources have; True when there is a new frame to paint."""
        new = self._take_live()
        if self._player is not None:
            new = self._player.take() or (new and self._evidence.recording is not None)
            self.frame = self._player.frame or self.frame
        return new

    def _take_live(self) -> bool:
        snapshot = None if self._source is None else self._source.poll()
        if snapshot is None:
            return False
        if self._evidence.recording is not None:
            # What is recorded has four digits; a verdict at the edge of a threshold must be the same in the replay.
            snapshot = rounded(snapshot)
        frame = self._monitor.feed(snapshot)
        self._seen = self._clock()
        self._memory.add(snapshot)
        self._evidence.take(frame)
        if (failure := self._evidence.failure) is not None:
            self._say(failure)
        if self._bell and self.frame is not None and newly_red(self.frame, frame):
            self.bell()
        if self._player is None:
            self.frame = frame
            if self.view.stale_s is not None:
                self.view = replace(self.view, stale_s=None)
        return True

    def _watch(self) -> None:
        """No new snapshot for too long: poll in case a wake-up was lost, then say how old the screen is."""
        change = None if self._reload is None else self._reload(self._clock())
        if change is not None:
            self._take_settings(change)
        if self._source is None:
            return
        late = self._clock() - self._seen
        if late <= LATE_INTERVALS * self._source.interval_s:
            return
        if self._take():
            self._paint()
        elif self._player is None:
            self.view = replace(self.view, stale_s=late)
            self._paint()

    def _handle_exception(self, error: Exception) -> None:
        """A crash ends in one line, not in a page of traceback over the user's shell."""
        self._error = error
        super()._handle_exception(error)

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()

    @property
    def crash(self) -> Exception | None:
        """What ended the screen, if it was not the user."""
        return self._error

    # -- painting ---------------------------------------------------------------------------------------------------

    def _paint(self) -> None:
        self._dirty = False
        self._painted = self._clock()
        width, height = self.size
        # A message that asks for this may come before the widget is there, or while the program leaves.
        if self._lines is None or not self._lines.is_attached or self.frame is None or not width or not height:
            return
        rows = self._painter.paint(self.frame, self._shown_view(), width, height).rows
        self._lines.set_rows(rows)

    def _paint_soon(self) -> None:
        """Paint at once, or together with what comes within the next moment."""
        if self._dirty:
            return
        wait = self._painted + LEAST_REPAINT_S - self._clock()
        if wait <= 0:
            self._paint()
        else:
            self._dirty = True
            # Not one of Textual's timers: each is a task of its own.
            asyncio.get_running_loop().call_later(wait, self.post_message, PaintDue())

    def on_paint_due(self) -> None:
        if self._dirty:
            self._paint()

    def on_resize(self) -> None:
        self._paint_soon()

    # -- keys and mouse ---------------------------------------------------------------------------------------------

    def _do_quit(self) -> None:
        if self._guard is not None:
            self._guard.leave_later(0)
        self.exit(0)

    _do_interrupt = _do_quit

    def _do_suspend(self) -> None:
        self.action_suspend_process()

    def _do_help(self) -> None:
        from gputop.tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self._look, self.view.glyphs, self._keys))

    def _do_sort(self) -> None:
        letters = "  ".join(f"{COLUMNS[k].letter} {COLUMNS[k].head}" for k in self.view.columns if COLUMNS[k].letter)
        self._sorting = True
        self._see(replace(self.view, message=f"sort by: {letters}  (capital inverts, esc leaves it)"))

    def _say(self, text: str) -> None:
        self.view = replace(self.view, message=text)
        self._paint_soon()
        self.set_timer(8.0, self._unsay)

    def _unsay(self) -> None:
        if not self._sorting:
            self._see(replace(self.view, message=None))

    def _see(self, view: View) -> None:
        if view != self.view:
            self.view = view
            self._paint_soon()

    def on_mouse_scroll_down(self) -> None:
        self._scroll(3)

    def on_mouse_scroll_up(self) -> None:
        self._scroll(-3)

    def _scroll(self, rows: int) -> None:
        most = max(0, self._painter.process_count - self._painter.process_room)
        self._see(replace(self.view, process=None, scroll=max(0, min(most, self.view.scroll + rows))))

    def on_click(self, event: events.Click) -> None:
        target = self._painter.target(event.screen_y, event.screen_x)
        if target is None or len(self.screen_stack) > 1:
            return
        if target.kind == "gpu":
            self._see(replace(self.view, gpu=str(target.key)))
            if event.chain == 2:
                self._do_gpu_details()
        elif target.kind == "process":
            self._see(replace(self.view, process=target.key))
            if event.chain == 2:
                self._open_process()
        elif target.kind == "header":
            column = column_at(event.screen_x, self.size.width, self.view.columns)
            if column is not None:
                inverted = not self.view.inverted if column == self.view.sort else False
                self._see(replace(self.view, sort=column, inverted=inverted))


def newly_red(before: Frame, now: Frame) -> bool:
    """Whether a GPU has come to a red verdict between two frames."""
    red = {(d.uuid, d.verdict) for d in before.diagnoses if d.level == "red" or d.busy_not_working}
    return any((d.uuid, d.verdict) not in red for d in now.diagnoses if d.level == "red" or d.busy_not_working)
