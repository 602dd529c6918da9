"""An argparse parser that answers a mistake in one line and names the word that is wrong."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from gputop.model.quantity import BINARY, SECONDS
from gputop.model.source import UsageError
from gputop.output.messages import USAGE_ERROR, say

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

COMMON = "options of every command"
"""Title of the argument group that is described once, and not again for each command."""


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


class _OfAnyWidth(argparse.HelpFormatter):
    """What argparse makes for each option that is added, to check its metavar. The terminal is not asked for its
    width for that, which would import ``shutil`` with all compressions.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"width": 80, **kwargs})


class Parser(argparse.ArgumentParser):
    """Ends with one line on stderr where argparse prints its usage, and names the word that it does not know."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"formatter_class": _OfAnyWidth, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """The parsed words. Ends the program where one of them is unknown, so the rest is always empty."""
        words = list(args or ())
        own_words, _ = self.split(words)
        has_job = any(action.nargs == argparse.REMAINDER for action in self._actions)
        if has_job and len(own_words) < len(words) and words[len(own_words)] != "--":
            # Options of a job that look like beginnings of ours are the job's.
            words.insert(len(own_words), "--")
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

    def _refuse(self, word: str) -> NoReturn:
        """End because of a word that has no place, with what was probably meant."""
        if word.startswith("-"):
            name = word.partition("=")[0]
            self.error(f"unknown option {name}{nearest(name, self._option_string_actions)}")
        self.error(f"unexpected argument {word!r}")

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help. Raises OSError where that cannot be written, which argparse's own keeps to itself."""
        (sys.stdout if file is None else file).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        apart = " see" if message.endswith("?") else "; see"
        say(f"{message}{apart} `{self.prog} --help`")
        self.exit(USAGE_ERROR)

    def split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The options that stand before the first other word, with their values, and the words from that one on."""
        end = 0
        while end < len(words) and self._is_option(words[end]):
            action = self._named_by(words[end])
            end += 1
            if action is not None and action.nargs in (None, "?") and words[end - 1] in action.option_strings:
                value = words[end] if end < len(words) else "--"
                is_number = action.nargs is None and re.match(r"-\d", value)
                end += is_number is not None or not value.startswith("-") or value == "-"
        return list(words[:end]), list(words[end + (words[end : end + 1] == ["--"]) :])

    @property
    def takes_words(self) -> bool:
        """Whether it has words of its own besides options."""
        return any(not action.option_strings for action in self._actions)

    def knows(self, option: str) -> bool:
        """Whether an option is one of its own, by its whole name."""
        return option in self._option_string_actions

    def refuse_foreign(self, top: Parser, before: argparse.Namespace) -> None:
        """End if an option before this command's name, taken by ``top``, is not one of its own: it would do nothing."""
        own = {action.dest for action in self._actions}
        for action in top._actions:
            if action.dest not in own and action.option_strings and getattr(before, action.dest, None) is not None:
                self.error(f"{action.option_strings[0]} is not an option of `{self.prog}`")

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

    def refuse_command(self, word: str, known_names: Iterable[str]) -> NoReturn:
        """End because a word is not a command, with a suggestion."""
        self.error(f"unknown command {word!r}{nearest(word, known_names)}")

    def _is_option(self, text: str) -> bool:
        """Whether argparse takes the word for an option; a negative number is one where digits are options."""
        if len(text) < 2 or text == "--" or not text.startswith("-") or " " in text.partition("=")[0]:
            return False
        return not re.match(r"-\d", text) or self.knows(text[:2])

    def _named_by(self, text: str) -> argparse.Action | None:
        """The option that a word names, by its name, by the beginning of it, or with the value in the same word."""
        name, actions = text.partition("=")[0], self._option_string_actions
        if name in actions or not name.startswith("--"):
            return actions.get(name, actions.get(text[:2]))
        return next((action for option, action in actions.items() if option.startswith(name)), None)


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
