"""`gputop trace`: step time from a profiler's trace.

Exit status 0: nothing wrong, 1: findings, 2: unreadable.
"""

from __future__ import annotations

import argparse
import os
import re
import time

from gputop.command_line.shared_options import deliver_report, form_of, redacted_report
from gputop.config import Settings
from gputop.diagnosis.thresholds import SLOWER_PCT
from gputop.features.traces.columns import TraceError
from gputop.features.traces.trace_analysis import StepChoice
from gputop.features.traces.trace_data import trace_data
from gputop.features.traces.trace_document import PAGE_ROWS, TEXT_ROWS, trace_document, worst
from gputop.features.traces.trace_ranks import TraceReport, report_traces, trace_files
from gputop.features.traces.trace_report import severity
from gputop.model.source import UsageError
from gputop.output.document import Document
from gputop.output.messages import show_progress

FOUND = 1
TOP = 10
LEVELS = ("red", "yellow", "none")
_PROGRESS_AFTER_S = 1.0


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    text = (
        "torch.profiler's .json or .json.gz, Nsight Systems' .sqlite, or a folder with one of each "
        "rank"
    )
    add("files", nargs="+", metavar="file", help=text)
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--html", action="store_true", help="a page for a browser")
    add("-o", "--output", metavar="FILE", help="write there; .json and .html choose the form")
    add("--steps", metavar="N-M", help="only these steps, by the profiler's numbers")
    text = (
        "take each range of this name as a step, not the profiler's own; also the begin of names, "
        "or with * and ?"
    )
    add("--step", metavar="NAME", help=text)
    add(
        "--top",
        type=int,
        default=TOP,
        metavar="N",
        help=f"how many kernels to list (default {TOP})",
    )
    add("--ranks", action="list", metavar="LIST", help="show these ranks in full, such as 0,3")
    add(
        "--compare",
        action="store_true",
        help="two traces: is the second slower, and what does it do otherwise",
    )
    slower = f"with --compare slower:N (%%, default {SLOWER_PCT:g})"
    text = f"exit with 1 from this level up: red, yellow (default), none; {slower}"
    add("--fail-on", type=_limit, metavar="{red,yellow,none,slower:N}", help=text)


def _limit(text: str) -> str | float:
    """A level, or by how many percent a step may be slower."""
    if text in LEVELS:
        return text
    match = re.fullmatch(r"slower:(\d{1,4}(?:\.\d{1,3})?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"must be {', '.join(LEVELS)} or slower:PERCENT, not {text!r}"
        )
    return float(match[1])


def run(args: argparse.Namespace, settings: Settings) -> int:
    choice = choice_of(args.steps, args.step)
    ranks = _ranks(args.ranks)
    if args.compare and len(args.files) != 2:
        raise UsageError(f"--compare takes two traces, not {len(args.files)}")
    if isinstance(args.fail_on, float) and not args.compare:
        raise UsageError("--fail-on slower:N belongs to --compare")
    if args.top < 0:
        raise UsageError(f"--top must be 0 or more, not {args.top}")
    form_of(args)
    paths = args.files
    try:
        reports = (
            [_report([path], choice) for path in paths]
            if args.compare
            else [_report(paths, choice)]
        )
    except TraceError as error:
        raise UsageError(str(error)) from error
    finally:
        show_progress("")
    reports = [redacted_report(report, settings) for report in reports]
    if ranks is not None and not set(ranks) & {rank.rank for rank in reports[-1].ranks}:
        rank_numbers = ", ".join(str(rank.rank) for rank in reports[-1].ranks)
        raise UsageError(f"no rank {args.ranks} in these traces: they have {rank_numbers}")
    if args.compare:
        return _compared(reports, args, settings)
    report = reports[0]

    def document(is_page: bool) -> Document:
        shown = [worst(report).rank] if ranks is None and not is_page else ranks
        return trace_document(
            report, PAGE_ROWS if is_page else TEXT_ROWS, top=args.top, ranks=shown
        )

    deliver_report(
        args, settings, lambda: trace_data(report), document, "shares are of the time shown ·"
    )
    return _exit_status(report, args.fail_on or "yellow")


def _exit_status(report: TraceReport, fail_on: str) -> int:
    """1 if a verdict reaches the user's threshold, else 0.

    A straggler counts as a finding, too.
    """
    if fail_on == "none":
        return 0
    worst = max(severity(gpu.verdict.level) for rank in report.ranks for gpu in rank.gpus)
    return FOUND if worst >= severity(fail_on) or report.straggler is not None else 0


def choice_of(steps: str | None, name: str | None) -> StepChoice:
    """The steps of ``--steps 5-8`` and ``--step NAME``. Raises UsageError."""
    if steps is None:
        return StepChoice(name)
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", steps)
    if not match or int(match[2] or match[1]) < int(match[1]):
        raise UsageError(f"--steps must be a number or two, as in --steps 5-8, not {steps!r}")
    return StepChoice(name, int(match[1]), int(match[2] or match[1]))


def _ranks(text: str | None) -> list[int] | None:
    if text is None:
        return None
    # No rank has more digits, and Python reads no number of thousands.
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise UsageError(f"--ranks must be numbers with commas, as in --ranks 0,3, not {text!r}")
    return [int(part) for part in text.split(",")]


def _report(paths: list[str], choice: StepChoice) -> TraceReport:
    begun = time.monotonic()

    def progress(done: int, whole: int) -> None:
        if time.monotonic() - begun >= _PROGRESS_AFTER_S and whole:
            show_progress(f"reading {min(100.0, 100.0 * done / whole):3.0f} %")

    return report_traces(
        trace_files(paths), choice, progress, from_folder=any(map(os.path.isdir, paths))
    )


def _compared(reports: list[TraceReport], args: argparse.Namespace, settings: Settings) -> int:
    """Write the comparison; return the exit status.

    It is 1 if the second trace is slower by more than the user allows.
    """
    from gputop.features.traces.trace_beside import (
        compare_traces,
        comparison_data,
        comparison_document,
    )

    comparison = compare_traces(*reports)
    if comparison.change_pct is None and isinstance(args.fail_on, float):
        raise UsageError(f"--fail-on slower:{args.fail_on:g}: {comparison.headline}")
    deliver_report(
        args,
        settings,
        lambda: comparison_data(comparison),
        lambda _: comparison_document(comparison),
    )
    if isinstance(args.fail_on, str):
        return _exit_status(reports[-1], args.fail_on)
    limit = SLOWER_PCT if args.fail_on is None else args.fail_on
    return FOUND if comparison.change_pct is not None and comparison.change_pct > limit else 0
