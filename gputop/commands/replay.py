"""`gputop replay`: the screen on a recording, judged again."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from gputop.command_line.registry import Needs
from gputop.command_line.screen import app_of, end, guarded, screen_options
from gputop.command_line.shared_options import (
    filterable,
    moment_in,
    recording_argument,
    recording_filter_of,
)
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.recording.reader import Recording
from gputop.session.opening import SOON_S, Opened, Opening
from gputop.session.player import Player
from gputop.sources.recorded import RecordedSource
from gputop.system.awaited import run_here

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
    opening = Opening(args.file, partial(_opened, args, settings))
    # With an error no screen opens.
    early = opening.opened() if run_here(opening.ended(SOON_S)) else None
    screen = screen_options(args, settings, "gputop report FILE")
    with guarded(opening.close) as guard:
        guard.mute()
        from gputop.session.playback import Playback

        app = app_of(screen, Playback(player=None if early is None else early.player), guard)
        if early is None:
            app.opens = opening
        else:
            app.opening = early.said
        app.run(mouse=settings.mouse)
    end(app, guard)


def _opened(
    args: argparse.Namespace, settings: Settings, note_read: Callable[[int], None]
) -> Opened:
    """Open the recording where it is to be played, or where its first problem shows.

    With a time, a speed or a loop it is to be played.
    """
    recording = Recording(args.file, recording_filter_of(args, settings), note_read)
    at = None if args.at is None else moment_in(recording, args.at)
    player = Player(RecordedSource(recording, at=at, speed=args.speed, loop=args.loop))
    is_played = at is not None or args.speed != USUAL_SPEED or args.loop
    return Opened(player, "" if is_played else player.open())
