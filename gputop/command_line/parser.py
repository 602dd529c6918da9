"""Parses the command line.

Only the named command's file is imported. The shells' completions and `gputop help options` use the same parsers.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from gputop import __version__
from gputop.command_line.registry import (
    COMMANDS,
    COMMANDS_AND_PARTS,
    PURPOSES,
    TOPICS,
    module_of,
    parts,
)
from gputop.command_line.shared_options import NO_DEMO, filterable, printable, serving
from gputop.model.clean_text import wrapped
from gputop.model.expression import nearest
from gputop.model.sm import SmChoice
from gputop.model.source import UsageError
from gputop.output.messages import USAGE_ERROR, say

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

COMMON = "options of every command"
"""Title of the argument group that is described once, and not again for each command."""


class _OfAnyWidth(argparse.HelpFormatter):
    """Help formatter that does not ask for the terminal's width.

    argparse creates one for each option, and asking would import ``shutil`` with all compressions.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"width": 80, **kwargs})


class ListAction(argparse.Action):
    """List by commas or by repeating the option, kept as one text.

    ``-p 1 -p 2`` is ``-p 1,2``.
    """

    def __call__(
        self, _parser: Any, namespace: argparse.Namespace, values: Any, _name: str | None = None
    ) -> None:
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, values if before is None else f"{before},{values}")


