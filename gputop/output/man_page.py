"""The manual page in roff (man(7)), from the same parser as the command line itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from gputop import __version__

EXIT = (
    ("0", "done; from a command that judges: nothing is wrong"),
    ("1", "diagnose, trace, alerts, prove or fleet diagnose found something; or something failed, such as a full disk"),
    ("2", "wrong use, a file that cannot be read, or a malformed configuration"),
    ("3", "this machine cannot measure; `gputop demo` runs anywhere"),
)
"""The meaning of each exit status; 128 plus its number where a signal ended the program."""
ENVIRONMENT = (
    ("GPUTOP_CONFIG", "the configuration file to read"),
    ("GPUTOP_NAME", "a setting: GPUTOP_INTERVAL=2 is --interval 2"),
    ("NO_COLOR", "draw without colours"),
    ("COLORFGBG", "says whether the terminal is light or dark"),
    ("CUDA_VISIBLE_DEVICES", "with --visible: the GPUs to watch"),
)


EXAMPLES = (
    (
        "gputop once --format '{index}:{sm_active_pct}/{util_pct} {flag_now}' | paste -sd ' ' -",
        "one line for tmux's status line, in #(...), or for a prompt: SM activity and utilisation of each GPU",
    ),
    (
        "gputop diagnose --exporter --format '{index} {title}' 2>/dev/null | paste -sd ' ' -",
        "verdicts for the same line, at once, from a running `gputop export`; nothing where its values are late",
    ),
    (
        "gputop diagnose --for 15s --format 'GPU {index}: {verdict}' > ~/.cache/gpus",
        "the same without an exporter, from a job that runs now and then: a verdict needs seconds of watching",
    ),
)


def man_page(parser: argparse.ArgumentParser, common_title: str) -> str:
    """The page of the whole command line, section 1. The argument group of that title is described once, not for each
    command."""
    prog, description = parser.prog, parser.description or ""
    lines = [
        f'.TH {prog.upper()} 1 "" "{prog} {__version__}" "User Commands"',
        ".SH NAME",
        _text(f"{prog} - {description}"),
        ".SH SYNOPSIS",
        f".B {prog}",
        r"[\fIOPTIONS\fR] [\fICOMMAND\fR]",
        ".SH DESCRIPTION",
        _text(parser.epilog or ""),
        ".SH OPTIONS",
    ]
    common = _group(parser, common_title)
    own_options = [action for action in parser._actions if action.option_strings and action not in common]
    lines += [line for action in own_options + common for line in _described(action)]
    lines.append(".SH COMMANDS")
    for name, command in _commands(parser):
        lines += [".SS " + _text(_usage(name, command)), _text((command.description or "").rstrip(".") + ".")]
        shared = _group(command, common_title)
        for action in command._actions:
            if action not in shared and not isinstance(action, argparse._HelpAction) and action.help:
                lines += _described(action)
    for title, rows in (("EXAMPLES", EXAMPLES), ("EXIT STATUS", EXIT), ("ENVIRONMENT", ENVIRONMENT)):
        lines.append(f".SH {title}")
        for head, text in rows:
            lines += [".TP", f".B {_text(head)}", _text(text)]
    lines += [".SH FILES", _text(f"`{prog} config --path` says where the configuration file is.")]
    return "\n".join(lines) + "\n"


def _group(parser: argparse.ArgumentParser, title: str) -> list[argparse.Action]:
    return [action for group in parser._action_groups if group.title == title for action in group._group_actions]


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield name, command
                yield from ((f"{name} {part}", parser) for part, parser in _commands(command))


def _usage(name: str, command: argparse.ArgumentParser) -> str:
    """A command with its positional arguments."""
    parts = [name]
    for action in command._actions:
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            value = _value(action) or action.dest.upper()
            parts.append(
                f"[{value}]" if action.nargs == "?" else f"{value} ..." if action.nargs in ("+", "*") else value
            )
    return " ".join(parts)


def _value(action: argparse.Action) -> str:
    """The name of the value that an argument takes; empty for a switch."""
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, str):
        return action.metavar
    if action.choices and action.option_strings:
        return f"{{{','.join(map(str, action.choices))}}}"
    return action.dest.upper().replace("_", "-")


def option_names(action: argparse.Action) -> str:
    """All names of an option and the name of its value, or the name of an argument: ``-o, --output FILE``."""
    if not action.option_strings:
        return _value(action)
    return " ".join(filter(None, (", ".join(action.option_strings), _value(action))))


def _described(action: argparse.Action) -> Sequence[str]:
    value = _value(action)
    if action.option_strings:
        names = ", ".join(rf"\fB{_text(option)}\fR" for option in action.option_strings)
        head = names + (rf" \fI{_text(value)}\fR" if value else "")
    else:
        head = rf"\fI{_text(value)}\fR"
    return [".TP", head, _text(help_text(action))]


def help_text(action: argparse.Action) -> str:
    """An argument's help as people read it: argparse wants each percent sign twice."""
    return (action.help or "").replace("%%", "%")


def _text(text: str) -> str:
    """Text escaped for roff: no line begins with a request, and no hyphen is a break."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    escaped = "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped)
    return "\n".join(rf"\&{line}" if line.startswith((".", "'")) else line for line in escaped.splitlines())
