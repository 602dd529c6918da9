"""Completion for the user's shell, made from the same parser as the command line itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from gputop.commands.needs import Needs
from gputop.config import Settings, theme_names
from gputop.model.source import UsageError

NEEDS = Needs(configuration=False)

FILES = ("after", "before", "config", "file", "output", "report")
"""Arguments that name a file."""


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"), help="bash, zsh, fish or tcsh")


def run(args: argparse.Namespace, settings: Settings) -> int:
    try:
        import shtab
    except ImportError:
        raise UsageError("completion needs shtab: pip install 'gputop-tui[completion]'") from None
    from gputop.commands.command_line import whole

    parser = whole()
    _say_values(parser, shtab.FILE)
    sys.stdout.write(shtab.complete(parser, shell=args.shell))
    return 0


def _say_values(parser: argparse.ArgumentParser, files: Any) -> None:
    """Tell the arguments what values they take. Left out of the command line's own parser, which says it better."""
    from gputop.sources.simulation.scenarios import SCENARIOS

    for action in _actions(parser):
        if action.dest == "theme":
            action.choices = theme_names()
        elif action.dest == "scenario":
            action.choices = tuple(SCENARIOS)
        elif action.dest == "source":
            action.choices = ("demo",)
        elif action.dest in FILES:
            action.complete = files  # type: ignore[attr-defined]


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
