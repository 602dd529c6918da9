"""``gputop help``: the commands by purpose, one command's options, or a topic from the tables that the program uses."""

from __future__ import annotations

import argparse
import shutil
import sys

from gputop.commands.argument_parser import nearest
from gputop.commands.command_line import command_parser
from gputop.commands.needs import Needs
from gputop.commands.overview import WIDTH, overview
from gputop.commands.registry import commands, commands_and_parts
from gputop.commands.topics import TOPICS, page_of
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.paint.glyphs import ascii_only

NEEDS = Needs(configuration=False)
PURPOSE, SUMMARY = "Set-up", "what a command, a key, a number or a verdict means"


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", nargs="?", help=f"a command, or: {', '.join(TOPICS)}")


def run(args: argparse.Namespace, settings: Settings) -> int:
    text = overview() if args.topic is None else _about(args.topic)
    sys.stdout.write(text if sys.stdout.encoding.lower().startswith("utf") else ascii_only(text))
    return 0


def _about(topic: str) -> str:
    if topic in TOPICS:
        from gputop.output.reference.page import plain

        return plain(page_of(topic), shutil.get_terminal_size((WIDTH, 24)).columns)
    if topic in commands_and_parts():
        return command_parser(topic).format_help()
    raise UsageError(f"no help on {topic!r}{nearest(topic, (*TOPICS, *commands()))}; `gputop help` lists what there is")
