"""`gputop run`: run a job and report on its GPUs.

The exit code is the job's.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from gputop.command_line.picture_file import CARD_SUFFIXES, card_picture, refuse_early
from gputop.command_line.registry import Needs
from gputop.command_line.shared_options import redacted_source, redactor_of, run_watcher, serving
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.output.messages import say
from gputop.output.report_text import report_as, report_text
from gputop.report.job_report import JobReport
from gputop.session.job import run_job
from gputop.sources.local import open_local, with_servers_of
from gputop.sources.marked import Marked
from gputop.sources.procfs import relatives_of
from gputop.system.safe_open import write_private

NEEDS = Needs("nothing")


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("-o", "--output", metavar="FILE", help="keep the recording")
    command.add_argument(
        "--report", metavar="FILE", help="write the report to FILE.md, .json or .txt as well"
    )
    command.add_argument(
        "--card",
        metavar="FILE",
        help="draw the report's card, one picture to show: FILE.png or .svg",
    )
    serving(command)
    command.add_argument(
        "job", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="the job and its arguments"
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    command = args.job[1:] if args.job[:1] == ["--"] else args.job
    if not command:
        raise UsageError("no command to run: gputop run [-o FILE] -- COMMAND …")
    if args.report is not None and Path(args.report).suffix not in (".md", ".json", ".txt"):
        raise UsageError(f"--report must name a .md, .json or .txt file, not {args.report!r}")
    if args.report is not None and not Path(args.report).parent.is_dir():
        raise UsageError(f"--report: no directory {Path(args.report).parent}")
    if args.card is not None:
        _refuse_card(Path(args.card))
    alerts = run_watcher(args, settings)
    source, redactor = with_servers_of(open_local(settings), settings), redactor_of(settings)
    result = run_job(
        command,
        redacted_source(Marked(source, at_once=True, job_began=time.time()), redactor),
        relatives_of=relatives_of,
        target=args.output,
        price=settings.price or None,
        redactor=redactor,
        alerts=alerts,
    )
    sys.stderr.write(report_text(result.report))
    if args.report is not None:
        _write(args.report, report_as(result.report, args.report))
    if args.card is not None:
        _write_card(args.card, result.report, settings)
    return result.exit_code


def _refuse_card(path: Path) -> None:
    """Raise UsageError for a card that cannot be drawn or written, before the job starts."""
    if path.suffix.lower() not in CARD_SUFFIXES:
        raise UsageError(f"--card must name a .png or .svg file, not {str(path)!r}")
    refuse_early(path)


def _write_card(path: str, report: JobReport, settings: Settings) -> None:
    """Write the card; a failure is printed and leaves the exit code to the job."""
    try:
        picture = card_picture(report, Path(path).suffix, settings)
    except UsageError as error:
        say(str(error))
        return
    _write(path, picture)


def _write(path: str, content: str | bytes) -> None:
    """Write a file of the report; a failure leaves the exit code to the job."""
    try:
        write_private(path, content)
    except OSError as error:
        say(f"cannot write {path}: {error.strerror}")
