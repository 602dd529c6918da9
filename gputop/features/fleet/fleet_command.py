"""Show every GPU of a cluster, from its Prometheus or by ssh."""

from __future__ import annotations

import argparse

from gputop.command_line.registry import Needs
from gputop.config import Settings

NEEDS = Needs("nothing")


def arguments(command: argparse.ArgumentParser) -> None:
    text = (
        "without a Prometheus: hosts reached by ssh, such as box1, user@box2, 'gpu[01-08]', or "
        "http://HOST:PORT"
    )
    command.add_argument("hosts", nargs="*", metavar="HOST", help=text)
    text = "a host that is called like a part of this command; may be repeated"
    command.add_argument("--host", action="append", metavar="NAME", help=text)
    prometheus_options(command)
    command.add_argument(
        "--at", metavar="TIME", help="the fleet at that time: 12:03, -10m, an ISO date"
    )
    form_options(command)


def prometheus_options(command: argparse.ArgumentParser) -> None:
    """Add the options for the fleet's Prometheus."""
    add = command.add_argument
    add(
        "--prom",
        metavar="URL",
        help="Prometheus, VictoriaMetrics, Thanos or Mimir; also GPUTOP_PROM_URL",
    )
    add(
        "--cluster",
        metavar="NAME",
        help="a cluster of the configuration file, from its table [fleet.NAME]",
    )
    add("--select", metavar="MATCHERS", help="only series that match, such as 'cluster=\"a\"'")
    text = (
        "file of HTTP headers, one a line, such as Authorization: Bearer TOKEN; only you may be "
        "able to read it"
    )
    add("--header-file", metavar="FILE", help=text)
    add("--prom-ca", metavar="FILE", help="CA certificates to check the server's certificate with")


def form_options(command: argparse.ArgumentParser) -> None:
    """Data in place of the screen."""
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object in place of the screen")
    form.add_argument("--csv", action="store_true", help="one row a GPU in place of the screen")


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gputop.features.fleet.fleet_run import run_fleet

    return run_fleet(args, settings)
