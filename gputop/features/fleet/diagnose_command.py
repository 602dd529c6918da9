"""The worst things in a cluster now, in words. Exit 0: nothing wrong, 1: findings, 3: no fleet answers."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from gputop.commands.shared_options import prints_ascii
from gputop.config import Settings
from gputop.diagnosis.types import Level
from gputop.features.fleet.fleet_command import (
    asked_fleet,
    frame_once,
    host_words,
    moment_of,
    moment_option,
    prometheus_options,
    redacted,
)
from gputop.features.fleet.fleet_frame import OF_JOBS, FleetFrame, GpuGroup
from gputop.features.fleet.fleet_reading import SIMULATED
from gputop.features.fleet.judge import ABSENT_REMEDIES, Straggler, lost_hours
from gputop.features.fleet.simulated_fleet import STARTED, SimulatedFleet
from gputop.model.quantity import count
from gputop.model.source import UsageError
from gputop.output.document import Document, Notes, Paragraph, Verdict, plain

# The worst things in a fleet now, in words, each with what it costs and what helps. Pure.

FIRST = 5
NAMED = 5
"""Hosts or GPUs that a line names."""


class FleetFinding(Struct, frozen=True):
    """``gpus`` is how many it holds back, ``lost`` how many GPUs' time is being wasted now.

    The more is lost, the earlier it is listed.
    """

    level: Level
    text: str
    remedy: str
    gpus: float
    lost: float
    lost_gpu_h: float = 0.0
    """Of the last hour; it breaks ties between two that lose as much now."""
    is_absent: bool = False
    """Whether it is of hosts or GPUs that are not there: these come first."""


def findings(frame: FleetFrame) -> list[FleetFinding]:
    """Everything that is wrong: first what is not there, then what loses the most GPU time now, whatever its level: a
    red job of one GPU must not hide a hundred that idle."""
    all_findings = [*_absent(frame)]
    all_findings += [finding for group in frame.jobs if (finding := _of_job(group)) is not None]
    for late in frame.stragglers:
        waits = "" if late.by == "step" else f"; {count(late.gpus - late.size, 'other GPU')} wait for it"
        text = f"{late.job}: {late.where} {'starves' if late.kind == 'starved' else 'straggles'}: {late.words}{waits}"
        remedy = f"look at its clocks and data there: {late.host}"
        all_findings.append(FleetFinding("yellow", text, remedy, late.gpus / 2, _waited(late)))
    return sorted(all_findings, key=lambda of: (not of.is_absent, -of.lost, of.level != "red", -of.lost_gpu_h, of.text))


def _absent(frame: FleetFrame) -> Iterator[FleetFinding]:
    """What was known within the last day and is not there now, by how it is missing."""
    read, counts = frame.read, frame.counts
    lost = [gpu.read for gpu in frame.gpus if gpu.state == "lost"]
    unnamed = {host: n for host, n in read.missing.items() if host not in read.down}
    if lost or unnamed:
        names = [f"{gpu.host} GPU {gpu.gpu}" for gpu in lost if gpu.host not in unnamed]
        names += [f"{host} ({n})" for host, n in unnamed.items()]
        text = f"{count(counts['lost'], 'GPU')} lost, though the host answers: {_named(names)}"
        yield FleetFinding("red", text, ABSENT_REMEDIES["lost"], counts["lost"], counts["lost"], is_absent=True)
    kinds: tuple[tuple[Literal["late", "down"], Level, str], ...] = (
        ("late", "red", "with a driver that is late or hangs"), ("down", "yellow", "down"),
    )  # fmt: skip
    for kind, level, word in kinds:
        if hosts := sorted(host for host, down in read.down.items() if down.kind == kind):
            text = f"{count(len(hosts), 'host')} {word}, {count(counts[kind], 'GPU')}: {_named(hosts)}"
            yield FleetFinding(level, text, ABSENT_REMEDIES[kind], counts[kind], max(1, counts[kind]), is_absent=True)
    if gone := read.gone:
        gpus = sum(host.gpus for host in gone.values())
        text = f"{count(len(gone), 'host')} gone, {count(gpus, 'GPU')}: {_named(sorted(gone))}"
        text += "; there within the last day, and nothing lists it now"
        remedy = "nothing, where it was taken away on purpose; else see why it is no longer scraped"
        yield FleetFinding("yellow", text, remedy, gpus, 0, is_absent=True)


def _named(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _waited(late: Straggler) -> float:
    """Roughly how many GPUs' time a straggler costs: each waiting GPU loses the share by which it differs."""
    small, large = sorted((late.value, late.median))
    share = 1.0 - small / large if large > 0.0 else 0.0
    # Ranks whose steps differ in length do not wait for each other: only the straggler's own time is lost.
    return share * (1 if late.by == "step" else late.gpus - late.size)


def _of_job(group: GpuGroup) -> FleetFinding | None:
    state = group.verdict.state
    if state not in OF_JOBS:
        return None
    readings, n, waste = [gpu.read for gpu in group.gpus if gpu.state == state], group.counts[state], group.waste_gpu_h
    owner = (group.name or "no job known") + (f" ({', '.join(group.users[:3])})" if group.users else "")
    cost = f"; {waste:.1f} GPU-hours lost in the last hour" if waste is not None and waste >= 0.05 else ""
    return FleetFinding(
        group.verdict.level,
        f"{owner}: {group.verdict.text} on {count(len(group.hosts), 'host')}{cost}",
        group.remedy,
        n,
        sum(lost_hours(state, read.util_pct, 1.0) for read in readings) or n * lost_hours(state, group.util_pct, 1.0),
        waste or 0.0,
    )


# The command.

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
        frame = frame_once(asked_fleet(args, settings), moment_of(args.at, time.time()))
    all_findings = findings(frame)
    if args.json:
        rows = [{key: getattr(of, key) for key in ("level", "text", "remedy", "gpus")} for of in all_findings]
        data = {
            "schema": 1, "t": frame.t, "source": frame.read.source, "findings": rows, "problems": list(frame.problems),
        }  # fmt: skip
        sys.stdout.write(json.dumps(data, ensure_ascii=False) + "\n")
    else:
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
