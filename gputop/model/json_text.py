"""JSON for people and programs: texts as they are, but nothing in them that acts on a terminal.

JSON escapes only the control characters of ASCII. Names from outside may hold those of C1, which some terminals obey,
and marks that turn the direction of what follows. Escaped they are the same values for every program::

    >>> safe_json({"name": "train\\x9b2J"})
    '{"name": "train\\\\u009b2J"}'
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any

_PERHAPS_ACTIVE = r"[^\n\x20-\x7e]"


def safe_json(data: Any, *, allow_nan: bool = False, **layout: Any) -> str:
    """Return JSON whose texts hold no control, format, direction, private or half character.

    ``layout`` is given to ``json.dumps``. Raises ValueError for NaN and infinities, which are no JSON, unless
    ``allow_nan``.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=allow_nan, **layout)
    if text.isascii() and "\x7f" not in text:
        return text
    return re.sub(_PERHAPS_ACTIVE, _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    """The character of a match, or its escape if it acts on what is around it."""
    char = match[0]
    category = unicodedata.category(char)
    is_separator = category in ("Zl", "Zp")
    if category[0] != "C" and not is_separator:
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
