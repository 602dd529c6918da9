"""A source on the screen of this terminal, for every command that shows one: its first picture, the screen, its end."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from msgspec.structs import replace

from gputop.config import Settings
from gputop.model.source import PlayedSource, Source, UsageError
from gputop.monitor import Frame
from gputop.output.ansi import ansi_text
from gputop.paint.glyphs import Terminal, choose
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import THEMES
from gputop.paint.view import View
from gputop.system.worker import once

if TYPE_CHECKING:
    import argparse

    from gputop.model.expression import Expression
    from gputop.model.inspection import ProcessAccess
    from gputop.paint.view import Hint
    from gputop.recording.recent_past import Past
    from gputop.session.session import RunWatcher, Session
    from gputop.tui.node_app import GputopApp
    from gputop.tui.terminal.guard import TerminalGuard
    from gputop.tui.textual_internals import QuietApp


FIRST_WAIT_S = 0.5
"""How long the first frame waits for the first snapshot before the screen loads without it."""


def screen_terminal(settings: Settings, instead: str = "gputop once") -> Terminal:
    """The terminal to draw on. Raises UsageError where there is none, naming the command to use ``instead``."""
    if not (sys.stdin and sys.stdout and sys.stderr and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"the screen needs a terminal on stdin and stdout: use `{instead}` in scripts and pipes")
    if not sys.stderr.isatty():
        raise UsageError("the screen is drawn on stderr, which is redirected: leave it on the terminal")
    kind = os.environ.get("TERM", "")
    if kind in ("", "dumb"):
        why = f"TERM={kind} cannot show a screen" if kind else "TERM is not set, so the terminal is unknown"
        raise UsageError(f"{why}: use `{instead}`, or set TERM to what your terminal is (xterm-256color)")
    return choose(
        os.environ,
        sys.stdout.encoding,
        theme=settings.theme,
        ascii_only=settings.ascii,
        no_color=settings.no_color,
    )


def first_view(
    settings: Settings, terminal: Terminal, *, demo: bool = False, passing: Expression | None = None
) -> View:
    """The main screen's state before any key."""
    from gputop.paint.layout import density
    from gputop.paint.process_columns import existing_columns
    from gputop.paint.process_filter import NO_FILTER
    from gputop.paint.view import View

    return View(
        glyphs=terminal.glyphs,
        columns=existing_columns(settings.columns),
        density=density(settings.density),
        filter=passing or NO_FILTER,
        span_s=settings.span,
        utc_offset_s=float(time.localtime().tm_gmtoff),
        read_only=settings.read_only,
        demo=demo,
    )


def first_hint(settings: Settings, *, tour: bool = False) -> Hint:
    """The keys on the last row; with the tour where there is one."""
    if not settings.hint:
        return ()
    from gputop.paint.keys import KEYS, wanted_keys
    from gputop.paint.view import hint_of

    keys = wanted_keys(settings.key_preset, settings.keys)
    if not keys:
        return hint_of(KEYS, tour=tour)
    from gputop.paint.keys import rebound

    return hint_of(rebound(KEYS, keys)[0], tour=tour)


