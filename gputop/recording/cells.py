"""Tables of values as JSON texts, column by column, rounded as a recording keeps them.

Floats keep four significant digits, which is more than any of them is measured to; bytes and counters keep every step.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from gputop.recording.format import Column


def _digits(values: Iterable[Any]) -> list[str]:
    return ["null" if v is None else "0" if not v else f"{v:.4g}" if v.__class__ is float else str(v) for v in values]


def _whole(values: Iterable[Any]) -> list[str]:
    return ["null" if v is None else "0" if not v else str(round(v)) for v in values]


def _fine(values: Iterable[Any]) -> list[str]:
    """Three decimals: milliseconds, millijoules."""
    return ["null" if v is None else "0" if not v else repr(round(v, 3)) for v in values]


_NUMBERS: dict[str, Callable[[Iterable[Any]], list[str]]] = {"digits": _digits, "whole": _whole, "fine": _fine}


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


_SHORT = 10_000
"""Numbers below it are written alike whether they are integers or floats."""


def _types(values: tuple[Any, ...], column: Column) -> list[type] | None:
    """The types of numbers that are not written alike: integers keep every digit."""
    if column.rounding != "digits" or column.check not in ("number", "whole"):
        return None
    if all(v is None or -_SHORT < v < _SHORT for v in values):
        return None
    return list(map(type, values))


class Table:
    """One table of a frame, column by column. What has not changed since the frame before is not written again."""

    __slots__ = ("_back", "_columns", "_kept")

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._kept: list[tuple[tuple[Any, ...], list[type] | None, list[str] | None]]
        """The previous frame's values by column, see ``_types``, and the texts where those had not changed either."""
        self._kept = [((), None, None)] * len(columns)
        self._back: list[tuple[object, Sequence[Any]]] = [(None, ())] * len(columns)
        """What was last read back by column: the texts or values from which, and the values."""

    def written(self, columns: Sequence[tuple[Any, ...]]) -> tuple[list[tuple[Any, ...]], list[list[str]]]:
        """The values column by column, and the same as JSON texts. No columns where there are no rows.

        Where a column is as it was, its values and, from then on, its texts are the very objects of the frame before.
        """
        values: list[tuple[Any, ...]] = []
        cells: list[list[str]] = []
        kept = self._kept
        for place, (given, column) in enumerate(zip(columns, self._columns if columns else (), strict=True)):
            before, types, texts = kept[place]
            if before == given and (types is None or types == list(map(type, given))):
                given = before
                if texts is None:
                    texts = _cells(given, column)
                    kept[place] = given, types, texts
            else:
                texts = _cells(given, column)
                kept[place] = given, _types(given, column), None
            values.append(given)
            cells.append(texts)
        return values, cells

    def read_back(self, columns: list[tuple[Any, ...]], cells: list[list[str]]) -> list[Sequence[Any]]:
        """The columns that a reader of these cells gets, from what ``written`` gave.

        One that is as it was is the very object of the frame before.
        """
        back: list[Sequence[Any]] = []
        for place, (values, texts, column) in enumerate(
            zip(columns, cells, self._columns if columns else (), strict=True)
        ):
            # What is no number is read as it was written.
            source: Sequence[Any] = values if column.check in ("text", "flag") else texts
            known, read = self._back[place]
            if known is not source:
                read = values if source is values else _read(values, texts, column)
                self._back[place] = source, read
            back.append(read)
        return back


def _read(values: tuple[Any, ...], texts: list[str], column: Column) -> Sequence[Any]:
    """One column of numbers as a reader gets it."""
    if column.rounding == "whole":
        return [None if text == "null" else int(text) for text in texts]
    return [
        value if value.__class__ is int else None if text == "null" else float(text)
        for value, text in zip(values, texts, strict=True)
    ]


class FrameColumns(Struct, frozen=True):
    """One frame as a reader gets it: the columns of host, GPUs and processes, and what else its line says."""

    host: list[Sequence[Any]]
    gpus: list[Sequence[Any]]
    processes: list[Sequence[Any]]
    rest: dict[str, Any]


def columns_of_rows(samples: Iterable[Struct]) -> list[tuple[Any, ...]]:
    """The fields of samples of one class, field by field; nothing where there is no sample."""
    return list(zip(*map(astuple, samples), strict=True))


def rows_text(cells: list[list[str]]) -> str:
    """A table of JSON texts as JSON."""
    return "[[" + "],[".join(map(",".join, zip(*cells, strict=True))) + "]]" if cells else "[]"
