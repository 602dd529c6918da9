"""Every key, once: the screen's bindings and the help screen are both made of this table."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace


class Key(Struct, frozen=True):
    """A binding: id (stable, for remapping), keys in Textual's names, as shown, what it does, section of the help.

    Without keys a command is in the palette alone, until the user or a preset gives it one.
    """

    id: str
    keys: str
    shown: str
    does: str
    section: str


KEYS: tuple[Key, ...] = (
    Key("quit", "q,Q,f10", "q  Q  F10", "quit; close another screen", "everywhere"),
    Key("interrupt", "ctrl+c", "ctrl+c", "quit, from any screen", "everywhere"),
    Key("help", "question_mark,h,f1", "?  h  F1", "this help", "everywhere"),
    Key("palette", "ctrl+p,colon", "ctrl+p  :", "every command by name", "everywhere"),
    Key("copy", "y", "y", "copy what is selected for a ticket: verdict, evidence, remedy, the process", "everywhere"),
    Key("copy_json", "Y", "Y", "copy them as JSON", "everywhere"),
    Key("tour", "f7", "F7", "in the demo: its tour, GPU by GPU", "everywhere"),
    Key("theme", "T", "T", "choose a theme with a live preview; Esc cancels", "everywhere"),
    Key("counted", "w", "w", "next GPU that needs attention, like a click on a count", "GPUs"),
    Key("redraw", "ctrl+l", "ctrl+l", "redraw the whole screen", "everywhere"),
    Key("suspend", "ctrl+z", "ctrl+z", "suspend to the shell", "everywhere"),
    Key("layout", "c", "c", "layout: automatic, panes, list", "everywhere"),
    Key("layout_auto", "1", "1", "layout: automatic", "everywhere"),
    Key("layout_panes", "2", "2", "layout: panes", "everywhere"),
    Key("layout_list", "3", "3", "layout: a line a GPU", "everywhere"),
    Key("pause", "p", "p", "pause and look back over this run; resume", "everywhere"),
    Key("longer", "plus,equals_sign", "+", "show a longer time in charts", "charts"),
    Key("shorter", "minus", "-", "show a shorter time in charts", "charts"),
    Key("previous_gpu", "left_square_bracket", "[", "previous GPU", "GPUs"),
    Key("next_gpu", "right_square_bracket", "]", "next GPU", "GPUs"),
    Key("gpu_details", "D", "D", "the selected GPU in full: all charts, verdicts, origin of each value", "GPUs"),
    Key("release_counters", "P", "P", "release the hardware counters for another tool, or take them back", "GPUs"),
    Key("section", "tab", "tab", "switch between the counts, the GPUs and the processes", "GPUs"),
    Key("section_back", "shift+tab", "shift+tab", "the same, the other way round", "GPUs"),
    Key("to_counts", "S", "S", "to the counts of states in the second row", "GPUs"),
    Key("to_gpus", "V", "V", "to the GPUs and their verdicts", "GPUs"),
    Key("to_processes", "L", "L", "to the list of processes", "GPUs"),
    Key("up", "up,k", "↑  k", "up", "processes"),
    Key("down", "down,j", "↓  j", "down", "processes"),
    Key("page_up", "pageup,ctrl+b", "PgUp  ctrl+b", "a page up", "processes"),
    Key("page_down", "pagedown,ctrl+f", "PgDn  ctrl+f", "a page down", "processes"),
    Key("half_up", "ctrl+u", "ctrl+u", "half a page up", "processes"),
    Key("half_down", "ctrl+d", "ctrl+d", "half a page down", "processes"),
    Key("first", "home", "Home", "first row", "processes"),
    Key("last", "end", "End", "last row", "processes"),
    Key("top", "g", "g", "first row", "processes"),
    Key("bottom", "G", "G", "last row", "processes"),
    Key("command_left", "left", "←", "scroll long commands back", "processes"),
    Key("command_right", "right", "→", "scroll long commands", "processes"),
    Key("command_back", "shift+left", "shift+←", "scroll long commands back, also while paused", "processes"),
    Key("command_on", "shift+right", "shift+→", "scroll long commands, also while paused", "processes"),
    Key("details", "enter", "enter", "the process in full; after Tab, the next GPU of a count or the GPU", "processes"),
    Key("tree", "t,f5", "t  F5", "show loaders and helpers: automatic, all, none", "processes"),
    Key("sort", "o,f6", "o  F6", "sort: a letter, or the list (g GPU, m memory, c CPU, n name)", "processes"),
    Key("sort_next", "full_stop", ".", "sort by the next column", "processes"),
    Key("sort_previous", "comma,shift+f6,f18", ",  shift+F6", "sort by the column before", "processes"),
    Key("sort_memory", "M", "M", "sort by GPU memory", "processes"),
    Key("sort_cpu", "", "", "sort by CPU", "processes"),
    Key("sort_time", "", "", "sort by age", "processes"),
    Key("invert", "I", "I", "reverse the order", "processes"),
    Key("filter", "f,f4", "f  F4", "filter: gpu:3 user:ml mem>10G verdict:starved name~train !state:D", "processes"),
    Key("search", "slash", "/", "search in command, user, pid, job", "processes"),
    Key("match_next", "n", "n", "next match", "processes"),
    Key("match_previous", "N", "N", "previous match", "processes"),
    Key("search_next", "f3", "F3", "next match", "processes"),
    Key("search_previous", "shift+f3,f15", "shift+F3", "previous match", "processes"),
    Key("tag", "space,insert", "space", "tag for the next signal and move down", "processes"),
    Key("tag_tree", "B", "B", "tag or untag a process with everything below it: its branch", "processes"),
    Key("untag", "U", "U", "untag all", "processes"),
    Key("signal", "f9,K", "F9  K", "send a signal to the tagged or the selected process; asks first", "processes"),
    Key("terminate", "", "", "end the tagged or the selected process (SIGTERM); asks first", "processes"),
    Key("kill", "", "", "kill the tagged or the selected process (SIGKILL); asks first", "processes"),
    Key("interrupt_process", "", "", "interrupt the tagged or the selected process (SIGINT); asks first", "processes"),
    Key("environment", "e", "e", "environment variables, secrets masked", "processes"),
    Key("stacks", "d", "d", "deep look: Python stacks, threads, commands for profilers", "processes"),
    Key("users", "u", "u", "GPU use by user and by job", "processes"),
    Key("columns", "f2,C", "F2  C", "choose and order the columns", "processes"),
    Key("findings", "A", "A", "findings: every change, acknowledged here; alerts, silenced here", "everywhere"),
    Key("record", "R", "R", "start or stop recording to this directory", "everywhere"),
    Key("screenshot", "f8", "F8", "save a picture of the screen to this directory", "everywhere"),
    Key("release", "escape", "esc", "go back; follow what needs attention", "everywhere"),
)  # fmt: skip

REPLAY_KEYS: tuple[Key, ...] = (
    Key("play", "space", "space", "play, pause", "paused or replaying"),
    Key("back", "left", "←", "one frame back", "paused or replaying"),
    Key("on", "right", "→", "one frame on", "paused or replaying"),
    Key("jump", "J", "J", "jump to a time: 12:03, -10m, +1h", "paused or replaying"),
    Key("next_change", "n", "n", "next change of a verdict", "paused or replaying"),
    Key("previous_change", "N", "N", "previous change of a verdict", "paused or replaying"),
    Key("slower", "comma", ",", "slower", "paused or replaying"),
    Key("faster", "full_stop", ".", "faster", "paused or replaying"),
    Key("begin", "g", "g", "to the beginning", "paused or replaying"),
    Key("end", "G", "G", "to the end", "paused or replaying"),
)  # fmt: skip
"""Keys that count only while the screen shows the past."""


_PAGES, _DETAILS, _TOUR = "every page of rows", "the page of a GPU or a process", "the tour of the demo"
PAGE_KEYS: tuple[Key, ...] = (
    Key("list_close", "escape,q", "esc  q", "close the page", _PAGES),
    Key("list_down", "down,j", "↓  j", "down", _PAGES),
    Key("list_up", "up,k", "↑  k", "up", _PAGES),
    Key("list_page_down", "pagedown,space,ctrl+f", "PgDn  space  ctrl+f", "a page down", _PAGES),
    Key("list_page_up", "pageup,ctrl+b", "PgUp  ctrl+b", "a page up", _PAGES),
    Key("list_half_down", "ctrl+d", "ctrl+d", "half a page down", _PAGES),
    Key("list_half_up", "ctrl+u", "ctrl+u", "half a page up", _PAGES),
    Key("list_first", "home,g", "Home  g", "to the first row", _PAGES),
    Key("list_last", "end,G", "End  G", "to the last row", _PAGES),
    Key("help_close", "question_mark,h,f1,enter", "?  h  F1  enter", "close the help", "help"),
    Key("findings_close", "A", "A", "close the findings", "findings"),
    Key("findings_acknowledge", "a", "a", "acknowledge the finding under the cursor", "findings"),
    Key("findings_silence", "s", "s", "silence the alert under the cursor, or let it speak again", "findings"),
    Key("users_close", "u", "u", "close the table of users", "users and jobs"),
    Key("users_regroup", "tab", "tab", "by user, or by job", "users and jobs"),
    Key("users_take", "enter", "enter", "show only the processes of the one under the cursor", "users and jobs"),
    Key("environment_close", "e", "e", "close the environment", "environment"),
    Key("environment_reveal", "v", "v", "show or hide secrets", "environment"),
    Key("environment_find", "slash,f3", "/  F3", "find in names and values", "environment"),
    Key("stacks_again", "d", "d", "look again", "deep look"),
    *(Key(f"stacks_copy_{n}", str(n), str(n), f"copy the command number {n}", "deep look") for n in (1, 2, 3)),
    Key("signals_choose", "enter", "enter", "choose the signal under the cursor", "signals"),
    Key("signals_send", "y", "y", "send it", "signals"),
    Key("signals_back", "n", "n", "do not send it", "signals"),
    Key("columns_toggle", "space", "space", "show or hide the column", "columns"),
    Key("columns_back", "less_than_sign,left,shift+up", "<  ←  shift+↑", "move the column to the left", "columns"),
    Key("columns_on", "greater_than_sign,right,shift+down", ">  →  shift+↓", "move the column to the right", "columns"),
    Key("columns_reset", "r", "r", "the usual columns", "columns"),
    Key("columns_take", "enter", "enter", "take these columns", "columns"),
    Key("tour_close", "f7", "F7", "close the tour", _TOUR),
    Key("tour_next", "right,l,n,enter,space", "→  l  n  enter  space", "next GPU", _TOUR),
    Key("tour_back", "left,backspace,p", "←  backspace  p", "previous GPU", _TOUR),
    *(Key(f"tour_go_{n}", str(n), str(n), f"page {n}", _TOUR) for n in range(1, 9)),
    Key("details_close", "escape,q,enter", "esc  q  enter", "close the page", _DETAILS),
    Key("details_up", "up,k", "↑  k", "up", _DETAILS),
    Key("details_down", "down,j", "↓  j", "down", _DETAILS),
    Key("details_page_up", "pageup,ctrl+b", "PgUp  ctrl+b", "a page up", _DETAILS),
    Key("details_page_down", "pagedown,space,ctrl+f", "PgDn  space  ctrl+f", "a page down", _DETAILS),
    Key("details_left", "left", "←", "read an earlier moment", _DETAILS),
    Key("details_right", "right", "→", "read a later moment", _DETAILS),
    Key("details_far_left", "shift+left", "shift+←", "read a much earlier moment", _DETAILS),
    Key("details_far_right", "shift+right", "shift+→", "read a much later moment", _DETAILS),
    Key("details_oldest", "home", "Home", "read the oldest moment", _DETAILS),
    Key("details_newest", "end", "End", "read what is now", _DETAILS),
    Key("details_longer", "plus,equals_sign", "+", "show a longer time", _DETAILS),
    Key("details_shorter", "minus", "-", "show a shorter time", _DETAILS),
    Key("onegpu_previous", "left_square_bracket", "[", "the GPU before", "the page of a GPU"),
    Key("onegpu_next", "right_square_bracket", "]", "the next GPU", "the page of a GPU"),
)  # fmt: skip
"""Keys of the screens that open above the main one. Each section is a table of its own: the same key may stand in all.

