"""Prints completion scripts for shells, by shtab from the parsers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from gputop.command_line.parser import whole
from gputop.command_line.registry import COMMANDS, TOPICS, Needs
from gputop.config import Settings

NEEDS = Needs(configuration=False)
SHELLS = ("bash", "zsh", "fish", "tcsh")
FILES = (
    "after",
    "before",
    "card",
    "config",
    "file",
    "files",
    "more",
    "output",
    "recording",
    "report",
)
"""Arguments that name a file."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=SHELLS, help="bash, zsh, fish or tcsh")


def run(args: argparse.Namespace, settings: Settings) -> int:
    import shtab

    from gputop.paint.theme import THEME_NAMES
    from gputop.sources.simulation.scenarios import SCENARIOS

    # Left out of the command line's own parser, which says it better.
    values = {
        "theme": THEME_NAMES,
        "scenario": (*SCENARIOS,),
        "source": ("demo",),
        "topic": (*TOPICS, *COMMANDS),
    }
    parser = whole()
    for action in _actions(parser):
        if action.dest in values:
            action.choices = values[action.dest]
        elif action.dest in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    sys.stdout.write(shtab.complete(parser, shell=args.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield all arguments of a parser and its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
