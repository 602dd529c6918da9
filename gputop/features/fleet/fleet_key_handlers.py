"""What the keys of the fleet's screen do: a handler for each id of the table, checked at import; and the help."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

from msgspec.structs import replace
from textual.binding import BindingType
from textual.geometry import Size
from textual.screen import Screen

from gputop.features.fleet.fleet_frame import FleetFrame
from gputop.features.fleet.fleet_rows import ticket_text
from gputop.features.fleet.fleet_screen import fleet_screen, help_rows
from gputop.features.fleet.fleet_view import (
    FLEET_KEYS,
    SORTS,
    FleetView,
    Panel,
    moved,
    parse,
    position,
    rows_of,
    selected_host,
    sorted_by,
)
from gputop.features.fleet.watch_thread import FleetWatch
from gputop.model.expression import ExpressionError
from gputop.paint.glyphs import Glyphs
from gputop.paint.keys import Key
from gputop.paint.line import Row
from gputop.paint.process_filter import NO_FILTER, remembered
from gputop.paint.theme import Theme
from gputop.recording.recorded_times import moment
from gputop.session.record_run import saved_picture
from gputop.tui.keys.key_handlers import check
from gputop.tui.screens.scrolling import RowsScreen, page_bindings
from gputop.tui.terminal.driver import Outlet

# The help of the fleet's screen.


class FleetHelpScreen(RowsScreen):
    """What the screen shows, and its keys."""

    BINDINGS: ClassVar[list[BindingType]] = page_bindings("help")

    def __init__(self, theme: Theme, glyphs: Glyphs, keys: Sequence[Key]) -> None:
        super().__init__(theme, glyphs)
        self._keys = keys

    def rows(self, width: int) -> list[Row]:
        return help_rows(self._glyphs, width, self._keys)


# What the fleet's keys and rows need of the screen that they act on.


class FleetMain(Protocol):
    """The fleet's screen: what it shows, and how to show something else."""

    view: FleetView
    look: Theme
    watched: FleetWatch
    outlet: Outlet
    table: tuple[Key, ...]
    frame: FleetFrame | None

    @property
    def size(self) -> Size: ...
    @property
    def page(self) -> int: ...
    @property
    def screen_stack(self) -> list[Screen[Any]]: ...
    def see(self, view: FleetView) -> None: ...
    def say(self, text: str) -> None: ...
    def press(self, key_id: str) -> None: ...
    def paint_soon(self) -> None: ...
    def leave(self) -> None: ...
    def open_palette(self) -> None: ...
    def apply_theme(self, theme: Theme) -> None: ...
    def action_suspend_process(self) -> None: ...
    def run_there(self, host: str, command: Sequence[str]) -> None: ...
    def push_screen(self, screen: Screen[Any], callback: Callable[[Any], None] | None = None) -> object: ...


ALWAYS = frozenset(("interrupt", "suspend", "palette"))
"""Keys that count in every screen."""
STEP_S, DAY_S = 60.0, 86400.0
FAR = 10**6