Questions and prompts have none: what is typed there is text, and Enter and Esc answer.
"""


def page_tables() -> tuple[tuple[Key, ...], ...]:
    """``PAGE_KEYS``, section by section."""
    sections = dict.fromkeys(key.section for key in PAGE_KEYS)
    return tuple(tuple(key for key in PAGE_KEYS if key.section == section) for section in sections)


def page_keys(user_keys: Mapping[str, str]) -> tuple[Key, ...]:
    """``PAGE_KEYS`` with the user's own keys in them."""
    elsewhere = {key.id for key in PAGE_KEYS}
    return tuple(key for table in page_tables() for key in rebound(table, user_keys, elsewhere - _ids(table))[0])


def _ids(table: Iterable[Key]) -> set[str]:
    return {key.id for key in table}


# The keys of other programs, for people used to them. A preset only rebinds actions.

PRESETS: Mapping[str, Mapping[str, str]] = MappingProxyType({
    "gputop": MappingProxyType({}),
    "nvitop": MappingProxyType({
        "signal": "f9", "terminate": "T", "kill": "K", "interrupt_process": "I", "theme": "", "layout": "a,f,c",
        "invert": "slash", "sort_next": "full_stop", "sort_previous": "comma", "slower": "<", "faster": ">",
        "search": "f3", "search_next": "", "filter": "f4,backslash",
        "command_left": "left,[", "command_right": "right,]", "previous_gpu": "{", "next_gpu": "}",
    }),
    "htop": MappingProxyType({
        "quit": "q,f10", "signal": "k,f9", "up": "up", "sort": "f6,<,>,o", "search": "slash,f3",
        "search_next": "", "filter": "backslash,f4", "columns": "f2,S,C", "sort_cpu": "P", "sort_time": "T",
        "theme": "", "release_counters": "", "to_counts": "", "tag_tree": "c,B", "layout": "a",
    }),
})  # fmt: skip
"""Preset -> action -> keys, for the actions whose keys differ."""


