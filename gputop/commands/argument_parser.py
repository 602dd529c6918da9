"""An argparse parser that answers a mistake in one line and names the word that is wrong."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from gputop.model.quantity import BINARY, SECONDS
from gputop.model.source import UsageError
from gputop.output.messages import USAGE_ERROR, say

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

COMMON = "options of every command"
"""Title of the argument group that is described once, and not again for each command."""
_NEGATIVE = r"-\d"
_NUMBER_OR_UUID = r"(?i:\d+|(?:GPU|MIG)-.*)"
_PLAIN = (
    (r"^argument (\S+): invalid int value: (.*)$", r"\1 must be a whole number, not \2"),
    (r"^argument (\S+): invalid float value: (.*)$", r"\1 must be a number, not \2"),
    (r"^argument (\S+): invalid choice: (.*) \(choose from (.*)\)$", r"\1 must be one of \3, not \2"),
    (r"^argument (\S+): expected one argument$", r"\1 needs a value"),
    (r"^argument (\S+): not allowed with argument (\S+)$", r"\1 and \2 exclude each other"),
    (r"^the following arguments are required: (.*)$", r"missing: \1"),
)
"""argparse's error messages in plainer words."""
_MOST_HOMES = 3
_TAKES_ONE = (None, "?")
"""argparse's ``nargs`` of options whose next word may be their value."""


class ListAction(argparse.Action):
    """A list, by commas or by repeating the option: ``-o 0 -o 1`` is ``-o 0,1``. Kept as one text with commas."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        before = getattr(namespace, self.dest, None)
        setattr(namespace, self.dest, values if before is None else f"{before},{values}")


class _Word(Struct, frozen=True):
    """A word that names an option. ``action`` is None for one that the parser does not know."""

    position: int
    text: str
    action: argparse.Action | None
    value: int | None
    """Position of the word that is its value, None without one."""


class _OfAnyWidth(argparse.HelpFormatter):
    """What argparse makes for each option that is added, to check its metavar. The terminal is not asked for its
    width for that, which would import ``shutil`` with all compressions.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"width": 80, **kwargs})


