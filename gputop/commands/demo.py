"""The interactive screen on a simulated node, on any machine."""

from __future__ import annotations

import argparse
import sys

from gputop.commands.filtering import filter_of
from gputop.commands.live import screen_terminal, show
from gputop.commands.needs import Needs
from gputop.commands.redaction import redacted_snapshot, redacted_source, redactor_of
from gputop.commands.shared_arguments import filterable, printable, selectable
from gputop.config import Settings
from gputop.monitor import Monitor
from gputop.session.session import Session

NEEDS = Needs("terminal")
PURPOSE, SUMMARY = "Watch", "a simulated node, on any machine"

PAST_S = 700.0
"""How much of its past a scenario shows at once: the ten minutes that charts keep, and the window before them."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", nargs="?", help="one scenario instead of the whole node")
    printable(command)
    selectable(command)
    filterable(command)
    command.add_argument("--list", action="store_true", help="name the scenarios")
    command.add_argument("--seed", type=int, default=0, help="another run of the same scenario")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gputop.sources.simulation.scenarios import SCENARIOS
    from gputop.sources.simulation.simulated import SimulatedSource

    if args.list:
        width = max(map(len, SCENARIOS))
        sys.stdout.writelines(f"{name:<{width}}  {scenario.title}\n" for name, scenario in SCENARIOS.items())
        return 0
    source = SimulatedSource(args.scenario, interval_s=settings.interval, seed=args.seed, only=settings.gpus or None)
    if getattr(args, "once", False):
        from gputop.commands.once import table

        snapshot = source.poll()
        assert snapshot is not None, "a source that is asked for the first time has a snapshot"
        sys.stdout.write(table(args, settings, snapshot))
        return 0
    redactor = redactor_of(settings)
    passing = filter_of(args, redactor)
    terminal = screen_terminal(settings)
    session = Session(Monitor(settings.interval))
    for snapshot in source.past(PAST_S):
        session.take(redacted_snapshot(snapshot, redactor))
    watched = redacted_source(source, redactor)
    return show(args, watched, settings, terminal, session=session, passing=passing, demo=True)