ELSEWHERE: Mapping[str, str] = MappingProxyType({
    "a": "c, or 1, 2 and 3, change the layout", "s": "o and a letter sort; --interval sets how often gputop measures",
    "<": "o and a letter, or , and ., choose the order", ">": "o and a letter, or , and ., choose the order",
    "l": "open files are not shown; e shows the environment, enter the process in full",
    "m": "o m, or M, sorts by GPU memory", "r": "I reverses the order; priorities are not changed from here",
    "v": "space tags one process after the other",
    "x": "the column that is sorted by is brighter; o and a letter sort", "z": "T changes the colours",
    "H": "the threads of a process: enter", "F": "the cursor follows its process; esc lets it go",
    "W": "settings are kept in a file: gputop config --init", "4": "1, 2, 3 choose a layout; D shows one GPU in full",
    "J": "jumps through the past; p shows it", "Z": "p pauses",
    "i": "all processes on the GPUs are shown; f filters them",
    "0": "[ and ] choose a GPU; ctrl+p finds one by number", "*": "t opens and closes all branches",
})  # fmt: skip
"""What people expect of letters that have no command here, and where to find it."""


def unknown_key(key: str) -> str:
    """What to say of a key without a command, by Textual's name of it."""

    shown = shown_key(key)
    return f"{shown}: {ELSEWHERE.get(shown, 'no command')} (? lists the keys, ctrl+p finds commands by name)"


