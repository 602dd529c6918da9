"""A recording as CSV or JSON lines."""

from __future__ import annotations

import argparse
import sys

from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.output.dump import dump
from gputop.recording.index import Recording
from gputop.recording.moments import moment


def run(args: argparse.Namespace, settings: Settings) -> int:
    recording = Recording(args.file)
    first, last = recording.begin, recording.end
    recording.close()
    try:
        dump(
            args.file,
            sys.stdout,
            "json" if args.json else "csv",
            begin=None if args.begin is None else moment(args.begin, first, last),
            end=None if args.end is None else moment(args.end, first, last),
            gpus=None if not settings.gpus else [int(text) for text in settings.gpus.split(",")],
            columns=None if args.columns is None else args.columns.split(","),
        )
    except ValueError as error:
        raise UsageError(str(error)) from error
    return 0
