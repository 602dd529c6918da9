"""The screen on a recording: the same panes and verdicts, computed again from what was recorded."""

from __future__ import annotations

import argparse
import os

from msgspec.structs import replace

from gputop.commands.argument_parser import filterable
from gputop.commands.needs import Needs
from gputop.commands.screen import end, first_hint, first_view, screen_terminal
from gputop.commands.shared_options import filter_of, moment_in, recording_filter_of, redactor_of
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.paint.keys import wanted_keys
from gputop.recording.reader import Recording
from gputop.sources.recorded import RecordedSource
from gputop.tui.terminal.guard import TerminalGuard

NEEDS = Needs("terminal")

SPEEDS = (0.1, 600.0)
USUAL_SPEED = 1.0


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a recording, or a directory of them")
    filterable(command)
    command.add_argument(
        "--at",
        metavar="TIME",
        help="play from there: 12:03, -10m, +1h, an ISO date (default: pause at the first finding, else at the end)",
    )
    command.add_argument(
        "--speed", type=float, default=USUAL_SPEED, metavar="N", help="recorded seconds to play in one second"
    )
    command.add_argument("--loop", action="store_true", help="start over at the end")


def run(args: argparse.Namespace, settings: Settings) -> int:
    if not SPEEDS[0] <= args.speed <= SPEEDS[1]:
        raise UsageError(f"--speed must be from {SPEEDS[0]:g} to {SPEEDS[1]:g}, not {args.speed:g}")
    redactor = redactor_of(settings)
    passing = filter_of(args, redactor)
    recording = Recording(args.file, recording_filter_of(args, settings))
    at = None if args.at is None else moment_in(recording, args.at)
    terminal = screen_terminal(settings, "gputop report FILE")
    guard = TerminalGuard()
    guard.watch()
    source = RecordedSource(recording, at=at, speed=args.speed, loop=args.loop)
    # With a time, a speed or a loop the recording is to be played; without any, the first problem is to be shown.
    opens = at is None and args.speed == USUAL_SPEED and not args.loop
    try:
        guard.mute()
        from gputop.commands.config_file import ConfigWatch
        from gputop.session.player import Playback, Player
        from gputop.tui.node_app import GputopApp

        player = Player(source)
        opening = player.open() if opens else ""
        app = GputopApp(
            replace(first_view(settings, terminal, passing=passing), hint=first_hint(settings)),
            terminal.theme,
            Playback(player=player),
            guard=guard,
            keys=wanted_keys(settings.key_preset, settings.keys),
            reload=ConfigWatch(args.__dict__.get("config"), os.environ, vars(args)).poll,
            depth=terminal.depth,
        )
        app.opening = opening
        source.start(app.ready)
        app.run(mouse=settings.mouse)
    finally:
        guard.hurry(1)
        source.close()
        guard.finish()
    end(app, guard)