def wanted_keys(preset: str, user_keys: Mapping[str, str]) -> Mapping[str, str]:
    """The preset's keys, single ones overridden by the user's own."""
    return user_keys if preset == "gputop" else {**PRESETS[preset], **user_keys}


# The key table after the user's ``[keys]`` setting: by binding id, with a message for everything that cannot be bound.
#
# Keys are given as people write them (``?``, ``ctrl+p``, ``PgUp``) or by Textual's names. A key that the user gives to
# one action is taken from the action that had it by default.

ALWAYS_QUITS, INTERRUPT = "ctrl+c", "interrupt"
"""A key that keeps its action whatever else is bound, so that the screen can always be left."""

NO_KEYS: Mapping[str, str] = MappingProxyType({})
"""The setting of a user who wants the table's own keys."""
_RENAMED: Mapping[str, str] = MappingProxyType({
    "solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
    "plus_sign": "plus", "low_line": "underscore",
})  # fmt: skip
"""Names of characters that Textual shortens (``KEY_NAME_REPLACEMENTS`` in ``textual.keys``)."""
_SPELLED: Mapping[str, str] = MappingProxyType({
    "esc": "escape", "return": "enter", "pgup": "pageup", "pgdn": "pagedown", "del": "delete", "ins": "insert",
    "←": "left", "→": "right", "↑": "up", "↓": "down",
    "ctrl+i": "tab", "ctrl+m": "enter", "ctrl+[": "escape",
})  # fmt: skip
"""Other spellings, and keys that a terminal cannot tell from each other."""
_SHOWN: Mapping[str, str] = MappingProxyType({
    "escape": "esc", "up": "↑", "down": "↓", "left": "←", "right": "→", "pageup": "PgUp", "pagedown": "PgDn",
    "home": "Home", "end": "End",
})  # fmt: skip
_NAMED = frozenset([
    "escape", "enter", "tab", "space", "backspace", "up", "down", "left", "right", "home", "end", "pageup", "pagedown",
    "insert", "delete", *(f"f{n}" for n in range(1, 25)),
])  # fmt: skip
_PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def _character_name(char: str) -> str:
    if char.isalnum():
        return char
    name = unicodedata.name(char, "").lower().replace("-", "_").replace(" ", "_")
    return _RENAMED.get(name, name)


