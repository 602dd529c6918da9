"""`gputop doctor`: measurable values, reasons for others, and fixes."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from typing import Any

from gputop.command_line.shared_options import redactor_of, stdout_is_text, wait_of, waiting
from gputop.config import Settings
from gputop.model.redaction import Redactor
from gputop.model.sm import sm_options
from gputop.output.doctor_text import doctor_text
from gputop.output.messages import NOTHING_READ, say
from gputop.output.snapshot_data import json_text
from gputop.paint.terminal_kind import colour_depth
from gputop.sources.doctor_report import examine


def arguments(command: argparse.ArgumentParser) -> None:
    waiting(command)
    command.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    if not args.json:
        stdout_is_text(settings)
    redactor, report = redactor_of(settings), _examined(args, settings)
    if redactor is not None:
        report = _redacted(report, redactor)
    sys.stdout.write(json_text(report) if args.json else doctor_text(report))
    sys.stdout.flush()
    return 0 if any(gpu["lost_reason"] is None for gpu in report["gpus"]) else NOTHING_READ


def _examined(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """Return the report without redaction."""
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
    return examine(
        settings.gpus or None,
        settings.visible,
        sm_options(settings),
        terminal,
        wait_s=wait_of(args),
        slow=say,
    )


def _redacted(report: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Redact every text of the report; whole names become numbers."""
    host = redactor.host(report["host"])
    for gpu in report["gpus"]:
        redactor.device(gpu["uuid"])
        serial = gpu["health"]["serial"]
        gpu["health"]["serial"] = serial and redactor.number("serial", serial)
    shown: dict[str, Any] = redactor.data(report)
    return shown | {"host": host}
