"""``gputop help``: the commands by purpose, one command's options, or a topic from the tables that the program uses."""

from __future__ import annotations

import argparse
import shutil
import sys

from msgspec.structs import replace

from gputop.commands.argument_parser import nearest
from gputop.commands.command_line import command_parser
from gputop.commands.needs import Needs
from gputop.commands.overview import WIDTH, overview
from gputop.commands.registry import commands, commands_and_parts
from gputop.commands.topics import TOPICS, page_of
from gputop.config import Settings
from gputop.model.source import UsageError
from gputop.paint.glyphs import ascii_only

WITH_ROWS = ("keys", "settings", "metrics", "verdicts")
"""The topics in which a single row can be looked up."""
NEEDS = Needs(configuration=False)


def arguments(command: argparse.ArgumentParser) -> None:
    text = "or the name of a key, number, verdict or setting"
    command.add_argument("topic", nargs="?", help=f"a command, {', '.join(TOPICS)}, {text}")


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
    if found := _row_on(topic):
        return found
    raise UsageError(f"no help on {topic!r}{nearest(topic, (*TOPICS, *commands()))}; `gputop help` lists what there is")


def _row_on(word: str) -> str | None:
    """What the tables say of one key, number, verdict or setting; None where none of them has it."""
    from gputop.output.reference.page import Page, plain

    sections = []
    for topic in WITH_ROWS:
        for section in page_of(topic).sections:
            rows = tuple(row for row in section.rows if _names(row, word))
            if rows:
                sections.append(replace(section, title=f"{section.title} (gputop help {topic})", text=(), rows=rows))
    if not sections:
        return None
    return plain(Page(word, (), tuple(sections)), shutil.get_terminal_size((WIDTH, 24)).columns)


def _names(row: tuple[str, ...], word: str) -> bool:
    """Whether a table's row is about a word: its name, one of its keys, or how it is shown. Case counts."""
    known = {*row[0].replace("`", "").split(), *(cell.strip("`") for cell in row[2:])}
    return word in known or (len(word) > 1 and word.lower() in {name.lower() for name in known})
