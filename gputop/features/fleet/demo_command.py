"""The fleet's screen and its data on a simulated fleet, on any machine."""

from __future__ import annotations

import argparse
import time

from gputop.command_line.registry import Needs
from gputop.config import Settings
from gputop.features.fleet.fleet_command import form_options
from gputop.model.source import UsageError

NEEDS = Needs("nothing")
MOST_HOSTS = 20_000


def arguments(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("--hosts", type=int, default=125, metavar="N", help="hosts of 8 GPUs (default 125)")
    add("--seed", type=int, default=0, metavar="N", help="another fleet")
    form_options(command)


def run(args: argparse.Namespace, settings: Settings) -> int:
    if not 1 <= args.hosts <= MOST_HOSTS:
        raise UsageError(f"--hosts must be from 1 to {MOST_HOSTS}, not {args.hosts}")
    from gputop.features.fleet.fleet_run import frame_once, redacted, show, write_data
    from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet

    ahead_s = STARTED - time.monotonic()
    simulated = SimulatedFleet(args.hosts, seed=args.seed, clock=lambda: ahead_s + time.monotonic())
    fleet = redacted(simulated, settings)
    if args.json or args.csv:
        return write_data(frame_once(fleet, STARTED), as_csv=args.csv)
    from gputop.command_line.screen import screen_terminal

    return show(fleet, settings, screen_terminal(settings, "gputop fleet demo --json"))
