"""Two recordings side by side: what a change made better or worse."""

from __future__ import annotations

import argparse
import sys

from gputop.commands.needs import Needs
from gputop.commands.redaction import redactor_of
from gputop.config import Settings
from gputop.output.compare import compare, compare_json, compare_text
from gputop.report.job_report import report_recording

NEEDS = Needs()
PURPOSE, SUMMARY = "Evidence", "what a change made better or worse"


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("before", help="a recording")
    command.add_argument("after", help="a recording")
    command.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    price, redactor = settings.price or None, redactor_of(settings)
    before, after = (report_recording(path, price=price, redactor=redactor) for path in (args.before, args.after))
    comparison = compare(before, after)
    sys.stdout.write(compare_json(comparison) if args.json else compare_text(comparison))
    return 0
