"""Every GPU of a cluster at a glance, from the Prometheus that is already there."""

from __future__ import annotations

import argparse

from gputop.commands.needs import Needs
from gputop.commands.registry import parts
from gputop.config import Settings
from gputop.model.source import UsageError

NEEDS = Needs("nothing")
PURPOSE, SUMMARY = "The fleet", "every GPU of a cluster, from its Prometheus"


def arguments(command: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace, settings: Settings) -> int:
    known = ", ".join(f"`gputop fleet {part}`" for part in parts("fleet"))
    raise UsageError(f"gputop fleet does what its parts do: {known}")
