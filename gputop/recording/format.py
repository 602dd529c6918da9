"""The words of the recording format, version 1: columns and limits.

Columns derive from the metric catalogue and the snapshot's fields, so a new metric is recorded by being declared.
Nothing here opens a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import hypot
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import astuple

from gputop.model.metrics import GPU_METRICS, GPU_STATE, HOST_METRICS, PROCESS_METRICS, SM_PROVENANCE
from gputop.model.quantity import clean_text
from gputop.model.snapshot import (
    NOTHING_MISSING,
    GpuSample,
    GpuStatic,
    HostSample,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.model.steps import BESIDE, COLUMNS, StepRow, step_row
from gputop.recording.typed_cells import TYPED, TypedColumn

VERSION = 1
MEMBER_FRAMES = 60
"""Frames in one gzip member: what a flipped byte can cost at most."""
MOST_LINE_BYTES = 2 << 20
"""A longer line is damage: parsed JSON takes up to 21 times its text, and reading must stay below 200 MB."""
MOST_GPUS = 256
MOST_PROCESSES = 4096
SUFFIXES = (".jsonl.gz", ".jsonl")

Rounding = Literal["digits", "whole", "fine"]
Check = Literal["number", "whole", "flag", "text", "typed"]


class RecordingError(Exception):
    """A recording cannot be read or written. One line of text: which file, what is wrong, how to fix it."""


class Damage(Exception):
    """A line that does not follow the format. The reader counts it and goes on."""


class RecordedColumn(Struct, frozen=True):
    """One column of a row: the snapshot's field, what its values must be, how floats are rounded, what absence is.

    ``typed`` is the form of one whose values have several parts. ``path`` is where in its sample the value stands.
    """

    key: str
    check: Check
    rounding: Rounding
    default: Any
    typed: TypedColumn | None = None
    path: str = ""


_CHECKS: dict[str, Check] = {
    "float | None": "number",
    "int": "whole",
    "int | None": "whole",
    "bool | None": "flag",
    "str": "text",
    "str | None": "text",
    "Role": "text",
    "SmSource": "text",
}
_METRICS = {**GPU_METRICS, **SM_PROVENANCE, **GPU_STATE, **HOST_METRICS, **PROCESS_METRICS}


def _rounding(key: str) -> Rounding:
    """Four digits would erase single bytes of memory, and the steps of counters and times."""
    metric = _METRICS.get(key)
    if metric is not None and metric.unit == "bytes":
        return "whole"
    return "fine" if key == "lost_since" or (metric is not None and metric.kind == "counter") else "digits"


def columns_of(kind: type[Any]) -> tuple[RecordedColumn, ...]:
    """The recorded fields of a class of the snapshot, in the order in which it declares them: those of its rows."""
    # Defaults belong to the last fields. Asking for the fields' types would resolve every annotation at each start.
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    return tuple(
        RecordedColumn(name, "typed", "digits", defaults.get(name), typed)
        if (typed := TYPED.get(name)) is not None
        else RecordedColumn(name, _CHECKS[kind.__annotations__[name]], _rounding(name), defaults.get(name))
        for name in kind.__struct_fields__
        if name not in ("static", "feed", "main", "unavailable", "doubts")
    )


def _process_columns() -> tuple[RecordedColumn, ...]:
    """Those of a process in the catalogue's order: the parts of its time are columns of their own, among the others."""
    whole = {c.typed.words if c.typed is not None else c.key: c for c in columns_of(ProcessSample)}
    return tuple(
        whole[key] if key in whole else RecordedColumn(key, "number", "digits", None, path=metric.path)
        for key, metric in PROCESS_METRICS.items()
    )


def written(columns: Sequence[RecordedColumn]) -> tuple[RecordedColumn, ...]:
    """These columns, and those that say typed ones in words, for versions that know the words alone."""
    words = (RecordedColumn(c.typed.words, "text", "digits", None) for c in columns if c.typed is not None)
    return (*columns, *words)


GPU_COLUMNS = columns_of(GpuSample)
PROCESS_COLUMNS = _process_columns()
HOST_COLUMNS = columns_of(HostSample)
GPU_FACTS = columns_of(GpuStatic)
PROCESS_FACTS = columns_of(ProcessStatic)


