"""Text from outside, made harmless where it enters, and prose of our own wrapped into lines."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from gputop.model.bounds import MOST_TEXT

# ``re`` compiles and caches them on first use. Few texts need them, so the start does not wait for compilation.
_SPACES = r"[\t\n\v\f\r]"
_UNPRINTABLE = (
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def clean_text(text: str) -> str:
    """Clean a text from outside to one line.

    At most 4096 characters; control, escape, direction and half characters become ``?``.
    """
    if text.isascii() and text.isprintable() and len(text) <= MOST_TEXT:
        return text
    return re.sub(_UNPRINTABLE, "?", re.sub(_SPACES, " ", text[:MOST_TEXT]))


def is_terminal_safe(char: str) -> bool:
    """Whether a character may reach a terminal.

    It is printable, not combining, not right-to-left, not private.
    """
    category = unicodedata.category(char)
    if category[0] in "CM" or (category[0] == "Z" and char != " "):
        return False
    return unicodedata.bidirectional(char) not in (
        "R",
        "AL",
        "AN",
        "RLE",
        "RLO",
        "RLI",
        "LRE",
        "LRO",
        "LRI",
    )


@lru_cache(maxsize=512)
def terminal_safe(text: str) -> str:
    """Make a text safe for a terminal.

    Control, escape, combining and right-to-left characters become ``·``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if is_terminal_safe(char) else " " if char.isspace() else "·" for char in text
    )


def csv_cell(value: object) -> object:
    """A cell of a CSV file.

    None is empty, and no text is a formula, which a spreadsheet would run.
    """
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return "" if value is None else value


def error_words(error: BaseException) -> str:
    """Name and first line of a foreign exception."""
    name, lines = type(error).__name__, error_text(error).splitlines()
    return clean_text(f"{name}: {lines[0]}" if lines else name)


def error_text(error: BaseException) -> str:
    """The text of a foreign exception; empty where it raises."""
    try:
        return str(error).strip()
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - the text is somebody else's code
        return ""


def wrapped(
    text: str, width: int, first: str = "", further: str = "", *, whole_words: bool = False
) -> list[str]:
    """Wrap prose to lines of ``width`` characters; none if empty.

    Options and names are not broken at their hyphens. The first line begins with ``first``, the others with
    ``further``. ``whole_words`` are longer than a line rather than broken.
    """
    # Imported late: the first frame seldom needs the module.
    from textwrap import wrap

    return wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=not whole_words,
        break_on_hyphens=False,
    )
