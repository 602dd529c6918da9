"""What a host thread was doing at given times, by the deepest open call, operator or function."""

from __future__ import annotations

from bisect import bisect_right
from itertools import compress

from gputop.traces.columns import Trace
from gputop.traces.intervals import Interval, Intervals, union

_STEP = "ProfilerStep#"
NOTHING = "between operators"
"""No call, operator, function or range was open: Python that the trace does not hold."""

_CALLS, _SPANS = 0, 1
Times = dict[str, int]
_Open = tuple[int, int, int, int]
"""(begin, -end, order, name): sorted, the outer ones come before the inner ones."""


def underneath(trace: Trace, when: dict[int, Intervals], apart: dict[tuple[int, Interval], Times]) -> Times:
    """Nanoseconds by the name of the deepest open entry, for the given times of each thread.

    For the keys of ``apart``, threads and intervals of ``when``, times are also given separately.
    """
    found: Times = {}
    steps = {number for number, text in enumerate(trace.names.texts) if text.startswith(_STEP)}
    for thread, moments in when.items():
        intervals = union(sorted(moments))
        if intervals:
            _deepest(_touching(trace, thread, intervals, steps), thread, intervals, trace.names.texts, found, apart)
    return found


def _touching(trace: Trace, thread: int, intervals: Intervals, steps: set[int]) -> list[_Open]:
    """All entries open at these times, sorted, without whole steps, which explain nothing."""
    rows: list[_Open] = []
    begins = [begin for begin, _ in intervals]
    first, last = begins[0], intervals[-1][1]
    for order, table in ((_SPANS, trace.spans), (_CALLS, trace.calls)):
        of_thread = map(thread.__eq__, table.thread)
        for begin, end, name in compress(zip(table.start, table.end, table.name, strict=True), of_thread):
            if begin < last and end > first and intervals[bisect_right(begins, end - 1) - 1][1] > begin:
                rows.append((begin, -end, -order, name))
    rows = [row for row in rows if row[3] not in steps] if steps else rows
    rows.sort()
    return rows


def _deepest(
    rows: list[_Open],
    thread: int,
    intervals: Intervals,
    texts: list[str],
    found: Times,
    apart: dict[tuple[int, Interval], Times],
) -> None:
    """Walk through both in order of time with a stack of the open entries."""
    stack: list[tuple[int, int]] = []  # (end, name)
    at, many = 0, len(rows)
    for begin, end in intervals:
        own = apart.get((thread, (begin, end)))
        now = begin
        while now < end:
            while at < many and rows[at][0] <= now:
                stack.append((-rows[at][1], rows[at][3]))
                at += 1
            while stack and stack[-1][0] <= now:
                stack.pop()
            until = end if at >= many else min(end, rows[at][0])
            if stack:
                until = min(until, stack[-1][0])
            name = texts[stack[-1][1]] if stack else NOTHING
            found[name] = found.get(name, 0) + until - now
            if own is not None:
                own[name] = own.get(name, 0) + until - now
            now = until
