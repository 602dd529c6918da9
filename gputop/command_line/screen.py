"""The interactive screen: options, first picture, run and end.

Without a command it is the screen on this machine.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from gputop.command_line.registry import Needs
from gputop.command_line.shared_options import (
    filter_of,
    redacted_source,
    redactor_of,
    screen_watcher,
)
from gputop.config import ConfigError, Settings, default_path
from gputop.model.source import PlayedSource, Source, UsageError
from gputop.monitor import Frame, Monitor
from gputop.output.ansi import ansi_text
from gputop.paint.hint_row import hint_of
from gputop.paint.key_presets import wanted_keys
from gputop.paint.keys import KEYS, rebound
from gputop.paint.line import Row
from gputop.paint.main_screen import main_screen
from gputop.paint.process_columns import existing_columns
from gputop.paint.process_filter import NO_FILTER
from gputop.paint.terminal_kind import Terminal, choose
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.system.terminal_size import window_size
from gputop.system.worker import once

if TYPE_CHECKING:
    import argparse

    from gputop.model.expression import Expression
    from gputop.model.inspection import ProcessAccess
    from gputop.model.redaction import Redactor
    from gputop.recording.recent_past import Past
    from gputop.session.playback import Playback
    from gputop.session.preparation import Preparation
    from gputop.session.session import RunWatcher, Session
    from gputop.tui.node_app import GputopApp
    from gputop.tui.painted_app import PaintedApp
    from gputop.tui.terminal.guard import TerminalGuard


NEEDS = Needs("terminal")
FIRST_WAIT_S = 0.5
"""How long the first frame waits for the first snapshot before the screen loads without it."""


class ScreenOptions(Struct, frozen=True):
    """Options of a screen, from the command line and the settings."""

    args: argparse.Namespace
    settings: Settings
    redactor: Redactor | None
    terminal: Terminal
    view: View
    """The main screen's state before any key."""


def screen_options(
    args: argparse.Namespace,
    settings: Settings,
    instead: str = "gputop once",
    *,
    demo: bool = False,
    tour: bool = False,
) -> ScreenOptions:
    """Raises UsageError for a filter that means nothing, and without a terminal, see ``screen_terminal``."""
    redactor = redactor_of(settings)
    passing = filter_of(args, redactor)
    terminal = screen_terminal(settings, instead)
    return ScreenOptions(
        args,
        settings,
        redactor,
        terminal,
        first_view(settings, terminal, passing, demo=demo, tour=tour),
    )


def screen_terminal(settings: Settings, instead: str = "gputop once") -> Terminal:
    """Return the terminal to draw on.

    Raises UsageError without one, naming the command to use ``instead``.
    """
    if not (sys.stdin and sys.stdout and sys.stderr and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            f"the screen needs a terminal on stdin and stdout: use `{instead}` in scripts and pipes"
        )
    if not sys.stderr.isatty():
        raise UsageError(
            "the screen is drawn on stderr, which is redirected: leave it on the terminal"
        )
    kind = os.environ.get("TERM", "")
    if kind in ("", "dumb"):
        why = (
            f"TERM={kind} cannot show a screen"
            if kind
            else "TERM is not set, so the terminal is unknown"
        )
        raise UsageError(
            f"{why}: use `{instead}`, or set TERM to what your terminal is (xterm-256color)"
        )
    return stdout_terminal(settings)


def stdout_terminal(settings: Settings) -> Terminal:
    """How stdout is drawn on."""
    return choose(
        os.environ,
        sys.stdout.encoding,
        theme=settings.theme,
        ascii_only=settings.ascii,
        no_color=settings.no_color,
    )


