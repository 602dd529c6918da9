"""The report of a recording: where the GPU time went, and what to do about it."""

from __future__ import annotations

import argparse
import sys

from gputop.commands.needs import Needs
from gputop.commands.redaction import redactor_of
from gputop.config import Settings
from gputop.output.report_text import report_json, report_markdown, report_text
from gputop.report.job_report import report_recording

NEEDS = Needs()
PURPOSE, SUMMARY = "Evidence", "where the GPU time of a recording went"


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a recording")
    report_form = command.add_mutually_exclusive_group()
    report_form.add_argument("--json", action="store_true", help="one JSON object")
    report_form.add_argument("--markdown", action="store_true", help="Markdown")


def run(args: argparse.Namespace, settings: Settings) -> int:
    report = report_recording(args.file, price=settings.price or None, redactor=redactor_of(settings))
    form = report_json if args.json else report_markdown if args.markdown else report_text
    sys.stdout.write(form(report))
    return 0
