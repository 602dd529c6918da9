"""`gputop diagnose`: verdicts in words.

Exit 0: nothing wrong, 1: findings.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator

from gputop.command_line.demo_node import DEMO, scenario_arguments, simulated_past, wants_demo
from gputop.command_line.shared_options import (
    prints_ascii,
    recording_filter_of,
    redacted_source,
    redactor_of,
    say_gaps,
    seconds,
    serving,
)
from gputop.config import Settings
from gputop.diagnosis.verdict.summary import summarize
from gputop.model.snapshot import Event, Snapshot
from gputop.model.source import SourceError, UsageError
from gputop.monitor import Frame, Monitor
from gputop.output.diagnosis_text import diagnosis_document, diagnosis_json
from gputop.output.messages import show_progress
from gputop.output.plain_document import plain
from gputop.output.snapshot_data import json_text
from gputop.recording.reader import read_snapshots
from gputop.report.job_report import JobReport, ReportBuilder
from gputop.session.arrivals import Arrivals

FOUND = 1
WATCHED_S = 30.0
"""How long this machine is watched where nothing else is asked for."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", nargs="?", help="a recording, or demo; without it this machine is watched"
    )
    scenario_arguments(command)
    serving(command)
    text = f"how long to watch this machine (default {WATCHED_S:g}s)"
    command.add_argument("--for", metavar="TIME", dest="duration", help=text)
    command.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    frame, report = judged(_snapshots(args, settings), settings.price or None)
    if args.json:
        sys.stdout.write(json_text(diagnosis_json(frame, report)))
    else:
        sys.stdout.write(plain(diagnosis_document(frame, report), is_ascii=prints_ascii(settings)))
    sys.stdout.flush()
    shown = {
        level
        for d in frame.diagnoses
        for level in (summarize(d).level, *(badge.level for badge in d.badges))
    }
    return FOUND if shown & {"yellow", "red"} else 0


def judged(snapshots: Iterable[Snapshot], price: float | None) -> tuple[Frame, JobReport]:
    """The last frame, and the report of all of them.

    Raises SourceError where nothing was measured.
    """
    monitor, builder = Monitor(charts=False), ReportBuilder()
    gaps: list[Event] = []
    for snapshot in snapshots:
        gaps += [event for event in snapshot.events if event.kind == "gap"]
        builder.add(monitor.feed(snapshot))
    if monitor.latest is None:
        raise SourceError("nothing was measured: see `gputop doctor`")
    # What was judged before a long gap is not what stands now.
    say_gaps(gaps)
    return monitor.latest, builder.report(price=price)


def _snapshots(args: argparse.Namespace, settings: Settings) -> Iterable[Snapshot]:
    if args.file is not None and args.duration is not None:
        subject = "the demo's past" if args.file == DEMO else "a recording"
        raise UsageError(
            f"--for says how long to watch this machine; {subject} is diagnosed as a whole: leave it out"
        )
    if wants_demo(args):
        return simulated_past(args, settings)
    if args.file is not None:
        return read_snapshots(args.file, recording_filter_of(args, settings))
    return _live(WATCHED_S if args.duration is None else seconds(args.duration, "--for"), settings)


def _live(duration_s: float, settings: Settings) -> Iterator[Snapshot]:
    """Snapshots of this machine for a while.

    Progress is shown on a terminal's stderr.
    """
    from gputop.sources.local import open_local, with_servers_of

    source = redacted_source(
        with_servers_of(open_local(settings, is_quick=True), settings), redactor_of(settings)
    )
    arrivals = Arrivals(source)
    begun = time.monotonic()
    try:
        arrivals.start()
        while (spent := time.monotonic() - begun) < duration_s:
            yield from arrivals.wait(min(source.interval_s, duration_s - spent))
            show_progress(
                f"watching {min(time.monotonic() - begun, duration_s):3.0f} of {duration_s:g} s"
            )
    finally:
        source.close()
        show_progress("")
