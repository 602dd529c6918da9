"""The lines of a recording that are not frames: checked where they are read. Readers that do not know one skip it."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from msgspec import Struct

from gputop.model.quantity import clean_text
from gputop.model.secrets import masked_text
from gputop.model.serving import MOST_SERVERS, ServerRow, row_value, server_row
from gputop.model.snapshot import Lasting, Snapshot
from gputop.model.steps import MOST_PERIODS, StepPeriod, period_value, step_period
from gputop.recording.format import MOST_GPUS, Damage, checked

# At the head of a member: since when what holds has held. The frames before it may be elsewhere.

SINCE = ("quiet_since", "little_tensor_since", "degraded_since")
"""The times of a row, Unix seconds."""


def lasting_value(snapshot: Snapshot) -> dict[str, Any]:
    """What had lasted at a frame. Absent is what does not hold."""
    rows = [
        {"gpu": row.gpu, **{key: round(t, 3) for key in SINCE if (t := getattr(row, key)) is not None}}
        for row in snapshot.lasting
    ]
    return {"k": "lasting", "t": round(snapshot.t, 3), "rows": rows}


def lasting_rows(parsed: Mapping[str, Any]) -> tuple[Lasting, ...]:
    """The rows of such a line. Raises Damage."""
    recorded = parsed.get("rows")
    if not isinstance(recorded, list) or len(recorded) > MOST_GPUS:
        raise Damage("what lasts is not a list")
    return tuple(map(_row, recorded))


def _row(recorded: object) -> Lasting:
    if not isinstance(recorded, dict) or (gpu := checked(recorded.get("gpu"), "whole")) is None:
        raise Damage("what lasts names no GPU")
    times = {key: checked(recorded.get(key), "number") for key in SINCE}
    return Lasting(gpu, **{key: None if t is None else float(t) for key, t in times.items()})


# The line of steps seen from outside: the values, because a file may not hold the samples that they come from.


def periods_value(snapshot: Snapshot) -> dict[str, Any]:
    """The steps that stood at a frame."""
    return {"k": "periods", "t": round(snapshot.t, 3), "rows": [period_value(period) for period in snapshot.periods]}


def period_rows(parsed: Mapping[str, Any]) -> tuple[StepPeriod, ...]:
    """The steps of such a line. Raises Damage."""
    recorded = parsed.get("rows")
    if not isinstance(recorded, list) or len(recorded) > MOST_PERIODS:
        raise Damage("periods are not a list")
    rows = tuple(row for row in map(step_period, recorded) if row is not None)
    if len(rows) != len(recorded):
        raise Damage("periods that cannot be")
    return rows


# The line of inference servers in a recording: at most one a frame, before it. Readers that do not know it skip it.


def servers_value(snapshot: Snapshot) -> dict[str, Any]:
    """What the servers said, by the names of the fields; what is absent is left out."""
    return {"k": "servers", "t": round(snapshot.t, 3), "rows": [row_value(row) for row in snapshot.servers]}


def server_rows(parsed: Mapping[str, Any]) -> tuple[ServerRow, ...]:
    """The rows of such a line. Raises Damage."""
    recorded = parsed.get("rows")
    if not isinstance(recorded, list) or len(recorded) > MOST_SERVERS:
        raise Damage("servers are not a list")
    rows = tuple(row for row in map(server_row, recorded) if row is not None)
    if len(rows) != len(recorded):
        raise Damage("servers that cannot be")
    return rows


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
    """The line's values."""
    exit_code = {} if facts.exit_code is None else {"exit_code": facts.exit_code}
    return {"k": "run", "command": facts.command[:MOST_COMMAND], "seconds": round(facts.seconds, 3), **exit_code}


def run_facts(parsed: Mapping[str, Any]) -> RunFacts:
    """What such a line says. Raises Damage."""
    command, seconds, code = (parsed.get(key) for key in ("command", "seconds", "exit_code"))
    is_time = isinstance(seconds, (int, float)) and isfinite(seconds) and 0.0 <= seconds <= _MOST_S
    if not (isinstance(command, str) and is_time and (code is None or code in _STATUSES)):
        raise Damage("a run that cannot be")
    return RunFacts(masked_text(clean_text(command))[:MOST_COMMAND], float(seconds or 0.0), code)