class ServerUrls(ListAction):
    """List of addresses of this machine."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, _name: str | None = None
    ) -> None:
        from gputop.sources.serving_reader import addresses

        super().__call__(parser, namespace, values)
        try:
            addresses(getattr(namespace, self.dest), typed=True)
        except UsageError as error:
            parser.error(str(error))


class Parser(argparse.ArgumentParser):
    """Parser that reports errors in one line and names unknown words."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": _OfAnyWidth, **kwargs})
        self.register("action", "list", ListAction)
        self.register("action", "servers", ServerUrls)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse the words; an unknown one ends the program.

        So the rest is always empty.
        """
        words = list(args or ())
        own_words, _ = self.split(words)
        has_job = any(action.nargs == argparse.REMAINDER for action in self._actions)
        if has_job and len(own_words) < len(words) and words[len(own_words)] != "--":
            # Options of a job that look like beginnings of ours are the job's.
            words.insert(len(own_words), "--")
        if not has_job and "--" not in words:
            words = self._words_first(words)
        for word in own_words:
            if self._is_option(word) and self._named_by(word) is None:
                # Before argparse takes the word behind it for something else.
                self._refuse(word)
        # ``--at -10m`` is a distance: what begins with a digit is a value, but ``-1`` where that is an option.
        self._has_negative_number_optionals = []
        self._negative_number_matcher = re.compile(r"-(?!1$)\d" if self.knows("-1") else r"-\d")
        parsed, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self._refuse(unknown[0])
        return parsed, []

    def _words_first(self, words: list[str]) -> list[str]:
        """Move options to the end: argparse ends optional words at them."""
        plain: list[str] = []
        options: list[str] = []
        while words:
            own, words = self.split(words)
            options += own
            plain += words[:1]
            words = words[1:]
        return plain + options

    def _refuse(self, word: str) -> NoReturn:
        """End because of an unknown word, with the nearest known one."""
        if word.startswith("-"):
            name = word.partition("=")[0]
            self.error(f"unknown option {name}{nearest(name, self._option_string_actions)}")
        self.error(f"unexpected argument {word!r}{f'; {NO_DEMO}' if word == 'demo' else ''}")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help. Raises OSError, which argparse itself hides."""
        (sys.stdout if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        apart = " see" if message.endswith("?") else "; see"
        say(f"{message}{apart} `{self.prog} --help`")
        self.exit(USAGE_ERROR)

    def split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Split off the options before the first other word, with values."""
        end = 0
        while end < len(words) and self._is_option(words[end]):
            action = self._named_by(words[end])
            end += 1
            if (
                action is not None
                and action.nargs in (None, "?")
                and words[end - 1] in action.option_strings
            ):
                value = words[end] if end < len(words) else "--"
                is_number = action.nargs is None and re.match(r"-\d", value)
                end += is_number is not None or not value.startswith("-") or value == "-"
        return list(words[:end]), list(words[end + (words[end : end + 1] == ["--"]) :])

    def knows(self, option: str) -> bool:
        """Whether an option, by its whole name, belongs to this parser."""
        return option in self._option_string_actions

    def refuse_foreign(self, top: Parser, before: argparse.Namespace) -> None:
        """End if an option before the command is not the command's own.

        It would do nothing.
        """
        own = {action.dest for action in self._actions}
        for action in top._actions:
            if (
                action.dest not in own
                and action.option_strings
                and getattr(before, action.dest, None) is not None
            ):
                self.error(f"{action.option_strings[0]} is not an option of `{self.prog}`")

    def format_help(self) -> str:
        """Format the help without the options of every command."""
        groups = [group for group in self._action_groups if group.title != COMMON]
        self.formatter_class = argparse.HelpFormatter
        formatter = self._get_formatter()
        own_actions = [action for group in groups for action in group._group_actions]
        formatter.add_usage(self.usage, own_actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in groups:
            formatter.start_section(group.title)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        return formatter.format_help() + (f"\n{self.epilog}\n" if self.epilog else "")

    def _is_option(self, text: str) -> bool:
        """Whether argparse takes the word for an option.

        A negative number is one where digits are options.
        """
        if (
            len(text) < 2
            or text == "--"
            or not text.startswith("-")
            or " " in text.partition("=")[0]
        ):
            return False
        return not re.match(r"-\d", text) or self.knows(text[:2])

    def _named_by(self, text: str) -> argparse.Action | None:
        """Return the option that a word names.

        By its name, by the beginning of it, or with the value in the same word.
        """
        name, actions = text.partition("=")[0], self._option_string_actions
        if name in actions or not name.startswith("--"):
            return actions.get(name, actions.get(text[:2]))
        return next((action for option, action in actions.items() if option.startswith(name)), None)


class _Print(argparse.Action):
    """Prints the text of ``const`` and ends; a failed write is an error."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        sys.stdout.write(self.const())
        parser.exit()


def _version() -> str:
    return f"gputop {__version__}\n"


def _common() -> Parser:
    """Return the options of every command; absent ones leave no trace."""
    from gputop.paint.theme import theme_words

    parser = Parser(add_help=False, argument_default=argparse.SUPPRESS)
    group = parser.add_argument_group(COMMON)

    def flag(name: str, text: str) -> None:
        group.add_argument(name, action="store_true", help=text)

    add = group.add_argument
    text = "time between measurements, at least 0.25 (default 1)"
    add("-i", "-d", "--interval", metavar="SECONDS", help=text)
    text = "indices (0,2 or 0-3) or UUIDs of the GPUs to watch, separated by commas"
    add("--gpus", metavar="LIST", action="list", help=text)
    flag("--visible", "watch the GPUs that CUDA_VISIBLE_DEVICES names")
    add("--theme", metavar="NAME", help=theme_words())
    add("--key-preset", metavar="NAME", help="keys as in gputop (default), nvitop or htop")
    flag("--ascii", "draw with ASCII characters only")
    flag("--no-color", "draw without colours (NO_COLOR does the same)")
    add("--no-mouse", action="store_false", dest="mouse", help="leave the mouse to the terminal")
    flag("--bell", "ring the terminal's bell on a new red verdict")
    flag("--read-only", "offer nothing that changes another process")
    flag(
        "--redact", "show users, hosts, jobs, paths and UUIDs as numbers, commands as program names"
    )
    add("--dcgm-url", metavar="URL", help="metrics address of a running dcgm-exporter")
    flag("--dcgmi", "run dcgmi dmon for GPUs without GPM (takes the profiling unit)")
    flag("--perf", "measure SM activity by the hardware counters (no other tool can meanwhile)")
    add(
        "--perf-lib",
        metavar="DIR",
        help="folder of NVIDIA's counter libraries, when not in a wheel",
    )
    add(
        "--sm-source",
        metavar="NAME",
        help=f"where SM activity comes from: {', '.join(get_args(SmChoice))}",
    )
    add("--price", metavar="P", help="your price of a GPU-hour; without it no money is shown")
    add("--config", metavar="FILE", help="read this configuration file")
    flag("--debug", "show tracebacks")
    group.add_argument(
        "-V", "--version", action=_Print, nargs=0, const=_version, help="show the version"
    )
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the words; ``command`` is None for the live screen.

    Ends the program where they are wrong.
    """
    top = live_parser()
    own_words, rest = top.split(words)
    args = top.parse_args(own_words)
    once = getattr(args, "once", False)
    if rest and rest[0] not in COMMANDS:
        top.error(f"unknown command {rest[0]!r}{nearest(rest[0], COMMANDS)}")
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
    """Return the command with its part, if named, and the other words."""
    if not parts(name):
        return name, words
    command = command_parser(name)
    own_words, rest = command.split(words)
    if rest and rest[0] not in parts(name):
        # A word of the command's own, unless it looks like a part that was mistyped.
        takes_words = any(not action.option_strings for action in command._actions)
        hint = nearest(rest[0], parts(name))
        if takes_words and (len(rest) > 1 or not hint):
            return name, words
        command.error(f"unknown command {rest[0]!r}{hint}")
    return (f"{name} {rest[0]}", own_words + rest[1:]) if rest else (name, words)


def live_parser() -> Parser:
    """Return the parser of the options before the command."""
    top = Parser(
        prog="gputop",
        description="top for GPUs: utilisation against real SM activity, and why the rest is not work",
        epilog="Without a command: the live screen. Try `gputop demo` on a machine without a GPU.",
        parents=[_common()],
        add_help=False,
    )
    text = "show the commands; `gputop help` explains more"
    top.add_argument("-h", "--help", action=_Print, nargs=0, const=overview, help=text)
    top.set_defaults(command=None)
    # Defined here and not in the screen's own file, which no other command needs to import.
    printable(top)
    text = "fire the alerts of the configuration file, which the screen otherwise only shows"
    top.add_argument("--alerts", action="store_true", default=argparse.SUPPRESS, help=text)
    serving(top)
    filterable(top)
    return top


def command_parser(name: str) -> Parser:
    """Return the parser of a command or part."""
    command = Parser(prog=f"gputop {name}", parents=[_common()])
    return _filled(command, name)


def whole() -> Parser:
    """Return one parser of the whole command line, for help texts."""
    top, common = live_parser(), _common()
    parsers = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for name, row in COMMANDS.items():
        command = _filled(parsers.add_parser(name, help=row.summary, parents=[common]), name)
        if parts(name):
            below = command.add_subparsers(dest="part", metavar="PART", parser_class=Parser)
            for part, words in parts(name).items():
                _filled(below.add_parser(part, help=words, parents=[common]), f"{name} {part}")
    return top


def _filled(command: Parser, name: str) -> Parser:
    """Add the arguments that the command's file defines."""
    summary = COMMANDS_AND_PARTS[name].summary
    command.description = f"{summary[0].upper()}{summary[1:]}."
    command.epilog = "Options of every command: gputop help options"
    if parts(name):
        parts_words = "; ".join(
            f"`gputop {name} {part}`: {words}" for part, words in parts(name).items()
        )
        command.description += f" {parts_words}."
    module_of(name).arguments(command)
    return command


WIDTH = 80


def overview() -> str:
    """Return the text of ``gputop --help``: 48 lines of 80 columns."""
    width = max(map(len, COMMANDS)) + 4
    lines = ["usage: gputop [OPTIONS] [COMMAND] ...", ""]
    lines += wrapped(
        "top for GPUs: utilisation against real SM activity, and why the rest is not work.", WIDTH
    )
    lines += ["Without a command: the live screen, where ? explains every key and number.", ""]
    for purpose in PURPOSES:
        lines.append(purpose)
        lines += [
            f"  {name:<{width}}{row.summary}"
            for name, row in COMMANDS.items()
            if row.purpose == purpose
        ]
        lines.append("")
    lines.append("`gputop COMMAND --help` lists a command's options, `gputop help TOPIC` explains:")
    lines += wrapped(", ".join(TOPICS), WIDTH, "  ", "  ")
    return "\n".join(lines) + "\n"
