"""Decode labels of series once; the same ones come at every refresh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec
from msgspec import Raw

from gputop.features.fleet.fleet_reading import FleetError

T = TypeVar("T")
_LABELS = msgspec.json.Decoder(dict[str, str])


class LabelCache(Generic[T]):
    """Caches the result of ``read`` by the labels' JSON.

    Labels that were not used between two turns are forgotten: an autoscaled cluster has new names all the time.
    """

    def __init__(self, read: Callable[[Mapping[str, str]], T]) -> None:
        self._read = read
        self._value_of_labels: dict[bytes, T] = {}
        self._before: dict[bytes, T] = {}
        """Entries from before the last turn that have not been looked up since."""

    def value(self, metric: Raw) -> T:
        """The value for these labels. Raises FleetError for invalid ones."""
        raw = bytes(metric)
        if raw in self._value_of_labels:
            return self._value_of_labels[raw]
        known = self._before.pop(raw, None)
        value = self._value_of_labels[raw] = self._read(labels_of(metric)) if known is None else known
        return value

    def turn(self) -> None:
        """Forget labels that were not used since the last turn."""
        self._value_of_labels, self._before = {}, self._value_of_labels


def labels_of(metric: Raw) -> dict[str, str]:
    """The labels of a series. Raises FleetError."""
    try:
        try:
            return _LABELS.decode(metric)
        except UnicodeDecodeError:
            # Some engines pass on an exporter's text that is not UTF-8: one such label must not hide a fleet.
            return _LABELS.decode(bytes(metric).decode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        raise FleetError("an answer with labels that are not Prometheus': is this its address?") from None
