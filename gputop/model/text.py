"""Text from outside, made harmless: ``clean_text`` where it enters as data, ``terminal_safe`` before it is shown.
And prose of our own in lines: ``wrapped``.

Process names, command lines, reasons of a driver and recordings may hold anything. As data they keep every letter of
every script; on a terminal, where each cell must be where it is thought to be, less is allowed.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MOST_TEXT = 4096
"""Characters of one text. Linux does not limit /proc/PID/cmdline."""

# ``re`` compiles and caches them when a text needs them; hardly any does, so the start does not wait for that.
_SPACES = r"[\t\n\v\f\r]"
_UNPRINTABLE = "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"


def clean_text(text: str) -> str:
    """One line of at most 4096 characters; control, escape, direction and half characters become ``?``."""
    if text.isascii() and text.isprintable() and len(text) <= MOST_TEXT:
        return text
    return re.sub(_UNPRINTABLE, "?", re.sub(_SPACES, " ", text[:MOST_TEXT]))


def is_terminal_safe(char: str) -> bool:
    """Whether a character may reach a terminal as it is: printable, not combining, not right-to-left, not private."""
    category = unicodedata.category(char)
    if category[0] in "CM" or (category[0] == "Z" and char != " "):
        return False
    return unicodedata.bidirectional(char) not in ("R", "AL", "AN", "RLE", "RLO", "RLI", "LRE", "LRO", "LRI")


@lru_cache(maxsize=512)
def terminal_safe(text: str) -> str:
    """Text that is safe on a terminal: control, escape, combining and right-to-left characters become ``·``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if is_terminal_safe(char) else " " if char.isspace() else "·" for char in text)


def wrapped(text: str, width: int, first: str = "", further: str = "", *, whole_words: bool = False) -> list[str]:
    """Prose in lines of at most ``width`` characters, none for an empty text. Options and names are not broken at their
    hyphens. The first line begins with ``first``, the others with ``further``. ``whole_words`` are longer than a line
    rather than broken.
    """
    # Not imported at a start: the first picture seldom needs it.
    from textwrap import wrap

    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=not whole_words,
        break_on_hyphens=False,
    )
