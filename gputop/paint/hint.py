"""The line at the foot of a fresh screen: the few keys that lead to all the others."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.paint.keys import Key
from gputop.paint.line import Line, Row

Hint = tuple[tuple[str, str], ...]
"""(key as shown, what it does), the most useful first."""
WORDS = (
    ("help", "what every number means"),
    ("details", "the selected process in full"),
    ("gpu_details", "the GPU in full"),
    ("filter", "filter"),
    ("palette", "every command"),
    ("quit", "quit"),
)
LEAST_HEIGHT = 16
"""A lower screen needs its last row for something else."""


def hint_of(keys: Iterable[Key]) -> Hint:
    """The hint with the keys that these commands have at present."""
    shown = {key.id: key.shown.split("  ")[0] for key in keys}
    return tuple((shown[key_id], words) for key_id, words in WORDS if shown.get(key_id))


def hint_row(hint: Hint, width: int) -> Row:
    """As many of the keys as fit in one row."""
    line = Line().add(" first steps:", "dim")
    for shown, words in hint:
        if line.width + 3 + len(shown) + 1 + len(words) < width:
            line.add("   ").add(shown, "key").add(f" {words}", "text")
    return line.row(width, "bar")