def first_view(
    settings: Settings,
    terminal: Terminal,
    passing: Expression | None = None,
    *,
    demo: bool = False,
    tour: bool = False,
) -> View:
    """Return the main screen's state before any key."""
    user_keys = wanted_keys(settings.key_preset, settings.keys)
    keys = rebound(KEYS, user_keys)[0] if user_keys else KEYS
    return View(
        glyphs=terminal.glyphs,
        columns=existing_columns(settings.columns),
        filter=passing or NO_FILTER,
        hint=hint_of(keys, tour=tour) if settings.hint else (),
        span_s=settings.span,
        utc_offset_s=float(time.localtime().tm_gmtoff),
        read_only=settings.read_only,
        demo=demo,
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    screen = screen_options(args, settings)
    alerts = screen_watcher(args, settings)
    from gputop.sources.local import open_local, with_servers_of

    source = open_local(settings, lets_sleep=True, is_quick=True)
    # The driver is asked while the rest is imported.
    source.open()
    from gputop.sources.marked import Marked

    def access() -> ProcessAccess:
        from gputop.sources.processes.on_demand.control import ProcessControl
        from gputop.sources.redacted import RedactedAccess

        return (
            ProcessControl()
            if screen.redactor is None
            else RedactedAccess(ProcessControl(), screen.redactor)
        )

    watched = redacted_source(Marked(with_servers_of(source, settings)), screen.redactor)
    return show(screen, watched, access=access, alerts=alerts)


def show(
    screen: ScreenOptions,
    source: Source,
    *,
    session: Session | None = None,
    access: Callable[[], ProcessAccess] | None = None,
    alerts: RunWatcher | None = None,
    preparation: Preparation | None = None,
    first_rows: Callable[[int, int], list[Row]] | None = None,
    remedied: Callable[[], Frame] | None = None,
    begins_with: str = "",
) -> NoReturn:
    """Run the screen on a source until the user leaves it, and end the process.

    Measuring begins before the screen library is imported, and the first frame is drawn before that. A ``session`` that
    has taken a snapshot already gives the first frame; one that is still prepared shows the ``preparation``'s. The
    first picture is the main screen, or ``first_rows`` of a width and height. ``remedied`` gives the demo's node after
    its remedies, for its tour; ``begins_with`` is the id of a key that is pressed first. ``alerts`` are judged
    meanwhile, and closed.
    """
    from gputop.tui.terminal.guard import dropped

    app: GputopApp | None = None
    drawn = False

    def close() -> None:
        source.close()
        if preparation is not None:
            preparation.close()
        if alerts is not None:
            alerts.close()
        if drawn and app is None:
            undo()

    with dropped(), guarded(close) as guard:
        from gputop.session.arrivals import Arrivals
        from gputop.session.session import Session

        # Before anything is drawn, into which typed keys would be echoed.
        guard.mute()
        if screen.terminal.is_guess:
            guard.ask_background()
        # On a thread until the screen's loop takes over: the second reading comes while the screen is imported.
        arrivals = Arrivals(source)
        arrivals.start(FIRST_WAIT_S)
        session = session or Session(Monitor(screen.settings.interval))
        session.alerts = alerts
        first = session.monitor.latest if preparation is None else preparation.first
        if first is None:
            for snapshot in arrivals.new():
                first = session.take(snapshot)
        # The answer came while the GPUs were read, or comes later and changes the colours then.
        if screen.terminal.is_guess and guard.read_early():
            screen = replace(screen, terminal=replace(screen.terminal, theme="light"))
        if preparation is not None:
            screen = replace(screen, view=replace(screen.view, message=preparation.words()))
        if first is not None:
            draw(first_rows or partial(_main_rows, first, screen.view), screen.terminal)
            drawn = True
        if preparation is not None:
            # After the first picture, which it would delay.
            preparation.start()
        from gputop.session.playback import Playback

        playback = Playback(
            source=source,
            session=session,
            replay_past=replay_past,
            arrivals=arrivals,
            preparation=preparation,
        )
        app = app_of(screen, playback, guard, access() if access else None)
        app.remedied, app.begins_with = remedied, begins_with
        app.run(mouse=screen.settings.mouse)
    end(app, guard)


@contextmanager
def guarded(close: Callable[[], object]) -> Iterator[TerminalGuard]:
    """Return the terminal's guard, which watches meanwhile.

    Then ``close`` is called, and the terminal put in order.
    """
    from gputop.tui.terminal.guard import TerminalGuard

    guard = TerminalGuard()
    try:
        guard.watch()
        yield guard
    finally:
        guard.hurry(1)
        close()
        guard.finish()


def app_of(
    screen: ScreenOptions,
    playback: Playback,
    guard: TerminalGuard,
    access: ProcessAccess | None = None,
) -> GputopApp:
    """The application; importing it is most of the time until the first key is heard."""
    from gputop.tui.node_app import GputopApp

    args, settings = vars(screen.args), screen.settings
    app = GputopApp(
        screen.view,
        screen.terminal.theme,
        playback,
        access=access,
        guard=guard,
        settings=settings,
    )
    app.follows_background = screen.terminal.is_guess
    app.save = partial(
        save, args.get("config") or os.environ.get("GPUTOP_CONFIG") or default_path()
    )
    return app


def save(path: str, name: str, value: object) -> str:
    """Save a setting in the configuration file; return what to tell the user."""
    from gputop.config.save import save_setting
    from gputop.config.toml_lines import assignment

    try:
        save_setting(path, name, assignment(name, value))
    except ConfigError as error:
        return str(error)
    return f"{name} saved in {path}"


def replay_past(past: Past) -> PlayedSource:
    """Return the run's own past, to be played.

    The code that reads recordings is imported when the user looks back.
    """
    from gputop.sources.recorded import RecordedSource

    return RecordedSource(past)


def end(app: PaintedApp[Any], guard: TerminalGuard) -> NoReturn:
    """End the process with the screen's exit status.

    Raises the error that ended the screen unasked.
    """
    if app.crash is not None and guard.asked_status is None:
        raise app.crash
    guard.end(app.return_code or 0)


ALTERNATE_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[H"
MAIN_SCREEN = "\x1b[?25h\x1b[?1049l"


def _main_rows(frame: Frame, view: View, width: int, height: int) -> list[Row]:
    return main_screen(frame, view, width, height).rows


def draw(rows_of: Callable[[int, int], list[Row]], terminal: Terminal) -> None:
    """Draw rows of a width and height on stderr's terminal, as Textual does.

    Does not wait for the terminal to take it.
    """
    assert sys.__stderr__ is not None
    descriptor = sys.__stderr__.fileno()
    columns, lines = window_size(descriptor)
    rows = rows_of(max(20, columns), max(1, lines))
    text = ansi_text(rows, THEMES[terminal.theme], terminal.depth, newline="\r\n")
    data = (ALTERNATE_SCREEN + text).encode("utf-8", "replace")
    # A thread, because a terminal that takes no output would hold the write for ever.
    once("first-frame", lambda: os.write(descriptor, data))


def undo() -> None:
    """Back to the main screen, when the screen library never took over."""
    assert sys.__stderr__ is not None
    os.write(sys.__stderr__.fileno(), MAIN_SCREEN.encode())
