"""The last row of the screen: the few keys that lead to all the others. It is always there, so that nothing jumps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputop.model.sm import COUNTERS_RELEASED
from gputop.model.snapshot import GpuSample
from gputop.paint.keys import Key
from gputop.paint.line import Line, Row, Target

Hint = tuple[tuple[str, str, str], ...]
"""(key as shown, what it does, its id), the most useful first."""
WORDS = (
    ("help", "what every number means"),
    ("details", "details"),
    ("gpu_details", "GPU in full"),
    ("pause", "pause"),
    ("filter", "filter"),
    ("copy", "copy for a ticket"),
    ("findings", "findings"),
    ("palette", "every command"),
    ("quit", "quit"),
    ("release_counters", "release counters"),
)
COUNTERS = "release_counters"
"""The key that is shown, in second place, only while the hardware counters are held or were released by it."""
GAP = "   "
"""What stands between the keys of a last row."""
TOUR = ("tour", "the tour")
LEAST_HEIGHT = 16
"""A screen with fewer rows needs its last row for something else."""


def hint_of(keys: Iterable[Key], *, tour: bool = False) -> Hint:
    """The hint with the keys that these commands have at present; with the tour where there is one."""
    shown = {key.id: key.shown.split("  ")[0] for key in keys}
    words = (TOUR, *WORDS) if tour else WORDS
    return tuple((shown[key_id], does, key_id) for key_id, does in words if shown.get(key_id))


def hint_now(hint: Hint, gpus: Sequence[GpuSample]) -> Hint:
    """The hint for a frame: the key of the hardware counters is named while gputop keeps others from using them."""
    entry = next((entry for entry in hint if entry[2] == COUNTERS), None)
    if entry is None:
        return hint
    rest = tuple(other for other in hint if other is not entry)
    if any(gpu.sm_source == "counters" for gpu in gpus):
        return (*rest[:1], entry, *rest[1:])
    if any(COUNTERS_RELEASED in (gpu.sm_reason or "") for gpu in gpus):
        return (*rest[:1], (entry[0], "take counters again", COUNTERS), *rest[1:])
    return rest


def hint_row(hint: Hint, width: int) -> Row:
    """As many of the keys as fit in one row."""
    line = Line()
    for shown, words, _ in _fitting(hint, width):
        line.add("   " if line.width else " ").add(shown, "key").add(f" {words}", "text")
    return line.row(width, "bar")


def key_named_at(row: Row, column: int) -> str | None:
    """The key, by Textual's name, that the words of a last row at some column begin with; None where they name none."""
    from gputop.paint.rebinding import key_name

    text = "".join(part for part, _ in row)
    begin = text.rfind(GAP, 0, column) + len(GAP) if GAP in text[:column] else 0
    words = text[begin:].split(GAP)[0].split()
    shown = len(text[begin:].split(GAP)[0]) + begin
    return key_name(words[0]) if len(words) > 1 and column < shown else None


def hint_target(hint: Hint, width: int) -> Target:
    """The cells of the row with the key that each stands for: a click on its words is that key."""
    ends, end = [], 0
    for shown, words, key_id in _fitting(hint, width):
        end += (3 if end else 1) + len(shown) + 1 + len(words)
        ends.append((end, key_id))
    return Target("key", None, (*ends, (width, None)))


def _fitting(hint: Hint, width: int) -> Hint:
    kept, used = [], 0
    for entry in hint:
        need = (3 if used else 1) + len(entry[0]) + 1 + len(entry[1])
        if used + need < width:
            kept.append(entry)
            used += need
    return tuple(kept)
