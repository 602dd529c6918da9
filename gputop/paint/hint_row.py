"""The last row of the screen: the GPU to look at first, and the keys that lead to all the others."""

from __future__ import annotations

from collections.abc import Iterable

from gputop.diagnosis.types import STATE_WORDS
from gputop.diagnosis.verdict.summary import named_trouble
from gputop.model.durations import duration
from gputop.model.quantity import gib
from gputop.monitor import Frame
from gputop.paint.keys import Key
from gputop.paint.line import Line
from gputop.paint.view import Hint, View
from gputop.paint.words import gpu_label

WORDS = (
    ("help", "help"),
    ("palette", "every command"),
    ("quit", "quit"),
)
GAP = "   "
"""What stands between the keys of a last row."""
TOUR = ("tour", "the tour")
LEAST_HEIGHT = 16
"""A screen with fewer rows needs its last row for something else."""


def hint_of(keys: Iterable[Key], *, tour: bool = False) -> Hint:
    """Return the hint with the commands' present keys.

    The tour is in it where there is one.
    """
    shown = {key.id: key.first for key in keys}
    words = (TOUR, *WORDS) if tour else WORDS
    return tuple((shown[key_id], does, key_id) for key_id, does in words if shown.get(key_id))


def last_hint(frame: Frame, view: View) -> Hint:
    """Return the hint of a frame, worst GPU first.

    A click selects that GPU.
    """
    words = look_first_words(frame)
    return ((LOOK_FIRST, words, "release"), *view.hint) if words else view.hint


LOOK_FIRST, IDLE = "look first:", STATE_WORDS["idle"]


def look_first_words(frame: Frame) -> str:
    """Return ``GPU 7, idle for 13 min, holds 29 GiB``.

    Empty where no GPU is in trouble.
    """
    pairs = zip(frame.shown.gpus, frame.diagnoses, strict=True)
    gpu, d = next(((gpu, d) for gpu, d in pairs if d.uuid == frame.look_first), (None, None))
    if gpu is None or d is None:
        return ""
    named = named_trouble(d)
    held = f", holds {gib(gpu.mem_used_bytes)} GiB" if named.title == IDLE else ""
    lasts = f" for {duration(named.lasted_s, whole=True)}" if named.lasted_s else ""
    return f"GPU {gpu_label(gpu)}, {named.title}{lasts}{held}"


def hint_line(hint: Hint, width: int) -> Line:
    """Return as many keys as fit, each a click away."""
    line = Line()
    for shown, words, key_id in hint:
        apart = GAP if line.width else " "
        if line.width + len(apart) + len(shown) + 1 + len(words) < width:
            line.add(apart).add(shown, "key", key_id).add(f" {words}", "text", key_id)
    return line
