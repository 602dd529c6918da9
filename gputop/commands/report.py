"""`gputop report`: account of a recording's GPU time."""

from __future__ import annotations

import argparse
import os

from gputop.commands.demo_node import scenario_arguments, simulated_past, wants_demo
from gputop.commands.shared_options import (
    deliver,
    form_of,
    forms,
    prints_ascii,
    recording_filter_of,
)
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.output.report_text import report_json, report_markdown, report_text
from gputop.recording.reader import runs_in
from gputop.report.job_report import report_recording, report_snapshots


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a recording, a folder with one, or demo")
    scenario_arguments(command)
    forms(command, "Markdown", "a page for a browser, with charts")


def run(args: argparse.Namespace, settings: Settings) -> int:
    price, recording_filter = settings.price or None, recording_filter_of(args, settings)
    form, demo = form_of(args), wants_demo(args)
    if not demo and os.path.isdir(args.file) and (recordings := len(runs_in(args.file))) > 1:
        raise UsageError(
            f"{args.file}: {recordings} recordings: name one file, or compare two of them: gputop compare A B"
        )
    if form == "html":
        from gputop.output.report_html import report_html
        from gputop.report.lanes import pictured, pictured_recording

        pictured_report = (
            pictured(list(simulated_past(args, settings)), price=price)
            if demo
            else pictured_recording(args.file, price=price, recording_filter=recording_filter)
        )
        text = report_html(pictured_report)
    else:
        report = (
            report_snapshots(simulated_past(args, settings), price=price)
            if demo
            else report_recording(args.file, price=price, recording_filter=recording_filter)
        )
        if form == "json":
            text = report_json(report)
        elif form == "md":
            text = report_markdown(report)
        else:
            text = report_text(report, is_ascii=prints_ascii(settings, args.output))
    deliver(text, args.output)
    return 0
