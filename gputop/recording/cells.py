"""Tables of values as JSON texts, column by column, rounded as a recording keeps them.

Floats keep four significant digits, which is more than any of them is measured to; bytes and counters keep every step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import isfinite
from operator import attrgetter
from typing import Any

from gputop.recording.format import Column


def _digits(values: Iterable[Any]) -> list[str]:
    return ["null" if v is None else "0" if not v else f"{v:.4g}" if v.__class__ is float else str(v) for v in values]


def _whole(values: Iterable[Any]) -> list[str]:
    return ["null" if v is None else "0" if not v else str(round(v)) for v in values]


def _fine(values: Iterable[Any]) -> list[str]:
    """Three decimals: milliseconds, millijoules."""
    return ["null" if v is None else "0" if not v else repr(round(v, 3)) for v in values]


_NUMBERS: dict[str, Callable[[Iterable[Any]], list[str]]] = {"digits": _digits, "whole": _whole, "fine": _fine}


@lru_cache(maxsize=256)
def _quoted(value: str | bool | None) -> str:
    """A word or a flag as JSON text. States, users and reasons repeat from row to row and from tick to tick."""
    return json.dumps(value)


def _cells(values: tuple[Any, ...], column: Column) -> list[str]:
    """One column of a table as JSON texts. Words repeat a lot, so each distinct one is encoded once per call."""
    if values[0] is None and values.count(None) == len(values):
        return ["null"] * len(values)
    if column.check in ("text", "flag"):
        known: dict[Any, str] = {}
        return [known.get(v) or known.setdefault(v, json.dumps(v)) for v in values]
    write = _NUMBERS[column.rounding]
    try:
        texts = write(values)
        if _NO_NUMBERS.isdisjoint(texts):
            return texts
    except (ValueError, OverflowError):
        # A whole number cannot be made of what is not finite.
        pass
    return write([v if v is not None and isfinite(v) else None for v in values])


_NO_NUMBERS = frozenset(("nan", "inf", "-inf"))


class Table:
    """One table of a frame, column by column. What has not changed since the frame before is not written again."""

    __slots__ = ("_back", "_columns", "_kept", "_row_of")

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._row_of = attrgetter(*(column.key for column in columns))
        self._kept: dict[str, tuple[tuple[Any, ...], list[str] | None]] = {}
        """The previous frame's values by column, with their texts where those had not changed either."""
        self._back: dict[str, tuple[list[str], Sequence[Any]]] = {}
        """The texts last read back by column, and their values."""

    def written(self, samples: Iterable[Any]) -> tuple[list[tuple[Any, ...]], list[list[str]]]:
        """The values column by column, and the same as JSON texts."""
        columns = list(zip(*map(self._row_of, samples), strict=True))
        cells: list[list[str]] = []
        kept = self._kept
        for values, column in zip(columns, self._columns if columns else (), strict=True):
            before = kept.get(column.key)
            if (
                before is not None
                and before[0] == values
                and (column.rounding != "digits" or list(map(type, before[0])) == list(map(type, values)))
            ):
                # Integers keep every digit, so 123456 and 123456.0 are equal but not written alike.
                texts = before[1] or _cells(values, column)
                kept[column.key] = values, texts
            else:
                texts = _cells(values, column)
                kept[column.key] = values, None
            cells.append(texts)
        return columns, cells

    def read_back(self, columns: list[tuple[Any, ...]], cells: list[list[str]]) -> list[list[Any]]:
        """The rows that a reader of these cells gets, from what ``written`` gave."""
        back: list[Sequence[Any]] = []
        for values, texts, column in zip(columns, cells, self._columns if columns else (), strict=True):
            if column.check in ("text", "flag") or (values[0] is None and values.count(None) == len(values)):
                back.append(values)
                continue
            known = self._back.get(column.key)
            # The previous frame's text objects: ``written`` returns them again where nothing has changed.
            if known is None or known[0] is not texts:
                known = self._back[column.key] = texts, _read(values, texts, column)
            back.append(known[1])
        return list(map(list, zip(*back, strict=True)))


def _read(values: tuple[Any, ...], texts: list[str], column: Column) -> Sequence[Any]:
    """One column of numbers as a reader gets it."""
    if column.rounding == "whole":
        return [None if text == "null" else int(text) for text in texts]
    return [
        value if value.__class__ is int else None if text == "null" else float(text)
        for value, text in zip(values, texts, strict=True)
    ]


def rows_text(cells: list[list[str]]) -> str:
    """A table of JSON texts as JSON."""
    return "[[" + "],[".join(map(",".join, zip(*cells, strict=True))) + "]]" if cells else "[]"
