"""``gputop help``: the commands by purpose, one command's options, or a topic from the tables that the program uses."""

from __future__ import annotations

import argparse
import sys
import textwrap

from gputop.commands.argument_parser import nearest
from gputop.commands.needs import Needs
from gputop.commands.registry import COMMANDS, GROUPS
from gputop.config import Settings
from gputop.model.source import UsageError

NEEDS = Needs(configuration=False)
WIDTH = 80


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", nargs="?", help="a command, or: options")


def run(args: argparse.Namespace, settings: Settings) -> int:
    sys.stdout.write(overview() if args.topic is None else _about(args.topic))
    return 0


def overview() -> str:
    """What ``gputop --help`` prints: at most 48 lines of 80 columns."""
    width = max(map(len, COMMANDS)) + 4
    lines = ["usage: gputop [OPTIONS] [COMMAND] …", ""]
    lines += textwrap.wrap("top for GPUs: utilisation against real SM activity, and why the rest is not work.", WIDTH)
    lines += ["Without a command: the live screen, where ? explains every key and number.", ""]
    for purpose, commands in GROUPS.items():
        lines.append(purpose)
        lines += [f"  {name:<{width}}{summary}" for name, summary in commands.items()]
        lines.append("")
    last = "`gputop COMMAND --help` lists a command's options, `gputop help options` those of every command."
    lines += textwrap.wrap(last, WIDTH)
    return "\n".join(lines) + "\n"


def _about(topic: str) -> str:
    from gputop.commands.command_line import command_parser, options

    if topic == "options":
        return options()
    if topic in COMMANDS:
        return command_parser(topic).format_help()
    raise UsageError(f"no help on {topic!r}{nearest(topic, (*COMMANDS, 'options'))}; `gputop help` lists what there is")
