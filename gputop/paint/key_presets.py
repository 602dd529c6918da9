"""Keys of other programs, for people used to them.

A preset only rebinds actions.
"""

from __future__ import annotations

from collections.abc import Mapping

from gputop.paint.key_names import shown_key

PRESETS: Mapping[str, Mapping[str, str]] = {
    "gputop": {},
    "nvitop": {
        "signal": "f9", "terminate": "T", "kill": "K", "interrupt_process": "I", "theme": "", "layout": "a,f,c",
        "invert": "slash", "sort_next": "full_stop", "sort_previous": "comma", "slower": "<", "faster": ">",
        "search": "f3", "filter": "f4,backslash", "command_left": "left,[", "command_right": "right,]",
        "previous_gpu": "{", "next_gpu": "}",
    },
    "htop": {
        "quit": "q,f10", "signal": "k,f9", "up": "up", "sort": "f6,<,>,o", "search": "slash,f3",
        "filter": "backslash,f4", "columns": "f2,S,C", "sort_cpu": "P", "sort_time": "T", "theme": "",
        "tag_tree": "c,B", "layout": "a",
    },
}  # fmt: skip
"""Preset -> action -> keys, for the actions whose keys differ."""


ELSEWHERE: Mapping[str, str] = {
    "a": "c changes the layout",
    "s": "o and a letter sort; --interval sets how often gputop measures",
    "<": "o and a letter, or , and ., choose the order",
    ">": "o and a letter, or , and ., choose the order",
    "l": "open files are not shown; e shows the environment, enter the process in full",
    "m": "o m, or M, sorts by GPU memory",
    "r": "I reverses the order; priorities are not changed from here",
    "v": "space tags one process after the other",
    "x": "the column that is sorted by is brighter; o and a letter sort",
    "z": "T changes the colours",
    "H": "the threads of a process: enter",
    "F": "the cursor follows its process; esc lets it go",
    "W": "settings are kept in a file: gputop config --init",
    "J": "jumps through the past; p shows it",
    "Z": "p pauses",
    "i": "all processes on the GPUs are shown; f filters them",
    "0": "[ and ] choose a GPU; ctrl+p finds one by number",
    "*": "t opens and closes all branches",
}
"""What people expect of letters that have no command here, and where to find it."""


def unknown_key(key: str) -> str:
    """Return the message for a key without a command."""
    shown = shown_key(key)
    return (
        f"{shown}: {ELSEWHERE.get(shown, 'no command')} (? lists the keys, ctrl+p finds commands "
        "by name)"
    )


def wanted_keys(preset: str, user_keys: Mapping[str, str]) -> Mapping[str, str]:
    """The preset's keys, single ones overridden by the user's own."""
    return user_keys if preset == "gputop" else {**PRESETS[preset], **user_keys}
