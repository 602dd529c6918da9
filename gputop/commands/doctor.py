"""What can be measured on this machine, why the rest cannot, and how to fix it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from gputop.commands.argument_parser import selectable, waiting
from gputop.commands.needs import Needs
from gputop.commands.once import NOTHING_READ, wait_of
from gputop.commands.shared_options import redactor_of
from gputop.config import Settings
from gputop.features.alerts.alerts_command import alerts_in, alerts_report
from gputop.features.fleet.doctor_rows import exporters, private_file, step_socket
from gputop.output.doctor_text import doctor_text
from gputop.output.messages import say
from gputop.output.snapshot_data import json_text
from gputop.paint.glyphs import colour_depth
from gputop.sources.doctor_report import examine

if TYPE_CHECKING:
    from gputop.model.redaction import Redactor

NEEDS = Needs()


def arguments(command: argparse.ArgumentParser) -> None:
    selectable(command)
    waiting(command)
    command.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    size = shutil.get_terminal_size((0, 0))
    terminal = {
        "term": os.environ.get("TERM"),
        "colour_depth": colour_depth(os.environ),
        "encoding": sys.stdout.encoding,
        "columns": size.columns or None,
        "rows": size.lines or None,
        "is_terminal": sys.stdout.isatty(),
        "tmux": "TMUX" in os.environ,
    }
    report = examine(
        settings.gpus or None,
        settings.visible,
        settings.dcgm_url or None,
        terminal,
        dcgmi=settings.dcgmi,
        perf=settings.perf,
        perf_lib=settings.perf_lib or None,
        sm_source=settings.sm_source,
        wait_s=wait_of(args),
        slow=say,
    )
    if settings.alert:
        report["alerts"] = alerts_report(args, settings)
        report["problems"] += [report["alerts"]["problem"]] if report["alerts"]["problem"] else []
    report.update(_fleet(settings))
    report["problems"] += [
        row["problem"]
        for row in (*report["exporters"], report["step_socket"], *report["private_files"])
        if row["problem"] is not None
    ]
    redactor = redactor_of(settings)
    if redactor is not None:
        report = _redacted(report, redactor)
    sys.stdout.write(json_text(report) if args.json else doctor_text(report))
    sys.stdout.flush()
    return 0 if any(gpu["lost_reason"] is None for gpu in report["gpus"]) else NOTHING_READ


def _redacted(report: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """The report with every text redacted, and whole names as their numbers."""
    host, owner = redactor.host(report["host"]), redactor.user(report["step_socket"]["owner"])
    users = [redactor.user(row["user"]) for row in report["exporters"]]
    for gpu in report["gpus"]:
        redactor.device(gpu["uuid"])
    shown: dict[str, Any] = redactor.data(report) | {"host": host}
    shown["step_socket"]["owner"] = owner
    for row, user in zip(shown["exporters"], users, strict=True):
        row["user"] = user
    return shown


def _fleet(settings: Settings) -> dict[str, Any]:
    """What connects this node to a fleet, and the permissions of the files that hold tokens."""
    from gputop.features.export.scrape_server import DEFAULT
    from gputop.features.fleet.address import TOKEN_VARIABLE
    from gputop.model.fleet_settings import SECRET

    named = [(TOKEN_VARIABLE, path) for path in (os.environ.get(TOKEN_VARIABLE),) if path]
    named += [(f"notify_file of {a.name}", a.notify_file) for a in alerts_in(settings) if a.notify_file is not None]
    named += [
        (f"{field} of [fleet.{name}]", os.path.expanduser(table[field]))
        for name, table in settings.fleet.items()
        for field in SECRET
        if field in table
    ]
    return {
        "exporters": exporters(DEFAULT),
        "step_socket": step_socket(),
        "private_files": [private_file(what, path) for what, path in named],
    }
