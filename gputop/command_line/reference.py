"""Reference pages of the options, from the parsers, and of the settings, from their declarations."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from gputop.command_line.parser import COMMON, command_parser, live_parser
from gputop.command_line.registry import COMMANDS_AND_PARTS
from gputop.config import FILE_ONLY, declared
from gputop.config.toml_lines import assignment
from gputop.output.document import Code, Document, Paragraph, page, part, section
from gputop.output.reference_pages import key_actions

HEAD = ("option", "what it does")
EXIT = {
    "0": "done; from a command that judges: nothing is wrong",
    "1": "a command that judges found something; or a mark, an alert's command or a choice of GPUs came to nothing",
    "2": "wrong use, a malformed configuration, or a file or output that cannot be read or written",
    "3": "this machine cannot measure; `gputop demo` runs anywhere",
    "70": "an error of gputop's own: the line says which and where, `--debug` says more",
}
"""The meaning of each exit status; 128 plus its number where a signal ended the program."""
ENVIRONMENT = {
    "GPUTOP_CONFIG": "the configuration file to read",
    "GPUTOP_NAME": "a setting: GPUTOP_INTERVAL=2 is --interval 2",
    "NO_COLOR": "draw without colours",
    "COLORFGBG": "says whether the terminal is light or dark",
    "CUDA_VISIBLE_DEVICES": "with --visible: the GPUs to watch",
}
EXAMPLES = {
    "gputop once --format '{index}:{sm_active_pct}/{util_pct} {in_sample}' | paste -sd ' ' -":
        "One line for tmux's status line, in #(...), or for a prompt: SM activity and utilisation of each GPU.",
}  # fmt: skip


def options_page() -> Document:
    """Return the page of all options, from the parsers."""
    live = live_parser()
    sections = [
        section("Options of every command", (), HEAD, _rows(_common(live))),
        section("Without a command: the live screen", (), HEAD, _rows(_own_actions(live))),
    ]
    for name, row in COMMANDS_AND_PARTS.items():
        options = _own_actions(command_parser(name))
        sections.append(
            section(
                f"gputop {name}",
                (f"{row.summary[0].upper()}{row.summary[1:]}.",),
                HEAD,
                _rows(options),
            )
        )
    for title, head, entries in (
        ("Exit status", "status", EXIT.items()),
        ("Environment", "variable", ENVIRONMENT.items()),
    ):
        sections.append(
            section(
                title, (), (head, "meaning"), tuple((f"`{name}`", text) for name, text in entries)
            )
        )
    # As code, which no narrow terminal breaks.
    examples = (
        block for command, text in EXAMPLES.items() for block in (Paragraph(text), Code((command,)))
    )
    sections.append(part("Examples", *examples))
    return page(
        "Options",
        (
            "Options stand before or after the command's name; those of the live screen stand before no command. Lists "
            "are written with commas or by repeating the option.",
        ),
        tuple(sections),
    )


def _common(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for group in parser._action_groups
        if group.title == COMMON
        for action in group._group_actions
    ]


def _own_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    common = _common(parser)
    return [
        action
        for action in parser._actions
        if action not in common and "-h" not in action.option_strings
    ]


def _rows(actions: Iterable[argparse.Action]) -> tuple[tuple[str, str], ...]:
    # argparse wants each percent sign twice.
    return tuple(
        (f"`{_names_of(action)}`", (action.help or "").replace("%%", "%")) for action in actions
    )


def _names_of(action: argparse.Action) -> str:
    """Return all names of an option and of its value.

    ``-o, --output FILE``.
    """
    if action.nargs == 0:
        value = ""
    elif isinstance(action.metavar, str):
        value = action.metavar
    elif action.choices and action.option_strings:
        value = f"{{{','.join(map(str, action.choices))}}}"
    else:
        value = action.dest.upper().replace("_", "-")
    return " ".join(filter(None, (", ".join(action.option_strings), value)))


def settings_page() -> Document:
    """Return the page of all settings, from their declarations."""
    flags = {
        action.dest: action.option_strings[-1]
        for action in reversed(live_parser()._actions)
        if action.option_strings
    }
    rows = []
    for name, setting in declared().items():
        value = {"keys": "a table", "alert": "none", "fleet": "none"}.get(
            name
        ) or f"`{assignment(name, setting.default).strip()}`"
        variable = "" if name in FILE_ONLY else f"`GPUTOP_{name.upper()}`"
        flag = f"`{flags[name]}`" if name in flags else ""
        rows.append((f"`{name}`", setting.description, value, variable, flag))
    return page(
        "Settings",
        (
            "Flags win over environment variables, those over the configuration file, and that over the defaults. "
            "`gputop config --init` writes a file with every setting commented out, `gputop config --check` says what "
            "is wrong with it, `gputop config` prints what is in force.",
        ),
        (
            section(
                "All settings",
                (),
                ("setting", "what it is", "default", "environment", "flag"),
                tuple(rows),
            ),
            key_actions(),
        ),
    )
