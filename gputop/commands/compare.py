"""`gputop compare`: differences between two recordings, or a table of several."""

from __future__ import annotations

import argparse
import os
from math import inf
from typing import Any

from gputop.command_line.shared_options import (
    deliver,
    form_of,
    forms,
    prints_ascii,
    recording_argument,
    recording_filter_of,
)
from gputop.config import Settings
from gputop.model.source import SourceError, UsageError
from gputop.output.comparison import Comparison, compare, more_waste, slower_pct
from gputop.output.comparison_document import compare_document, compare_json
from gputop.output.document import Document
from gputop.output.html_document import html
from gputop.output.markdown_document import markdown
from gputop.output.messages import say
from gputop.output.plain_document import plain
from gputop.report.job_report import JobReport, report_recording
from gputop.report.run_choice import report_of_run, reports_to_compare

FAIL_ON = ("slower", "waste")
WORSE = 1
"""Exit status where the change is worse than --fail-on allows."""


def arguments(command: argparse.ArgumentParser) -> None:
    recording_argument(command, "before", "a recording")
    recording_argument(command, "after", "a recording")
    recording_argument(command, "more", "further recordings: one table of all", nargs="*")
    add = command.add_argument
    text = (
        "exit 1 where a step takes more than so many percent longer, or so many points more of the "
        "time is wasted; of several runs, any of them than the first"
    )
    add("--fail-on", metavar="slower:PCT|waste:POINTS", help=text)
    text = (
        "the run of a recording that holds several, as the report names it; twice for before and "
        "after, or once for each recording"
    )
    add("--run", metavar="RUN", action="append", help=text)
    forms(command, "Markdown, as for a pull request", "a page for a browser")


def run(args: argparse.Namespace, settings: Settings) -> int:
    form, limit, labels = form_of(args), _limit(args.fail_on), args.run or []
    given: dict[str, Any] = {
        "price": settings.price or None,
        "recording_filter": recording_filter_of(args, settings),
    }
    if args.more:
        return _run_several(args, settings, limit, given)
    if len(labels) > 2:
        raise UsageError("--run may be given once, or twice for before and after")
    before, after = (report_recording(path, **given) for path in (args.before, args.after))
    _say_damage(args.before, before)
    if args.after != args.before:
        _say_damage(args.after, after)
    comparison = compare(*reports_to_compare(before, after, labels))
    is_json = form == "json"
    text = compare_json(comparison) if is_json else ""
    _deliver(args, settings, text, compare_document(comparison))
    return _status(comparison, limit)


def _deliver(
    args: argparse.Namespace, settings: Settings, json_text: str, document: Document
) -> None:
    """Write a document in the requested form; ``json_text`` is its data."""
    form = form_of(args)
    if form == "json":
        text = json_text
    elif form == "md":
        text = markdown(document)
    elif form == "html":
        text = html(document)
    else:
        text = plain(document, is_ascii=prints_ascii(settings, args.output))
    deliver(text, args.output)


def _run_several(
    args: argparse.Namespace,
    settings: Settings,
    limit: tuple[str, float] | None,
    given: dict[str, Any],
) -> int:
    """Write the table of three recordings or more."""
    from gputop.output.run_table import RunRow, run_table_document, run_table_json

    paths = [args.before, args.after, *args.more]
    labels = _labels_of_runs(args.run or [], len(paths))
    names = _names(paths, is_redacted=settings.redact)
    runs = []
    for path, name, label in zip(paths, names, labels, strict=True):
        report = report_recording(path, **given)
        _say_damage(path, report)
        runs.append(RunRow(name, report_of_run(name, report, label)))
    json_text = run_table_json(runs) if form_of(args) == "json" else ""
    _deliver(args, settings, json_text, run_table_document(runs))
    first, *others = runs
    return max(_status(compare(first.report, run.report), limit) for run in others)


def _labels_of_runs(labels: list[str], recordings: int) -> list[str | None]:
    """The label for each recording. Raises UsageError for another number of them."""
    if not labels:
        return [None] * recordings
    if len(labels) == 1:
        return [labels[0]] * recordings
    if len(labels) != recordings:
        raise UsageError(
            f"--run may be given once, or once for each of the {recordings} recordings"
        )
    return [*labels]


def _names(paths: list[str], *, is_redacted: bool) -> list[str]:
    """Names of the recordings: short ones where they differ, numbers where redacted."""
    if is_redacted:
        return [f"run {number}" for number in range(1, len(paths) + 1)]
    short = [os.path.basename(os.path.normpath(path)).split(".gputop.")[0] for path in paths]
    return short if len(set(short)) == len(short) else paths


def _say_damage(path: str, report: JobReport) -> None:
    """Print a message about damage of a recording, which its means do not contain."""
    damage = [gap for gap in report.missing if gap.is_damage]
    if damage:
        say(f"{path}: {damage[-1].text}")


def _limit(text: str | None) -> tuple[str, float] | None:
    """Return the kind and the allowed difference of --fail-on.

    Raises UsageError.
    """
    if text is None:
        return None
    kind, _, number = text.partition(":")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if kind not in FAIL_ON or not 0.0 <= value < inf:
        raise UsageError(
            f"--fail-on must be slower:5 (percent a step) or waste:5 (points), not {text!r}"
        )
    return kind, value


def _status(comparison: Comparison, limit: tuple[str, float] | None) -> int:
    """Return 1 where the change is worse than allowed.

    Raises SourceError where that is unknown.
    """
    if limit is None:
        return 0
    kind, allowed_pct = limit
    difference_pct = slower_pct(comparison) if kind == "slower" else more_waste(comparison)
    if difference_pct is None:
        missing = (
            "the step of both: announce steps (gputop.watch)"
            if kind == "slower"
            else "judged GPU time in both"
        )
        raise SourceError(f"--fail-on {kind}: cannot be told without {missing}")
    return WORSE if difference_pct > allowed_pct else 0
