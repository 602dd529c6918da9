"""Times at which a host thread was busy, by cause.

Causes are data loading, allocation, module loading, waits for the GPU and own work.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import accumulate
from typing import Literal, NamedTuple, get_args

from msgspec import Struct

from gputop.diagnosis.thresholds import LONG_OPERATOR_NS
from gputop.features.traces.columns import ABSENT, OPERATOR, Calls, Spans, Trace
from gputop.features.traces.intervals import Intervals, union

Cause = Literal[
    "data", "module_load", "allocator", "host_work", "after_sync", "launching", "launch_latency", "dependency",
    "kernel_gap", "unknown", "not_recorded",
]  # fmt: skip
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""Why a GPU is idle, in the order in which causes are printed."""

STEP = re.compile("ProfilerStep#")
SYNC_SLACK_NS = 2_000
"""How much later than the GPU's work a call that waits for it may return."""
DATA_LOADER = re.compile(r"enumerate\(DataLoader\)#(_\w+?)\.__next__$")
SINGLE_PROCESS = "_SingleProcessDataLoaderIter"
"""The iterator of a DataLoader without workers."""
SYNC_CALLS = re.compile(
    r"cuda(Stream|Device|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize|cudaMemcpy(_|$|2D|3D)"
)
ALLOCATOR_CALLS = re.compile(
    r"cuda(Malloc|Free|HostAlloc|HostMalloc|HostFree|MallocHost)|cuMem(Alloc|Free)"
)
MODULE_CALLS = re.compile(r"cu(Module|Library)(Load|GetFunction)|cuda(Module|Library)Load")
EVENT_CALLS = re.compile(r"cudaStreamWait(Event|Value)|cuStreamWait|(cuda|cu)LaunchHostFunc")
"""Calls after which a stream may wait for something else than its own work."""
_ASKING = re.compile(
    r"aten::(item|_local_scalar_dense|nonzero|is_nonzero|to|copy_|equal|masked_select|unique\w*)$"
)
"""Operators that ask the GPU for a result."""
GRAPH_LAUNCH = re.compile(r"(cuda|cu)GraphLaunch")
Rows = list[tuple[int, int, int]]
"""(begin, end, number), sorted."""


class Waits(Struct, frozen=True):
    """Calls of one thread that wait for the GPU.

    ``during`` is the time in any of them.
    """

    rows: Rows
    during: Intervals

    def running_at(self, moment: int) -> int:
        """Number of the call that waited when the GPU ran empty.

        -1 for none.
        """
        before = bisect_left(self.rows, (moment,))
        # Waiting calls do not nest deeper than a synchronisation within a copy.
        nearest = reversed(self.rows[max(0, before - 3) : before])
        return next((number for _, end, number in nearest if end + SYNC_SLACK_NS >= moment), ABSENT)


