"""The fleet's screen and its data on a simulated fleet, on any machine."""

from __future__ import annotations

import argparse
import time

from gputop.commands.registry import Needs
from gputop.config import Settings
from gputop.features.fleet.fleet_command import form_options, frame_once, redacted, show, write_data
from gputop.features.fleet.simulated_fleet import STARTED, SimulatedFleet
from gputop.model.source import UsageError

NEEDS = Needs("nothing")
MOST_HOSTS, MOST_GPUS = 20_000, 16


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--hosts", type=int, default=125, metavar="N", help="hosts of 8 GPUs (default 125)")
    add("--seed", type=int, default=0, metavar="N", help="another fleet")
    form_options(command)


def simulated(args: argparse.Namespace) -> SimulatedFleet:
    """The fleet that the options describe. Raises UsageError."""
    if not 1 <= args.hosts <= MOST_HOSTS:
        raise UsageError(f"--hosts must be from 1 to {MOST_HOSTS}, not {args.hosts}")
    begun = time.monotonic()
    return SimulatedFleet(args.hosts, seed=args.seed, clock=lambda: STARTED + time.monotonic() - begun)


def run(args: argparse.Namespace, settings: Settings) -> int:
    fleet = redacted(simulated(args), settings)
    if args.json or args.csv:
        return write_data(frame_once(fleet, STARTED), as_csv=args.csv)
    from gputop.commands.screen import screen_terminal

    return show(fleet, settings, screen_terminal(settings, "gputop fleet demo --json"))
