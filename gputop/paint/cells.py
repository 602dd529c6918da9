"""Text measured and cut in terminal cells."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from gputop.model.clean_text import terminal_safe

is_narrow = re.compile("[ -~\u00a1-\u02ff\u2010-\u2027\u2190-\u22ff\u2500-\u25fc]*").fullmatch
"""Whether every character is of a range in which none is wide: Latin, arrows, rules, blocks, shapes. Others may be."""


def cells(text: str) -> int:
    """Return how many terminal cells sanitised text takes.

    Two for East Asian wide characters, else one.
    """
    if text.isascii() or is_narrow(text):
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def fit(text: str, width: int) -> str:
    """Return foreign text in exactly ``width`` cells.

    It is sanitised, cut with an ellipsis or padded with spaces.
    """
    # Cut before it is remembered: command lines have up to 4096 characters, and every process that ever ran has one.
    return _fitted(text[: 4 * width + 64], width)


@lru_cache(maxsize=1024)
def _fitted(text: str, width: int) -> str:
    text = terminal_safe(text)
    missing = width - cells(text)
    if missing >= 0:
        return text + " " * missing
    chars, room = [], width - 1
    if room < 0:
        return ""
    for char in text:
        size = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if size > room:
            break
        chars.append(char)
        room -= size
    return "".join(chars) + "…" + " " * room


def shorten(text: str, width: int) -> str:
    """Cut gputop's own text to ``width`` cells.

    At a comma or a word, before a bracket that would stay open.
    """
    if len(text) <= width:
        return text
    cut = text[: max(0, width - 1)]
    comma, space = cut.rfind(", "), cut.rfind(" ")
    if comma > len(cut) // 2:
        # A number without its unit would mean something else.
        cut = cut[:comma]
    elif space > len(cut) * 2 // 3:
        cut = cut[:space]
    bracket = cut.rfind(" (")
    if bracket > len(cut) // 2 and ")" not in cut[bracket:]:
        cut = cut[:bracket]
    return cut.rstrip(" ,;:") + "…"


def folded(text: str, room: int) -> list[str]:
    """Split a long line into pieces of ``room`` cells.

    At spaces where there are some.
    """
    text, room = terminal_safe(text), max(10, room)
    parts = []
    while cells(text) > room:
        end = next(end for end in range(min(len(text), room), 0, -1) if cells(text[:end]) <= room)
        space = text.rfind(" ", room // 2, end)
        cut = end if space < 0 else space + 1
        parts.append(text[:cut])
        text = text[cut:]
    return [*parts, text]
