"""The worst things in a cluster now, in words. Exit 0: nothing wrong, 1: findings, 3: no fleet answers."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from gputop.commands.needs import Needs
from gputop.commands.shared_options import prints_ascii
from gputop.config import Settings
from gputop.features.fleet.fleet_command import (
    frame_once,
    host_words,
    moment_of,
    moment_option,
    prometheus_options,
    redacted,
    watched_fleet,
)
from gputop.features.fleet.fleet_data import FIRST, FleetFinding, findings
from gputop.features.fleet.fleet_frame import FleetFrame
from gputop.features.fleet.fleet_reading import SIMULATED
from gputop.features.fleet.simulated_fleet import STARTED, SimulatedFleet
from gputop.model.quantity import count
from gputop.model.source import UsageError
from gputop.output.document import Document, Notes, Paragraph, Verdict, plain

NEEDS = Needs()
FOUND = 1


def arguments(command: argparse.ArgumentParser) -> None:
    text = "demo: a simulated fleet; or hosts, as for `gputop fleet`; without them what --prom or --cluster names"
    host_words(command, text)
    prometheus_options(command)
    moment_option(command)
    command.add_argument("--top", type=int, default=FIRST, metavar="N", help=f"how many to print (default {FIRST})")
    command.add_argument("--json", action="store_true", help="one JSON object")


def run(args: argparse.Namespace, settings: Settings) -> int:
    if args.top < 1:
        raise UsageError(f"--top must be 1 or more, not {args.top}")
    if args.hosts == ["demo"]:
        frame = frame_once(redacted(SimulatedFleet(), settings), STARTED)
    else:
        frame = frame_once(watched_fleet(args, settings), moment_of(args.at, time.time()))
    all_findings = findings(frame)
    if args.json:
        rows = [
            {"level": finding.level, "text": finding.text, "remedy": finding.remedy, "gpus": finding.gpus}
            for finding in all_findings
        ]
        data = {
            "schema": 1,
            "t": frame.t,
            "source": frame.read.source,
            "findings": rows,
            "problems": list(frame.problems),
        }
        sys.stdout.write(json.dumps(data, ensure_ascii=False) + "\n")
        return FOUND if all_findings else 0
    sys.stdout.write(plain(_document(frame, all_findings, args.top), is_ascii=prints_ascii(settings)))
    return FOUND if all_findings else 0


def _document(frame: FleetFrame, all_findings: Sequence[FleetFinding], top: int) -> Document:
    """The worst first."""
    kind = "simulated fleet" if frame.read.source == SIMULATED else "fleet"
    lead = [f"{kind}: {count(len(frame.hosts), 'host')}"]
    if len(all_findings) > 1:
        first = "what is not there comes first, then " if all_findings[0].is_absent else ""
        lead.append(f"{first}what loses the most GPU time now{'' if first else ' comes first'}")
    worst = (Verdict(finding.level, finding.text, remedy=finding.remedy) for finding in all_findings[:top])
    not_shown = len(all_findings) - top
    last_lines = [Paragraph(f"and {not_shown} more; --top {len(all_findings)} shows them")] if not_shown > 0 else []
    last_lines += [] if all_findings else [Paragraph("nothing wrong: every GPU that has a job works")]
    return Document(lead[0], (*worst, *last_lines, Notes(tuple(frame.problems))), tuple(lead))
