"""Numbers and texts out of values that others wrote: files, pickles, answers, exceptions.

A decoded value may be anything: an integer of a million digits, NaN, a list that holds itself.
Python's own ``int()``, ``float()`` and ``str()`` raise three kinds of errors for such values, or
never end. These functions never raise, and never call a method that the value brings::

    duration_us = finite_number(event.get("dur"), least=0.0, most=DAY_US)
    name = text_of(event.get("name"))
"""

from __future__ import annotations

import math
import re
from typing import Any

from gputop.model.bounds import MOST, MOST_TEXT
from gputop.model.clean_text import clean_text

MOST_DIGITS = 400
"""Characters of a number as text: the largest float has 309 digits, and Python reads 4,300."""
LARGEST_WHOLE = 2**64 - 1
"""The largest address, count or mask of any driver or profiler."""
_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?"
_WHOLE = r"[+-]?[0-9]+"


def finite_number(value: object, least: float = -MOST, most: float = MOST) -> float | None:
    """Return a foreign number as a float; None outside of the bounds.

    Integers, floats and their texts are numbers. None for NaN, infinities, booleans and all else.
    """
    parsed = _parsed(value)
    if parsed is None:
        return None
    # Python compares integers of any size with floats exactly. NaN is within no bounds.
    return float(parsed) if least <= parsed <= most else None


def whole_number(
    value: object, least: int = -LARGEST_WHOLE, most: int = LARGEST_WHOLE
) -> int | None:
    """Return a foreign whole number exactly; None outside of the bounds.

    ``7``, ``7.0`` and their texts are whole numbers. None for ``7.5``, booleans and all else.
    """
    parsed = _parsed(value)
    if parsed is None or not least <= parsed <= most:
        return None
    whole = int(parsed)
    return whole if whole == parsed else None


def _parsed(value: object) -> int | float | None:
    """A value as an exact integer or float of any size, if it is a number."""
    if isinstance(value, bool):
        return None
    # The methods of the types themselves: a subclass may have others.
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if not isinstance(value, str):
        return None
    text = str.__str__(value)
    if len(text) > MOST_DIGITS:
        return None
    text = text.strip()
    if re.fullmatch(_WHOLE, text):
        return int(text)
    return float(text) if re.fullmatch(_NUMBER, text) else None


def text_of(value: object, most: int = MOST_TEXT) -> str:
    """Return a foreign value as one clean line of at most ``most`` characters.

    A text is cleaned and cut, a number of usual size is written out, and None is empty. Anything
    else is named by its type: a container may hold itself, an object's own text may do anything.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return clean_text(str.__str__(value)[:most])
    if isinstance(value, float):
        return float.__repr__(value)[:most]
    if isinstance(value, int) and abs(int.__int__(value)) <= LARGEST_WHOLE:
        return repr(bool(value) if isinstance(value, bool) else int.__int__(value))[:most]
    return type_name(value)[:most]


LONGEST_QUOTE = 60
_NAMES = {dict: "a table", list: "a list", tuple: "a list", type(None): "nothing"}


def quoted(value: object) -> str:
    """Return a foreign value as a message quotes it, with room left for the advice.

    ``'a text'``, ``12``, ``a list``, ``a number of 5000 digits``.
    """
    if isinstance(value, str):
        text = text_of(value, LONGEST_QUOTE)
        return repr(f"{text}…" if len(value) > LONGEST_QUOTE else text)
    if isinstance(value, int) and not -LARGEST_WHOLE <= int.__int__(value) <= LARGEST_WHOLE:
        digits = round(int.__int__(value).bit_length() * _DIGITS_A_BIT)
        return f"a number of {digits} digits"
    if isinstance(value, (int, float)):
        return text_of(value)
    return _NAMES.get(type(value), f"a {type_name(value)}")


_DIGITS_A_BIT = math.log10(2.0)


def type_name(value: object) -> str:
    """The name of a foreign value's type."""
    kind: type[Any] = type(value)
    return clean_text(kind.__name__[:100])
