"""The words of the recording format, version 1: limits, columns, values of several parts, and lines beside frames.

Columns derive from the metric catalogue and the snapshot's fields, so a new metric is recorded by being declared.
Nothing here opens a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from gputop.model.feeders import NEVER, NOT_A_LOADER, VIAS, MainLooks, Outsider, Rule, WaitEnd, main_looks
from gputop.model.metrics import GPU_METRICS, GPU_STATE, HOST_METRICS, PROCESS_METRICS, SM_PROVENANCE
from gputop.model.quantity import MOST_TEXT, clean_text
from gputop.model.secrets import masked_text
from gputop.model.serving import MOST_SERVERS, row_value, server_row
from gputop.model.sm import COUNTERS_DENIED, COUNTERS_RELEASED, LACK_KINDS, LackKind, SmLack
from gputop.model.snapshot import (
    CgroupName,
    GpuSample,
    GpuStatic,
    HostSample,
    Lasting,
    ProcessSample,
    ProcessStatic,
    Snapshot,
)
from gputop.model.steps import BESIDE, COLUMNS, MOST_PERIODS, StepRow, is_run, period_value, step_period, step_row

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


# Checks of single values. Whatever does not follow the format raises Damage.

MOST = 2.0**64


def _reject_constant(_name: str) -> None:
    """NaN and Infinity are not JSON and mean "not measured" here."""


_DECODER = json.JSONDecoder(parse_constant=_reject_constant)


def parse_line(line: bytes) -> dict[str, Any]:
    """One line as an object. Raises Damage for anything else."""
    try:
        parsed = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        # Also what Python's json writes, and other writers with it.
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


# What stands in a recording both as a value of several parts and in words: its cell, and the value of older words.
#
# The words are for people and for older versions. Where a recording has them alone, they are taken apart here and
# nowhere else.

_MOST_PARTS = 64
_MOST_COUNT = 1e8


class TypedColumn(Struct, frozen=True):
    """``words`` is the column with the words, made of the value by the snapshot's property of the same name.

    ``cell`` turns a value into JSON. ``read`` checks a cell, and raises TypeError or ValueError for what cannot be a
    value; ``parsed`` makes what it can of words.
    """

    words: str
    cell: Callable[[Any], Any]
    read: Callable[[Any], Any]
    parsed: Callable[[str], Any]

    def value_of_words(self, words: object) -> Any:
        """What the words of an older recording say. Raises TypeError where they are none."""
        if not isinstance(words, str):
            raise TypeError("words are not a text")
        return self.parsed(clean_text(words))


def _looks_read(cell: Any) -> MainLooks:
    if not isinstance(cell, dict):
        raise TypeError("looks are not an object")
    return main_looks((state, _whole(count)) for state, count in _few(cell.items()))


def _looks_parsed(words: str) -> MainLooks:
    pairs = (part.partition(" ") for part in words.split(", "))
    return main_looks((state, int(count)) for state, _, count in pairs if count.isdecimal() and len(count) < 4)


def _outsiders_read(cell: Any) -> tuple[Outsider, ...]:
    rows = [(clean_text(user), clean_text(name), _whole(pct)) for user, name, pct in _few(cell)]
    return tuple(Outsider(user, name, float(pct)) for user, name, pct in rows)


def _outsiders_parsed(words: str) -> tuple[Outsider, ...]:
    outsiders = []
    for part in words.split("; "):
        user, _, rest = part.partition(" ")
        name, _, percent = rest.rpartition(" ")
        if name and percent.isdecimal() and len(percent) < 8:
            outsiders.append(Outsider(user, name, float(percent)))
    return tuple(outsiders)


def _ends_read(cell: Any) -> tuple[WaitEnd, ...]:
    """A way of a newer version is not known."""
    rows = [
        (via, _whole(pct), tuple(map(_whole, _few(pids))), clean_text(detail)) for via, pct, pids, detail in _few(cell)
    ]
    return tuple(
        WaitEnd(via if via in VIAS else "unknown", float(pct), pids, detail) for via, pct, pids, detail in rows
    )


def _name_read(cell: Any) -> CgroupName:
    kind, number = _few(cell)
    return CgroupName(clean_text(kind), clean_text(number))


def _name_parsed(words: str) -> CgroupName:
    kind, _, number = words.partition(" ")
    return CgroupName(kind, number)


def _lack_read(cell: Any) -> SmLack:
    reasons, fix, kind = cell
    return _lack(tuple(_few(reasons)), fix, kind)


@lru_cache(maxsize=256)
def _lack(reasons: tuple[str, ...], fix: str, kind: Any) -> SmLack:
    """Once for all the frames that say the same. A kind of a newer version is none."""
    return SmLack(tuple(map(clean_text, reasons)), clean_text(fix), kind if kind in LACK_KINDS else None)


@lru_cache(maxsize=256)
def _lack_parsed(words: str) -> SmLack:
    """All reasons as one: where one of them ends is not told by words."""
    kind: LackKind | None = None
    if words.startswith("collecting"):
        kind = "collecting"
    elif COUNTERS_RELEASED in words:
        kind = "released"
    elif COUNTERS_DENIED in words:
        kind = "denied"
    reason, _, fix = words.partition("; ")
    if not (reason and fix):
        reason, fix = words, ""
    return SmLack((reason,), fix, kind)


def rule_in(why: str) -> str | None:
    """The rule behind the words of older recordings."""
    rules: tuple[str, ...] = get_args(Rule)
    return NEVER if why.startswith(NOT_A_LOADER) else next((rule for rule in rules if why.startswith(rule)), None)


def event_parts(kind: str, words: str) -> tuple[int | None, str | None, str | None]:
    """The number of an Xid, a verdict's id and its flag, as the words of an event of this kind say them."""
    if kind == "xid":
        number = re.search(r"\d{1,9}", words, re.ASCII)
        return None if number is None else int(number[0]), None, None
    verdict, _, flag = words.partition(" ") if kind == "verdict" else ("", "", "")
    return None, verdict or None, flag or None


