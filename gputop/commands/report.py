"""The report of a recording: where the GPU time went, and what to do about it."""

from __future__ import annotations

import argparse
import os
from functools import partial

from gputop.commands.demo import scenario_arguments, simulated_past, wants_demo
from gputop.commands.shared_options import deliver, form_of, forms, options, prints_ascii, recording_filter_of
from gputop.config import Settings
from gputop.output.messages import show_progress
from gputop.output.report_text import report_json, report_markdown, report_text
from gputop.report.job_report import report_recording, report_snapshots


def arguments(command: argparse.ArgumentParser) -> None:
    options(command, "file  -  a recording, a folder of recordings, or demo")
    scenario_arguments(command)
    forms(command, "Markdown", "a page for a browser, with charts")


def run(args: argparse.Namespace, settings: Settings) -> int:
    price, recording_filter = settings.price or None, recording_filter_of(args, settings)
    form, demo = form_of(args), wants_demo(args)
    if not demo and os.path.isdir(args.file):
        from gputop.recording.reader import runs_in

        if len(runs_in(args.file)) > 1:
            return _folder(args, settings, form)
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


def _folder(args: argparse.Namespace, settings: Settings, form: str) -> int:
    """The runs of a folder, a row each, with a progress line on stderr where that is a terminal."""
    from gputop.output.document import html, markdown, plain
    from gputop.output.folder_report import folder_document, folder_json, run_folder

    try:
        folder = run_folder(
            args.file,
            price=settings.price or None,
            recording_filter=recording_filter_of(args, settings),
            tell=lambda done, of: show_progress(f"reading run {done + 1} of {of}"),
        )
    finally:
        show_progress("")
    text_of = partial(plain, is_ascii=prints_ascii(settings, args.output))
    write = {"md": markdown, "html": html}.get(form, text_of)
    deliver(folder_json(folder) if form == "json" else write(folder_document(folder)), args.output)
    return 0
