"""One measured snapshot: a table for people, JSON or CSV for scripts. Never imports Textual."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from gputop.commands.filtering import filter_of
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.sources.machine import open_local

if TYPE_CHECKING:
    from gputop.model.snapshot import Snapshot
    from gputop.paint.process_filter import Filter

LONGEST_WAIT_S = 3.0
"""A driver that has not answered by then is reported as it is."""


def run(args: argparse.Namespace, settings: Settings) -> int:
    source = open_local(settings)
    # SM activity takes two samples a quarter of a second apart: what the output needs is imported meanwhile.
    source.open()
    try:
        passing = _passing(args)
        printed = _data if args.json or args.csv else _table
        text_of = printed(args, settings, passing)
        snapshot = source.read_once(LONGEST_WAIT_S)
    finally:
        source.close()
    sys.stdout.write(text_of(snapshot))
    sys.stdout.flush()
    return 0


def table(args: argparse.Namespace, settings: Settings, snapshot: Snapshot) -> str:
    """A snapshot as ``gputop once`` prints it. Raises UsageError for a filter that one snapshot cannot answer."""
    args.csv = False
    return _table(args, settings, _passing(args))(snapshot)


def _passing(args: argparse.Namespace) -> Filter | None:
    """The filter that was asked for, if one snapshot can answer it. Raises UsageError."""
    passing = filter_of(args)
    if passing is None:
        return None
    if any(term.field == "verdict" for term in passing.terms):
        raise UsageError("--filter: a verdict needs half a minute of watching: use `gputop diagnose`, or the screen")
    if passing and args.csv:
        raise UsageError("--filter, -u and -p select processes, and --csv prints GPUs: use --json, or the table")
    return passing or None


def _data(args: argparse.Namespace, settings: Settings, passing: Filter | None) -> Callable[[Snapshot], str]:
    from gputop.output.data import gpu_csv, json_text, snapshot_data

    if args.csv:
        return gpu_csv
    if passing is None:
        return lambda snapshot: json_text(snapshot_data(snapshot))
    from gputop.commands.filtering import filtered
    from gputop.monitor import Monitor

    monitor = Monitor(settings.interval)
    return lambda snapshot: json_text(snapshot_data(filtered(monitor.feed(snapshot), passing).snapshot))


def _table(_args: argparse.Namespace, settings: Settings, passing: Filter | None) -> Callable[[Snapshot], str]:
    import shutil

    from gputop.commands.filtering import filtered
    from gputop.commands.live import first_view
    from gputop.monitor import Monitor
    from gputop.output.ansi import ansi_text, plain_text
    from gputop.output.table import once_rows
    from gputop.paint.terminal import choose
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

    def text(snapshot: Snapshot) -> str:
        frame = monitor.feed(snapshot)
        rows = once_rows(frame if passing is None else filtered(frame, passing), view, width)
        return ansi_text(rows, THEMES["ansi"], "16") + "\n" if coloured else plain_text(rows)

    return text
