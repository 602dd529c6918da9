"""``diagnose --exporter``: the verdicts of a running exporter as lines, for status lines that ask every few seconds."""

from __future__ import annotations

import argparse
import sys
import time

from gputop.diagnosis.catalogue import titles
from gputop.diagnosis.types import NOT_WORK, full_title
from gputop.model.source import UsageError
from gputop.output.line_format import checked, formatted
from gputop.sources.exporter_reader import OPTION, ExportedPage, exported_keys, read_exporter

WHOLE_KEYS = ("host", "simulated", "end", "age_s", "title")
"""Keys beside those of a GPU's values: the host, the Unix time of the values, their age now, the verdict in words."""


def print_exported(args: argparse.Namespace) -> int:
    """Print a line a GPU; 1 where one of them does not work, is starved, idle or lost. Raises SourceError."""
    if args.file is not None or args.duration is not None or args.json:
        raise UsageError(f"{OPTION} asks a running exporter: it goes with --format alone")
    if args.format is None:
        raise UsageError(f"{OPTION} needs --format, as in --format '{{index}} {{title}} {{age_s}}s'")
    checked(args.format, (*WHOLE_KEYS, *exported_keys()), all_keys="the exporter tells "
            "host, age_s, title, verdict, state, badges and the values of its page")  # fmt: skip
    page = read_exporter(args.exporter)
    lines = line_values(page, time.time())
    sys.stdout.writelines(f"{formatted(args.format, values)}\n" for values in lines)
    sys.stdout.flush()
    return int(any(values.get("lost") or values.get("state") in NOT_WORK for values in lines))


def line_values(page: ExportedPage, now: float) -> list[dict[str, object]]:
    """What a line may name, for each GPU of the page."""
    whole = {"host": page.host, "simulated": page.is_simulated, "end": page.t, "age_s": max(0.0, now - page.t)}
    return [{**whole, **gpu, "title": _title(gpu), "lost": "lost" in gpu} for gpu in page.gpus]


def _title(gpu: dict[str, object]) -> str | None:
    if "lost" in gpu:
        return "LOST"
    verdict = gpu.get("verdict")
    if not isinstance(verdict, str):
        return None
    return full_title(titles().get(verdict, verdict), "A" if gpu.get("state") == "busy_not_working" else None)