def _few(parts: Any) -> list[Any]:
    listed = list(parts)
    if len(listed) > _MOST_PARTS:
        raise ValueError("too many parts")
    return listed


def _whole(value: object) -> int:
    if type(value) is not int or not 0 <= value < _MOST_COUNT:
        raise ValueError("not a count")
    return value


def _name_column(words: str) -> TypedColumn:
    """Of a job or container."""
    return TypedColumn(words, lambda n: [n.kind[:MOST_TEXT], n.id[:MOST_TEXT]], _name_read, _name_parsed)


TYPED: Mapping[str, TypedColumn] = {
    "sm_lack": TypedColumn("sm_reason", lambda lack: [lack.reasons, lack.fix, lack.kind], _lack_read, _lack_parsed),
    "main_looks": TypedColumn("main_waits", lambda looks: dict(looks.counts), _looks_read, _looks_parsed),
    "waits_for": TypedColumn(
        "held_up_by",
        lambda ends: [[end.via, round(end.pct), list(end.pids), end.detail[:MOST_TEXT]] for end in ends],
        _ends_read,
        lambda words: None,
    ),
    "outsiders": TypedColumn(
        "cpu_outsiders",
        lambda outsiders: [[each.user, each.name, round(each.cpu_pct)] for each in outsiders],
        _outsiders_read,
        _outsiders_parsed,
    ),
    "batch_job": _name_column("job"),
    "contained_in": _name_column("container"),
}
"""By the name of the snapshot's field, which is that of the column."""


# The columns of host, GPUs and processes.


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


# The lines that are not frames: checked where they are read. Readers that do not know one skip it.

_MOST_STEP_ROWS = 8192


class RowLine(Struct, frozen=True):
    """A line of rows before a frame: how a row is written, and read again, None where it cannot be true."""

    most_rows: int
    value_of: Callable[[Any], Any]
    row_of: Callable[..., Any]


def _step_value(row: StepRow) -> tuple[Any, ...]:
    return astuple(row)[: len(COLUMNS)]


def _step_row(values: object, *optional: object) -> StepRow | None:
    return step_row(values, **dict(zip(BESIDE, optional, strict=True))) if isinstance(values, list) else None


