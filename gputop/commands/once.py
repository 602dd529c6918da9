"""One measured snapshot: a table for people, JSON or CSV for scripts. Never imports Textual."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.commands.argument_parser import filterable, selectable, serving, waiting
from gputop.commands.needs import Needs
from gputop.commands.printed_once import data_of, lines_of, passing_of, redacted_reading, table_of
from gputop.commands.shared_options import redactor_of, wait_of
from gputop.config import Settings
from gputop.diagnosis.readings import Readings
from gputop.output.messages import NOTHING_READ, say

NEEDS = Needs()

if TYPE_CHECKING:
    from gputop.sources.marks import MarkListener

STEPS_WAIT_S = 2.2
"""A job announces its steps once a second, or once a step where those are longer."""


def arguments(command: argparse.ArgumentParser) -> None:
    selectable(command)
    filterable(command)
    waiting(command)
    serving(command)
    text = (
        "wait two seconds for the steps that jobs announce (gputop.watch), and show steps, samples and tokens a second"
    )
    command.add_argument("--steps", action="store_true", default=argparse.SUPPRESS, help=text)
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--csv", action="store_true", help="one row a GPU")
    form.add_argument("--format", metavar="TEXT", help="a line a GPU: {index} {sm_active_pct}; keys as in --json")


def run(args: argparse.Namespace, settings: Settings) -> int:
    wait_s = wait_of(args)
    check_format(args)
    redactor = redactor_of(settings)
    passing = passing_of(args, redactor)
    from gputop.sources.local import open_local, servers_asked

    listener, begun = _listener(args), time.monotonic()
    source = open_local(settings)
    printed = lines_of if args.format is not None else data_of if args.json or args.csv else table_of
    try:
        with servers_asked(settings) as with_servers:
            source.look(wait_s, say)
            # Imports what prints: between the two looks there is time for it.
            text_of = printed(args, settings, passing)
            reading = source.read_once(wait_s, say)
            if listener is not None:
                time.sleep(max(0.0, STEPS_WAIT_S - (time.monotonic() - begun)))
                listener.drain()
                reading = replace(reading, snapshot=replace(reading.snapshot, steps=listener.steps()))
            reading = replace(reading, snapshot=Readings().believed(with_servers(reading.snapshot)))
    finally:
        source.close()
        if listener is not None:
            listener.close()
    sys.stdout.write(text_of(redacted_reading(reading, redactor)))
    sys.stdout.flush()
    if args.csv and not reading.complete:
        # CSV has no place for it.
        say("; ".join(reading.snapshot.notices))
    return 0 if reading.has_measured else NOTHING_READ


def check_format(args: argparse.Namespace) -> None:
    """Refuse a line with a key that is not there, before anything is measured. Raises UsageError."""
    if args.format is not None:
        from gputop.output.line_format import checked
        from gputop.output.snapshot_data import LINE_KEYS

        checked(args.format, LINE_KEYS)


def _listener(args: argparse.Namespace) -> MarkListener | None:
    """Where jobs send their steps to, from now on; None where they are not asked for."""
    if not getattr(args, "steps", False):
        return None
    from gputop.sources.marks import MarkListener

    return MarkListener()
