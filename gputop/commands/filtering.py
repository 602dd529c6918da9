"""``--filter`` of the command line: the same language as the screen's filter."""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from gputop.monitor import Frame
from gputop.paint.process_filter import NO_FILTER, Filter, FilterError, parse
from gputop.paint.process_table import shown_rows
from gputop.paint.view import View
from gputop.sources.base import UsageError


def filter_of(args: argparse.Namespace) -> Filter:
    """The filter that was asked for. Raises UsageError with the place of a mistake."""
    try:
        return parse(args.filter) if getattr(args, "filter", None) else NO_FILTER
    except FilterError as error:
        raise UsageError(f"--filter: {error}") from error


def filtered(frame: Frame, wanted: Filter) -> Frame:
    """The frame with those processes only that pass, or whose GPU process does."""
    kept = {id(shown.process) for shown in shown_rows(frame, View(tree="all", filter=wanted))}
    processes = tuple(p for p in frame.snapshot.processes if id(p) in kept)
    return replace(frame, snapshot=replace(frame.snapshot, processes=processes))
