"""``--format``: a line a GPU with values in the place of ``{keys}``, for status lines and prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from gputop.model.clean_text import terminal_safe
from gputop.model.quantity import NOT_MEASURED
from gputop.model.source import UsageError

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
MOST_LISTED = 3
SAME = {"gpu": "index"}
"""Two names of one thing: columns, filters and labels call a GPU's index ``gpu``."""


def checked(template: str, keys: Collection[str]) -> str:
    """Check that all names in a template are ``keys``.

    Raises UsageError with the reason.
    """
    for part in _PART.finditer(template):
        if part[0] in ("{{", "}}"):
            continue
        if part[1] is None:
            raise UsageError(
                f"--format: a single {part[0]} in {template!r}; write {part[0] * 2} to print one"
            )
        if part[1] not in keys and SAME.get(part[1]) not in keys:
            from difflib import get_close_matches

            near = get_close_matches(part[1], [*keys, "gpu"], MOST_LISTED)
            hint = f": did you mean {' or '.join(near)}?" if near else ";"
            raise UsageError(f"--format: there is no {part[1]!r}{hint} `--json` shows every key")
    return template


def formatted(template: str, values: Mapping[str, object]) -> str:
    """Fill a template that was ``checked``."""

    def value(part: re.Match[str]) -> str:
        return (
            part[0][0]
            if part[1] is None
            else _text(values.get(part[1], values.get(SAME.get(part[1], ""))))
        )

    return _PART.sub(value, template)


def _text(value: object) -> str:
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        # As much as a status line can use; whole numbers without a point.
        return f"{value:.1f}".removesuffix(".0")
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return terminal_safe("; ".join(value))
    if isinstance(value, (dict, list, tuple)):
        return terminal_safe(json.dumps(value, ensure_ascii=False))
    return terminal_safe(str(value))
