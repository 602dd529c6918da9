"""The interactive screen on a simulated node, on any machine."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gputop.commands.argument_parser import filterable, printable, selectable
from gputop.commands.needs import Needs
from gputop.commands.screen import screen_terminal, show
from gputop.commands.shared_options import filter_of, redacted_snapshot, redacted_source, redactor_of
from gputop.commands.simulated_node import PAST_S, Remedied, session_on
from gputop.config import Settings
from gputop.model.source import UsageError

if TYPE_CHECKING:
    from gputop.model.inspection import ProcessAccess
    from gputop.model.redaction import Redactor
    from gputop.sources.simulation.simulated import SimulatedSource

NEEDS = Needs("terminal")


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", nargs="?", help="one scenario instead of the whole node")
    printable(command)
    selectable(command)
    filterable(command)
    command.add_argument("--tour", action="store_true", help="walk through the node, GPU by GPU, with each remedy")
    command.add_argument("--list", action="store_true", help="name the scenarios")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="another run of the same scenario")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gputop.sources.simulation.scenarios import SCENARIOS
    from gputop.sources.simulation.simulated import SimulatedSource

    if args.list:
        width = max(map(len, SCENARIOS))
        sys.stdout.writelines(f"{name:<{width}}  {scenario.title}\n" for name, scenario in SCENARIOS.items())
        return 0
    if args.tour and args.scenario is not None:
        raise UsageError("the tour walks through the whole node: leave out the scenario")
    source = SimulatedSource(args.scenario, interval_s=settings.interval, seed=args.seed, only=settings.gpus or None)
    if getattr(args, "once", False):
        from gputop.commands.printed_once import printed_table

        snapshot = source.poll()
        assert snapshot is not None, "a source that is asked for the first time has a snapshot"
        sys.stdout.write(printed_table(args, settings, snapshot))
        return 0
    redactor = redactor_of(settings)
    passing = filter_of(args, redactor)
    terminal = screen_terminal(settings, "gputop demo --once")
    session = session_on(source, settings, redactor)
    for snapshot in source.past(PAST_S):
        session.take(redacted_snapshot(snapshot, redactor))
    return show(
        args,
        redacted_source(source, redactor),
        settings,
        terminal,
        session=session,
        access=lambda: _access(source, redactor),
        passing=passing,
        demo=True,
        remedied=Remedied(settings.interval, args.seed).frame if args.scenario is None else None,
        begins_with="tour" if args.tour else "",
    )


def _access(source: SimulatedSource, redactor: Redactor | None) -> ProcessAccess:
    from gputop.sources.simulation.simulated import SimulatedAccess

    access = SimulatedAccess(source)
    if redactor is None:
        return access
    from gputop.sources.redacted import RedactedAccess

    return RedactedAccess(access, redactor)
