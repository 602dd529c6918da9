"""The owner of a series, looked up by its labels as they came over the wire.

Thousands of series have the same labels at every refresh: they are parsed once and then known by their bytes. Those of
hosts and jobs that are gone are forgotten: an autoscaled cluster has new names all the time.
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
    """Caches what ``read`` makes of labels. ``of`` raises FleetError for invalid labels."""

    def __init__(self, read: Callable[[Mapping[str, str]], T]) -> None:
        self._read = read
        self._found: dict[bytes, T] = {}
        self._before: dict[bytes, T] = {}
        """Entries from before the last turn that have not been looked up since."""

    def of(self, metric: Raw) -> T:
        """The value for these labels."""
        raw = bytes(metric)
        try:
            return self._found[raw]
        except KeyError:
            pass
        if len(self._found) >= MOST_KEPT:
            self.turn()
        found = self._found[raw] = self._before.pop(raw) if raw in self._before else self._read(labels_of(metric))
        return found

    def turn(self) -> None:
        """Forget what was not looked up since the last turn."""
        self._found, self._before = {}, self._found

    def __len__(self) -> int:
        return len(self._found) + len(self._before)


def labels_of(metric: Raw) -> dict[str, str]:
    """The labels of a series. Raises FleetError."""
    try:
        try:
            return _LABELS.decode(metric)
        except UnicodeDecodeError:
            # Some engines pass on an exporter's text that is not UTF-8: one such label must not hide a fleet.
            return _LABELS.decode(bytes(metric).decode(errors="replace"))
    except msgspec.DecodeError:
        raise FleetError("an answer with labels that are not Prometheus': is this its address?") from None
