"""``gputop help``: commands, options of one command, or a topic."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from itertools import chain

from msgspec.structs import replace

from gputop.command_line.parser import WIDTH, command_parser, overview
from gputop.command_line.registry import COMMANDS, COMMANDS_AND_PARTS, TOPICS, Needs, page_of
from gputop.command_line.shared_options import prints_ascii, stdout_is_text
from gputop.config import Settings
from gputop.model.expression import nearest
from gputop.model.feature_table import key_tables
from gputop.model.source import UsageError
from gputop.output.document import Block, Document, page, section
from gputop.output.plain_document import plain
from gputop.paint.glyphs import ASCII, keys_shown
from gputop.paint.help_rows import NUMBERS, SCREEN_WORDS
from gputop.paint.keys import KEYS, PAGE_KEYS, REPLAY_KEYS, Key
from gputop.system.terminal_size import output_width

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
    hint = nearest(topic, names)
    if not hint and (mentions := _mentions(topic)):
        return _shown(page(topic, (), mentions))
    raise UsageError(f"no help on {topic!r}{hint}; `gputop help` lists what there is")


REPORT_WORDS = {
    "EFF": "efficiency: SM / UTIL in percent over the time in which both were measured; it says nothing of idle time",
    "MEM PEAK": "the most device memory that was in use",
}
"""Heads of tables in reports that no metric has."""
_WORKERS = (
    "processes that load batches for a training process, as many as its DataLoader's num_workers; "
    "`gputop loader MODULE:FUNCTION` measures how many it needs"
)
REMEDY_WORDS = {"num_workers": _WORKERS, "workers": _WORKERS, "loaders": _WORKERS}
"""Words of remedies that belong to other programs."""
MOST_MENTIONS = 5
"""Rows that are shown where a word has none of its own."""


def _shown(document: Document) -> str:
    return plain(document, output_width(WIDTH))


def _row_on(word: str) -> str | None:
    """Return the rows on one key, number, verdict, setting or word, if any."""
    sections = _rows_where(lambda row: _names(row, word))
    if actions := tuple(_action(key) for key in _all_keys() if key.id == word.lower()):
        # A key may stand in several tables.
        rows = tuple(dict.fromkeys(actions))
        sections.insert(0, section("What it does (gputop help keys)", (), ("key", "effect"), rows))
    if found := _meanings(word):
        sections.append(section("On the screen and in reports", (), ("word", "meaning"), found))
    return _shown(page(word, (), tuple(sections))) if sections else None


def _rows_where(is_wanted: Callable[[tuple[str, ...]], bool]) -> list[tuple[Block, ...]]:
    """Return the wanted rows of all topics, each with its table's head."""
    sections: list[tuple[Block, ...]] = []
    for topic in WITH_ROWS:
        for title, entries in page_of(topic).entries:
            if rows := tuple(filter(is_wanted, entries.rows)):
                sections.append(section(f"{title} (gputop help {topic})", (), entries.head, rows))
    return sections


def _all_keys() -> Iterable[Key]:
    return chain(KEYS, REPLAY_KEYS, PAGE_KEYS, *(keys for _, keys in key_tables()))


def _action(key: Key) -> tuple[str, str]:
    return key.shown or "none yet", key.does


def _meanings(word: str) -> tuple[tuple[str, str], ...]:
    """Return what a word means; a number's first sentence only where nothing else does."""
    words = {**SCREEN_WORDS, **REPORT_WORDS, **REMEDY_WORDS}
    found = tuple((word, text) for name, text in words.items() if name.lower() == word.lower())
    numbers = ((text.partition(" ")[0], text) for text in NUMBERS)
    return found or tuple((word, text) for name, text in numbers if name.lower() == word.lower())


def _mentions(word: str) -> list[tuple[Block, ...]]:
    """Return the first rows in which a word occurs, of two letters or more."""
    if len(word) < 2:
        return []
    whole_word = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)", re.IGNORECASE)
    left = MOST_MENTIONS

    def is_wanted(row: tuple[str, ...]) -> bool:
        nonlocal left
        if left and any(whole_word.search(cell) for cell in row):
            left -= 1
            return True
        return False

    return _rows_where(is_wanted)


def _names(row: tuple[str, ...], word: str) -> bool:
    """Return whether a table's row is about a word. Case counts."""
    names = {*row[0].replace("`", "").split(), *(cell.strip("`") for cell in row[2:])}
    return word in names or (len(word) > 1 and word.lower() in {name.lower() for name in names})
