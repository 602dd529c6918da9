"""A mark for the running recorders and screens of this user."""

from __future__ import annotations

import argparse
import time

from gputop.command_line.registry import Needs
from gputop.config import Settings
from gputop.output.messages import say
from gputop.sources.marks import send_mark

NEEDS = Needs("nothing")


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="+", help="the text of the mark")


def run(args: argparse.Namespace, settings: Settings) -> int:
    sent = send_mark(" ".join(args.text), time.time())
    if sent.lost:
        say(
            f"the mark missed {len(sent.lost)} of {sent.reached + len(sent.lost)} listeners: {'; '.join(sent.lost)}"
        )
        return 1
    if not sent.reached:
        say("the mark was lost: no recorder or screen of this user is running")
        return 1
    takers = "recorder or screen" if sent.reached == 1 else "recorders and screens"
    say(f"the mark was taken by {sent.reached} running {takers} of yours")
    return 0
