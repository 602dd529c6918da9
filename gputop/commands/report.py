"""`gputop report`: account of a recording's GPU time."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gputop.command_line.demo_node import scenario_arguments, simulated_past, wants_demo
from gputop.command_line.picture_file import CARD_SUFFIXES, card_picture, refuse_early
from gputop.command_line.shared_options import (
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
    forms(
        command,
        "Markdown",
        "a page for a browser, with charts",
        file_text="write there; .json, .md and .html choose the form, .svg and .png make a card: one picture to show",
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    price, recording_filter = settings.price or None, recording_filter_of(args, settings)
    form, demo = form_of(args, CARD_SUFFIXES), wants_demo(args)
    is_card = f".{form}" in CARD_SUFFIXES
    if is_card:
        refuse_early(Path(args.output))
    if not demo and os.path.isdir(args.file) and (recordings := len(runs_in(args.file))) > 1:
        raise UsageError(
            f"{args.file}: {recordings} recordings: name one file, or compare them: gputop compare A B …"
        )
    if form == "html":
        from gputop.output.report_html import report_html
        from gputop.report.lanes import pictured, pictured_recording

        pictured_report = (
            pictured(list(simulated_past(args, settings)), price=price)
            if demo
            else pictured_recording(args.file, price=price, recording_filter=recording_filter)
        )
        content: str | bytes = report_html(pictured_report)
    else:
        report = (
            report_snapshots(simulated_past(args, settings), price=price)
            if demo
            else report_recording(args.file, price=price, recording_filter=recording_filter)
        )
        if is_card:
            content = card_picture(report, f".{form}", settings)
        elif form == "json":
            content = report_json(report)
        elif form == "md":
            content = report_markdown(report)
        else:
            content = report_text(report, is_ascii=prints_ascii(settings, args.output))
    deliver(content, args.output)
    return 0
