"""The interactive screen of a fleet: what a watch has, as its view says. What keys do is in ``fleet_key_handlers``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from gputop.features.fleet.fleet_frame import FleetFrame
from gputop.features.fleet.fleet_key_handlers import ALWAYS, FleetKeys, FleetMain
from gputop.features.fleet.fleet_screen import FleetPainted, fleet_screen, waiting_screen
from gputop.features.fleet.fleet_view import (
    FLEET_KEYS,
    FleetView,
    drawn_hosts,
    moved,
    rows_of,
    selected_host,
    sorted_by,
)
from gputop.features.fleet.watch_thread import FleetWatch
from gputop.output.ansi import Differ
from gputop.paint.glyphs import Depth
from gputop.paint.keys import NO_KEYS, Key, rebound
from gputop.paint.theme import THEMES, Theme
from gputop.system.children import in_our_terminal
from gputop.tui.painted_app import LATE_INTERVALS, PaintedApp, bindings
from gputop.tui.terminal.guard import TerminalGuard
from gputop.tui.terminal.painted_lines import Lines

# The fleet's rows, and the mouse on them.

WHEEL_ROWS = 3


class FleetCanvas(Lines):
    """Shows a frame. With ``write``, changes go straight to the terminal, see ``Lines``."""

    def __init__(self, main: FleetMain, depth: Depth, write: Callable[[str], None] | None) -> None:
        super().__init__(main.look, write, Differ(main.look, depth))
        self._main = main
        self._depth = depth
        self._painted: FleetPainted | None = None

    @property
    def page(self) -> int:
        """Rows of the list that are shown at once."""
        return 1 if self._painted is None else self._painted.page

    def show(self, frame: FleetFrame | None, view: FleetView, width: int, height: int) -> None:
        """Draw a frame, or say what is awaited."""
        if frame is None:
            text = view.error or f"asking {self._main.watched.fleet.source} …"
            self.set_rows(waiting_screen(text, width, height))
            return
        self._painted = fleet_screen(frame, view, width, height)
        self.set_rows(self._painted.rows)

    def apply_theme(self, theme: Theme) -> None:
        """Draw in other colours, also in screens opened later."""
        self._main.look = theme
        self.set_theme(theme, Differ(theme, self._depth))
        self._main.paint_soon()

    def on_mouse_scroll_down(self) -> None:
        self._scroll(WHEEL_ROWS)

    def on_mouse_scroll_up(self) -> None:
        self._scroll(-WHEEL_ROWS)

    def _scroll(self, rows: int) -> None:
        frame, view = self._main.frame, self._main.view
        if frame is not None and view.panel != "host":
            self._main.see(moved(rows_of(frame, view), view, rows, self.page))

    def on_click(self, event: events.Click) -> None:
        """Select; a second click opens; a column's head sorts; a key's words are that key."""
        painted, view = self._painted, self._main.view
        if painted is None or event.screen_y >= len(painted.targets):
            return
        target = painted.targets[event.screen_y]
        target = None if target is None else target.at(event.screen_x)
        if target is None or target.key is None:
            return
        if target.kind == "row":
            self._main.see(replace(view, cursor=str(target.key)))
            if event.chain == 2:
                self._main.press("open")
        elif target.kind == "head":
            self._main.see(sorted_by(view, str(target.key)))
        elif target.kind == "key":
            self._main.press(str(target.key))


WATCH_S = 1.0


class FleetReady(Message):
    """The watch has something new. Several that wait count as one."""

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, FleetReady)


class FleetApp(PaintedApp[FleetView]):
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
        depth: Depth = "truecolor",
    ) -> None:
        super().__init__(guard)
        self.view = view
        self.look = THEMES[theme]
        self.watched = watch
        self.table = rebound(FLEET_KEYS, keys)[0]
        usual = {key.id: key.keys for key in FLEET_KEYS}
        self.set_keymap({key.id: key.keys for key in self.table if key.keys != usual[key.id]})
        self.frame: FleetFrame | None = None
        self._keys = FleetKeys(self)
        self._canvas = FleetCanvas(self, depth, self.outlet.write if guard else None)

    # -- life -------------------------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield self._canvas

    def on_mount(self) -> None:
        self.guard_terminal()
        self.watched.start(self.ready)
        self.set_interval(WATCH_S, self._grow_old)
        self._take()
        self.paint()

    def on_unmount(self) -> None:
        self.watched.close()

    def ready(self) -> None:
        """Called by the watch, from its thread."""
        self.post_message(FleetReady())

    def on_fleet_ready(self) -> None:
        if not (self.view.paused and self.view.at is None) or self.frame is None:
            self._take()
        self.paint_soon()

    def _take(self) -> None:
        shown = self.watched.shown
        self.frame = shown.frame
        interval_s = self.watched.fleet.interval_s
        self.view = replace(self.view, error=shown.error, interval_s=interval_s, stale_s=self._stale_s())

    def _stale_s(self) -> float | None:
        """How old the screen is, where a refresh failed or no answer came for too long."""
        late = self.watched.age_s
        is_stale = self.watched.is_failing or late > LATE_INTERVALS * self.watched.fleet.interval_s
        return late if is_stale and not self.view.paused else None

    def _grow_old(self) -> None:
        stale_s = self._stale_s()
        if stale_s is not None or self.view.stale_s is not None:
            self.see(replace(self.view, stale_s=stale_s, error=self.watched.shown.error))

    def _host(self) -> str | None:
        """The host whose last hour is drawn."""
        return None if self.frame is None else selected_host(self.frame, self.view)

    # -- painting ---------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        width, height = self.size
        host, shown = self._host(), self.watched.shown
        view = self.view
        if view.panel in ("hosts", "host"):
            self.watched.look_at(host)
            self.watched.see(drawn_hosts(self.frame, view, self.page))
            view = replace(view, host=host, history=shown.history if shown.host == host else None)
        if self._canvas.is_attached and not self.is_covered and width and height:
            self._canvas.show(self.frame, view, width, height)

    def apply_theme(self, theme: Theme) -> None:
        """Draw in other colours."""
        self._canvas.apply_theme(theme)

    @property
    def page(self) -> int:
        """Rows of the list that are shown at once."""
        return self._canvas.page

    # -- keys -------------------------------------------------------------------------------------------------------

    def counts(self, key_id: str) -> bool:
        return key_id in ALWAYS or len(self.screen_stack) == 1

    def press(self, key_id: str) -> None:
        self._keys.press(key_id)

    def run_there(self, host: str, command: Sequence[str]) -> None:
        """A host's own screen in the place of this one, until it is left."""
        with self.suspend():
            try:
                status = in_our_terminal(command)
            except OSError:
                status = -1
        self._canvas.apply_theme(self.look)
        if status:
            self.say(f"{host}: its screen ended with status {status}")

    def offered(self) -> Iterable[Key]:
        return self.table

    def choices(self) -> Iterable[tuple[str, Callable[[], None]]]:
        return self.themes(self.apply_theme)
