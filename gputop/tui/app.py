"""The interactive screen: keys become view states, frames become painted rows. Decides nothing about what they say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message

from gputop.monitor import Frame, Monitor, Polled
from gputop.paint import process_table
from gputop.paint.keys import KEYS
from gputop.paint.main_screen import Painter
from gputop.paint.theme import THEMES
from gputop.paint.view import Layout, TreeMode, View, selected_gpu, zoomed
from gputop.tui.driver import guarded_driver
from gputop.tui.guard import TerminalGuard
from gputop.tui.help_screen import HelpScreen
from gputop.tui.lines import Lines

LEAST_REPAINT_S = 0.05
"""Keys that repeat faster than this are painted together."""
LATE_INTERVALS = 2.5
"""Without a new snapshot for so many intervals the screen says STALE."""


PRIORITY = ("quit", "suspend", "section")
"""Keys that Textual's own screen would take for itself otherwise."""


class SnapshotReady(Message):
    """A source has a new snapshot. Several that wait count as one."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, SnapshotReady)


class GputopApp(App[int]):
    """Shows one source."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = "Screen { overflow: hidden; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, f"act('{key.id}')", key.does, id=key.id, show=False, priority=key.id in PRIORITY)
        for key in KEYS
    ]

    def __init__(
        self,
        source: Polled,
        monitor: Monitor,
        view: View,
        theme: str,
        *,
        first: Frame | None = None,
        guard: TerminalGuard | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(driver_class=guarded_driver(guard) if guard else None)
        self._guard = guard
        self.animation_level = "none"
        self._source = source
        self._monitor = monitor
        self.view = view
        self.frame = first
        self._clock = clock
        self._seen = clock()
        self._painter = Painter()
        self._look = THEMES[theme]
        self._dirty = False
        self._painted = 0.0
        self._sorting = False
        self._error: Exception | None = None

    # -- life -------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Lines(self._look)

    def on_mount(self) -> None:
        if self._guard is not None:
            # The handler runs in the main thread, between any two steps of the loop: only ask the loop to leave.
            loop = asyncio.get_running_loop()
            self._guard.leave_by(lambda status: loop.call_soon_threadsafe(partial(self._exit_with, status)))
        self.set_interval(max(0.5, self._source.interval_s), self._watch)
        self._take()
        self._paint()

    def _exit_with(self, status: int) -> None:
        self.exit(status, return_code=status)

    def ready(self) -> None:
        """Called by the source, from any thread."""
        self.post_message(SnapshotReady())

    def on_snapshot_ready(self) -> None:
        if self._take():
            self._paint()

    def _take(self) -> bool:
        snapshot = self._source.poll()
        if snapshot is None:
            return False
        frame = self._monitor.feed(snapshot)
        self._seen = self._clock()
        if self.view.paused:
            return False
        self.frame = frame
        self.view = replace(self.view, stale_s=None)
        return True

    def _watch(self) -> None:
        """No new snapshot for too long: poll in case a wake-up was lost, then say how old the screen is."""
        late = self._clock() - self._seen
        if late <= LATE_INTERVALS * self._source.interval_s:
            return
        if self._take():
            self._paint()
        elif not self.view.paused:
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
        if not self.screen_stack:
            return
        base = self.screen_stack[0]
        width, height = self.size
        if self.frame is not None and width and height:
            base.query_one(Lines).set_rows(self._painter.paint(self.frame, self.view, width, height).rows)

    def _paint_soon(self) -> None:
        """Paint at once, or together with what comes within the next moment."""
        if self._dirty:
            return
        wait = self._painted + LEAST_REPAINT_S - self._clock()
        if wait <= 0:
            self._paint()
        else:
            self._dirty = True
            self.set_timer(wait, self._paint)

    def on_resize(self) -> None:
        self._paint_soon()

    # -- keys and mouse ---------------------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        if not self._sorting:
            return
        self._sorting = False
        event.stop()
        key = process_table.SORTABLE.get(event.key.lower())
        if key is not None:
            self._see(replace(self.view, sort=key, inverted=event.key.isupper(), message=None))
        else:
            self._see(replace(self.view, message=None))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # While a sort letter is awaited or another screen is open, letters are not commands; quitting always is.
        elsewhere = self._sorting or len(self.screen_stack) > 1
        return not (elsewhere and action == "act" and parameters[0] not in ("quit", "suspend"))

    async def action_act(self, key_id: str) -> None:
        """Run the command of one key; ids as in ``gputop.paint.keys``."""
        if key_id == "quit":
            if self._guard is not None:
                self._guard.leave_later(0)
            self.exit(0)
        elif key_id == "suspend":
            self.action_suspend_process()
        elif key_id == "help":
            await self.push_screen(HelpScreen(self._look, self.view.glyphs))
        elif key_id == "sort":
            letters = "  ".join(f"{c.letter} {c.head}" for c in process_table.COLUMNS)
            self._sorting = True
            self._see(replace(self.view, message=f"sort by: {letters}  (capital inverts, esc leaves it)"))
        elif self.frame is not None:
            self._see(changed(self.view, key_id, self.frame, self._painter.process_room))

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
        target = self._painter.target(event.screen_y)
        if target is None or len(self.screen_stack) > 1:
            return
        if target.kind == "gpu":
            self._see(replace(self.view, gpu=str(target.key)))
        elif target.kind == "process":
            self._see(replace(self.view, process=target.key))  # type: ignore[arg-type]
        elif target.kind == "header":
            column = process_table.column_at(event.screen_x, self.size.width)
            if column is not None:
                inverted = not self.view.inverted if column == self.view.sort else False
                self._see(replace(self.view, sort=column, inverted=inverted))


def changed(view: View, key_id: str, frame: Frame, page: int) -> View:
    """The view after a key. Pure: everything a key does to the main screen is here."""
    if key_id in ("previous_gpu", "next_gpu"):
        return _other_gpu(view, frame, -1 if key_id == "previous_gpu" else 1)
    moves = {"up": -1, "down": 1, "page_up": -page, "page_down": page, "first": -(10**6), "last": 10**6}
    if key_id in moves:
        if view.focus == "gpus":
            return _other_gpu(view, frame, max(-1, min(1, moves[key_id])))
        return _other_process(view, frame, moves[key_id])
    if key_id == "section":
        return replace(view, focus="gpus" if view.focus == "processes" else "processes")
    if key_id in ("longer", "shorter"):
        return zoomed(view, 1 if key_id == "longer" else -1)
    if key_id == "tree":
        modes: tuple[TreeMode, ...] = ("auto", "all", "none")
        return replace(view, tree=modes[(modes.index(view.tree) + 1) % 3])
    if key_id == "layout":
        layouts: tuple[Layout, ...] = ("auto", "panes", "list")
        return replace(view, layout=layouts[(layouts.index(view.layout) + 1) % 3])
    if key_id == "invert":
        return replace(view, inverted=not view.inverted)
    if key_id == "sort_next":
        keys = [column.key for column in process_table.COLUMNS]
        return replace(view, sort=keys[(keys.index(view.sort) + 1) % len(keys)], inverted=False)
    if key_id == "pause":
        return replace(view, paused=not view.paused)
    if key_id == "release":
        return replace(view, gpu=None, process=None, scroll=0, message=None)
    return view


def _other_gpu(view: View, frame: Frame, step: int) -> View:
    gpus = frame.snapshot.gpus
    if not gpus:
        return view
    at = (selected_gpu(frame, view) + step) % len(gpus)
    return replace(view, gpu=gpus[at].static.uuid, process=None)


def _other_process(view: View, frame: Frame, step: int) -> View:
    rows = process_table.shown_rows(frame, view)
    if not rows:
        return view
    at = process_table.cursor(rows, frame, view)
    to = max(0, min(len(rows) - 1, at + step))
    return replace(view, process=process_table.key_of(rows[to].process))
