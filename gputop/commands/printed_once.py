"""One reading as ``gputop once`` prints it: a table for people, JSON, CSV, or lines of the user's own format."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.commands.shared_options import filter_of, redactor_of
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.sources.local import OneReading

if TYPE_CHECKING:
    from gputop.model.expression import Expression
    from gputop.model.redaction import Redactor
    from gputop.model.snapshot import Snapshot


def printed_table(args: argparse.Namespace, settings: Settings, snapshot: Snapshot) -> str:
    """A snapshot as ``gputop once`` prints it. Raises UsageError for a filter that one snapshot cannot answer."""
    redactor = redactor_of(settings)
    passing = filter_of(args, redactor)
    if passing is not None:
        refuse_verdicts(passing)
    return table_of(args, settings, passing)(redacted_reading(OneReading(snapshot), redactor))


def redacted_reading(reading: OneReading, redactor: Redactor | None) -> OneReading:
    """The reading as ``--redact`` shows it."""

    if redactor is None:
        return reading
    missing = [
        replace(gpu, uuid=redactor.device(gpu.uuid), reason=redactor.text(gpu.reason)) for gpu in reading.missing
    ]
    return replace(reading, snapshot=redactor.snapshot(reading.snapshot), missing=tuple(missing))


def passing_of(args: argparse.Namespace, redactor: Redactor | None) -> Expression | None:
    """The filter that was asked for, if one snapshot can answer it. Raises UsageError."""
    passing = filter_of(args, redactor)
    if passing is None:
        return None
    refuse_verdicts(passing)
    if passing and (args.csv or args.format is not None):
        form = "--csv" if args.csv else "--format"
        raise UsageError(f"--filter, -u and -p select processes, and {form} prints GPUs: use --json, or the table")
    return passing or None


def refuse_verdicts(passing: Expression) -> None:
    """Raises UsageError for a filter by verdicts: one reading has none."""
    if any(term.field == "verdict" for term in passing.terms):
        raise UsageError("--filter: a verdict needs half a minute of watching: use `gputop diagnose`, or the screen")


def data_of(args: argparse.Namespace, settings: Settings, passing: Expression | None) -> Callable[[OneReading], str]:
    """Prints a reading as JSON, or as CSV."""

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


def lines_of(args: argparse.Namespace, _settings: Settings, _passing: Expression | None) -> Callable[[OneReading], str]:
    """Prints a line a GPU in the format of ``--format``."""

    from gputop.output.line_format import formatted
    from gputop.output.snapshot_data import line_values, once_data

    def text(reading: OneReading) -> str:
        lines = line_values({**once_data(reading.snapshot), **reading.data()})
        return "".join(f"{formatted(args.format, values)}\n" for values in lines)

    return text


def table_of(_args: argparse.Namespace, settings: Settings, passing: Expression | None) -> Callable[[OneReading], str]:
    """Prints a reading as a table for people."""

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