_SINCE = ("quiet_since", "little_tensor_since", "degraded_since")
"""The times of a row, Unix seconds."""


def _lasting_value(row: Lasting) -> dict[str, Any]:
    return {"gpu": row.gpu, **{key: round(t, 3) for key in _SINCE if (t := getattr(row, key)) is not None}}


def _lasting_row(recorded: object) -> Lasting | None:
    if not isinstance(recorded, dict) or (gpu := checked(recorded.get("gpu"), "whole")) is None:
        return None
    times = {key: checked(recorded.get(key), "number") for key in _SINCE}
    return Lasting(gpu, **{key: None if t is None else float(t) for key, t in times.items()})


ROW_LINES: Mapping[str, RowLine] = {
    "steps": RowLine(_MOST_STEP_ROWS, _step_value, _step_row),
    "servers": RowLine(MOST_SERVERS, row_value, server_row),
    # Of steps seen from outside the values, because a file may not hold the samples that they come from.
    "periods": RowLine(MOST_PERIODS, period_value, step_period),
    # At the head of a member: since when what holds has held. The frames before it may be elsewhere.
    "lasting": RowLine(MOST_GPUS, _lasting_value, _lasting_row),
}
"""By the kind of the line, which is the snapshot's field: steps, inference servers, and what was concluded."""


def line_beside(kind: str, snapshot: Snapshot) -> dict[str, Any]:
    """The line of one kind for a snapshot."""
    rows = getattr(snapshot, kind)
    value = {"k": kind, "t": round(snapshot.t, 3), "rows": [ROW_LINES[kind].value_of(row) for row in rows]}
    if kind == "steps":
        # Samples and waits, where a job tells them.
        optional = {key: [getattr(row, key) for row in snapshot.steps] for key in BESIDE}
        value |= {key: values for key, values in optional.items() if any(value is not None for value in values)}
    return value


def rows_beside(kind: str, parsed: dict[str, Any]) -> tuple[Any, ...]:
    """The rows of such a line. Raises Damage."""
    line = ROW_LINES[kind]
    recorded = rows_of(parsed, "rows", line.most_rows)
    optional = [_beside(parsed.get(key), len(recorded)) for key in BESIDE] if kind == "steps" else []
    rows = tuple(map(line.row_of, recorded, *optional))
    if None in rows:
        raise Damage(f"{kind} that cannot be")
    return rows


def _beside(values: object, count: int) -> list[Any]:
    """One value for each row; where their number differs, none."""
    return values if isinstance(values, list) and len(values) == count else [None] * count


# The last line of a recording of a program: what ran, how long, and how it ended.

MOST_COMMAND = 1000
_MOST_S = 1e10
_STATUSES = range(256)


class RunFacts(Struct, frozen=True):
    """``command`` with its secrets masked, or the name of a program that watches itself; ``seconds`` of wall time;
    ``exit_code`` as a shell has it, None where the end was not seen."""

    command: str
    seconds: float
    exit_code: int | None = None
    run: str = ""
    """The identity of the program's own run among the announced steps; empty where another program recorded it."""


def run_value(facts: RunFacts) -> dict[str, Any]:
    """The line that says what ran."""
    exit_code = {} if facts.exit_code is None else {"exit_code": facts.exit_code}
    run = {"run": facts.run} if facts.run else {}
    seconds = round(facts.seconds, 3)
    return {"k": "run", "command": facts.command[:MOST_COMMAND], "seconds": seconds, **run, **exit_code}


def run_facts(parsed: Mapping[str, Any]) -> RunFacts:
    """What such a line says. Raises Damage."""
    command, seconds, code = (parsed.get(key) for key in ("command", "seconds", "exit_code"))
    run = parsed.get("run", "")
    is_time = isinstance(seconds, (int, float)) and isfinite(seconds) and 0.0 <= seconds <= _MOST_S
    if not (isinstance(command, str) and is_time and (code is None or code in _STATUSES) and is_run(run)):
        raise Damage("a run that cannot be")
    return RunFacts(masked_text(clean_text(command))[:MOST_COMMAND], float(seconds or 0.0), code, run)
