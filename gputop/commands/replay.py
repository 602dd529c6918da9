"""`gputop replay`: the screen on a recording, judged again."""

from __future__ import annotations

import argparse

from gputop.commands.registry import Needs
from gputop.commands.screen import app_of, end, guarded, screen_options
from gputop.commands.shared_options import (
    filterable,
    moment_in,
    recording_argument,
    recording_filter_of,
)
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.recording.reader import Recording
from gputop.sources.recorded import RecordedSource

NEEDS = Needs("terminal")

SPEEDS = (0.1, 600.0)
USUAL_SPEED = 1.0


def arguments(command: argparse.ArgumentParser) -> None:
    recording_argument(command, "file", "a recording, or a directory of them")
    filterable(command)
    add = command.add_argument
    text = (
        "play from there: 12:03, -10m, +1h, an ISO date (default: pause at the first finding, else "
        "at the end)"
    )
    add("--at", metavar="TIME", help=text)
    add(
        "--speed",
        metavar="N",
        type=float,
        default=USUAL_SPEED,
        help="recorded seconds to play in one second",
    )
    add("--loop", action="store_true", help="start over at the end")


def run(args: argparse.Namespace, settings: Settings) -> int:
    if not SPEEDS[0] <= args.speed <= SPEEDS[1]:
        raise UsageError(f"--speed must be from {SPEEDS[0]:g} to {SPEEDS[1]:g}, not {args.speed:g}")
    recording = Recording(args.file, recording_filter_of(args, settings))
    at = None if args.at is None else moment_in(recording, args.at)
    screen = screen_options(args, settings, "gputop report FILE")
    source = RecordedSource(recording, at=at, speed=args.speed, loop=args.loop)
    with guarded(source.close) as guard:
        guard.mute()
        from gputop.session.playback import Playback
        from gputop.session.player import Player

        player = Player(source)
        app = app_of(screen, Playback(player=player), guard)
        # With a time, a speed or a loop the recording is to be played; without any, the first problem is to be shown.
        if at is None and args.speed == USUAL_SPEED and not args.loop:
            app.opening = player.open()
        app.run(mouse=settings.mouse)
    end(app, guard)
