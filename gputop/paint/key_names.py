"""Names of keys: as the user's ``[keys]`` setting spells them, as the terminal sends them, as the screen shows them."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Mapping

_RENAMED: Mapping[str, str] = {
    "solidus": "slash", "reverse_solidus": "backslash", "commercial_at": "at", "hyphen_minus": "minus",
    "plus_sign": "plus", "low_line": "underscore",
}  # fmt: skip
"""Names of characters that Textual shortens (``KEY_NAME_REPLACEMENTS`` in ``textual.keys``)."""
_SPELLED: Mapping[str, str] = {
    "esc": "escape", "return": "enter", "pgup": "pageup", "pgdn": "pagedown", "del": "delete", "ins": "insert",
    "←": "left", "→": "right", "↑": "up", "↓": "down",
    "ctrl+i": "tab", "ctrl+m": "enter", "ctrl+[": "escape",
}  # fmt: skip
"""Other spellings, and keys that a terminal cannot tell from each other."""
_SHOWN: Mapping[str, str] = {
    "escape": "esc", "up": "↑", "down": "↓", "left": "←", "right": "→", "pageup": "PgUp", "pagedown": "PgDn",
    "home": "Home", "end": "End",
}  # fmt: skip
_NAMED = frozenset([
    "escape", "enter", "tab", "space", "backspace", "up", "down", "left", "right", "home", "end", "pageup", "pagedown",
    "insert", "delete", *(f"f{n}" for n in range(1, 25)),
])  # fmt: skip


def _character_name(char: str) -> str:
    if char.isalnum():
        return char
    name = unicodedata.name(char, "").lower().replace("-", "_").replace(" ", "_")
    return _RENAMED.get(name, name)


_CHARACTERS: Mapping[str, str] = {_character_name(char): char for char in string.punctuation}


def key_name(text: str) -> str | None:
    """Return Textual's name of a key that a user wrote.

    None where no terminal sends such a key.
    """
    text = text.strip()
    if len(text) == 1 and text not in _SPELLED:
        return _character_name(text) if text.isprintable() else None
    lowered = text.lower()
    lowered = _SPELLED.get(lowered, lowered)
    *modifiers, base = lowered.split("+")
    base = _SPELLED.get(base, base)
    if not modifiers:
        return base if base in _NAMED or base in _CHARACTERS else None
    if not set(modifiers) <= {"ctrl", "shift", "alt"}:
        return None
    if len(base) == 1 and base.isascii() and base.isalnum():
        # Upper-case letters are keys of their own: a terminal does not send shift+a.
        is_sent = modifiers != ["shift"]
    else:
        is_sent = base in _NAMED or (modifiers != ["shift"] and base in _CHARACTERS)
    return "+".join([*modifiers, base]) if is_sent else None


def shown_key(name: str) -> str:
    """A key's name as the help shows it: ``question_mark`` is ``?``."""
    *modifiers, base = name.split("+")
    if re.fullmatch(r"f\d+", base):
        base = base.upper()
    return "+".join([*modifiers, _SHOWN.get(base, _CHARACTERS.get(base, base))])


def split_names(text: str) -> list[str]:
    """Split a setting's keys at commas.

    ``,`` itself is a comma between commas, or alone.
    """
    if text.strip() == ",":
        return [","]
    return (
        [part.strip() or "," for part in text.replace(",,", ",comma").split(",")]
        if text.strip()
        else []
    )