def _characters() -> Mapping[str, str]:
    return {_character_name(char): char for char in _PUNCTUATION}


def key_name(text: str) -> str | None:
    """Textual's name of a key as the user wrote it; None where no terminal sends such a key."""
    text = text.strip()
    if len(text) == 1 and text not in _SPELLED:
        return _character_name(text) if text.isprintable() else None
    lowered = text.lower()
    lowered = _SPELLED.get(lowered, lowered)
    *modifiers, base = lowered.split("+")
    base = _SPELLED.get(base, base)
    if not modifiers:
        return base if base in _NAMED or base in _characters() else None
    if not set(modifiers) <= {"ctrl", "shift", "alt"}:
        return None
    if len(base) == 1 and base.isascii() and base.isalnum():
        # Upper-case letters are keys of their own: a terminal does not send shift+a.
        is_sent = modifiers != ["shift"]
    else:
        is_sent = base in _NAMED or (modifiers != ["shift"] and base in _characters())
    return "+".join([*modifiers, base]) if is_sent else None


def shown_key(name: str) -> str:
    """A key's name as the help shows it: ``question_mark`` is ``?``."""
    *modifiers, base = name.split("+")
    if re.fullmatch(r"f\d+", base):
        base = base.upper()
    return "+".join([*modifiers, _SHOWN.get(base, _characters().get(base, base))])


def _split(text: str) -> list[str]:
    """The keys of a setting: separated by commas; ``,`` itself is a comma between commas, or alone."""
    if text.strip() == ",":
        return [","]
    return [part.strip() or "," for part in text.replace(",,", ",comma").split(",")] if text.strip() else []


class KeyProblem(Struct, frozen=True):
    """What could not be bound, in one line, and the user's action that it comes from."""

    action: str
    words: str


def rebound(
    keys: Sequence[Key], user_keys: Mapping[str, str], elsewhere: Collection[str] = ()
) -> tuple[tuple[Key, ...], list[KeyProblem]]:
    """The table with the user's keys in it, and what could not be done.

    ``user_keys`` maps binding ids to keys separated by commas; an empty text removes an action's keys. Ids in
    ``elsewhere`` belong to another table and are passed over. What is wrong leaves the default in force.
    """
    problems: list[KeyProblem] = []
    taken: dict[str, str] = {}
    chosen: dict[str, list[str]] = {}
    ids = [key.id for key in keys]
    for key_id, text in user_keys.items():
        if key_id in elsewhere:
            continue
        if key_id not in ids:
            from difflib import get_close_matches

            near = get_close_matches(key_id, [*ids, *elsewhere], 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            problems.append(KeyProblem(key_id, f"no action {key_id!r} to bind{meant}"))
            continue
        names = _names(key_id, text, taken, problems)
        if names or not text.strip():
            chosen[key_id] = names
            taken.update(dict.fromkeys(names, key_id))
    return tuple(_with(key, chosen.get(key.id), taken, problems) for key in keys), problems


def _names(key_id: str, text: str, taken: Mapping[str, str], problems: list[KeyProblem]) -> list[str]:
    names: list[str] = []
    for part in _split(text):
        name = key_name(part)
        if name is None:
            problems.append(KeyProblem(key_id, f"{key_id}: no terminal sends a key {part!r}"))
        elif name == ALWAYS_QUITS and key_id != INTERRUPT:
            problems.append(KeyProblem(key_id, f"{key_id}: {name} always quits; choose another key"))
        elif name in taken:
            words = f"{shown_key(name)} is bound to {taken[name]} and to {key_id}: {taken[name]} has it"
            problems.append(KeyProblem(taken[name], words))
        elif name not in names:
            names.append(name)
    return names


def _with(key: Key, names: list[str] | None, taken: Mapping[str, str], problems: list[KeyProblem]) -> Key:
    if names is not None:
        if key.id == INTERRUPT and ALWAYS_QUITS not in names:
            names = [*names, ALWAYS_QUITS]
        return replace(key, keys=",".join(names), shown=_joined(names))
    usual = key.keys.split(",")
    remaining = [name for name in usual if taken.get(name, key.id) == key.id]
    if len(remaining) == len(usual):
        return key
    if not remaining:
        lost = " and ".join(f"{shown_key(name)} is now {taken[name]}" for name in usual)
        problems.append(KeyProblem(taken[usual[0]], f"{key.id} has no key left: {lost}; give it another one"))
    return replace(key, keys=",".join(remaining), shown=_joined(remaining))


def _joined(names: Iterable[str]) -> str:
    return "  ".join(shown_key(name) for name in names)
