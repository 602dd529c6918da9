"""The key table after the user's ``[keys]`` setting: by binding id, with a message for everything that cannot be bound.

Keys are given as people write them (``?``, ``ctrl+p``, ``PgUp``) or by Textual's names. A key that the user gives to
one action is taken from the action that had it by default.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from gputop.paint.keys import Key

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
    """Textual's name of a key as somebody wrote it; None where no terminal sends such a key."""
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
        known = modifiers != ["shift"]
    else:
        known = base in _NAMED or (modifiers != ["shift"] and base in _characters())
    return "+".join([*modifiers, base]) if known else None


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


def rebound(
    keys: Sequence[Key], wanted: Mapping[str, str], elsewhere: Collection[str] = ()
) -> tuple[tuple[Key, ...], list[str]]:
    """The table with the user's keys in it, and what could not be done, one line each.

    ``wanted`` maps binding ids to keys separated by commas; an empty text removes an action's keys. Ids in
    ``elsewhere`` belong to another table and are passed over. What is wrong leaves the default in force.
    """
    problems: list[str] = []
    taken: dict[str, str] = {}
    chosen: dict[str, list[str]] = {}
    ids = [key.id for key in keys]
    for key_id, text in wanted.items():
        if key_id in elsewhere:
            continue
        if key_id not in ids:
            from difflib import get_close_matches

            near = get_close_matches(key_id, [*ids, *elsewhere], 1)
            problems.append(f"no action {key_id!r} to bind" + (f"; did you mean {near[0]}?" if near else ""))
            continue
        names = _names(key_id, text, taken, problems)
        if names or not text.strip():
            chosen[key_id] = names
            taken.update(dict.fromkeys(names, key_id))
    return tuple(_with(key, chosen.get(key.id), taken, problems) for key in keys), problems


def _names(key_id: str, text: str, taken: Mapping[str, str], problems: list[str]) -> list[str]:
    names: list[str] = []
    for part in _split(text):
        name = key_name(part)
        if name is None:
            problems.append(f"{key_id}: no terminal sends a key {part!r}")
        elif name == ALWAYS_QUITS and key_id != INTERRUPT:
            problems.append(f"{key_id}: {name} always quits; choose another key")
        elif name in taken:
            problems.append(f"{shown_key(name)} is bound to {taken[name]} and to {key_id}: {taken[name]} has it")
        elif name not in names:
            names.append(name)
    return names


def _with(key: Key, names: list[str] | None, taken: Mapping[str, str], problems: list[str]) -> Key:
    if names is not None:
        if key.id == INTERRUPT and ALWAYS_QUITS not in names:
            names = [*names, ALWAYS_QUITS]
        return replace(key, keys=",".join(names), shown=_joined(names))
    own = key.keys.split(",")
    left = [name for name in own if taken.get(name, key.id) == key.id]
    if len(left) == len(own):
        return key
    if not left:
        lost = " and ".join(f"{shown_key(name)} is now {taken[name]}" for name in own)
        problems.append(f"{key.id} has no key left: {lost}; give it another one")
    return replace(key, keys=",".join(left), shown=_joined(left))


def _joined(names: Iterable[str]) -> str:
    return "  ".join(shown_key(name) for name in names)
