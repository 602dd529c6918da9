"""The page of all options, from the parsers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from gputop.commands.argument_parser import COMMON
from gputop.commands.command_line import command_parser, live_parser
from gputop.commands.registry import commands_and_parts
from gputop.output.man_page import ENVIRONMENT, EXIT, help_text, option_names
from gputop.output.reference.page import Page, Section

HEAD = ("option", "what it does")


def options_page() -> Page:
    live = live_parser()
    sections = [
        Section("Options of every command", (), HEAD, _rows(_common(live))),
        Section("Without a command: the live screen", (), HEAD, _rows(_own(live))),
    ]
    for name, summary in commands_and_parts().items():
        own = _own(command_parser(name))
        sections.append(Section(f"gputop {name}", (f"{summary[0].upper()}{summary[1:]}.",), HEAD, _rows(own)))
    sections.append(
        Section("Exit status", (), ("status", "meaning"), tuple((f"`{code}`", text) for code, text in EXIT))
    )
    variables = tuple((f"`{name}`", text) for name, text in ENVIRONMENT)
    sections.append(Section("Environment", (), ("variable", "meaning"), variables))
    return Page(
        "Options",
        (
            "Options stand before or after the command's name; those of the live screen stand before no command. Lists "
            "are written with commas or by repeating the option.",
        ),
        tuple(sections),
    )


def _common(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for group in parser._action_groups if group.title == COMMON for action in group._group_actions]


def _own(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    common = _common(parser)
    return [action for action in parser._actions if action not in common and "-h" not in action.option_strings]


def _rows(actions: Iterable[argparse.Action]) -> tuple[tuple[str, str], ...]:
    return tuple((f"`{option_names(action)}`", help_text(action)) for action in actions)
