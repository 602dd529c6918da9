"""The line of steps in a recording: at most one a frame, before it. Readers that do not know it skip it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from gputop.model.snapshot import Snapshot
from gputop.model.steps import BESIDE, COLUMNS, StepRow, step_row
from gputop.recording.format import Damage

_MOST_ROWS = 8192


def steps_value(snapshot: Snapshot) -> dict[str, Any]:
    """The announced steps: rows, and beside them samples and waits, where a job tells them."""
    rows = [astuple(row)[: len(COLUMNS)] for row in snapshot.steps]
    more = {key: [getattr(row, key) for row in snapshot.steps] for key in BESIDE}
    told = {key: values for key, values in more.items() if any(each is not None for each in values)}
    return {"k": "steps", "t": round(snapshot.t, 3), "rows": rows, **told}


def step_rows(parsed: Mapping[str, Any]) -> tuple[StepRow, ...]:
    """The rows of such a line. Raises Damage."""
    given = parsed.get("rows")
    if not isinstance(given, list) or len(given) > _MOST_ROWS:
        raise Damage("steps are not a list")
    beside = [_beside(parsed.get(key), len(given)) for key in BESIDE]
    rows = [
        step_row(values, *more) if isinstance(values, list) else None
        for values, *more in zip(given, *beside, strict=True)
    ]
    known = tuple(row for row in rows if row is not None)
    if len(known) != len(rows):
        raise Damage("steps that cannot be")
    return known


def _beside(values: object, count: int) -> Sequence[object]:
    """One value for each row; where their number differs, none."""
    return values if isinstance(values, list) and len(values) == count else [None] * count
