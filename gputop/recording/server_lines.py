"""The line of inference servers in a recording: at most one a frame, before it. Readers that do not know it skip it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.model.serving import MOST_SERVERS, ServerRow, row_value, server_row
from gputop.model.snapshot import Snapshot
from gputop.recording.format import Damage

_DIGITS = 6


def servers_value(snapshot: Snapshot) -> dict[str, Any]:
    """What the servers said, by the names of the fields; what is absent is left out."""
    rows = [{key: _rounded(value) for key, value in row_value(row).items()} for row in snapshot.servers]
    return {"k": "servers", "t": round(snapshot.t, 3), "rows": rows}


def server_rows(parsed: Mapping[str, Any]) -> tuple[ServerRow, ...]:
    """The rows of such a line. Raises Damage."""
    given = parsed.get("rows")
    if not isinstance(given, list) or len(given) > MOST_SERVERS:
        raise Damage("servers are not a list")
    rows = tuple(row for row in map(server_row, given) if row is not None)
    if len(rows) != len(given):
        raise Damage("servers that cannot be")
    return rows


def _rounded(value: Any) -> Any:
    return round(value, _DIGITS) if isinstance(value, float) else value
