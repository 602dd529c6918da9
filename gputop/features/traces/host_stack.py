"""Calls, operators and functions that a host thread was in at given times; and its calls that wait for the GPU."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import compress

from gputop.features.traces.columns import ABSENT, OPERATOR, Calls, Spans, Trace
from gputop.features.traces.host_causes import STEP, HostCauses, Rows
from gputop.features.traces.idle_causes import IdleTime
from gputop.features.traces.intervals import Interval, Intervals, union
from gputop.features.traces.trace_report import SyncRow

_ASKING = re.compile(
    r"aten::(item|_local_scalar_dense|nonzero|is_nonzero|to|copy_|equal|masked_select|unique\w*)$"
)
NOTHING = "Python between operators"
"""No call, operator, function or range was open: Python that the trace does not hold."""
Times = dict[str, int]
_Open = tuple[int, int, int, int]
"""(begin, -end, order, name): sorted, the outer ones come before the inner ones."""


def underneath(
    trace: Trace, when: dict[int, Intervals], apart: dict[tuple[int, Interval], Times]
) -> Times:
    """Nanoseconds by name of the deepest open entry.

    They are of the given times of each thread.

    For the keys of ``apart``, threads and intervals of ``when``, times are also given separately.
    """
    times: Times = {}
    for thread, moments in when.items():
        intervals = union(sorted(moments))
        for interval, number, spent in deepest(_touching(trace, thread, intervals), intervals):
            name = NOTHING if number == ABSENT else trace.names.texts[number]
            for sums in (times, apart.get((thread, interval))):
                if sums is not None:
                    sums[name] = sums.get(name, 0) + spent
    return times


def _touching(trace: Trace, thread: int, intervals: Intervals) -> list[_Open]:
    """All entries open at these times, sorted, without whole steps, which explain nothing."""
    steps = trace.names.matching(STEP.match)
    begins = [begin for begin, _ in intervals]
    tables: tuple[Spans | Calls, ...] = (trace.spans, trace.calls)
    rows: list[_Open] = []
    for order, table in enumerate(tables):
        of_thread = map(thread.__eq__, table.thread)
        for begin, end, name in compress(
            zip(table.start, table.end, table.name, strict=True), of_thread
        ):
            at = bisect_left(begins, end) - 1
            if at >= 0 and intervals[at][1] > begin and name not in steps:
                rows.append((begin, -end, order, name))
    return sorted(rows)


def deepest(rows: list[_Open], intervals: Intervals) -> Iterator[tuple[Interval, int, int]]:
    """Yield parts of each interval: the deepest open entry, and its time.

    The entry is its name's number, -1 for none.
    """
    open_entries: list[tuple[int, int]] = []  # (end, name)
    at = 0
    for begin, end in intervals:
        now = begin
        while now < end:
            while at < len(rows) and rows[at][0] <= now:
                open_entries.append((-rows[at][1], rows[at][3]))
                at += 1
            while open_entries and open_entries[-1][0] <= now:
                open_entries.pop()
            until = min(
                [
                    end,
                    *(row[0] for row in rows[at : at + 1]),
                    *(entry[0] for entry in open_entries[-1:]),
                ]
            )
            yield (begin, end), open_entries[-1][1] if open_entries else ABSENT, until - now
            now = until


def sync_rows(
    trace: Trace, idle: IdleTime, host: HostCauses, begin: int, end: int
) -> list[SyncRow]:
    """Waiting calls in [begin, end), the costliest first.

    Their cost is the idle time after them.
    """
    sums: dict[str, list[float]] = {}
    for thread, waits in host.waits.items():
        calls = [row for row in waits.rows if begin <= row[0] < end]
        for (first, last, number), asking in zip(calls, _asking(trace, thread, calls), strict=True):
            row = sums.setdefault(
                asking or trace.names.texts[trace.calls.name[number]], [0, 0.0, 0.0]
            )
            row[0] += 1
            row[1] += last - first
            row[2] += idle.after_call.get(number, 0)
    rows = [SyncRow(op, int(row[0]), row[1] / 1e6, row[2] / 1e6) for op, row in sums.items()]
    return sorted(rows, key=lambda row: (-row.idle_after_ms, -row.host_ms, row.op))


def _asking(trace: Trace, thread: int, calls: Rows) -> list[str]:
    """The nearest waiting operator around each call.

    Empty for a call without one.
    """
    spans, asking = trace.spans, trace.names.matching(_ASKING.match)
    operators = sorted(
        (begin, -end, 0, name)
        for begin, end, name, of, kind in zip(
            spans.start, spans.end, spans.name, spans.thread, spans.kind, strict=True
        )
        if name in asking and of == thread and kind == OPERATOR
    )
    open_then = deepest(operators, [(first, first + 1) for first, *_ in calls])
    return ["" if name == ABSENT else trace.names.texts[name] for _, name, _ in open_then]