class HostCauses:
    """The causes of idle time that lie on the host, by thread."""

    def __init__(self, trace: Trace, step_thread: int, pageable: set[int]) -> None:
        """``step_thread`` announces the steps and loads data for all threads; -1 for none.

        ``pageable`` are the numbers of the calls whose copy is from or to pageable memory: these return only after it.
        """

        named = trace.names.matching
        data = _by_thread(trace.spans, named(DATA_LOADER.match))
        of_steps = data.get(step_thread, [])
        self._step_thread = step_thread
        self._trace = trace
        self._spans_by_thread = _numbers_by_thread(trace.spans)
        self._calls_by_thread = _numbers_by_thread(trace.calls)
        self._deepest: dict[int, list[OpenPart]] = {}
        self._asking: dict[int, list[OpenPart]] = {}
        self.waits_for_events = bool(named(EVENT_CALLS.match))
        self.lost_launches = [trace.calls.start[number] for number in trace.doubts.lost]
        self._own_work: dict[int, Intervals] = {}
        self._calls: dict[int, tuple[list[int], list[int]]] = {}
        self._when: dict[Cause, dict[int, Intervals]] = {
            "data": {thread: _during(sorted(rows + of_steps)) for thread, rows in data.items()},
            "module_load": _calls_by_thread(trace, named(MODULE_CALLS.match)),
            "allocator": _calls_by_thread(trace, named(ALLOCATOR_CALLS.match)),
        }
        waits = _by_thread(trace.calls, named(SYNC_CALLS.match), pageable)
        self.waits = {thread: Waits(rows, _during(rows)) for thread, rows in waits.items()}

    def during(self, cause: Cause, thread: int) -> Intervals:
        """When a cause held this thread up; with data also the one of the steps."""
        when = self._when[cause]
        return when.get(thread) or (when.get(self._step_thread, []) if cause == "data" else [])

    def own_work(self, thread: int) -> Intervals:
        """Times in operators that made no CUDA call for 1 ms.

        Functions and named ranges count as well.
        """
        if thread not in self._own_work:
            spans, (begins, _) = self._trace.spans, self._calls_of(thread)
            steps = self._trace.names.matching(STEP.match)
            long = sorted(
                (spans.start[number], spans.end[number])
                for number in self._spans_by_thread.get(thread, ())
                if spans.end[number] - spans.start[number] >= LONG_OPERATOR_NS
                and spans.name[number] not in steps
            )
            self._own_work[thread] = union(
                (begin, end)
                for begin, end in long
                if bisect_left(begins, begin) == bisect_left(begins, end)
            )
        return self._own_work[thread]

    def deepest(self, thread: int) -> list[OpenPart]:
        """The deepest call, operator, function or range of a thread at each time, in order.

        Whole steps explain nothing, and are left out.
        """
        if thread not in self._deepest:
            trace, steps = self._trace, self._trace.names.matching(STEP.match)
            spans = _open_rows(trace.spans, self._spans_by_thread.get(thread, ()), 0)
            calls = _open_rows(trace.calls, self._calls_by_thread.get(thread, ()), 1)
            rows = [row for row in (*spans, *calls) if row.name not in steps]
            self._deepest[thread] = _deepest_parts(sorted(rows))
        return self._deepest[thread]

    def asking(self, thread: int) -> list[OpenPart]:
        """The deepest operator of a thread at each time that may wait for the GPU, in order."""
        if thread not in self._asking:
            spans, names = self._trace.spans, self._trace.names.matching(_ASKING.match)
            numbers = [
                number
                for number in self._spans_by_thread.get(thread, ())
                if spans.kind[number] == OPERATOR and spans.name[number] in names
            ]
            self._asking[thread] = _deepest_parts(sorted(_open_rows(spans, numbers, 0)))
        return self._asking[thread]

    def quiet_since(self, thread: int, moment: int) -> int | None:
        """End of the thread's last CUDA call before ``moment``.

        The call began before ``moment``; None without one.
        """
        begins, ends = self._calls_of(thread)
        before = bisect_left(begins, moment)
        return min(ends[before - 1], moment) if before else None

    def _calls_of(self, thread: int) -> tuple[list[int], list[int]]:
        """Begins of the thread's CUDA calls, and their ends.

        An end is the latest one up to that call.
        """
        if thread not in self._calls:
            calls = self._trace.calls
            numbers = self._calls_by_thread.get(thread, ())
            rows = sorted((calls.start[number], calls.end[number]) for number in numbers)
            self._calls[thread] = (
                [begin for begin, _ in rows],
                list(accumulate((end for _, end in rows), max)),
            )
        return self._calls[thread]


class OpenPart(NamedTuple):
    """A time in which the deepest open entry of a thread is the same; its name's number."""

    begin: int
    end: int
    name: int


class _OpenRow(NamedTuple):
    """An entry of a thread: sorted, the outer ones come before the inner ones."""

    begin: int
    end_negated: int
    order: int
    name: int


def _open_rows(table: Spans | Calls, numbers: Iterable[int], order: int) -> list[_OpenRow]:
    return [
        _OpenRow(table.start[number], -table.end[number], order, table.name[number])
        for number in numbers
    ]


def _deepest_parts(rows: list[_OpenRow]) -> list[OpenPart]:
    """Parts of time by the deepest open one of sorted entries; without any there is no part."""
    parts: list[OpenPart] = []
    open_entries: list[tuple[int, int]] = []  # (end, name)

    def close_until(now: int, moment: int) -> int:
        """Add the parts up to a moment; return the time up to which there are parts."""
        while open_entries and now < moment:
            end, name = open_entries[-1]
            until = min(end, moment)
            if until > now:
                parts.append(OpenPart(now, until, name))
                now = until
            if end <= now:
                open_entries.pop()
        return max(now, moment)

    now = -(2**63)
    for row in rows:
        now = close_until(now, row.begin)
        open_entries.append((-row.end_negated, row.name))
    close_until(now, 2**63)
    return parts


def _numbers_by_thread(table: Spans | Calls) -> dict[int, array[int]]:
    """The numbers of the rows of each thread."""
    by_thread: dict[int, array[int]] = {}
    for number, thread in enumerate(table.thread):
        if thread not in by_thread:
            by_thread[thread] = array("q")
        by_thread[thread].append(number)
    return by_thread


def _during(rows: Rows) -> Intervals:
    return union((begin, end) for begin, end, _ in rows)


def _calls_by_thread(trace: Trace, names: set[int]) -> dict[int, Intervals]:
    return {thread: _during(rows) for thread, rows in _by_thread(trace.calls, names).items()}


def _by_thread(
    table: Spans | Calls, names: set[int], numbers: Collection[int] = ()
) -> dict[int, Rows]:
    """The rows with one of these names or numbers, by thread."""
    rows_by_thread: dict[int, Rows] = {}
    if names or numbers:
        for number, name in enumerate(table.name):
            if name in names or number in numbers:
                row = (table.start[number], table.end[number], number)
                rows_by_thread.setdefault(table.thread[number], []).append(row)
    for rows in rows_by_thread.values():
        rows.sort()
    return rows_by_thread