# Checks of what a recording says: one value, one row of facts, one whole table of cells.
#
# Nothing here knows lines or time. Whatever does not follow the format raises Damage.

_MOST = 2.0**64
_MOST_REASONS = 128
_MOST_KNOWN_TEXTS = 4096
_WHOLE = frozenset({int, type(None)})
_FLAG = frozenset({bool, type(None)})


class Layout(Struct, frozen=True):
    """How rows of one kind map to a class: places of known columns by check, and what fills each field.

    ``typed`` are the places whose cells become values of several parts, each with what makes them.
    """

    width: int
    numbers: tuple[int, ...]
    wholes: tuple[int, ...]
    flags: tuple[int, ...]
    texts: tuple[int, ...]
    typed: tuple[tuple[int, Callable[[Any], Any]], ...]
    sources: tuple[tuple[int | None, Any], ...]


def layout_of(names: object, columns: Sequence[RecordedColumn]) -> Layout:
    """Where a recording's columns, by their names, go among the known ones. Raises Damage."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise Damage("columns are not a list of names")
    places = {name: place for place, name in enumerate(names)}
    checked_places: list[tuple[int, Check]] = []
    typed: list[tuple[int, Callable[[Any], Any]]] = []
    for c in columns:
        if c.key in places:
            checked_places.append((places[c.key], c.check))
            if c.typed is not None:
                typed.append((places[c.key], c.typed.read))
        elif c.typed is not None and c.typed.words in places:
            # A recording from before the typed column was.
            places[c.key] = places[c.typed.words]
            checked_places.append((places[c.key], "text"))
            typed.append((places[c.key], c.typed.parsed))
    by_check = {
        check: tuple(place for place, of in checked_places if of == check)
        for check in ("number", "whole", "flag", "text")
    }
    sources = tuple((places.get(c.key), c.default) for c in columns)
    return Layout(
        len(names), by_check["number"], by_check["whole"], by_check["flag"], by_check["text"], tuple(typed), sources
    )


def _reject_constant(_name: str) -> None:
    """NaN and Infinity are not JSON and mean "not measured" here."""


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def parse_line(line: bytes) -> dict[str, Any]:
    """One line as an object. Raises Damage for anything else."""
    try:
        parsed = _DECODER.decode(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise Damage("not a line of JSON") from error
    if not isinstance(parsed, dict):
        raise Damage("not an object")
    return parsed


def number(value: object) -> float:
    """A number of believable size. Raises Damage for anything else."""
    if isinstance(value, (int, float)) and -_MOST < value < _MOST:
        return value
    raise Damage("not a number")


def checked(value: object, check: str) -> Any:
    """One value of a slow path: a static fact, or a cell of a column in which something is odd. None stays None."""
    if value is None:
        return None
    if check == "text":
        if isinstance(value, str):
            return clean_text(value)
    elif check == "flag":
        if isinstance(value, (bool, int)) and value in (0, 1):
            return bool(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        # 1e999 parses to infinity, which no device can have measured: like NaN, it counts as not measured.
        if not -_MOST < value < _MOST:
            return None
        if check == "number":
            return value
        if value == int(value):
            return int(value)
    raise Damage(f"a value is not a {check}")


def facts_of(recorded: object, columns: Sequence[RecordedColumn]) -> dict[str, Any]:
    """Checked facts by key, None where missing. Raises Damage."""
    if not isinstance(recorded, dict):
        raise Damage("facts are not an object")
    return {c.key: _fact(recorded, c) for c in columns}


def _fact(recorded: Mapping[str, Any], column: RecordedColumn) -> Any:
    typed = column.typed
    if typed is None:
        return checked(recorded.get(column.key), column.check)
    cell, words = recorded.get(column.key), checked(recorded.get(typed.words), "text")
    try:
        return typed.read(cell) if cell is not None else words and typed.parsed(words)
    except (TypeError, ValueError, AttributeError) as error:
        raise Damage(f"{column.key} of wrong parts") from error


def words_of(reasons: object) -> Mapping[str, str]:
    """A map of reasons by key."""
    if not isinstance(reasons, dict) or len(reasons) > _MOST_REASONS:
        raise Damage("reasons are not an object of texts")
    words = {}
    for key, reason in reasons.items():
        if not isinstance(reason, str):
            raise Damage("a reason is not a text")
        words[clean_text(key)] = clean_text(reason)
    return MappingProxyType(words) if words else NOTHING_MISSING


class RecordedTable:
    """Rows of cells turned into checked columns. Remembers which texts are clean, so that they are not read again."""

    def __init__(self) -> None:
        self._texts: set[str | None] = {None}

    def columns(self, rows: object, layout: Layout, most_rows: int) -> list[Sequence[Any]]:
        """The columns of one to ``most_rows`` rows. Raises Damage or TypeError for cells of wrong kinds."""
        if not isinstance(rows, list) or len(rows) > most_rows or not rows:
            raise Damage("rows are not a list")
        if set(map(type, rows)) != {list} or set(map(len, rows)) != {layout.width}:
            raise Damage("rows do not fit the columns")
        return self._checked(list(zip(*rows, strict=True)), layout)

    def _checked(self, columns: list[Sequence[Any]], layout: Layout) -> list[Sequence[Any]]:
        """The columns, all checked: what is no such value is made one."""
        groups: list[tuple[Check, Sequence[int]]] = [
            ("number", layout.numbers),
            ("whole", layout.wholes),
            ("flag", layout.flags),
            ("text", layout.texts),
        ]
        numbers, wholes, flags, texts = ([columns[place] for place in places] for _, places in groups)
        if not self._sound(numbers, wholes, flags, texts):
            for check, places in groups:
                for place in places:
                    columns[place] = [checked(value, check) for value in columns[place]]
        for place, value_of in layout.typed:
            columns[place] = [None if cell is None else value_of(cell) for cell in columns[place]]
        return columns

    def _sound(self, *groups: Sequence[Sequence[Any]]) -> bool:
        """Whether every cell is of its kind, finite and small: columns of numbers, whole numbers, flags and texts.

        All numbers are checked in one call: no magnitude exceeds the Euclidean norm, which refuses non-numbers.
        """
        numbers, wholes, flags, texts = map(chain.from_iterable, groups)
        words = set(texts)
        if not words <= self._texts:
            if len(self._texts) > _MOST_KNOWN_TEXTS:
                self._texts = {None}
            self._texts.update(text for text in words if isinstance(text, str) and clean_text(text) == text)
            if not words <= self._texts:
                return False
        counts = list(wholes)
        if not (_WHOLE.issuperset(map(type, counts)) and _FLAG.issuperset(map(type, flags))):
            return False
        return hypot(*[v for v in chain(counts, numbers) if v is not None]) < _MOST


# The line of steps in a recording: at most one a frame, before it. Readers that do not know it skip it.

_MOST_ROWS = 8192


def steps_value(snapshot: Snapshot) -> dict[str, Any]:
    """The announced steps: rows, and beside them samples and waits, where a job tells them."""
    rows = [astuple(row)[: len(COLUMNS)] for row in snapshot.steps]
    optional = {key: [getattr(row, key) for row in snapshot.steps] for key in BESIDE}
    announced = {key: values for key, values in optional.items() if any(value is not None for value in values)}
    return {"k": "steps", "t": round(snapshot.t, 3), "rows": rows, **announced}


def step_rows(parsed: Mapping[str, Any]) -> tuple[StepRow, ...]:
    """The rows of such a line. Raises Damage."""
    recorded = parsed.get("rows")
    if not isinstance(recorded, list) or len(recorded) > _MOST_ROWS:
        raise Damage("steps are not a list")
    optional_columns = [_optional_column(parsed.get(key), len(recorded)) for key in BESIDE]
    rows = [
        step_row(values, *optional) if isinstance(values, list) else None
        for values, *optional in zip(recorded, *optional_columns, strict=True)
    ]
    step_rows_read = tuple(row for row in rows if row is not None)
    if len(step_rows_read) != len(rows):
        raise Damage("steps that cannot be")
    return step_rows_read


def _optional_column(values: object, count: int) -> Sequence[object]:
    """One value for each row; where their number differs, none."""
    return values if isinstance(values, list) and len(values) == count else [None] * count
