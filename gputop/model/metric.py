"""One row of the metric catalogue, and short ways to write the usual kinds of row."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Unit = Literal["pct", "bytes", "bytes/s", "W", "J", "C", "MHz", "s", "count", "flags", "bool", "text", "id"]
Kind = Literal["gauge", "counter", "ratio", "fact"]


class Metric(Struct, frozen=True):
    """One row of the catalogue. ``low`` and ``high`` bound a believable value; None means unbounded.

    ``history``: remembered, so that charts can show its past. ``seldom``: slow to answer and slow to change, so it is
    read only every few seconds. ``glossary``: explained in the help. ``activity``: only a source of SM activity
    can give it, and what two sources gave is never mixed.
    """

    key: str
    unit: Unit
    kind: Kind
    label: str
    definition: str
    low: float | None = None
    high: float | None = None
    decimals: int = 0
    dcgm: str | None = None
    origin: str | None = None
    history: bool = False
    seldom: bool = False
    glossary: bool = False
    activity: bool = False

    def is_valid(self, value: float) -> bool:
        """Whether a finite number lies inside the metric's bounds (NaN never does)."""
        return value == value and (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


def pct(
    key: str, label: str, definition: str, dcgm: str | None = None, origin: str | None = None, **flags: bool
) -> Metric:
    """A percentage, 0 to 100."""
    return Metric(key, "pct", "ratio", label, definition, 0.0, 100.0, 0, dcgm, origin, **flags)


def gauge(
    key: str, unit: Unit, label: str, definition: str, dcgm: str | None = None, origin: str | None = None, **flags: bool
) -> Metric:
    """A value that rises and falls, never below 0."""
    return Metric(key, unit, "gauge", label, definition, 0.0, None, 0, dcgm, origin, **flags)


def count(
    key: str, unit: Unit, label: str, definition: str, dcgm: str | None = None, origin: str | None = None, **flags: bool
) -> Metric:
    """A counter, which only rises until it is reset."""
    return Metric(key, unit, "counter", label, definition, 0.0, None, 0, dcgm, origin, **flags)


def fact(key: str, unit: Unit, label: str, definition: str, origin: str | None = None, **flags: bool) -> Metric:
    """Something that stays the same while it is watched."""
    return Metric(key, unit, "fact", label, definition, None, None, 0, None, origin, **flags)


def table(*rows: Metric) -> dict[str, Metric]:
    """The rows by key, in their order."""
    return {row.key: row for row in rows}
