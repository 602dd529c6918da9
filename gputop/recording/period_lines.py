"""The line of steps seen from outside: the values, because a file may not hold the samples that they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.model.snapshot import Snapshot
from gputop.model.step_period import MOST_PERIODS, StepPeriod, period_value, step_period
from gputop.recording.format import Damage


def periods_value(snapshot: Snapshot) -> dict[str, Any]:
    """The steps that stood at a frame."""
    return {"k": "periods", "t": round(snapshot.t, 3), "rows": [period_value(each) for each in snapshot.periods]}


def period_rows(parsed: Mapping[str, Any]) -> tuple[StepPeriod, ...]:
    """The steps of such a line. Raises Damage."""
    given = parsed.get("rows")
    if not isinstance(given, list) or len(given) > MOST_PERIODS:
        raise Damage("periods are not a list")
    rows = tuple(row for row in map(step_period, given) if row is not None)
    if len(rows) != len(given):
        raise Damage("periods that cannot be")
    return rows
