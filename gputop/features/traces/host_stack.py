"""Calls, operators and functions that a host thread was in at given times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import compress

from gputop.features.traces.columns import ABSENT, Calls, Interval, Intervals, Spans, Trace, union
from gputop.features.traces.host_causes import STEP

NOTHING = "Python between operators"
"""No call, operator, function or range was open: Python that the trace does not hold."""
Times = dict[str, int]
_Open = tuple[int, int, int, int]
"""(begin, -end, order, name): sorted, the outer ones come before the inner ones."""


def underneath(trace: Trace, when: dict[int, Intervals], apart: dict[tuple[int, Interval], Times]) -> Times:
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
    steps = {number for number, text in enumerate(trace.names.texts) if text.startswith(STEP)}
    begins = [begin for begin, _ in intervals]
    tables: tuple[Spans | Calls, ...] = (trace.spans, trace.calls)
    rows: list[_Open] = []
    for order, table in enumerate(tables):
        of_thread = map(thread.__eq__, table.thread)
        for begin, end, name in compress(zip(table.start, table.end, table.name, strict=True), of_thread):
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
            until = min([end, *(row[0] for row in rows[at : at + 1]), *(entry[0] for entry in open_entries[-1:])])
            yield (begin, end), open_entries[-1][1] if open_entries else ABSENT, until - now
            now = until
