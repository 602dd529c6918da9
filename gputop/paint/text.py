"""Text that fits: measured and cut in terminal cells, and numbers in fixed widths.

Nothing here knows a colour. Every function gives the same width for every value, so that a screen never jumps.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from gputop.model import quantity
from gputop.model.quantity import GIB, NOT_MEASURED
from gputop.model.text import terminal_safe

is_narrow = re.compile("[ -~\u00a1-\u02ff\u2010-\u2027\u2190-\u22ff\u2500-\u25fc]*").fullmatch
"""Whether every character is of a range in which none is wide: Latin, arrows, rules, blocks, shapes. Others may be."""


def cells(text: str) -> int:
    """How many terminal cells sanitised text takes: two for East Asian wide characters, else one."""
    if text.isascii() or is_narrow(text):
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def fit(text: str, width: int, ellipsis: str = "…") -> str:
    """Text from outside in exactly ``width`` cells: sanitised, cut with an ellipsis or padded with spaces."""
    # Cut before it is remembered: command lines have up to 4096 characters, and every process that ever ran has one.
    return _fitted(text[: 4 * width + 64], width, ellipsis)


@lru_cache(maxsize=1024)
def _fitted(text: str, width: int, ellipsis: str) -> str:
    text = terminal_safe(text)
    missing = width - cells(text)
    if missing >= 0:
        return text + " " * missing
    kept, room = [], width - len(ellipsis)
    if room < 0:
        return ellipsis[:width]
    for char in text:
        size = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        if size > room:
            break
        kept.append(char)
        room -= size
    return "".join(kept) + ellipsis + " " * room


def shorten(text: str, width: int, ellipsis: str = "…") -> str:
    """Text of our own in at most ``width`` cells, cut at a comma or a word, before a bracket that would stay open."""
    if len(text) <= width:
        return text
    cut = text[: max(0, width - len(ellipsis))]
    comma, space = cut.rfind(", "), cut.rfind(" ")
    if comma > len(cut) // 2:
        # A number without its unit would mean something else.
        cut = cut[:comma]
    elif space > len(cut) * 2 // 3:
        cut = cut[:space]
    bracket = cut.rfind(" (")
    if bracket > len(cut) // 2 and ")" not in cut[bracket:]:
        cut = cut[:bracket]
    return cut.rstrip(" ,;:") + ellipsis


def folded(text: str, room: int) -> list[str]:
    """A long line in pieces of at most ``room`` cells, broken at spaces where there are some."""
    text, room = terminal_safe(text), max(10, room)
    parts = []
    while cells(text) > room:
        most = next(end for end in range(min(len(text), room), 0, -1) if cells(text[:end]) <= room)
        space = text.rfind(" ", room // 2, most)
        cut = most if space < 0 else space + 1
        parts.append(text[:cut])
        text = text[cut:]
    return [*parts, text]


def pct(value: float | None, width: int = 3) -> str:
    """A percentage without its sign, right-aligned."""
    return f"{NOT_MEASURED if value is None else round(value):>{width}}"


def whole(value: float | None, width: int) -> str:
    """A number without decimals, right-aligned."""
    return f"{NOT_MEASURED if value is None else round(value):>{width}}"


def gib(value: float | None, width: int = 5) -> str:
    """Bytes as GiB with one decimal, without the unit, right-aligned."""
    return f"{NOT_MEASURED:>{width}}" if value is None else f"{value / GIB:>{width}.1f}"


_BINARY = ("B", "K", "M", "G", "T", "P")


def size(value: float | None, width: int = 7) -> str:
    """Bytes with a binary unit in htop's manner (``58.1 G``), right-aligned; ``–`` where there is none."""
    if value is None:
        return f"{'–':>{width}}"
    number, unit = value, 0
    while number >= 999.5 and unit < len(_BINARY) - 1:
        number /= 1024
        unit += 1
    text = f"{number:.0f} B" if unit == 0 else f"{number:.1f} {_BINARY[unit]}"
    return f"{text:>{width}}"


def rate(value: float | None, width: int = 9) -> str:
    """Bytes a second with a decimal unit (``1.1 GB/s``), right-aligned."""
    return f"{quantity.rate(value):>{width}}"


def gb_per_s(value: float | None, width: int = 5) -> str:
    """Bytes a second as GB/s with one decimal, without the unit, right-aligned."""
    return f"{NOT_MEASURED:>{width}}" if value is None else f"{value / 1e9:>{width}.1f}"


def elapsed(seconds: float | None, width: int = 8) -> str:
    """An age in htop's manner: ``0:41:10``, ``12:09:10``, ``5d 02h``."""
    if seconds is None:
        return f"{NOT_MEASURED:>{width}}"
    whole_s = max(0, int(seconds))
    hours, rest = divmod(whole_s, 3600)
    if hours >= 100:
        days, hours = divmod(hours, 24)
        return f"{f'{days}d {hours:02d}h':>{width}}"
    return f"{f'{hours}:{rest // 60:02d}:{rest % 60:02d}':>{width}}"


def clock_time(t: float, utc_offset_s: float) -> str:
    """Unix time as ``12:03:41`` at the given offset from UTC."""
    second = int(t + utc_offset_s) % 86400
    return f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
