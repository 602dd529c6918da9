"""The keys of other programs, for people used to them. A preset only rebinds actions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PRESETS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "gputop": MappingProxyType({}),
    "nvitop": MappingProxyType({
        "signal": "f9", "terminate": "T", "kill": "K", "interrupt_process": "I", "theme": "", "layout": "a,f,c",
        "invert": "slash", "sort_next": "full_stop", "sort_previous": "comma", "slower": "<", "faster": ">",
        "search": "f3", "search_next": "", "filter": "f4,backslash",
        "command_left": "left,[", "command_right": "right,]", "previous_gpu": "{", "next_gpu": "}",
    }),
    "htop": MappingProxyType({
        "quit": "q,f10", "signal": "k,f9", "up": "up", "sort": "f6,<,>,o", "sort_next": "", "search": "slash,f3",
        "search_next": "", "filter": "backslash,f4", "columns": "f2,S,C", "sort_cpu": "P", "sort_time": "T",
        "theme": "", "release_counters": "",
    }),
})  # fmt: skip
"""Preset -> action -> keys, for the actions whose keys differ."""


ELSEWHERE: Mapping[str, str] = MappingProxyType({
    "a": "c changes the layout", "s": "o and a letter sort; --interval sets how often gputop measures",
    "l": "open files are not shown; e shows the environment, enter the process in full",
    "m": "o m, or M, sorts by GPU memory", "r": "I reverses the order; priorities are not changed from here",
    "i": "all processes on the GPUs are shown; f filters them", "v": "space tags one process after the other",
    "x": "the column that is sorted by is brighter; o and a letter sort", "z": "T changes the colours",
    "H": "the threads of a process: enter", "F": "the cursor follows its process; esc lets it go",
    "W": "settings are kept in a file: gputop config --init", "1": "c changes the layout; D shows one GPU in full",
    "0": "[ and ] choose a GPU; ctrl+p finds one by number", "*": "t opens and closes all branches",
})  # fmt: skip
"""What people expect of letters that have no command here, and where to find it."""


def unknown_key(key: str) -> str:
    """What to say of a key without a command, by Textual's name of it."""
    from gputop.paint.rebinding import shown_key

    shown = shown_key(key)
    return f"{shown}: {ELSEWHERE.get(shown, 'no command')} (? lists the keys, ctrl+p finds commands by name)"


def wanted_keys(preset: str, own: Mapping[str, str]) -> Mapping[str, str]:
    """The preset's keys, single ones overridden by the user's own."""
    return own if preset == "gputop" else {**PRESETS[preset], **own}
