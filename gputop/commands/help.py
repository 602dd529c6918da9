"""``gputop help``: commands, options of one command, or a topic."""

from __future__ import annotations

import argparse
import shutil
import sys

from msgspec.structs import replace

from gputop.commands.command_line import WIDTH, command_parser, overview
from gputop.commands.registry import COMMANDS, COMMANDS_AND_PARTS, TOPICS, Needs, page_of
from gputop.commands.shared_options import prints_ascii, stdout_is_text
from gputop.config import Settings
from gputop.model.expression import nearest
from gputop.model.source import UsageError
from gputop.output.document import Document, page, section
from gputop.output.plain_document import plain
from gputop.paint.glyphs import ASCII, keys_shown
from gputop.paint.help_rows import NUMBERS, SCREEN_WORDS

WITH_ROWS = ("keys", "settings", "metrics", "verdicts")
"""The topics in which a single row can be looked up."""
NEEDS = Needs(configuration=False)


def arguments(command: argparse.ArgumentParser) -> None:
    text = "or the name of a key, number, verdict or setting"
    command.add_argument("topic", nargs="?", help=f"a command, {', '.join(TOPICS)}, {text}")


def run(args: argparse.Namespace, settings: Settings) -> int:
    # The configuration is not read, so the flag is asked itself.
    settings = replace(settings, ascii=getattr(args, "ascii", False))
    stdout_is_text(settings)
    text = overview() if args.topic is None else _about(args.topic)
    sys.stdout.write(
        keys_shown(text, ASCII) if args.topic == "keys" and prints_ascii(settings) else text
    )
    return 0


def _about(topic: str) -> str:
    if topic in TOPICS:
        return _shown(page_of(topic))
    if topic in COMMANDS_AND_PARTS:
        return command_parser(topic).format_help()
    if row_text := _row_on(topic):
        return row_text
    rows = (
        row for name in WITH_ROWS for _, entries in page_of(name).entries for row in entries.rows
    )
    names = (*TOPICS, *COMMANDS, *(row[0].strip("`") for row in rows))
    raise UsageError(
        f"no help on {topic!r}{nearest(topic, names)}; `gputop help` lists what there is"
    )


REPORT_WORDS = {
    "EFF": "efficiency: SM / UTIL in percent over the time in which both were measured; it says nothing of idle time",
    "MEM PEAK": "the most device memory that was in use",
}
"""Heads of tables in reports that no metric has."""


def _shown(document: Document) -> str:
    return plain(document, shutil.get_terminal_size((WIDTH, 24)).columns)


def _row_on(word: str) -> str | None:
    """Return the rows on one key, number, verdict or setting, if any."""
    sections = []
    for topic in WITH_ROWS:
        for title, entries in page_of(topic).entries:
            if rows := tuple(row for row in entries.rows if _names(row, word)):
                sections.append(section(f"{title} (gputop help {topic})", (), entries.head, rows))
    numbers = ((text.partition(" ")[0], text) for text in NUMBERS)
    words = (*numbers, *SCREEN_WORDS.items(), *REPORT_WORDS.items())
    if found := tuple((word, text) for name, text in words if name.lower() == word.lower()):
        sections.append(section("On the screen and in reports", (), ("word", "meaning"), found))
    return _shown(page(word, (), tuple(sections))) if sections else None


def _names(row: tuple[str, ...], word: str) -> bool:
    """Return whether a table's row is about a word. Case counts."""
    names = {*row[0].replace("`", "").split(), *(cell.strip("`") for cell in row[2:])}
    return word in names or (len(word) > 1 and word.lower() in {name.lower() for name in names})
