"""Two recordings side by side: what a change made better or worse."""

from __future__ import annotations

import argparse

from gputop.commands.needs import Needs
from gputop.commands.shared_options import deliver, form_of, lens_of
from gputop.config import Settings
from gputop.output.comparison import compare, compare_json, compare_text
from gputop.report.job_report import report_recording

NEEDS = Needs()


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("before", help="a recording")
    command.add_argument("after", help="a recording")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--html", action="store_true", help="a page for a browser, both side by side")
    command.add_argument("-o", "--output", metavar="FILE", help="write there; .json and .html choose the form")


def run(args: argparse.Namespace, settings: Settings) -> int:
    price, lens = settings.price or None, lens_of(args, settings)
    form = form_of(args)
    if form == "html":
        from gputop.output.report_html import compare_html
        from gputop.report.lanes import pictured_recording

        was, now = (pictured_recording(path, price=price, lens=lens) for path in (args.before, args.after))
        deliver(compare_html(was, now), args.output)
        return 0
    before, after = (report_recording(path, price=price, lens=lens) for path in (args.before, args.after))
    comparison = compare(before, after)
    deliver(compare_json(comparison) if form == "json" else compare_text(comparison), args.output)
    return 0
