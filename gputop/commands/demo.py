"""`gputop demo`: the screen on a simulated node.

Also that node for other commands: its past in place of a recording, a session that can go back, and its remedies.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gputop.command_line.demo_node import PAST_S, Remedied, session_on
from gputop.command_line.registry import Needs
from gputop.command_line.shared_options import (
    filterable,
    printable,
    redacted_snapshot,
    redacted_source,
)
from gputop.config import Settings
from gputop.model.source import UsageError

if TYPE_CHECKING:
    from gputop.model.inspection import ProcessAccess

NEEDS = Needs("terminal")


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("scenario", nargs="?", help="one scenario instead of the whole node")
    printable(command)
    filterable(command)
    add("--tour", action="store_true", help="walk through the node, GPU by GPU, with each remedy")
    add("--list", action="store_true", help="name the scenarios")
    add("--seed", metavar="N", type=int, default=0, help="another run of the same scenario")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gputop.sources.simulation.scenarios import SCENARIOS
    from gputop.sources.simulation.simulated import SimulatedSource
    from gputop.sources.simulation.simulated_access import SimulatedAccess

    if args.list:
        width = max(map(len, SCENARIOS))
        sys.stdout.writelines(
            f"{name:<{width}}  {scenario.title}\n" for name, scenario in SCENARIOS.items()
        )
        return 0
    whole = args.scenario is None
    if args.tour and not whole:
        raise UsageError("the tour walks through the whole node: leave out the scenario")
    source = SimulatedSource(
        args.scenario, interval_s=settings.interval, seed=args.seed, only=settings.gpus or None
    )
    if getattr(args, "once", False):
        from gputop.commands.once import printed_table

        snapshot = source.begin(0.0)
        assert snapshot is not None, "a source that is asked for the first time has a snapshot"
        sys.stdout.write(printed_table(args, settings, snapshot))
        return 0
    from gputop.command_line.screen import screen_options, show
    from gputop.sources.redacted import RedactedAccess

    screen = screen_options(args, settings, "gputop demo --once", demo=True, tour=whole)
    redactor = screen.redactor
    session = session_on(source, settings, redactor)
    for snapshot in source.past(PAST_S):
        session.take(redacted_snapshot(snapshot, redactor))

    def access() -> ProcessAccess:
        own = SimulatedAccess(source)
        return own if redactor is None else RedactedAccess(own, redactor)

    return show(
        screen,
        redacted_source(source, redactor),
        session=session,
        access=access,
        remedied=Remedied(settings.interval, args.seed).frame if whole else None,
        begins_with="tour" if args.tour else "",
    )
