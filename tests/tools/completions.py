"""The shells' completion scripts, made by shtab from the command line's own parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shtab

from gputop.commands.command_line import whole
from gputop.commands.completion import SHELLS
from gputop.commands.registry import TOPICS, commands
from gputop.paint.theme import THEME_NAMES
from gputop.sources.simulation.scenarios import SCENARIOS

FILES = ("after", "before", "config", "file", "files", "output", "recording", "report")
"""Arguments that name a file."""
VALUES = {"theme": THEME_NAMES, "scenario": (*SCENARIOS,), "source": ("demo",), "topic": (*TOPICS, *commands())}
"""Arguments and what they take. Left out of the command line's own parser, which says it better."""


def scripts() -> dict[str, str]:
    """Each shell's script."""
    parser = whole()
    for action in _actions(parser):
        if action.dest in VALUES:
            action.choices = VALUES[action.dest]
        elif action.dest in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return {shell: shtab.complete(parser, shell=shell) for shell in SHELLS}


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