def show(
    args: argparse.Namespace,
    source: Source,
    settings: Settings,
    terminal: Terminal,
    *,
    session: Session | None = None,
    access: Callable[[], ProcessAccess] | None = None,
    passing: Expression | None = None,
    counters: Callable[[], str] | None = None,
    alerts: RunWatcher | None = None,
    demo: bool = False,
    remedied: Callable[[], Frame] | None = None,
    begins_with: str = "",
) -> NoReturn:
    """Run the screen on a source until the user leaves it, and end the process.

    Collecting begins before anything that draws is imported, and the first frame is drawn before Textual is. A
    ``session`` that has taken a snapshot already gives the first frame. ``counters`` releases the GPUs' hardware
    counters or takes them again, and says which. ``remedied`` gives the demo's node after its remedies, for its tour;
    ``begins_with`` is the id of a key that is pressed first. ``alerts`` are judged meanwhile, and closed.
    """
    wake: list[Callable[[], None]] = []
    ready = threading.Event()

    def notify() -> None:
        ready.set()
        for call in wake:
            call()

    from gputop.tui.terminal.guard import TerminalGuard
    from gputop.tui.terminal.printed_meanwhile import dropped

    guard = TerminalGuard()
    drawn = app = None
    with dropped():
        try:
            from gputop.monitor import Monitor
            from gputop.session.session import Session

            guard.watch()
            source.start(notify)
            session = session or Session(Monitor(settings.interval))
            session.alerts = alerts
            view = replace(
                first_view(settings, terminal, demo=demo, passing=passing),
                hint=first_hint(settings, tour=remedied is not None),
            )
            first = session.monitor.latest
            if first is None and ready.wait(FIRST_WAIT_S) and (snapshot := source.poll()) is not None:
                first = session.take(snapshot)
            # Before anything is drawn, into which typed keys would be echoed.
            guard.mute()
            if first is not None:
                draw(first, view, terminal)
                drawn = True
            app = _app(args, settings, terminal, view, source, session, access() if access else None, guard)
            app.toggle_counters, app.remedied, app.begins_with = counters, remedied, begins_with
            wake.append(app.ready)
            app.run(mouse=settings.mouse)
        finally:
            guard.hurry(1)
            wake.clear()
            source.close()
            if alerts is not None:
                alerts.close()
            if drawn and app is None:
                undo()
            guard.finish()
    end(app, guard)


def replay_past(past: Past) -> PlayedSource:
    """The run's own past, to be played. The code that reads recordings is imported when the user looks back."""
    from gputop.sources.recorded import RecordedSource

    return RecordedSource(past)


def end(app: QuietApp, guard: TerminalGuard) -> NoReturn:
    """End the process after the screen, with its exit status. Raises what has ended the screen unasked."""
    if app.crash is not None and guard.asked_status is None:
        raise app.crash
    guard.end(app.return_code or 0)


def _app(
    args: argparse.Namespace,
    settings: Settings,
    terminal: Terminal,
    view: View,
    source: Source,
    session: Session,
    access: ProcessAccess | None,
    guard: TerminalGuard,
) -> GputopApp:
    """The application on a started source; importing it is most of the time until the first key is heard."""
    from gputop.commands.config_file import ConfigWatch
    from gputop.paint.keys import wanted_keys
    from gputop.session.player import Playback
    from gputop.tui.node_app import GputopApp

    return GputopApp(
        view,
        terminal.theme,
        Playback(source=source, session=session, replay_past=replay_past),
        access=access,
        guard=guard,
        bell=settings.bell,
        show_secrets=settings.show_secrets,
        keys=wanted_keys(settings.key_preset, settings.keys),
        reload=ConfigWatch(args.__dict__.get("config"), os.environ, vars(args), alerts=settings.alert).poll,
        depth=terminal.depth,
    )


# The first frame as plain text, drawn while the screen library still loads.
#
# Importing Textual takes longer than measuring and painting; the viewer need not wait for it. Textual then takes the
# terminal over and paints the same rows again.

ALTERNATE_SCREEN = "\x1b[?1049h\x1b[?25l\x1b[H"
MAIN_SCREEN = "\x1b[?25h\x1b[?1049l"


def draw(frame: Frame, view: View, terminal: Terminal) -> None:
    """Draw one frame on stderr's terminal, as Textual does, without waiting for it to be taken."""
    assert sys.__stderr__ is not None
    descriptor = sys.__stderr__.fileno()
    size = os.get_terminal_size(descriptor)
    rows = main_screen(frame, view, max(20, size.columns), max(1, size.lines)).rows
    text = ansi_text(rows, THEMES[terminal.theme], terminal.depth, newline="\r\n")
    data = (ALTERNATE_SCREEN + text).encode("utf-8", "replace")
    # A thread, because a terminal that takes no output would hold the write for ever.
    once("first-frame", lambda: os.write(descriptor, data))


def undo() -> None:
    """Back to the main screen, when the screen library never took over."""
    assert sys.__stderr__ is not None
    os.write(sys.__stderr__.fileno(), MAIN_SCREEN.encode())
