"""The line of inference servers in a recording: at most one a frame, before it. Readers that do not know it skip it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gputop.model.serving import MOST_SERVERS, ServerRow, row_value, server_row
from gputop.model.snapshot import Snapshot
from gputop.recording.format import Damage


def servers_value(snapshot: Snapshot) -> dict[str, Any]:
    """What the servers said, by the names of the fields; what is absent is left out."""
    return {"k": "servers", "t": round(snapshot.t, 3), "rows": [row_value(row) for row in snapshot.servers]}


def server_rows(parsed: Mapping[str, Any]) -> tuple[ServerRow, ...]:
    """The rows of such a line. Raises Damage."""
    given = parsed.get("rows")
    if not isinstance(given, list) or len(given) > MOST_SERVERS:
        raise Damage("servers are not a list")
    rows = tuple(row for row in map(server_row, given) if row is not None)
    if len(rows) != len(given):
        raise Damage("servers that cannot be")
    return rows