class Parser(argparse.ArgumentParser):
    """Ends with one line on stderr where argparse prints its usage and may blame the word after the wrong one."""

    def __init__(self, *args: Any, homes: Callable[[str], Sequence[str]] | None = None, **kwargs: Any) -> None:
        """As argparse's; ``homes`` gives the commands that know an option which this parser does not."""
        super().__init__(*args, **{"formatter_class": _OfAnyWidth, **kwargs})
        self._homes = homes

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """The parsed words. Ends the program where one of them is unknown, so the rest is always empty."""
        words = list(args or ())
        for option in self._options(words):
            self._refuse_unknown(option)
            self._refuse_dashes(option)
            self._refuse_loose_list(option, words)
        parsed, unknown = super().parse_known_args(self._for_argparse(words), namespace)
        if unknown:
            self.error(f"unexpected argument {unknown[0]!r}{self._instead(words, unknown[0])}")
        return parsed, []

    def _instead(self, words: Sequence[str], unknown: str) -> str:
        """What was probably meant by a word that has no place."""
        if unknown == "demo" and self.prog == "gputop once":
            return ": the demo's snapshot is `gputop demo --once`"
        before = words[words.index(unknown) - 1] if unknown in words[1:] else ""
        if self.prog == "gputop report" and before in ("--html", "--markdown", "--json"):
            return f": a file's name follows -o, as in `{before} -o {unknown}`"
        return ""

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help. Raises OSError where that cannot be written, which argparse's own keeps to itself."""
        (sys.stdout if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        for pattern, plain in _PLAIN:
            message = re.sub(pattern, plain, message)
        apart = " see" if message.endswith("?") else "; see"
        say(f"{message}{apart} `{self.prog} --help`")
        self.exit(USAGE_ERROR)

    def split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The options that stand before the first other word, and the words from that one on."""
        end = 0
        for option in self._options(words):
            if option.position > end:
                break
            self._refuse_loose_list(option, words)
            end = (option.position if option.value is None else option.value) + 1
        rest = end + (words[end : end + 1] == ["--"])
        return list(words[:end]), list(words[rest:])

    def options_of(self, words: Sequence[str]) -> list[str]:
        """The options among these words, by the first of their names; unknown ones are left out."""
        return [option.action.option_strings[0] for option in self._options(words) if option.action is not None]

    def knows(self, option: str) -> bool:
        """Whether an option is one of its own, by its whole name."""
        return option in self._option_string_actions

    def refuse_foreign(self, before: Sequence[str]) -> None:
        """End if an option before this command's name is not one of its own: it would do nothing."""
        for option in before:
            if not self.knows(option):
                self.error(f"{option} is not an option of `{self.prog}`")

    def format_help(self) -> str:
        """As argparse's, without the options of every command, which are a screenful of their own."""
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

    def refuse_command(self, own_words: Sequence[str], word: str, known_names: Iterable[str]) -> NoReturn:
        """End because a word is not a command, with a suggestion; ``own_words`` are the options before it."""
        for option in self._options(own_words):
            if isinstance(option.action, ListAction) and option.value == len(own_words) - 1:
                self.error(
                    f"{word!r} is not a command; a list is written with commas: {option.text} {own_words[-1]},{word}"
                )
        self.error(f"unknown command {word!r}{nearest(word, known_names)}")

    @property
    def _has_job(self) -> bool:
        """Whether another program's command line follows the own options."""
        return any(action.nargs == argparse.REMAINDER for action in self._actions)

    def _options(self, words: Sequence[str]) -> Iterator[_Word]:
        """The options among these words; what follows ``--``, or the beginning of another command line, is none."""
        position = 0
        while position < len(words) and words[position] != "--":
            text = words[position]
            if not self._is_option(text):
                if self._has_job:
                    return
                position += 1
                continue
            action, complete = self._named_by(text)
            value = None
            if action is not None and not complete and action.nargs in _TAKES_ONE and position + 1 < len(words):
                after = words[position + 1]
                if not after.startswith("-") or after == "-" or (action.nargs is None and re.match(_NEGATIVE, after)):
                    value = position + 1
            yield _Word(position, text, action, value)
            position += 1 if value is None else 2

    def _is_option(self, text: str) -> bool:
        """Whether argparse takes the word for an option; a negative number is one where digits are options."""
        if len(text) < 2 or not text.startswith("-") or " " in text.partition("=")[0]:
            return False
        return not re.match(_NEGATIVE, text) or text[:2] in self._option_string_actions

    def _named_by(self, text: str) -> tuple[argparse.Action | None, bool]:
        """The option that a word names, and whether its value, or another option, is in the same word."""
        name, equals, _ = text.partition("=")
        actions = self._option_string_actions
        if name in actions:
            return actions[name], bool(equals)
        if name.startswith("--"):
            beginning = [action for option, action in actions.items() if option.startswith(name)]
            return (beginning[0] if beginning else None), bool(equals)
        return actions.get(text[:2]), True

    def _refuse_unknown(self, option: _Word) -> None:
        if option.action is None:
            name = option.text.partition("=")[0]
            homes = self._homes(name) if self._homes is not None else ()
            unlisted = len(homes) - _MOST_HOMES
            shown = [*homes[:_MOST_HOMES], f"{unlisted} more"] if unlisted > 0 else homes
            where = f"; it belongs to {' and '.join(shown)}" if homes else nearest(name, self._option_string_actions)
            self.error(f"unknown option {name}{where}")

    def _refuse_dashes(self, option: _Word) -> None:
        """``--seed=--``: before Python 3.13 argparse drops the dashes and hands on an empty list."""
        name, value = option.text.partition("=")[::2] if "=" in option.text else (option.text[:2], option.text[2:])
        if value == "--":
            self.error(f"{name} needs a value")

    def _refuse_loose_list(self, option: _Word, words: Sequence[str]) -> None:
        """``-o 0 1`` is what other tools take; here the second number would be another argument."""
        if isinstance(option.action, ListAction) and option.value is not None:
            following = list(takewhile(re.compile(_NUMBER_OR_UUID).fullmatch, words[option.value + 1 :]))
            if following:
                joined = ",".join((words[option.value], *following))
                self.error(f"a list is written with commas: {option.text} {joined}")

    def _for_argparse(self, words: Sequence[str]) -> list[str]:
        """The words so that argparse understands them.

        It takes -10m for an option: ``--at -10m`` becomes ``--at=-10m``. And it complains of options of a job that
        look like beginnings of ours, unless ``--`` stands before the job.
        """
        ready = list(words)
        own_words, _ = self.split(words)
        if self._has_job and len(own_words) < len(words) and words[len(own_words)] != "--":
            ready.insert(len(own_words), "--")
        for option in reversed(list(self._options(words))):
            if option.value is not None and re.match(_NEGATIVE, words[option.value]):
                equals = "=" if option.text.startswith("--") else ""
                ready[option.position : option.value + 1] = [f"{option.text}{equals}{words[option.value]}"]
        return ready


def nearest(word: str, known_names: Iterable[str]) -> str:
    """``; did you mean X?`` for the known word that is most like this one, or nothing."""
    from difflib import get_close_matches

    # Two leading dashes do not count as similarity.
    plain = {name.lstrip("-"): name for name in known_names}
    near = get_close_matches(word.lstrip("-"), list(plain), 1)
    return f"; did you mean {plain[near[0]]}?" if near else ""


# Arguments that several commands share.


def filterable(command: argparse.ArgumentParser) -> None:
    """Which processes are shown."""
    add, absent = command.add_argument, argparse.SUPPRESS
    text = 'show these processes only: "gpu:3 user:ml mem>10G verdict:starved name~train !state:D"'
    add("--filter", metavar="TERMS", default=absent, help=text)
    me = str(os.getuid())
    text = "show the processes of these users only, separated by commas; without a name: yours"
    add("-u", "--user", action=ListAction, nargs="?", const=me, default=absent, metavar="NAMES", help=text)
    text = "show the processes with these ids only, separated by commas"
    add("-p", "--pid", action=ListAction, default=absent, metavar="PIDS", help=text)


def alertable(command: argparse.ArgumentParser) -> None:
    """Whether the screen fires alerts; it shows them in any case."""
    text = "fire the alerts of the configuration file, which the screen otherwise only shows"
    command.add_argument("--alerts", action="store_true", default=argparse.SUPPRESS, help=text)


class _ServerUrls(argparse.Action):
    """Addresses, separated by commas or by repeating the option; on the command line this machine's alone."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, _: str | None = None
    ) -> None:
        from gputop.model.source import UsageError
        from gputop.sources.serving_reader import addresses

        urls = ",".join(filter(None, (getattr(namespace, self.dest, None), str(values))))
        try:
            addresses(urls, typed=True)
        except UsageError as error:
            parser.error(str(error))
        setattr(namespace, self.dest, urls)


def serving(command: argparse.ArgumentParser) -> None:
    """Which inference servers are asked what they serve."""
    text = "metrics address of a vLLM, SGLang, Triton or TGI server on this machine, beside the GPUs' verdicts"
    command.add_argument("--server-url", action=_ServerUrls, metavar="URL", default=argparse.SUPPRESS, help=text)


def selectable(command: argparse.ArgumentParser) -> None:
    """``-o``, the short name of ``--gpus`` where no output file has that letter."""
    text, absent = "the same as --gpus", argparse.SUPPRESS
    command.add_argument("-o", "--only", action=ListAction, dest="gpus", default=absent, metavar="LIST", help=text)


def waiting(command: argparse.ArgumentParser) -> None:
    """How long a command that reads once waits for a driver that answers slowly."""
    text = "how long to wait for a slow driver (default 10s)"
    command.add_argument("--wait", default=argparse.SUPPRESS, metavar="TIME", help=text)


def printable(command: argparse.ArgumentParser) -> None:
    """``-1``: the screen's first snapshot as text. Absent, it leaves no trace, so that it may stand before `demo`."""
    text, absent = "print one snapshot and end, as `gputop once` does", argparse.SUPPRESS
    command.add_argument("-1", "--once", action="store_true", default=absent, help=text)


# Durations and sizes as people write them on a command line: ``30s``, ``8h``, ``2G``.


def seconds(text: str, option: str) -> float:
    """A duration in seconds. Raises UsageError naming the option."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in SECONDS or float(match[1]) == 0:
        raise UsageError(f"{option} must be a time such as 30s, 10m or 8h, not {text!r}")
    return float(match[1]) * SECONDS[match[2]]


def size_bytes(text: str, option: str) -> int:
    """A size in bytes, with binary units. Raises UsageError naming the option."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,3})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise UsageError(f"{option} must be a size such as 500M or 2G, not {text!r}")
    return int(float(match[1]) * BINARY[match[2]])
