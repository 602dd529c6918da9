"""A mark for the running recorders and screens of this user."""

from __future__ import annotations

import argparse
import time

from gputop.commands.needs import Needs
from gputop.config import Settings
from gputop.output.messages import say
from gputop.sources.marks import send_mark

NEEDS = Needs("nothing")
PURPOSE, SUMMARY = "A job", "a mark for running recorders and screens"


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="+", help="what happened")


def run(args: argparse.Namespace, settings: Settings) -> int:
    sent = send_mark(" ".join(args.text), time.time())
    if sent.lost:
        say(
            f"the mark is lost to {len(sent.lost)} of {sent.reached + len(sent.lost)} listeners: {'; '.join(sent.lost)}"
        )
        return 1
    if not sent.reached:
        say("no recorder and no screen of this user is running; the mark is lost")
        return 1
    return 0
