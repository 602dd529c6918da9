"""The commands by purpose, each with what it is for, as their files say it. Standard library only.

A command is a file in this folder, named after it (``loader-bench``: ``loader_bench.py``), with ``PURPOSE, SUMMARY``,
``NEEDS``, ``arguments(parser)`` and ``run(args, settings)``. To list the commands their files are read, not imported:
most of them import what measures, and the help does not wait for that.

A command may have parts, named by a second word: ``fleet demo`` is the file ``demo.py`` in the folder ``of_fleet``,
with ``SUMMARY``, ``NEEDS``, ``arguments`` and ``run`` like a command's.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

PURPOSES = ("Watch", "Evidence", "A job", "The fleet", "Set-up")
"""In the order of the help."""
LONGEST = 40
"""Characters of a command's name."""
_FOLDER = os.path.dirname(__file__)
LIVE = "live"
"""The file of what runs without a command."""


def _said(path: str) -> tuple[str, str] | None:
    """A command's purpose and summary, read from its file; None where the file is no command's."""
    import re

    match = re.search(r'^PURPOSE, SUMMARY = "([^"]+)", "([^"]+)"$', _text(path), re.MULTILINE)
    return None if match is None else (match[1], match[2])


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _files(folder: str) -> Iterator[tuple[str, str]]:
    """The Python files of a folder in the order of their names: the word each stands for, and its path."""
    if os.path.isdir(folder):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".py"):
                yield name[:-3].replace("_", "-"), os.path.join(folder, name)


def is_command(name: str) -> bool:
    """Whether there is a command of that name; reads its file alone."""
    letters = name.replace("-", "")
    if not (letters.isascii() and letters.isalpha() and len(name) <= LONGEST):
        return False
    path = os.path.join(_FOLDER, f"{_file(name)}.py")
    return os.path.isfile(path) and _said(path) is not None


@lru_cache(maxsize=16)
def parts(name: str) -> dict[str, str]:
    """The parts of a command by their second word, each with what it is for; empty for most commands."""
    import re

    found = {}
    for word, path in _files(os.path.join(_FOLDER, f"of_{_file(name)}")):
        match = re.search(r'^SUMMARY = "([^"]+)"$', _text(path), re.MULTILINE)
        if match is not None:
            found[word] = match[1]
    return found


@lru_cache(maxsize=1)
def groups() -> dict[str, dict[str, str]]:
    """Purpose → the commands that serve it, each with its summary."""
    found: dict[str, dict[str, str]] = {purpose: {} for purpose in PURPOSES}
    for word, path in _files(_FOLDER):
        if (said := _said(path)) is not None:
            found[said[0]][word] = said[1]
    return found


def commands() -> dict[str, str]:
    """Every command with what it is for."""
    return {name: summary for group in groups().values() for name, summary in group.items()}


def commands_and_parts() -> dict[str, str]:
    """Every command, and after it its parts under both their words, with what it is for."""
    found = {}
    for name, summary in commands().items():
        found[name] = summary
        found.update({f"{name} {part}": words for part, words in parts(name).items()})
    return found


def module_of(name: str) -> ModuleType:
    """The file of a command, or of a part named by both its words, imported."""
    command, _, part = name.partition(" ")
    where = f"of_{_file(command)}.{_file(part)}" if part else _file(command)
    return import_module(f"gputop.commands.{where}")


def _file(word: str) -> str:
    return word.replace("-", "_")
