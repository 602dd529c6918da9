"""A ring buffer of samples: times and named values, packed into arrays.

A missing value is NaN inside, and readers must turn it into None.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import nan

from gputop.model.snapshot import GAP_INTERVALS


class Ring:
    """Ring buffer of times and named values.

    Its arrays grow to a fixed capacity and are then overwritten in a circle.
    """

    __slots__ = ("capacity", "count", "places", "spans", "times", "values")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.count = 0
        self.times = array("d")
        self.spans = array("f")
        """Seconds that each sample covers, up to its time."""
        self.places: dict[str, int] = {}
        """The index of each name among the values of a sample."""
        self.values = array("f")
        """The values of a sample are adjacent, so that a new sample is one write."""

    def push(self, t: float, values: Mapping[str, float | None], interval_s: float) -> None:
        slot = self.count % self.capacity
        since = t - self.times[slot - 1] if self.count else 0.0
        span = since if 0.0 < since <= GAP_INTERVALS * interval_s else interval_s
        if not values.keys() <= self.places.keys():
            self._widen(values)
        numbers = list(map(values.get, self.places))
        row = array("f", [nan if v is None else v for v in numbers])
        if len(self.times) <= slot:
            self.times.append(t)
            self.spans.append(span)
            self.values += row
        else:
            self.times[slot] = t
            self.spans[slot] = span
            self.values[slot * len(row) : (slot + 1) * len(row)] = row
        self.count += 1

    def _widen(self, names: Iterable[str]) -> None:
        """Make room for names that are new."""
        before, width = self.values, len(self.places)
        for name in names:
            self.places.setdefault(name, len(self.places))
        unknown = array("f", [nan]) * (len(self.places) - width)
        self.values = array("f")
        for slot in range(len(self.times)):
            self.values += before[slot * width : (slot + 1) * width] + unknown

    def since(self, sequence: int) -> Iterator[int]:
        """Yield slots of samples from a sequence number on, oldest first."""
        for i in range(max(sequence, self.count - len(self.times)), self.count):
            yield i % self.capacity

    def newest(self, name: str, count: int) -> Sequence[float]:
        """Return the newest ``count`` values of one name.

        Values are in slot order, NaN if missing.
        """
        width, end = len(self.places), self.count % self.capacity or len(self.times)
        begin, place = end - count, self.places[name]
        if begin >= 0:
            return self.values[begin * width + place : end * width : width]
        return (
            self.values[place : end * width : width] + self.values[begin * width + place :: width]
        )

    def series(self, name: str) -> Sequence[float] | None:
        """Return the values of one name by slot.

        NaN if missing; None for an unknown name.
        """
        place = self.places.get(name)
        return None if place is None else self.values[place :: len(self.places)]
