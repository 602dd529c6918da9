"""The lines of a recording that are not frames: checked where they are read. Readers that do not know one skip it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.model.serving import MOST_SERVERS, row_value, server_row
from gputop.model.snapshot import Lasting, Snapshot
from gputop.model.steps import BESIDE, COLUMNS, MOST_PERIODS, StepRow, period_value, step_period, step_row
from gputop.recording.format import MOST_GPUS, Damage, checked, rows_of

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


def run_value(facts: RunFacts) -> dict[str, Any]:
    """The line that says what ran."""
    exit_code = {} if facts.exit_code is None else {"exit_code": facts.exit_code}
    return {"k": "run", "command": facts.command[:MOST_COMMAND], "seconds": round(facts.seconds, 3), **exit_code}


def run_facts(parsed: Mapping[str, Any]) -> RunFacts:
    """What such a line says. Raises Damage."""
    command, seconds, code = (parsed.get(key) for key in ("command", "seconds", "exit_code"))
    is_time = isinstance(seconds, (int, float)) and isfinite(seconds) and 0.0 <= seconds <= _MOST_S
    if not (isinstance(command, str) and is_time and (code is None or code in _STATUSES)):
        raise Damage("a run that cannot be")
    return RunFacts(masked_text(clean_text(command))[:MOST_COMMAND], float(seconds or 0.0), code)
