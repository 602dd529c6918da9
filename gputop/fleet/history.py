"""A host's GPUs over time, in columns of a chart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gputop.fleet.decode import Identity

History = Mapping[str, tuple[Sequence[float | None], Sequence[float | None]]]
"""GPU → utilisation and SM activity in percent, a value a column, the oldest first; None where nothing was measured."""


def columns_of(
    points: Iterable[tuple[float, Identity | None, float]], t: float, span_s: float, columns: int
) -> dict[str, list[float | None]]:
    """(Unix time, GPU, value) in so many columns of the ``span_s`` seconds before ``t``."""
    step = span_s / columns
    found: dict[str, list[float | None]] = {}
    for moment, who, value in points:
        if who is None:
            continue
        at = round((moment - (t - span_s)) / step) - 1
        if 0 <= at < columns:
            found.setdefault(who.gpu, [None] * columns)[at] = value
    return found
