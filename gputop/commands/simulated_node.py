"""``demo`` in place of a recording or of this machine: the past of a simulated node, for commands without a screen."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gputop.commands.shared_options import redacted_snapshot, redactor_of
from gputop.config import Settings
from gputop.model.source import UsageError

if TYPE_CHECKING:
    from gputop.model.snapshot import Snapshot

DEMO = "demo"
PAST_S = 700.0
"""How much of its past a scenario shows at once: the ten minutes that charts keep, and the window before them."""


def scenario_arguments(command: argparse.ArgumentParser) -> None:
    """What chooses the simulated node."""
    command.add_argument("scenario", nargs="?", help="with demo: one scenario instead of the whole node")
    command.add_argument("--seed", type=int, default=0, metavar="N", help="with demo: another run of the same scenario")


def wants_demo(args: argparse.Namespace) -> bool:
    """Whether ``args.file`` asks for the simulated node. Raises UsageError for a scenario without it."""
    if args.file == DEMO:
        return True
    if args.scenario is not None:
        raise UsageError(f"a scenario belongs to `{args.command} demo`, not to {args.file!r}")
    return False


def simulated_past(args: argparse.Namespace, settings: Settings) -> Iterator[Snapshot]:
    """What a simulated node has measured until now, oldest first. Raises UsageError for an unknown scenario."""
    from gputop.sources.simulation.simulated import SimulatedSource

    source = SimulatedSource(
        args.scenario, interval_s=settings.interval, seed=args.seed, only=settings.gpus or None, events_past=True
    )
    redactor = redactor_of(settings)
    return (redacted_snapshot(snapshot, redactor) for snapshot in source.past(PAST_S))
