"""What can be measured on this machine, why the rest cannot, and how to fix it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from gputop.commands.argument_parser import selectable, waiting
from gputop.commands.needs import Needs
from gputop.commands.shared_options import redactor_of, stdout_is_text, wait_of
from gputop.config import Settings
from gputop.model.feature_table import FEATURES, resolve
from gputop.model.sm import sm_options
from gputop.output.doctor_text import doctor_text
from gputop.output.messages import NOTHING_READ, say
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
    command.add_argument(
        "--bundle",
        metavar="FILE.tar.gz",
        help="what a report of a defect needs: this, a minute of recording, settings; redacted",
    )


def run(args: argparse.Namespace, settings: Settings) -> int:
    if not args.json:
        stdout_is_text(settings)
    if args.bundle is None:
        report = _examined(args, settings)
        redactor = redactor_of(settings)
        if redactor is not None:
            report = _redacted(report, redactor)
        sys.stdout.write(json_text(report) if args.json else doctor_text(report))
        sys.stdout.flush()
    else:
        from gputop.commands.doctor_bundle import checked, write_bundle

        path = checked(args.bundle)
        report = write_bundle(path, lambda redactor: _redacted(_examined(args, settings), redactor), settings)
    return 0 if any(gpu["lost_reason"] is None for gpu in report["gpus"]) else NOTHING_READ


def _examined(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """The report as it is."""
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
        sm_options(settings),
        terminal,
        wait_s=wait_of(args),
        slow=say,
    )
    for feature in FEATURES.values():
        for path in feature.doctor:
            _join(report, resolve(path)(args, settings))
    report["problems"] += [row["problem"] for row in report["private_files"] if row["problem"] is not None]
    return report


def _join(report: dict[str, Any], part: dict[str, Any]) -> None:
    """Add a feature's part: lists of the same name are joined."""
    for key, value in part.items():
        if isinstance(value, list):
            report[key] = [*report.get(key, ()), *value]
        else:
            report[key] = value


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
