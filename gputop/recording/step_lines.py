"""The line of steps in a recording: at most one a frame, before it. Readers that do not know it skip it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import astuple

from gputop.model.snapshot import Snapshot
from gputop.model.steps import COLUMNS, StepRow, step_row
from gputop.recording.checks import Damage

_MOST_ROWS = 8192


def steps_value(snapshot: Snapshot) -> dict[str, Any]:
    """The announced steps: rows, and beside them the samples that they took in, where a job tells them."""
    rows = [astuple(row)[: len(COLUMNS)] for row in snapshot.steps]
    samples = [row.samples for row in snapshot.steps]
    more = {"samples": samples} if any(each is not None for each in samples) else {}
    return {"k": "steps", "t": round(snapshot.t, 3), "rows": rows, **more}


def step_rows(parsed: Mapping[str, Any]) -> tuple[StepRow, ...]:
    """The rows of such a line. Raises Damage."""
    given, samples = parsed.get("rows"), parsed.get("samples")
    if not isinstance(given, list) or len(given) > _MOST_ROWS:
        raise Damage("steps are not a list")
    if not isinstance(samples, list) or len(samples) != len(given):
        samples = [None] * len(given)
    rows = [
        step_row(values, taken) if isinstance(values, list) else None
        for values, taken in zip(given, samples, strict=True)
    ]
    known = tuple(row for row in rows if row is not None)
    if len(known) != len(rows):
        raise Damage("steps that cannot be")
    return known
