"""The page of the settings, from their declarations."""

from __future__ import annotations

from gputop.commands.command_line import live_parser
from gputop.commands.config import assignment
from gputop.config import FILE_ONLY, declared
from gputop.output.reference.page import Page, Section


def settings_page() -> Page:
    flags = {
        action.dest: action.option_strings[-1] for action in reversed(live_parser()._actions) if action.option_strings
    }
    rows = []
    for name, setting in declared().items():
        value = {"keys": "a table", "alert": "none", "fleet": "none"}.get(
            name
        ) or f"`{assignment(name, setting.default).strip()}`"
        variable = "" if name in FILE_ONLY else f"`GPUTOP_{name.upper()}`"
        flag = f"`{flags[name]}`" if name in flags else ""
        rows.append((f"`{name}`", setting.description, value, variable, flag))
    return Page(
        "Settings",
        (
            "Flags win over environment variables, those over the configuration file, and that over the defaults. "
            "`gputop config --init` writes a file with every setting commented out, `gputop config --check` says line "
            "by line what is wrong with it, `gputop config` prints what is in force.",
        ),
        (Section("All settings", (), ("setting", "what it is", "default", "environment", "flag"), tuple(rows)),),
    )
