"""The words of the recording format, version 1: columns, limits, and what one value of a line may be.

Columns derive from the metric catalogue and the snapshot's fields, so a new metric is recorded by being declared.
Nothing here opens a file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from gputop.model.metrics import GPU_METRICS, GPU_STATE, HOST_METRICS, PROCESS_METRICS, SM_PROVENANCE
from gputop.model.quantity import clean_text
from gputop.model.snapshot import GpuSample, GpuStatic, HostSample, ProcessSample, ProcessStatic
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


# Checks of single values. Whatever does not follow the format raises Damage.

MOST = 2.0**64


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


def rows_of(parsed: dict[str, Any], key: str, most: int) -> list[Any]:
    """The list of at most so many rows under a key; an empty one where there is none. Raises Damage."""
    rows = parsed.get(key, [])
    if not isinstance(rows, list) or len(rows) > most:
        raise Damage(f"{key} is not a list of rows")
    return rows


def number(value: object) -> float:
    """A number of believable size. Raises Damage for anything else."""
    if isinstance(value, (int, float)) and -MOST < value < MOST:
        return value
    raise Damage("not a number")


def checked(value: object, check: Check) -> Any:
    """One value: a fact, or a cell of a frame in which something is odd. None stays None."""
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
        if not -MOST < value < MOST:
            return None
        if check == "number":
            return value
        if value == int(value):
            return int(value)
    raise Damage(f"a value is not a {check}")
