"""The line at the head of a member that says since when what holds has held: the frames before it may be elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.model.lasting import Lasting
from gputop.model.snapshot import Snapshot
from gputop.recording.format import MOST_GPUS, Damage, checked

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
    given = parsed.get("rows")
    if not isinstance(given, list) or len(given) > MOST_GPUS:
        raise Damage("what lasts is not a list")
    return tuple(map(_row, given))


def _row(given: object) -> Lasting:
    if not isinstance(given, dict) or (gpu := checked(given.get("gpu"), "whole")) is None:
        raise Damage("what lasts names no GPU")
    times = {key: checked(given.get(key), "number") for key in SINCE}
    return Lasting(gpu, **{key: None if t is None else float(t) for key, t in times.items()})
