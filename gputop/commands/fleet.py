"""Every GPU of a cluster at a glance, from the Prometheus that is already there."""

from __future__ import annotations

import argparse
import time

from gputop.commands.fleet_screen import (
    asked_fleet,
    form_options,
    frame_once,
    moment_of,
    moment_option,
    prometheus_options,
    show,
    write_data,
)
from gputop.commands.needs import Needs
from gputop.config import Settings

NEEDS = Needs("nothing")


def arguments(command: argparse.ArgumentParser) -> None:
    prometheus_options(command)
    moment_option(command)
    form_options(command)


def run(args: argparse.Namespace, settings: Settings) -> int:
    at = moment_of(args.at, time.time())
    if args.json or args.csv:
        return write_data(frame_once(asked_fleet(args, settings), at), as_csv=args.csv)
    fleet = asked_fleet(args, settings)
    from gputop.commands.screen import screen_terminal

    return show(fleet, settings, screen_terminal(settings, "gputop fleet --json"), at=at)
