"""Numbers as people type them: ``10G``, ``90s``, ``20%``, ``yes``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gputop.model.metrics import Unit
from gputop.model.quantity import BINARY, DECIMAL, SECONDS

_TYPED = r"(\d{1,18}(?:\.\d{1,9})?|\.\d{1,9})\s*([A-Za-z%/]*)"
"""Compiled when a number is typed: the first frame does not wait for it."""
_TRUTHS: Mapping[str, float] = {
    "yes": 1.0,
    "true": 1.0,
    "1": 1.0,
    "no": 0.0,
    "false": 0.0,
    "0": 0.0,
}


def typed_number(text: str, unit: Unit) -> float:
    """Parse a number as typed: ``10G``, ``90s``, ``20%``, ``yes``.

    ``unit`` is the metric's. Raises ValueError with the reason.
    """
    if unit == "bool":
        if text.lower() not in _TRUTHS:
            raise ValueError(f"{text or 'nothing'} is neither yes nor no")
        return _TRUTHS[text.lower()]
    match = re.fullmatch(_TYPED, text)
    if match is None:
        raise ValueError(f"{text or 'nothing'} is not a number")
    number, typed = float(match[1]), match[2].lower()
    factors: Mapping[str, float]
    if unit in ("bytes", "bytes/s"):
        factors = BINARY if unit == "bytes" else DECIMAL
        typed = typed.removesuffix("/s").removesuffix("b").removesuffix("i")
        example = "10G" if unit == "bytes" else "10M"
        if not match[2] and number:
            raise ValueError(f"{text} of what? write {text}G, {text}M, {text}K or {text}B")
    elif unit == "s":
        factors, example = SECONDS, "90s, 10m, 2h or 1d"
    else:
        factors, example = {"": 1.0, **({"%": 1.0} if unit == "pct" else {})}, "50"
    if typed not in factors:
        raise ValueError(f"{match[2]} is not a unit here: write {example}")
    return number * factors[typed]
