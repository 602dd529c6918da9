"""Calls, operators and functions that a host thread was in at given times; and its calls that wait for the GPU."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from gputop.features.traces.columns import ABSENT, Trace
from gputop.features.traces.host_causes import HostCauses, OpenParts
from gputop.features.traces.idle_causes import IdleTime
from gputop.features.traces.intervals import Interval, Intervals, union
from gputop.features.traces.trace_report import SyncRow

NOTHING = "Python between operators"
"""No call, operator, function or range was open: Python that the trace does not hold."""
Times = dict[str, int]


def underneath(
    trace: Trace,
    host: HostCauses,
    when: dict[int, Intervals],
    apart: dict[tuple[int, Interval], Times],
) -> Times:
    """Nanoseconds by name of the deepest open entry.

    They are of the given times of each thread.

    For the keys of ``apart``, threads and intervals of ``when``, times are also given separately.
    """
    times: Times = {}
    texts = trace.names.texts
    for thread, moments in when.items():
        intervals = union(sorted(moments))
        for interval, number, spent in _spent_in(host.deepest(thread), intervals):
            name = NOTHING if number == ABSENT else texts[number]
            times[name] = times.get(name, 0) + spent
            alone = apart.get((thread, interval))
            if alone is not None:
                alone[name] = alone.get(name, 0) + spent
    return times


def _spent_in(parts: OpenParts, intervals: Intervals) -> Iterator[tuple[Interval, int, int]]:
    """Yield the entries open in each interval by their names' numbers, with the times in it.

    -1 is the time in which none was open.
    """
    for begin, end in intervals:
        unseen = end - begin
        first, after = bisect_right(parts.end, begin), bisect_left(parts.begin, end)
        for place in range(first, after):
            spent = min(parts.end[place], end) - max(parts.begin[place], begin)
            unseen -= spent
            yield (begin, end), parts.name[place], spent
        if unseen:
            yield (begin, end), ABSENT, unseen


def sync_rows(
    trace: Trace, idle: IdleTime, host: HostCauses, begin: int, end: int
) -> list[SyncRow]:
    """Waiting calls in [begin, end), the costliest first.

    Their cost is the idle time after them.
    """
    sums: dict[str, list[float]] = {}
    for thread, waits in host.waits.items():
        until = bisect_left(waits.rows, (end,))
        for first, last, number in waits.rows[bisect_left(waits.rows, (begin,)) : until]:
            asking = _asking(trace, host, thread, first)
            row = sums.setdefault(
                asking or trace.names.texts[trace.calls.name[number]], [0, 0.0, 0.0]
            )
            row[0] += 1
            row[1] += last - first
            row[2] += idle.after_call.get(number, 0)
    rows = [SyncRow(op, int(row[0]), row[1] / 1e6, row[2] / 1e6) for op, row in sums.items()]
    return sorted(rows, key=lambda row: (-row.idle_after_ms, -row.host_ms, row.op))


def _asking(trace: Trace, host: HostCauses, thread: int, moment: int) -> str:
    """The nearest operator around a moment that asks the GPU for a result; empty for none."""
    parts = host.asking(thread)
    place = bisect_right(parts.end, moment)
    if place == len(parts.end) or parts.begin[place] > moment:
        return ""
    return trace.names.texts[parts.name[place]]
