"""One measured snapshot, or one after the other, as lines or data.

Never imports Textual.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.command_line.shared_options import (
    filter_of,
    filterable,
    filtered,
    redactor_of,
    serving,
    wait_of,
    waiting,
)
from gputop.config import Settings
from gputop.diagnosis.window.sanity import SanityFilter, believed_alone
from gputop.model.source import UsageError
from gputop.output.messages import NOTHING_READ, say
from gputop.system.terminal_size import output_width

if TYPE_CHECKING:
    from gputop.model.expression import Expression
    from gputop.model.redaction import Redactor
    from gputop.model.snapshot import Snapshot
    from gputop.sources.marks import MarkListener
    from gputop.sources.one_reading import OneReading

FOLLOW_WAIT_S = 1.0
"""How often a signal is heard while no snapshot comes."""
STEPS_WAIT_S = 2.2
"""A job announces its steps once a second, or once a step where those are longer."""


def arguments(command: argparse.ArgumentParser) -> None:
    filterable(command)
    waiting(command)
    serving(command)
    add = command.add_argument
    text = (
        "wait two seconds for the steps that jobs announce (gputop.watch), and show steps, samples "
        "and tokens a second"
    )
    add("--steps", action="store_true", help=text)
    add("--full", action="store_true", help="also buses, clocks, the host and the processes")
    add(
        "--follow",
        action="store_true",
        help="go on, with a line a GPU or a JSON object at each interval",
    )
    forms = command.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="one JSON object")
    forms.add_argument("--csv", action="store_true", help="one row a GPU")
    forms.add_argument(
        "--format", metavar="TEXT", help="a line a GPU: {index} {sm_active_pct}; keys as in --json"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    wait_s = wait_of(args)
    if args.format is not None:
        from gputop.output.format_line import checked
        from gputop.output.snapshot_data import LINE_KEYS

        checked(args.format, LINE_KEYS)
    if args.follow and (args.steps or args.full):
        raise UsageError(
            f"--{'steps' if args.steps else 'full'} is of one reading: leave --follow out, or take --json"
        )
    redactor = redactor_of(settings)
    passing = _passing(args, redactor)
    printed = _lines if args.format is not None else _data if args.json or args.csv else _table
    if args.follow:
        return _follow(settings, redactor, printed(args, settings, passing), has_head=args.csv)
    from gputop.sources.local import open_local, servers_asked

    listener, begun = _listener() if args.steps else None, time.monotonic()
    source = open_local(settings)
    try:
        with servers_asked(settings) as with_servers:
            source.look(wait_s, say)
            # Imports what prints: between the two looks there is time for it.
            text_of = printed(args, settings, passing)
            reading = source.read_once(wait_s, say)
            if listener is not None:
                time.sleep(max(0.0, STEPS_WAIT_S - (time.monotonic() - begun)))
                listener.drain()
                reading = replace(
                    reading, snapshot=replace(reading.snapshot, steps=listener.steps())
                )
            reading = replace(reading, snapshot=believed_alone(with_servers(reading.snapshot)))
    finally:
        source.close()
        if listener is not None:
            listener.close()
    sys.stdout.write(text_of(_redacted(reading, redactor)))
    sys.stdout.flush()
    if args.csv and not reading.complete:
        # CSV has no place for it.
        say("; ".join(reading.snapshot.notices))
    return 0 if reading.has_measured else NOTHING_READ


def _listener() -> MarkListener:
    """Return a new listener for the steps that jobs announce."""
    from gputop.sources.marks import MarkListener

    return MarkListener()


def _follow(
    settings: Settings,
    redactor: Redactor | None,
    text_of: Callable[[OneReading], str],
    *,
    has_head: bool,
) -> int:
    """Print every snapshot as it comes, until a signal or until nobody reads any more."""
    from gputop.session.arrivals import Arrivals
    from gputop.sources.local import open_local, with_servers_of
    from gputop.sources.one_reading import OneReading

    arrivals, sanity = Arrivals(with_servers_of(open_local(settings), settings)), SanityFilter()
    try:
        arrivals.start()
        is_first = True
        while True:
            for snapshot in arrivals.wait(FOLLOW_WAIT_S):
                text = text_of(_redacted(OneReading(sanity.believed(snapshot)), redactor))
                sys.stdout.write(text.partition("\n")[2] if has_head and not is_first else text)
                sys.stdout.flush()
                is_first = False
    finally:
        arrivals.source.close()


def printed_table(args: argparse.Namespace, settings: Settings, snapshot: Snapshot) -> str:
    """Return a snapshot as ``gputop once`` prints it.

    Raises UsageError for a filter that one snapshot cannot answer.
    """
    from gputop.sources.one_reading import OneReading

    redactor = redactor_of(settings)
    text_of = _table(args, settings, _passing(args, redactor))
    return text_of(_redacted(OneReading(snapshot), redactor))


def _redacted(reading: OneReading, redactor: Redactor | None) -> OneReading:
    """The reading as ``--redact`` shows it."""
    if redactor is None:
        return reading
    missing = [
        replace(gpu, uuid=redactor.device(gpu.uuid), reason=redactor.text(gpu.reason))
        for gpu in reading.missing
    ]
    return replace(reading, snapshot=redactor.snapshot(reading.snapshot), missing=tuple(missing))


def _passing(args: argparse.Namespace, redactor: Redactor | None) -> Expression | None:
    """Return the requested filter.

    Raises UsageError if one snapshot cannot answer it, or the form has no processes.
    """
    passing = filter_of(args, redactor)
    if not passing:
        return None
    if any(term.field == "verdict" for term in passing.terms):
        raise UsageError(
            "--filter: a verdict takes some seconds of watching: use `gputop diagnose`, or the screen"
        )
    form = (
        "--csv"
        if getattr(args, "csv", False)
        else "--format"
        if getattr(args, "format", None) is not None
        else ""
    )
    if form:
        raise UsageError(
            f"--filter, -u and -p select processes, and {form} prints GPUs: use --json, or the table"
        )
    return passing


def _data(
    args: argparse.Namespace, settings: Settings, passing: Expression | None
) -> Callable[[OneReading], str]:
    """Prints a reading as JSON, or as CSV."""
    from gputop.output.snapshot_data import gpu_csv, json_text, once_data

    def text(reading: OneReading) -> str:
        snapshot = reading.snapshot
        if args.csv:
            return gpu_csv(snapshot)
        if passing is not None:
            from gputop.monitor import Monitor

            snapshot = filtered(Monitor(settings.interval).feed(snapshot), passing).snapshot
        return json_text({**once_data(snapshot), **reading.data()})

    return text


def _lines(
    args: argparse.Namespace, _settings: Settings, _passing: Expression | None
) -> Callable[[OneReading], str]:
    """Prints a line a GPU in the format of ``--format``."""
    from gputop.output.format_line import formatted
    from gputop.output.snapshot_data import line_values, once_data

    def text(reading: OneReading) -> str:
        lines = line_values({**once_data(reading.snapshot), **reading.data()})
        return "".join(f"{formatted(args.format, values)}\n" for values in lines)

    return text


def _table(
    args: argparse.Namespace, settings: Settings, passing: Expression | None
) -> Callable[[OneReading], str]:
    """Prints a reading for people: a line a GPU, or with ``--full`` all of it."""
    from gputop.command_line.screen import first_view, stdout_terminal
    from gputop.monitor import Monitor
    from gputop.output.ansi import ansi_text, plain_text
    from gputop.output.snapshot_text import line_rows, once_rows
    from gputop.paint.glyphs import ascii_only
    from gputop.paint.theme import THEMES

    terminal = stdout_terminal(settings)
    width = max(60, output_width(120))
    monitor, view = Monitor(settings.interval), first_view(settings, terminal, passing)
    # A filter selects processes, which only the whole of it lists.
    is_full = getattr(args, "full", False) or passing is not None
    coloured = sys.stdout.isatty() and terminal.depth != "none"

    def text(reading: OneReading) -> str:
        frame = monitor.feed(reading.snapshot)
        if is_full:
            rows = once_rows(frame if passing is None else filtered(frame, passing), view, width)
        else:
            rows = line_rows(frame, view, width, clock=getattr(args, "follow", False))
        printed = ansi_text(rows, THEMES["ansi"], "16") + "\n" if coloured else plain_text(rows)
        return ascii_only(printed) if terminal.glyphs.name == "ascii" else printed

    return text
