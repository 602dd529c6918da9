"""The fleet's screen and its data on a simulated fleet, on any machine."""

from __future__ import annotations

import argparse
import sys

from gputop.commands.needs import Needs
from gputop.config import Settings
from gputop.fleet.simulated import STARTED, SimulatedFleet
from gputop.model.source import UsageError

NEEDS = Needs()
SUMMARY = "a simulated fleet, on any machine"
MOST_HOSTS, MOST_GPUS = 20_000, 16


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--hosts", type=int, default=125, metavar="N", help="hosts of 8 GPUs (default 125)")
    add("--seed", type=int, default=0, metavar="N", help="another fleet")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object")
    form.add_argument("--csv", action="store_true", help="one row a GPU")


def simulated(args: argparse.Namespace) -> SimulatedFleet:
    """The fleet that the options describe. Raises UsageError."""
    if not 1 <= args.hosts <= MOST_HOSTS:
        raise UsageError(f"--hosts must be from 1 to {MOST_HOSTS}, not {args.hosts}")
    return SimulatedFleet(args.hosts, seed=args.seed)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gputop.fleet.data import fleet_csv, fleet_json
    from gputop.fleet.frame import fleet_frame

    frame = fleet_frame(simulated(args).ask(STARTED))
    sys.stdout.write(fleet_csv(frame) if args.csv else fleet_json(frame))
    return 0
