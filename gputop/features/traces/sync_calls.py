"""Calls that wait for the GPU, and their cost.

The cost is the idle time after them, not the waiting itself.
"""

from __future__ import annotations

import re

from msgspec import Struct

from gputop.features.traces.columns import ABSENT, OPERATOR, Trace
from gputop.features.traces.host_causes import HostCauses, Rows
from gputop.features.traces.host_stack import deepest
from gputop.features.traces.idle_causes import IdleTime

_ASKING = re.compile(r"aten::(item|_local_scalar_dense|nonzero|is_nonzero|to|copy_|equal|masked_select|unique\w*)$")


class SyncRow(Struct, frozen=True):
    """Waiting calls of one kind.

    ``op`` is the operator that asked for it, or the call itself.

    ``host_ms`` is how long the host waited, ``idle_after_ms`` how long the GPU then stood without work.
    """

    op: str
    calls: int
    host_ms: float
    idle_after_ms: float


def sync_rows(trace: Trace, idle: IdleTime, host: HostCauses, begin: int, end: int) -> list[SyncRow]:
    """Waiting calls in [begin, end), the costliest first.

    Their cost is the idle time after them.
    """
    sums: dict[str, list[float]] = {}
    for thread, waits in host.waits.items():
        calls = [row for row in waits.rows if begin <= row[0] < end]
        for (first, last, number), asking in zip(calls, _asking(trace, thread, calls), strict=True):
            row = sums.setdefault(asking or trace.names.texts[trace.calls.name[number]], [0, 0.0, 0.0])
            row[0] += 1
            row[1] += last - first
            row[2] += idle.after_call.get(number, 0)
    rows = [SyncRow(op, int(row[0]), row[1] / 1e6, row[2] / 1e6) for op, row in sums.items()]
    return sorted(rows, key=lambda row: (-row.idle_after_ms, -row.host_ms, row.op))


def _asking(trace: Trace, thread: int, calls: Rows) -> list[str]:
    """The nearest waiting operator around each call.

    Empty for a call without one.
    """
    spans, texts = trace.spans, trace.names.texts
    asking = {number for number, text in enumerate(texts) if _ASKING.match(text)}
    operators = sorted(
        (begin, -end, 0, name)
        for begin, end, name, of, kind in zip(spans.start, spans.end, spans.name, spans.thread, spans.kind, strict=True)
        if name in asking and of == thread and kind == OPERATOR
    )
    open_then = deepest(operators, [(first, first + 1) for first, *_ in calls])
    return ["" if name == ABSENT else texts[name] for _, name, _ in open_then]
