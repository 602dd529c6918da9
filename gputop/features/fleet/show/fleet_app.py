"""The interactive screen of a fleet, with its keys and mouse."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from gputop.features.fleet.judge.fleet_frame import FleetFrame, GpuGroup, WastedHours
from gputop.features.fleet.show import fleet_view
from gputop.features.fleet.show.fleet_screen import (
    FleetPainted,
    fleet_screen,
    help_rows,
    waiting_screen,
)
from gputop.features.fleet.show.fleet_ticket import ticket
from gputop.features.fleet.show.fleet_view import FLEET_KEYS, FleetView, Panel
from gputop.features.fleet.show.watch_thread import FleetWatch
from gputop.model.expression import ExpressionError
from gputop.paint.keys import NO_KEYS, Key, rebound
from gputop.paint.line import Row
from gputop.paint.process_filter import NO_FILTER
from gputop.paint.theme import THEMES, Theme
from gputop.recording.moments import moment
from gputop.session.screen_files import saved_picture
from gputop.system.children import in_our_terminal
from gputop.tui.keys.common_keys import CommonKeys
from gputop.tui.painted_app import ALWAYS, LATE_INTERVALS, bindings, keymap
from gputop.tui.screens.scrolling import RowsScreen
from gputop.tui.terminal.guard import TerminalGuard
from gputop.tui.terminal.rows_widget import LiveRows

WHEEL_ROWS = 3
WATCH_S = 1.0
STEP_S, DAY_S = 60.0, 86400.0
FAR = 10**6


class FleetRows(LiveRows):
    """Shows a frame and handles the mouse on it."""

    def __init__(self, main: FleetApp) -> None:
        super().__init__()
        self._main = main
        self._painted: FleetPainted | None = None

    @property
    def page(self) -> int:
        """Rows of the list that are shown at once."""
        return 1 if self._painted is None else self._painted.page

    def show(self, frame: FleetFrame | None, view: FleetView, width: int, height: int) -> None:
        """Draw a frame, or a waiting screen."""
        if frame is None:
            text = view.error or f"asking {self._main.watched.fleet.source} …"
            self.set_rows(waiting_screen(text, width, height))
            return
        self._painted = fleet_screen(frame, view, width, height)
        self.set_rows(self._painted.rows)

    def on_mouse_scroll_down(self) -> None:
        move(self._main, WHEEL_ROWS)

    def on_mouse_scroll_up(self) -> None:
        move(self._main, -WHEEL_ROWS)

    def on_click(self, event: events.Click) -> None:
        """Select a row, open it, sort by a head, or press a key's words."""
        targets = [] if self._painted is None else self._painted.targets
        target = targets[event.screen_y] if event.screen_y < len(targets) else None
        target = None if target is None else target.at_column(event.screen_x)
        if target is None or target.key is None:
            return
        key = str(target.key)
        if target.kind == "row":
            self._main.change(cursor=key)
            if event.chain == 2:
                self._main.press("open")
        elif target.kind == "head":
            self._main.see(fleet_view.sorted_by(self._main.view, key))
        elif target.kind == "key":
            self._main.press(key)


class FleetHelpScreen(RowsScreen, keys="help"):
    """The help: how to read the screen, and its keys."""

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__()
        self._keys = keys

    def rows(self, width: int) -> list[Row]:
        return help_rows(self._glyphs, width, self._keys)


