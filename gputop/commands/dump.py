"""A recording as CSV or JSON lines."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing

from gputop.command_line.shared_options import recording_argument, recording_filter_of, say_gaps
from gputop.config import Settings
from gputop.model.snapshot import Event
from gputop.model.source import UsageError
from gputop.output.messages import say
from gputop.output.recording_dump import dump
from gputop.recording.reader import Recording


def arguments(command: argparse.ArgumentParser) -> None:
    recording_argument(command, "file", "a recording, or a directory of them")
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--csv", action="store_true", help="one row a GPU and frame (the default)")
    forms.add_argument("--json", action="store_true", help="one object a frame")
    command.add_argument("--begin", metavar="TIME", help="12:03, -10m, an ISO date or Unix seconds")
    command.add_argument("--end", metavar="TIME", help="the same forms")


def run(args: argparse.Namespace, settings: Settings) -> int:
    gaps: list[Event] = []
    begin, end = _moments(args)
    frames = dump(
        args.file,
        sys.stdout,
        "json" if args.json else "csv",
        begin=begin,
        end=end,
        recording_filter=recording_filter_of(args, settings),
        gaps=gaps,
    )
    say_gaps(gaps)
    if frames == 0:
        say("no frame of the recording is in this time")
    return 0


def _moments(args: argparse.Namespace) -> tuple[float | None, float | None]:
    """Return the times between which frames are wanted, None where the recording's end is.

    Raises UsageError.
    """
    if args.begin is None and args.end is None:
        return None, None
    with closing(Recording(args.file)) as recording:
        try:
            begin = None if args.begin is None else recording.moment_anywhere(args.begin)
            end = None if args.end is None else recording.moment_anywhere(args.end)
        except ValueError as error:
            raise UsageError(str(error)) from error
    return begin, end
