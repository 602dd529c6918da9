"""Whose a series is, looked up by its labels as they came over the wire.

Labels of thousands of series are the same at every refresh: they are read once, and then known by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

from gputop.fleet.reading import FleetError

MOST_KEPT = 200_000
T = TypeVar("T")
_LABELS = msgspec.json.Decoder(dict[str, str])


class Remembered(Generic[T]):
    """What ``read`` makes of labels, remembered. ``of`` raises FleetError for labels that are none."""

    def __init__(self, read: Callable[[Mapping[str, str]], T]) -> None:
        self._read = read
        self._found: dict[bytes, T] = {}

    def of(self, metric: Raw) -> T:
        """What these labels say."""
        raw = bytes(metric)
        try:
            return self._found[raw]
        except KeyError:
            pass
        if len(self._found) >= MOST_KEPT:
            self._found.clear()
        found = self._found[raw] = self._read(labels_of(metric))
        return found


def labels_of(metric: Raw) -> dict[str, str]:
    """The labels of a series. Raises FleetError."""
    try:
        return _LABELS.decode(metric)
    except msgspec.DecodeError:
        raise FleetError("an answer with labels that are not Prometheus': is this its address?") from None
