"""Parses the command line: the options of every command, and the parser of the command that is named.

Of the commands' files only that one is imported. The shells' completions and `gputop help options` are made of the same
parsers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn, get_args

from gputop import __version__
from gputop.commands.argument_parser import (
    COMMON,
    ListAction,
    Parser,
    alertable,
    filterable,
    nearest,
    printable,
    selectable,
    serving,
)
from gputop.commands.registry import TOPICS, commands, commands_and_parts, groups, is_command, module_of, parts
from gputop.model.quantity import wrapped
from gputop.model.sm import SmChoice


class _Overview(argparse.Action):
    """Prints the commands, not the options: together they are more than a screenful."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:

        sys.stdout.write(overview())
        parser.exit()


class _Version(argparse.Action):
    """Prints the version and ends. Unlike argparse's own it says where that cannot be written."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:

        sys.stdout.write(f"gputop {__version__}\n")
        parser.exit()


def _common() -> Parser:
    """Options that every command takes, before or after its name. Absent ones leave no trace."""
    from gputop.paint.theme import theme_words

    parser = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    group = parser.add_argument_group(COMMON)
    add = group.add_argument
    seconds = "time between measurements, at least 0.25 (default 1)"
    add("-i", "-d", "--interval", metavar="SECONDS", help=seconds)
    add(
        "--gpus",
        action=ListAction,
        metavar="LIST",
        help="indices (0,2 or 0-3) or UUIDs of the GPUs to watch, separated by commas",
    )
    add("--visible", action="store_true", help="watch the GPUs that CUDA_VISIBLE_DEVICES names")
    add("--theme", metavar="NAME", help=theme_words())
    add("--key-preset", metavar="NAME", help="keys as in gputop (default), nvitop or htop")
    add("--ascii", action="store_true", help="draw with ASCII characters only")
    add("--no-color", action="store_true", help="draw without colours (NO_COLOR does the same)")
    add("--no-mouse", action="store_false", dest="mouse", help="leave the mouse to the terminal")
    add("--bell", action="store_true", help="ring the terminal's bell on a new red verdict")
    add("--read-only", action="store_true", help="offer nothing that changes another process")
    add(
        "--redact",
        action="store_true",
        help="show users, hosts, jobs, paths and UUIDs as numbers, commands as program names",
    )
    add("--dcgm-url", metavar="URL", help="metrics address of a running dcgm-exporter")
    add("--dcgmi", action="store_true", help="run dcgmi dmon for GPUs without GPM (takes the profiling unit)")
    add(
        "--perf", action="store_true", help="measure SM activity by the hardware counters (no other tool can meanwhile)"
    )
    add("--perf-lib", metavar="DIR", help="folder of NVIDIA's counter libraries, when not in a wheel")
    add("--sm-source", metavar="NAME", help=f"where SM activity comes from: {', '.join(get_args(SmChoice))}")
    add("--price", metavar="P", help="your price of a GPU-hour, or list; without it no money is shown")
    add("--config", metavar="FILE", help="read this configuration file")
    add("--debug", action="store_true", help="show tracebacks")
    add("-V", "--version", action=_Version, nargs=0, help="show the version")
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The parsed words; ``command`` is None for the live screen. Ends the program where they are wrong."""
    top = live_parser()
    own_words, rest = top.split(words)
    args = top.parse_args(own_words)
    once = getattr(args, "once", False)
    if rest and not is_command(rest[0]):
        top.refuse_command(rest[0], commands())
    if rest:
        name, words = _with_part(rest[0], rest[1:])
        command = command_parser(name)
        command.refuse_foreign(top, args)
        vars(args).update(vars(command.parse_args(words)), command=name)
        if once:
            args.once = True
    elif once:
        args = command_parser("once").parse_args([], args)
        args.command = "once"
    return args


def _with_part(name: str, words: list[str]) -> tuple[str, list[str]]:
    """The command, with its part where the words name one, and the words without that name."""
    if not parts(name):
        return name, words
    command = command_parser(name)
    own_words, rest = command.split(words)
    if rest and rest[0] not in parts(name):
        # A word of the command's own, unless it looks like a part that was mistyped.
        if command.takes_words and (len(rest) > 1 or not nearest(rest[0], parts(name))):
            return name, words
        command.refuse_command(rest[0], parts(name))
    return (f"{name} {rest[0]}", own_words + rest[1:]) if rest else (name, words)


def live_parser() -> Parser:
    """The parser of the options before the command."""
    top = Parser(
        prog="gputop",
        description="top for GPUs: utilisation against real SM activity, and why the rest is not work",
        epilog="Without a command: the live screen. Try `gputop demo` on a machine without a GPU.",
        parents=[_common()],
        add_help=False,
    )
    top.add_argument("-h", "--help", action=_Overview, nargs=0, help="show the commands; `gputop help` explains more")
    top.set_defaults(command=None)
    # Defined here and not in the screen's own file, which no other command needs to import.
    printable(top)
    alertable(top)
    serving(top)
    selectable(top)
    filterable(top)
    return top


def command_parser(name: str) -> Parser:
    """The parser of a command's own words, or of a part named by both its words."""
    command = Parser(prog=f"gputop {name}", parents=[_common()])
    return _filled(command, name)


def whole() -> Parser:
    """The whole command line in one parser, for the texts that are made of it."""
    top, common = live_parser(), _common()
    parsers = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, summary in commands().items():
        command = _filled(parsers.add_parser(name, help=summary, parents=[common]), name)
        if parts(name):
            below = command.add_subparsers(dest="part", metavar="PART", parser_class=Parser)
            for part, words in parts(name).items():
                _filled(below.add_parser(part, help=words, parents=[common]), f"{name} {part}")
    return top


def _filled(command: Parser, name: str) -> Parser:
    """The parser with the arguments that the command's own file defines."""
    summary = commands_and_parts()[name]
    command.description = f"{summary[0].upper()}{summary[1:]}."
    command.epilog = "Options of every command: gputop help options"
    if parts(name):
        parts_words = "; ".join(f"`gputop {name} {part}`: {words}" for part, words in parts(name).items())
        command.description += f" {parts_words}."
    module_of(name).arguments(command)
    return command


# The commands by purpose, in one screenful: what ``gputop --help`` and ``gputop help`` print.

WIDTH = 80


def overview() -> str:
    """What ``gputop --help`` prints: at most 48 lines of 80 columns."""
    width = max(map(len, commands())) + 4
    lines = ["usage: gputop [OPTIONS] [COMMAND] ...", ""]
    lines += wrapped("top for GPUs: utilisation against real SM activity, and why the rest is not work.", WIDTH)
    lines += ["Without a command: the live screen, where ? explains every key and number.", ""]
    for purpose, summaries in groups().items():
        lines.append(purpose)
        lines += [f"  {name:<{width}}{summary}" for name, summary in summaries.items()]
        lines.append("")
    lines.append("`gputop COMMAND --help` lists a command's options, `gputop help TOPIC` explains:")
    lines += wrapped(", ".join(TOPICS), WIDTH, "  ", "  ")
    return "\n".join(lines) + "\n"
