"""Times at which a host thread was busy, by cause.

Causes are data loading, allocation, module loading, waits for the GPU and own work.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable
from itertools import accumulate
from typing import Literal, get_args

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
        self._deepest: dict[int, OpenParts] = {}
        self._asking: dict[int, OpenParts] = {}
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

    def deepest(self, thread: int) -> OpenParts:
        """The deepest call, operator, function or range of a thread at each time, in order.

        Whole steps explain nothing, and are left out.
        """
        if thread not in self._deepest:
            steps = self._trace.names.matching(STEP.match)
            rows = _Rows()
            for table, numbers in (
                (self._trace.spans, self._spans_by_thread.get(thread, ())),
                (self._trace.calls, self._calls_by_thread.get(thread, ())),
            ):
                rows.add(table, (n for n in numbers if table.name[n] not in steps))
            self._deepest[thread] = _deepest_parts(rows)
        return self._deepest[thread]

    def asking(self, thread: int) -> OpenParts:
        """The deepest operator of a thread at each time that may wait for the GPU, in order."""
        if thread not in self._asking:
            spans, names = self._trace.spans, self._trace.names.matching(_ASKING.match)
            rows = _Rows()
            rows.add(
                spans,
                (
                    number
                    for number in self._spans_by_thread.get(thread, ())
                    if spans.kind[number] == OPERATOR and spans.name[number] in names
                ),
            )
            self._asking[thread] = _deepest_parts(rows)
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


class _Rows:
    """Entries of one thread, from several tables."""

    def __init__(self) -> None:
        self.begin, self.end, self.name = array("q"), array("q"), array("i")

    def add(self, table: Spans | Calls, numbers: Iterable[int]) -> None:
        """Add the rows of a table with these numbers."""
        for number in numbers:
            self.begin.append(table.start[number])
            self.end.append(table.end[number])
            self.name.append(table.name[number])

    def outer_first(self) -> list[int]:
        """Numbers of the entries in the order of their begins, the outer ones before the inner ones."""
        # Two stable sorts by plain numbers take half of the memory of one by pairs.
        order = sorted(range(len(self.begin)), key=self.end.__getitem__, reverse=True)
        order.sort(key=self.begin.__getitem__)
        return order


class OpenParts:
    """Times of one thread, in order, in which its deepest open entry is the same.

    ``name`` is the number of the entry's name. Where nothing is open there is no part.
    """

    def __init__(self) -> None:
        self.begin, self.end, self.name = array("q"), array("q"), array("i")

    def append(self, begin: int, end: int, name: int) -> None:
        """Add a part, which may be empty."""
        if begin < end:
            self.begin.append(begin)
            self.end.append(end)
            self.name.append(name)


def _deepest_parts(rows: _Rows) -> OpenParts:
    """Parts of time by the deepest open one of these entries."""
    parts = OpenParts()
    opened: list[int] = []
    now = -(2**63)
    for number in (*rows.outer_first(), None):
        moment = 2**63 if number is None else rows.begin[number]
        while opened and now < moment:
            deepest = opened[-1]
            until = min(rows.end[deepest], moment)
            parts.append(now, until, rows.name[deepest])
            now = max(now, until)
            if rows.end[deepest] <= now:
                opened.pop()
        now = max(now, moment)
        if number is not None:
            opened.append(number)
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