class FleetReady(Message):
    """The watch has something new. Several that wait count as one."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FleetReady)


class FleetApp(CommonKeys[FleetView]):
    """Shows what a started watch has; keys and mouse make a new view."""

    BINDINGS: ClassVar[list[BindingType]] = bindings(FLEET_KEYS)

    def __init__(
        self,
        view: FleetView,
        theme: str,
        watch: FleetWatch,
        *,
        guard: TerminalGuard | None = None,
        keys: Mapping[str, str] = NO_KEYS,
    ) -> None:
        super().__init__(guard)
        self.view = view
        self.look = THEMES[theme]
        self.watched = watch
        self.table = rebound(FLEET_KEYS, keys)[0]
        self.set_keymap(keymap(FLEET_KEYS, self.table))
        self.frame: FleetFrame | None = None
        self.canvas = FleetRows(self)

    def compose(self) -> ComposeResult:
        yield self.canvas

    def on_mount(self) -> None:
        self.guard_terminal()
        # Called by the watch, from its thread.
        self.watched.start(lambda: self.post_message(FleetReady()))
        self.set_interval(WATCH_S, self._grow_old)
        self._take()
        self.paint()

    def on_unmount(self) -> None:
        self.watched.close()

    def on_fleet_ready(self) -> None:
        if not (self.view.paused and self.view.past_t is None) or self.frame is None:
            self._take()
        self.paint_soon()

    def _take(self) -> None:
        self.frame, error = self.watched.shown.frame, self.watched.shown.error
        interval_s = self.watched.fleet.interval_s
        self.view = replace(self.view, error=error, interval_s=interval_s, stale_s=self._stale_s())

    def _stale_s(self) -> float | None:
        """Age of the screen after a failed or late refresh."""
        late = self.watched.age_s
        is_stale = self.watched.is_failing or late > LATE_INTERVALS * self.watched.fleet.interval_s
        return late if is_stale and not self.view.paused else None

    def _grow_old(self) -> None:
        stale_s = self._stale_s()
        if stale_s is not None or self.view.stale_s is not None:
            self.change(stale_s=stale_s, error=self.watched.shown.error)

    def draw(self) -> None:
        width, height = self.size
        shown, view = self.watched.shown, self.view
        if view.panel in ("hosts", "host"):
            # The host whose last hour is drawn.
            frame = self.frame
            host = None if frame is None else fleet_view.selected_host(frame, view)
            self.watched.see(fleet_view.drawn_hosts(self.frame, view, self.canvas.page), host)
            view = replace(view, history=shown.history if shown.host == host else None)
        if self.canvas.is_attached and width and height:
            self.canvas.show(self.frame, view, width, height)

    def apply_theme(self, theme: Theme) -> None:
        """Draw in other colours, also in screens opened later."""
        self.look = theme
        self.canvas.apply_theme()

    def counts(self, key_id: str) -> bool:
        return key_id in ALWAYS or len(self.screen_stack) == 1

    def press(self, key_id: str) -> None:
        HANDLERS[key_id](self)

    def offered(self) -> Iterable[Key]:
        return self.table

    def choices(self) -> Iterable[tuple[str, Callable[[], None]]]:
        return self.themes()

    def show_panel(self, panel: Panel) -> None:
        """A list from its first row on."""
        self.change(panel=panel, cursor=None, first=0)

    def run_there(self, host: str, command: Sequence[str]) -> None:
        """A host's own screen in the place of this one, until it is left."""
        with self.suspend():
            try:
                status = in_our_terminal(command)
            except OSError:
                status = -1
        self.apply_theme(self.look)
        if status:
            self.say(f"{host}: its screen ended with status {status}")

    def go_to(self, at: float | None) -> None:
        """Show the fleet at a Unix time, or its present where that is not past."""
        at = None if at is None or at >= self.present else at
        self.change(past_t=at, paused=at is not None)
        self.watched.go_to(at)

    @property
    def present(self) -> float:
        """The fleet's present, Unix seconds."""
        present = self.watched.present
        return time.time() if present is None else present


def save_picture(app: FleetApp) -> None:
    if app.frame is not None:
        rows = fleet_screen(app.frame, app.view, *app.size).rows
        app.say(saved_picture(rows, app.look, "gputop-fleet", "gputop fleet", app.frame.t))


def toggle(app: FleetApp, panel: Panel) -> None:
    """Show a panel, or the hosts again where it is shown already."""
    app.show_panel("hosts" if app.view.panel == panel else panel)


def next_grouping(app: FleetApp) -> None:
    """Jobs, then users, then hosts again."""
    following: dict[Panel, Panel] = {"jobs": "users", "users": "hosts"}
    app.show_panel(following.get(app.view.panel, "jobs"))


def release(app: FleetApp) -> None:
    """Go back to the hosts; then clear the filter."""
    if app.view.panel == "host":
        app.change(panel="hosts", cursor=app.view.host)
    elif app.view.panel != "hosts":
        app.show_panel("hosts")
    elif app.view.filter:
        app.change(filter=NO_FILTER, first=0)


def open_row(app: FleetApp) -> None:
    """Open a host, or the hosts of a job or user."""
    frame, view = app.frame, app.view
    if frame is None or view.panel == "host":
        return
    host, entry = fleet_view.selected_host(frame, view), fleet_view.selected(frame, view)
    if host is not None and host in frame.read.opens:
        app.run_there(host, frame.read.opens[host])
    elif host is not None:
        app.see(replace(view, panel="host", host=host))
    elif isinstance(entry, (GpuGroup, WastedHours)):
        name, field = entry.key.partition("\t")[0], "user" if view.panel == "users" else "job"
        if not name or '"' in name:
            app.say(f"these GPUs have no {field} to filter by")
            return
        app.see(
            replace(
                view,
                panel="hosts",
                cursor=None,
                first=0,
                filter=fleet_view.parse(f'{field}:"{name}"'),
            )
        )


