"""One measured snapshot: a table for people, JSON or CSV for scripts. Never imports Textual."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.commands.argument_parser import filterable, seconds, selectable, serving, waiting
from gputop.commands.needs import Needs
from gputop.commands.shared_options import filter_of, redactor_of
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.output.messages import say
from gputop.sources.one_reading import WAIT_S, OneReading

NEEDS = Needs()

if TYPE_CHECKING:
    from gputop.model.redaction import Redactor
    from gputop.model.snapshot import Snapshot
    from gputop.paint.process_filter import Filter
    from gputop.sources.marks import MarkListener
    from gputop.sources.serving import ServerWatch

STEPS_WAIT_S = 2.2
"""A job announces its steps once a second, or once a step where those are longer."""
SERVERS_WAIT_S = 4.0
"""How long to wait for the servers' rates: an answer may take three seconds, the next begins a second later."""
NOTHING_READ = 3
"""Exit status where no GPU could be read."""


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
    from gputop.sources.local import open_local

    servers = _servers(settings)
    listener, begun = _listener(args), time.monotonic()
    source = open_local(settings)
    # SM activity takes two samples a quarter of a second apart; the output's imports happen in between.
    source.open(looks_once=True)
    try:
        redactor = redactor_of(settings)
        passing = _passing(args, redactor)
        printed = _lines if args.format is not None else _data if args.json or args.csv else _table
        text_of = printed(args, settings, passing)
        reading = source.read_once(wait_s, say)
        if listener is not None:
            time.sleep(max(0.0, STEPS_WAIT_S - (time.monotonic() - begun)))
            listener.drain()
            reading = replace(reading, snapshot=replace(reading.snapshot, steps=listener.steps()))
        if servers is not None:
            reading = replace(reading, snapshot=with_servers_said(reading.snapshot, servers))
    finally:
        source.close()
        if servers is not None:
            servers.close()
        if listener is not None:
            listener.close()
    sys.stdout.write(text_of(_redacted(reading, redactor)))
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


def _servers(settings: Settings) -> ServerWatch | None:
    """The inference servers, asked from now on; None where none is named. Raises UsageError."""
    if not settings.server_url:
        return None
    from gputop.sources.serving import ServerWatch, addresses

    watch = ServerWatch(addresses(settings.server_url))
    watch.start()
    return watch


def _listener(args: argparse.Namespace) -> MarkListener | None:
    """Where jobs send their steps to, from now on; None where nobody asks for them."""
    if not getattr(args, "steps", False):
        return None
    from gputop.sources.marks import MarkListener

    return MarkListener()


def with_servers_said(snapshot: Snapshot, servers: ServerWatch) -> Snapshot:
    """The snapshot with what the servers say; a rate takes two of their pages, a second apart."""
    from gputop.sources.serving import with_rows

    servers.wait_for_rates(SERVERS_WAIT_S)
    return with_rows(snapshot, servers.rows())


def wait_of(args: argparse.Namespace) -> float:
    """How long to wait for the first complete reading, in seconds. Raises UsageError."""
    given = getattr(args, "wait", None)
    return WAIT_S if given is None else seconds(given, "--wait")


def table(args: argparse.Namespace, settings: Settings, snapshot: Snapshot) -> str:
    """A snapshot as ``gputop once`` prints it. Raises UsageError for a filter that one snapshot cannot answer."""
    args.csv, args.format = False, None
    redactor = redactor_of(settings)
    return _table(args, settings, _passing(args, redactor))(_redacted(OneReading(snapshot), redactor))


def _redacted(reading: OneReading, redactor: Redactor | None) -> OneReading:
    if redactor is None:
        return reading
    missing = [
        replace(gpu, uuid=redactor.device(gpu.uuid), reason=redactor.text(gpu.reason)) for gpu in reading.missing
    ]
    return replace(reading, snapshot=redactor.snapshot(reading.snapshot), missing=tuple(missing))


def _passing(args: argparse.Namespace, redactor: Redactor | None) -> Filter | None:
    """The filter that was asked for, if one snapshot can answer it. Raises UsageError."""
    passing = filter_of(args, redactor)
    if passing is None:
        return None
    if any(term.field == "verdict" for term in passing.terms):
        raise UsageError("--filter: a verdict needs half a minute of watching: use `gputop diagnose`, or the screen")
    if passing and (args.csv or args.format is not None):
        form = "--csv" if args.csv else "--format"
        raise UsageError(f"--filter, -u and -p select processes, and {form} prints GPUs: use --json, or the table")
    return passing or None


def _data(args: argparse.Namespace, settings: Settings, passing: Filter | None) -> Callable[[OneReading], str]:
    from gputop.output.snapshot_data import gpu_csv, json_text, once_data

    if args.csv:
        return lambda reading: gpu_csv(reading.snapshot)
    if passing is None:
        return lambda reading: json_text({**once_data(reading.snapshot), **reading.data()})
    from gputop.commands.shared_options import filtered
    from gputop.monitor import Monitor

    monitor = Monitor(settings.interval)

    def text(reading: OneReading) -> str:
        passed = filtered(monitor.feed(reading.snapshot), passing).snapshot
        return json_text({**once_data(passed), **reading.data()})

    return text


def _lines(args: argparse.Namespace, _settings: Settings, _passing: Filter | None) -> Callable[[OneReading], str]:
    from gputop.output.line_format import formatted
    from gputop.output.snapshot_data import line_values, once_data

    def text(reading: OneReading) -> str:
        return "".join(f"{formatted(args.format, gpu)}\n" for gpu in line_values(once_data(reading.snapshot)))

    return text


def _table(_args: argparse.Namespace, settings: Settings, passing: Filter | None) -> Callable[[OneReading], str]:
    import shutil

    from gputop.commands.screen import first_view
    from gputop.commands.shared_options import filtered
    from gputop.monitor import Monitor
    from gputop.output.ansi import ansi_text, plain_text
    from gputop.output.snapshot_data import once_rows
    from gputop.paint.glyphs import ascii_only, choose
    from gputop.paint.theme import THEMES

    terminal = choose(
        os.environ,
        sys.stdout.encoding,
        theme=settings.theme,
        ascii_only=settings.ascii,
        no_color=settings.no_color,
    )
    width = max(60, shutil.get_terminal_size((120, 40)).columns)
    monitor, view = Monitor(settings.interval), first_view(settings, terminal, passing=passing)
    coloured = sys.stdout.isatty() and terminal.depth != "none"

    def text(reading: OneReading) -> str:
        frame = monitor.feed(reading.snapshot)
        rows = once_rows(frame if passing is None else filtered(frame, passing), view, width)
        printed = ansi_text(rows, THEMES["ansi"], "16") + "\n" if coloured else plain_text(rows)
        return ascii_only(printed) if terminal.glyphs.name == "ascii" else printed

    return text
