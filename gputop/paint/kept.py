"""Painted parts of a screen, reused while what they show stays the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any, TypeVar

from gputop.diagnosis.types import GpuDiagnosis

T = TypeVar("T")

_NOT_SHOWN = ("verdict", "seconds", "timeline")
"""The verdict's id, whose title is shown; sums of time, which grow at every tick; and what was before."""
shown_of = attrgetter(*(name for name in GpuDiagnosis.__struct_fields__ if name not in _NOT_SHOWN))
"""What the main screen shows of a diagnosis."""


class Kept:
    """The parts of the frame painted last, by their place. ``turn`` begins a new frame.

    ``shows`` must be everything that painting a part reads: it is compared by value, and nothing else is.
    """

    __slots__ = ("_before", "_now")

    def __init__(self) -> None:
        self._before: dict[Hashable, tuple[object, Any]] = {}
        self._now: dict[Hashable, tuple[object, Any]] = {}

    def turn(self) -> None:
        """Begin a new frame: parts that the last one did not use are dropped."""
        self._before, self._now = self._now, {}

    def part(self, place: Hashable, shows: object, paint: Callable[[], T]) -> T:
        """The part at a place: painted now, unless it shows the same as before."""
        known = self._now.get(place) or self._before.get(place)
        if known is None or known[0] != shows:
            known = (shows, paint())
        self._now[place] = known
        painted: T = known[1]
        return painted