def choose_gpu(app: FleetApp, step: int) -> None:
    """Look at the next GPU of the selected host alone."""
    group = _shown_host(app)
    if group is None or not group.gpus:
        app.say("no host is selected whose GPUs are known")
        return
    app.see(fleet_view.next_gpu(app.view, group, step))


def _shown_host(app: FleetApp) -> GpuGroup | None:
    """The selected host, or the one on screen."""
    if app.frame is None:
        return None
    return app.frame.host(fleet_view.selected_host(app.frame, app.view))


def copy(app: FleetApp) -> None:
    """Copy the selected host or GPU, job or user for a ticket."""
    from gputop.tui.screens.text_page import show_copied

    if app.frame is None:
        return
    entry = _shown_host(app) or fleet_view.selected(app.frame, app.view)
    if not isinstance(entry, GpuGroup):
        app.say("no host is selected that could be copied")
        return
    chosen = fleet_view.chosen_gpu(app.view, entry)
    show_copied(app, ticket(app.frame, chosen, app.view.utc_offset_s))


def move(app: FleetApp, step: int) -> None:
    if app.frame is not None and app.view.panel != "host":
        app.see(
            fleet_view.moved(
                fleet_view.rows_of(app.frame, app.view), app.view, step, app.canvas.page
            )
        )


def next_order(app: FleetApp) -> None:
    names = list(fleet_view.SORTS)
    to = names[(names.index(app.view.sort) + 1) % len(names)]
    app.see(fleet_view.sorted_by(app.view, to))
    app.say(f"sorted by {to}")


def ask_for_filter(app: FleetApp) -> None:
    from gputop.tui.screens.prompt import Prompt

    before = app.view

    def check(text: str) -> str | None:
        try:
            app.change(filter=fleet_view.parse(text), first=0)
        except ExpressionError as error:
            return str(error)
        return None

    def closed(text: str | None) -> None:
        if text is None:
            app.change(filter=before.filter)

    if before.panel not in ("hosts", "jobs", "users"):
        app.show_panel("hosts")
    app.push_screen(Prompt("filter:", before.filter.text, check), closed)


def pause(app: FleetApp) -> None:
    if app.view.paused:
        app.go_to(None)
    else:
        app.change(paused=True)


def step_in_time(app: FleetApp, minutes: int) -> None:
    """A minute back or on; beyond the present it is the present."""
    if app.frame is not None and (app.view.past_t is not None or minutes < 0):
        app.go_to(app.frame.t + minutes * STEP_S)


def ask_for_time(app: FleetApp) -> None:
    from gputop.tui.screens.prompt import Prompt

    def jump(text: str | None) -> None:
        if not text or app.frame is None:
            return
        try:
            app.go_to(moment(text, app.present - DAY_S, app.present, app.frame.t, keep=False))
        except ValueError as error:
            app.say(str(error))

    app.push_screen(Prompt("jump to (12:03, -10m, an ISO date):"), jump)


HANDLERS: Mapping[str, Callable[[FleetApp], object]] = MappingProxyType({
    "quit": FleetApp.press_quit,
    "interrupt": FleetApp.press_interrupt,
    "help": lambda app: app.push_screen(FleetHelpScreen(app.table)),
    "palette": FleetApp.press_palette,
    "release": release,
    "screenshot": save_picture,
    "theme": FleetApp.press_theme,
    "suspend": FleetApp.press_suspend,
    "open": open_row,
    "jobs": next_grouping,
    **{panel: partial(toggle, panel=panel) for panel in ("stragglers", "waste", "alerts")},
    "previous_gpu": partial(choose_gpu, step=-1),
    "next_gpu": partial(choose_gpu, step=1),
    "copy": copy,
    "up": partial(move, step=-1),
    "down": partial(move, step=1),
    "page_up": lambda app: move(app, -max(1, app.canvas.page - 1)),
    "page_down": lambda app: move(app, max(1, app.canvas.page - 1)),
    "first": partial(move, step=-FAR),
    "last": partial(move, step=FAR),
    "sort": next_order,
    "invert": lambda app: app.change(inverted=not app.view.inverted, first=0),
    "filter": ask_for_filter,
    "pause": pause,
    "back": partial(step_in_time, minutes=-1),
    "on": partial(step_in_time, minutes=1),
    "jump": ask_for_time,
})  # fmt: skip
"""What each key does: a handler for each id of the table."""
