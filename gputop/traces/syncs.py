"""Where the host waits for the GPU, and what that costs: the idle time that follows, not the waiting itself."""

from __future__ import annotations

import re

from msgspec import Struct

from gputop.traces.columns import OPERATOR, Trace
from gputop.traces.gaps import IdleTime
from gputop.traces.host import HostThreads

_ASKING = re.compile(r"aten::(item|_local_scalar_dense|nonzero|is_nonzero|to|copy_|equal|masked_select|unique\w*)$")


class SyncRow(Struct, frozen=True):
    """Waiting calls of one kind. ``op`` is the operator that asked for it, or the call itself.

    ``host_ms`` is how long the host waited, ``idle_after_ms`` how long the GPU then stood without work.
    """

    op: str
    calls: int
    host_ms: float
    idle_after_ms: float


def sync_rows(trace: Trace, idle: IdleTime, host: HostThreads, begin: int, end: int) -> list[SyncRow]:
    """Waiting calls inside of [begin, end), by the idle time that follows them, the costliest first."""
    sums: dict[str, list[float]] = {}
    for thread, waits in host.waits.items():
        wanted = [row for row in zip(waits.start, waits.end, waits.number, strict=True) if begin <= row[0] < end]
        names = _asking(trace, thread, wanted)
        for first, last, number in wanted:
            row = sums.setdefault(names.get(number) or trace.names.texts[trace.calls.name[number]], [0, 0.0, 0.0])
            row[0] += 1
            row[1] += last - first
            row[2] += idle.after_call.get(number, 0)
    rows = [SyncRow(op, int(row[0]), row[1] / 1e6, row[2] / 1e6) for op, row in sums.items()]
    return sorted(rows, key=lambda row: (-row.idle_after_ms, -row.host_ms, row.op))


def _asking(trace: Trace, thread: int, calls: list[tuple[int, int, int]]) -> dict[int, str]:
    """For each call the nearest operator around it that is known to wait."""
    spans, texts = trace.spans, trace.names.texts
    asking = {number for number, text in enumerate(texts) if _ASKING.match(text)}
    if not calls or not asking:
        return {}
    operators = sorted(
        (spans.start[at], -spans.end[at], name)
        for at, (name, of, kind) in enumerate(zip(spans.name, spans.thread, spans.kind, strict=True))
        if name in asking and of == thread and kind == OPERATOR
    )
    found: dict[int, str] = {}
    stack: list[tuple[int, int]] = []
    at = 0
    for first, last, number in calls:
        while at < len(operators) and operators[at][0] <= first:
            stack.append((-operators[at][1], operators[at][2]))
            at += 1
        while stack and stack[-1][0] < last:
            stack.pop()
        if stack:
            found[number] = texts[stack[-1][1]]
    return found
