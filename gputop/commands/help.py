"""``gputop help``: the commands by purpose, one command's options, or a topic from the tables that the program uses."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap

from gputop.commands.argument_parser import nearest
from gputop.commands.needs import Needs
from gputop.commands.registry import COMMANDS, GROUPS
from gputop.commands.topics import TOPICS, page_of
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.paint.glyphs import ascii_only

NEEDS = Needs(configuration=False)
WIDTH = 80


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", nargs="?", help=f"a command, or: {', '.join(TOPICS)}")


def run(args: argparse.Namespace, settings: Settings) -> int:
    text = overview() if args.topic is None else _about(args.topic)
    sys.stdout.write(text if sys.stdout.encoding.lower().startswith("utf") else ascii_only(text))
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
    lines.append("`gputop COMMAND --help` lists a command's options, `gputop help TOPIC` explains:")
    lines += textwrap.wrap(", ".join(TOPICS), WIDTH, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _about(topic: str) -> str:
    if topic in TOPICS:
        from gputop.output.reference.page import plain

        return plain(page_of(topic), shutil.get_terminal_size((WIDTH, 24)).columns)
    if topic in COMMANDS:
        from gputop.commands.command_line import command_parser

        return command_parser(topic).format_help()
    raise UsageError(f"no help on {topic!r}{nearest(topic, (*TOPICS, *COMMANDS))}; `gputop help` lists what there is")