class FleetKeys:
    """Acts on one screen."""

    def __init__(self, screen: FleetMain) -> None:
        self._screen = screen
        self._asked_before: tuple[str, ...] = ()
        self._handlers = {key_id: partial(handler, self) for key_id, handler in HANDLERS.items()}

    def press(self, key_id: str) -> None:
        """Run the command of one key."""
        self._handlers[key_id]()

    @property
    def frame(self) -> FleetFrame | None:
        """The frame that shows."""
        return self._screen.frame

    # -- everywhere -------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        self._screen.leave()

    def suspend(self) -> None:
        self._screen.action_suspend_process()

    def palette(self) -> None:
        self._screen.open_palette()

    def help(self) -> None:

        screen = self._screen
        screen.push_screen(FleetHelpScreen(screen.look, screen.view.glyphs, screen.table))

    def theme(self) -> None:
        from gputop.tui.screens.box import choose_theme

        choose_theme(self._screen, self._screen.view.glyphs, self._screen.apply_theme)

    def screenshot(self) -> None:
        if self.frame is not None:
            rows = fleet_screen(self.frame, self._screen.view, *self._screen.size).rows
            self._screen.say(saved_picture(rows, self._screen.look, "gputop-fleet", "gputop fleet", self.frame.t))

    def copy(self) -> None:
        if self.frame is not None:
            self._copied(ticket_text(self.frame, self._screen.view))

    def copy_ssh(self) -> None:
        """Copy the command that opens gputop on the selected host, or say why there is none."""
        host = None if self.frame is None else selected_host(self.frame, self._screen.view)
        if self.frame is None or host is None:
            self._screen.say("select a host first")
            return
        command = self.frame.ssh(host)
        if command is None:
            self._screen.say(
                "hosts are redacted: no command"
                if self.frame.read.is_redacted
                else "a shell or ssh could misread this host's name: no command"
            )
            return
        self._copied(command + "\n")

    def _copied(self, text: str) -> None:
        from gputop.tui.screens.box import show_copied

        show_copied(self._screen, text, self._screen.outlet.write)

    # -- what is shown ----------------------------------------------------------------------------------------------

    def panel(self, panel: Panel) -> None:
        """Show a panel, or the hosts again where it is shown already."""
        view = self._screen.view
        to: Panel = "hosts" if view.panel == panel else panel
        self._screen.see(replace(view, panel=to, cursor=None, first=0))

    def jobs(self) -> None:
        """Jobs, then users, then hosts again."""
        next_panel: dict[Panel, Panel] = {"jobs": "users", "users": "hosts"}
        view = self._screen.view
        self._screen.see(replace(view, panel=next_panel.get(view.panel, "jobs"), cursor=None, first=0))

    def release(self) -> None:
        """Back to the hosts, with the cursor on the one that was open; then without the filter."""
        view = self._screen.view
        if view.panel == "host":
            self._screen.see(replace(view, panel="hosts", cursor=view.host))
        elif view.panel != "hosts":
            self._screen.see(replace(view, panel="hosts", cursor=None, first=0))
        elif view.filter:
            self._screen.see(replace(view, filter=NO_FILTER, first=0))

    def open(self) -> None:
        """The host in full, by ssh its own screen; the hosts of a job, of a user or of a row of waste."""
        frame, view = self.frame, self._screen.view
        if frame is None or view.panel == "host":
            return
        host = selected_host(frame, view)
        if host is not None and host in frame.read.opens:
            self._screen.run_there(host, frame.read.opens[host])
            return
        if host is not None:
            self._screen.see(replace(view, panel="host", host=host))
            return
        rows = rows_of(frame, view)
        if not rows or view.panel == "alerts":
            return
        name = rows[position(rows, view)].partition("\t")[0]
        field = "user" if view.panel == "users" else "job"
        if not name or '"' in name:
            self._screen.say(f"these GPUs have no {field} to filter by")
            return
        self._screen.see(replace(view, panel="hosts", cursor=None, first=0, filter=parse(f'{field}:"{name}"')))

    def move(self, step: int) -> None:
        if self.frame is not None and self._screen.view.panel != "host":
            view = self._screen.view
            self._screen.see(moved(rows_of(self.frame, view), view, step, self._screen.page))

    def page(self, pages: int) -> None:
        self.move(pages * max(1, self._screen.page - 1))

    def sort(self) -> None:
        names = list(SORTS)
        view = self._screen.view
        to = names[(names.index(view.sort) + 1) % len(names)]
        self._screen.see(sorted_by(view, to))
        self._screen.say(f"sorted by {to}")

    def invert(self) -> None:
        view = self._screen.view
        self._screen.see(replace(view, inverted=not view.inverted, first=0))

    def filter(self) -> None:
        from gputop.tui.screens.box import Prompt

        screen, before = self._screen, self._screen.view

        def check(text: str) -> str | None:
            try:
                expression = parse(text)
            except ExpressionError as error:
                return str(error)
            screen.see(replace(screen.view, filter=expression, first=0))
            return None

        def done(text: str | None) -> None:
            if text is None:
                screen.see(replace(screen.view, filter=before.filter))
            else:
                self._asked_before = remembered(self._asked_before, text)

        if before.panel not in ("hosts", "jobs", "users"):
            screen.see(replace(before, panel="hosts", cursor=None, first=0))
        screen.push_screen(Prompt("filter:", before.filter.text, self._asked_before, check), done)

    # -- time -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        view = self._screen.view
        if view.paused:
            self._go_to(None, paused=False)
        else:
            self._screen.see(replace(view, paused=True))

    def step(self, minutes: int) -> None:
        """A minute back or on; beyond the present it is the present."""
        if self.frame is not None:
            at = self.frame.t + minutes * STEP_S
            if self._screen.view.at is None and minutes > 0:
                return
            self._go_to(None if at > self._present() else at, paused=at <= self._present())

    def _present(self) -> float:
        present = self._screen.watched.present
        return time.time() if present is None else present

    def _go_to(self, at: float | None, *, paused: bool) -> None:
        self._screen.see(replace(self._screen.view, at=at, paused=paused))
        self._screen.watched.go_to(at)

    def jump(self) -> None:
        from gputop.tui.screens.box import Ask

        self._screen.push_screen(Ask("jump to (12:03, -10m, an ISO date):"), self._jump_to)

    def _jump_to(self, text: str | None) -> None:
        if not text or self.frame is None:
            return
        try:
            at = moment(text, self._present() - DAY_S, self._present(), self.frame.t, keep=False)
        except ValueError as error:
            self._screen.say(str(error))
            return
        self._go_to(None if at >= self._present() else at, paused=at < self._present())


HANDLERS: Mapping[str, Callable[[FleetKeys], None]] = MappingProxyType({
    "quit": FleetKeys.leave,
    "interrupt": FleetKeys.leave,
    "help": FleetKeys.help,
    "palette": FleetKeys.palette,
    "release": FleetKeys.release,
    "copy": FleetKeys.copy,
    "copy_ssh": FleetKeys.copy_ssh,
    "screenshot": FleetKeys.screenshot,
    "theme": FleetKeys.theme,
    "suspend": FleetKeys.suspend,
    "open": FleetKeys.open,
    "jobs": FleetKeys.jobs,
    "stragglers": lambda keys: keys.panel("stragglers"),
    "waste": lambda keys: keys.panel("waste"),
    "alerts": lambda keys: keys.panel("alerts"),
    "up": lambda keys: keys.move(-1),
    "down": lambda keys: keys.move(1),
    "page_up": lambda keys: keys.page(-1),
    "page_down": lambda keys: keys.page(1),
    "first": lambda keys: keys.move(-FAR),
    "last": lambda keys: keys.move(FAR),
    "sort": FleetKeys.sort,
    "invert": FleetKeys.invert,
    "filter": FleetKeys.filter,
    "pause": FleetKeys.pause,
    "back": lambda keys: keys.step(-1),
    "on": lambda keys: keys.step(1),
    "jump": FleetKeys.jump,
})  # fmt: skip
check(FLEET_KEYS, HANDLERS)
