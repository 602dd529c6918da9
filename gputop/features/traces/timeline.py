"""One GPU's part of a trace in the order of time, joined to the calls that launched it."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from heapq import nlargest
from itertools import compress
from typing import Any, Literal, get_args

from msgspec import Struct

from gputop.diagnosis.thresholds import HOST_WORK_NS, KERNEL_GAP_NS, LATENCY_NS, MODULE_LOAD_NS
from gputop.features.traces.columns import (
    ABSENT,
    COMM,
    COMPUTE,
    COPY,
    OPERATOR,
    Calls,
    Interval,
    Intervals,
    Spans,
    Trace,
    clip,
    intersect,
    length,
    subtract,
    touching,
    union,
)
from gputop.features.traces.kernel_names import short_name


class DeviceEvents(Struct):
    """Events of one device, sorted by their begin: a column each, times in nanoseconds.

    ``launch`` is the number of the call that launched an event, -1 where the trace does not hold it; ``number`` is the
    event's own in the trace's columns.
    """

    index: int
    number: array[int]
    start: array[int]
    end: array[int]
    kind: array[int]
    name: array[int]
    launch: array[int]
    blocks: array[float]
    occupancy: array[float]

    def __len__(self) -> int:
        return len(self.start)


def busiest_stream_ns(trace: Trace, events: DeviceEvents, begin: int, end: int) -> int:
    """How long the stream that is busy longest is busy inside of [begin, end)."""
    streams = trace.gpu.stream
    until: dict[int, int] = {}
    spent: dict[int, int] = {}
    for number, first, last in zip(events.number, events.start, events.end, strict=True):
        stream = streams[number]
        first, last = max(first, until.get(stream, begin)), min(last, end)
        if last > first:
            spent[stream] = spent.get(stream, 0) + last - first
            until[stream] = last
    return max(spent.values(), default=0)


def launches(trace: Trace) -> dict[int, int]:
    """The call behind each correlation that an event of a GPU has. The first of several, which is the outermost."""
    correlations = set(trace.gpu.correlation)
    correlations.discard(ABSENT)
    call_of_correlation: dict[int, int] = {}
    for number, correlation in enumerate(trace.calls.correlation):
        if correlation in correlations:
            call_of_correlation.setdefault(correlation, number)
    return call_of_correlation


def device_events(trace: Trace, device: int, launched: dict[int, int]) -> DeviceEvents:
    """The events of a device in order, each with its launch; ``launched`` is what ``launches`` gives."""
    gpu = trace.gpu
    of_device = compress(range(len(gpu)), map(device.__eq__, gpu.device))
    order = array("q", sorted(of_device, key=gpu.start.__getitem__))

    def column(values: Any) -> Any:
        return array(values.typecode, map(values.__getitem__, order))

    launch = array("q", [launched.get(gpu.correlation[number], ABSENT) for number in order])
    return DeviceEvents(
        device, order, column(gpu.start), column(gpu.end), column(gpu.kind), column(gpu.name), launch,
        column(gpu.blocks_per_sm), column(gpu.occupancy),
    )  # fmt: skip


class Busy(Struct, frozen=True):
    """When the GPU ran what, clipped to a window; times in nanoseconds."""

    compute: Intervals
    comm: Intervals
    copy: Intervals
    kernels: Intervals
    any: Intervals


def busy(events: DeviceEvents, begin: int, end: int) -> Busy:
    """The unions of a device's events by kind, inside of [begin, end)."""

    def of(kind: int) -> Intervals:
        is_kind = map(kind.__eq__, events.kind)
        return clip(union(compress(zip(events.start, events.end, strict=True), is_kind)), begin, end)

    compute, comm, copy = of(COMPUTE), of(COMM), of(COPY)
    kernels = union(sorted(compute + comm)) if comm else compute
    return Busy(compute, comm, copy, kernels, union(sorted(kernels + copy)) if copy else kernels)


Cause = Literal[
    "data", "module_load", "allocator", "host_work", "after_sync", "launching", "launch_latency", "dependency",
    "kernel_gap", "unknown",
]  # fmt: skip
CAUSES: tuple[Cause, ...] = get_args(Cause)
"""Why a GPU is idle, in the order in which causes are printed."""

# When each host thread waited for data, allocated, or waited for the GPU.

SYNC_SLACK_NS = 2_000
"""How much later than the GPU's work a call that waits for it may return."""
DATA_LOADER = re.compile(r"enumerate\(DataLoader\)#(_\w+?)\.__next__$")
SINGLE_PROCESS = "_SingleProcessDataLoaderIter"
"""The iterator of a DataLoader without workers."""
SYNC_CALLS = re.compile(
    r"(cuda|hip)(Stream|Device|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize|(cuda|hip)Memcpy(_|$|2D|3D)"
)
ALLOCATOR_CALLS = re.compile(r"(cuda|hip)(Malloc|Free|HostAlloc|HostMalloc|HostFree|MallocHost)|cuMem(Alloc|Free)")
MODULE_CALLS = re.compile(r"cu(Module|Library)(Load|GetFunction)|(cuda|hip)(Module|Library)Load|hipModuleGetFunction")
GRAPH_LAUNCH = re.compile(r"(cuda|hip|cu)GraphLaunch")
_Rows = list[tuple[int, int, int]]
"""(begin, end, number), sorted."""


class Waits(Struct, frozen=True):
    """The calls of one thread that wait for the GPU, and when it was in any of them."""

    rows: _Rows
    during: Intervals

    def running_at(self, moment: int) -> int:
        """The number of the call in which the thread waited when the GPU ran empty at ``moment``; -1 for none."""
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

        def named(pattern: re.Pattern[str]) -> set[int]:
            return {number for number, text in enumerate(trace.names.texts) if pattern.match(text)}

        data = _by_thread(trace.spans, named(DATA_LOADER))
        of_steps = data.get(step_thread, [])
        self._step_thread = step_thread
        self._when: dict[Cause, dict[int, Intervals]] = {
            "data": {thread: _during(sorted(rows + of_steps)) for thread, rows in data.items()},
            "module_load": _calls_by_thread(trace, named(MODULE_CALLS)),
            "allocator": _calls_by_thread(trace, named(ALLOCATOR_CALLS)),
        }
        waits = _by_thread(trace.calls, named(SYNC_CALLS), pageable)
        self.waits = {thread: Waits(rows, _during(rows)) for thread, rows in waits.items()}

    def during(self, cause: Cause, thread: int) -> Intervals:
        """When a cause held this thread up; with data also the one of the steps."""
        when = self._when[cause]
        return when.get(thread) or (when.get(self._step_thread, []) if cause == "data" else [])


def _during(rows: _Rows) -> Intervals:
    return union((begin, end) for begin, end, _ in rows)


def _calls_by_thread(trace: Trace, names: set[int]) -> dict[int, Intervals]:
    return {thread: _during(rows) for thread, rows in _by_thread(trace.calls, names).items()}


def _by_thread(table: Spans | Calls, names: set[int], numbers: Collection[int] = ()) -> dict[int, _Rows]:
    """The rows with one of these names or numbers, by thread."""
    rows_by_thread: dict[int, _Rows] = {}
    if names or numbers:
        for number, name in enumerate(table.name):
            if name in names or number in numbers:
                row = (table.start[number], table.end[number], number)
                rows_by_thread.setdefault(table.thread[number], []).append(row)
    for rows in rows_by_thread.values():
        rows.sort()
    return rows_by_thread


# What a host thread was doing at given times, by the deepest open call, operator or function.

_STEP = "ProfilerStep#"
NOTHING = "between operators"
"""No call, operator, function or range was open: Python that the trace does not hold."""
Times = dict[str, int]
_Open = tuple[int, int, int, int]
"""(begin, -end, order, name): sorted, the outer ones come before the inner ones."""


def underneath(trace: Trace, when: dict[int, Intervals], apart: dict[tuple[int, Interval], Times]) -> Times:
    """Nanoseconds by the name of the deepest open entry, for the given times of each thread.

    For the keys of ``apart``, threads and intervals of ``when``, times are also given separately.
    """
    times: Times = {}
    for thread, moments in when.items():
        intervals = union(sorted(moments))
        for interval, number, spent in _deepest(_touching(trace, thread, intervals), intervals):
            name = NOTHING if number == ABSENT else trace.names.texts[number]
            for sums in (times, apart.get((thread, interval))):
                if sums is not None:
                    sums[name] = sums.get(name, 0) + spent
    return times


def _touching(trace: Trace, thread: int, intervals: Intervals) -> list[_Open]:
    """All entries open at these times, sorted, without whole steps, which explain nothing."""
    steps = {number for number, text in enumerate(trace.names.texts) if text.startswith(_STEP)}
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


def _deepest(rows: list[_Open], intervals: Intervals) -> Iterator[tuple[Interval, int, int]]:
    """Of each interval its parts: the name's number of the deepest entry that is open (-1 for none), and how long."""
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


# Why the GPU was idle: each gap between its events is split by what the launching thread did during it.
#
# A gap ends with the event K, launched by the call L on thread T. Launched before the gap began, K waited for something
# on the GPU; launched inside of it, the host was late, and what the host did until then is the cause. From the launch
# on, time inside of a long call is the loading of the kernel's module; after the call a short time is the launch's own
# latency, and what is longer is a wait on the GPU again: for an event of another stream, or for what the trace omits.

LONGEST_GAPS = 12
LONG_PART = 0.05
"""Of the window: a gap from here on is looked at by itself, since it can decide a verdict alone."""
START_CALL_NS = 50_000_000
"""A call for memory or a module that takes as long starts a library: a caching allocator's own take under 10 ms."""
RECURS = 0.25
"""A cause that elsewhere takes less than this of what it takes in one gap or step happened once."""
_NEARBY = 64


class Gap(Struct, frozen=True):
    """Idle time before one event. ``host`` is the part in which ``thread`` had not launched it yet."""

    begin: int
    end: int
    thread: int
    host: Interval

    @property
    def length(self) -> int:
        """Nanoseconds."""
        return self.end - self.begin


class LongIdle(Struct, frozen=True):
    """A gap that is a good part of the window: nanoseconds by cause, in step number ``row`` of the window."""

    gap: Gap
    row: int
    spent: dict[Cause, int]


class OnceIdle(Struct, frozen=True):
    """Idle time of one cause that has not been seen to come again: in ``gap``, ``spent`` nanoseconds of it."""

    cause: Cause
    gap: Gap
    spent: int


StreamWait = tuple[str, int, str, int, str]
"""Idle time on the GPU's side, by the names that people see: the kernel that was launched long before and began late,
its stream, what ended last before it, the stream of that, and the call that launched the kernel."""


class IdleTime(Struct):
    """All gaps of a window in nanoseconds: by cause, by step and cause, and what the host was doing during it.

    ``by_step`` has a row per step with a sum for each cause. ``host`` holds the late host's moments by thread,
    ``after_call`` the idle time behind each waiting call, ``longest`` the longest gaps, ``working`` the moments of
    ``host_work`` by thread, ``waits`` how often and how long streams waited, ``long`` each gap of at least
    ``LONG_PART`` of the window.
    """

    by_step: list[dict[Cause, int]]
    host: dict[int, Intervals] = {}
    after_call: dict[int, int] = {}
    longest: list[Gap] = []
    working: dict[int, Intervals] = {}
    waits: dict[StreamWait, tuple[int, int]] = {}
    long: list[LongIdle] = []

    def by_cause(self) -> dict[Cause, int]:
        """The sums over all steps."""
        return {cause: sum(row[cause] for row in self.by_step) for cause in CAUSES}


def happened_once(idle: IdleTime, window: int, *, named: bool) -> list[OnceIdle]:
    """The long gaps, by cause, that come again in no other step; ``named``: the window's steps were announced.

    Where only one step was announced its gaps are the step's own, and where none was, one gap has to stand for all
    others. Memory and modules are the exception: one step does not tell a program's start from its loop.
    """
    once, total = [], idle.by_cause()
    for long in idle.long:
        for cause, spent in long.spent.items():
            if spent < LONG_PART * window:
                continue
            if len(idle.by_step) > 1:
                single = total[cause] - idle.by_step[long.row][cause] < RECURS * spent
            elif cause in ("allocator", "module_load") and (named or spent >= START_CALL_NS):
                single = True
            else:
                single = not named and idle.by_step[0][cause] - spent < RECURS * spent
            if single:
                once.append(OnceIdle(cause, long.gap, spent))
    return sorted(once, key=lambda row: -row.spent)


def idle_time(trace: Trace, events: DeviceEvents, busy: Intervals, boundaries: list[int], host: HostCauses) -> IdleTime:
    """Every gap between ``boundaries`` with its cause. ``busy`` is the union of the device's events."""
    begin, end = boundaries[0], boundaries[-1]
    found = IdleTime([dict.fromkeys(CAUSES, 0) for _ in boundaries[1:]])
    gaps = _Gaps(trace, events, host, found, begin)
    row = at = 0
    shown: list[Gap] = []
    for first, last in subtract([(begin, end)], busy):
        while boundaries[row + 1] <= first:
            row += 1
        at = bisect_right(events.start, last - 1, at)
        sums = found.by_step[row]
        before = sums.copy()
        gap = gaps.explained(first, last, at, sums)
        shown.append(gap)
        if last - first >= LONG_PART * (end - begin):
            found.long.append(LongIdle(gap, row, {cause: sums[cause] - before[cause] for cause in CAUSES}))
    found.longest = nlargest(LONGEST_GAPS, shown, key=lambda gap: gap.length)
    return found


class _Gaps:
    """Explains gaps one after the other, and adds them to what was found."""

    def __init__(self, trace: Trace, events: DeviceEvents, host: HostCauses, found: IdleTime, begin: int) -> None:
        """``begin`` is the window's."""
        self._trace, self._events, self._host, self._found, self._begin = trace, events, host, found, begin
        self._graphs = {number for number, text in enumerate(trace.names.texts) if GRAPH_LAUNCH.match(text)}

    def explained(self, first: int, last: int, at: int, sums: dict[Cause, int]) -> Gap:
        """The gap [first, last), added to ``sums`` by its causes; ``at`` is the place of the event that ends it."""
        events, calls = self._events, self._trace.calls
        call = events.launch[at] if at < len(events) and events.start[at] == last else ABSENT
        if call == ABSENT:
            sums["unknown"] += last - first
            return Gap(first, last, ABSENT, (first, first))
        thread = calls.thread[call]
        # The host had not launched it until then; from there on it is launched, or being launched.
        until = min(max(calls.start[call], first), last)
        self._from_the_launch(first, until, last, at, sums)
        if until > first:
            self._before_the_launch(thread, first, until, sums)
            self._found.host.setdefault(thread, []).append((first, until))
        return Gap(first, last, thread, (first, until))

    def _from_the_launch(self, first: int, until: int, last: int, at: int, sums: dict[Cause, int]) -> None:
        """Add the time from the launch on at ``until`` to its causes: inside of the launching call, and after it."""
        call = self._events.launch[at]
        inside = max(0, min(self._trace.calls.end[call], last) - until)
        kernel = self._events.kind[at] != COPY
        if until == first and (not kernel or inside < KERNEL_GAP_NS):
            if last - first < KERNEL_GAP_NS:
                sums["kernel_gap"] += last - first
                return
            inside, late, allowed = 0, last - first, 0
        else:
            late, allowed = last - until - inside, LATENCY_NS
        if inside < MODULE_LOAD_NS or (kernel and self._trace.calls.name[call] in self._graphs):
            sums["launch_latency"] += inside
        elif kernel:
            sums["module_load"] += inside
        else:
            # A copy that returns only when it is done waits in its call for what was queued before it.
            late += inside
        sums["launch_latency"] += min(late, allowed)
        if late > allowed and first == self._begin:
            # Before the first event of a window it may wait for work from before the trace.
            sums["unknown"] += late - allowed
        elif late > allowed:
            sums["dependency"] += late - allowed
            self._note_wait(at, late - allowed)

    def _note_wait(self, at: int, spent: int) -> None:
        """Add a wait of the event at a place to those of its kind. What ended last before it is looked for nearby."""
        events, streams = self._events, self._trace.gpu.stream
        before = [place for place in range(max(0, at - _NEARBY), at) if events.end[place] <= events.start[at]]
        last = max(before, key=events.end.__getitem__, default=at)
        texts = self._trace.names.texts
        kernel, after = ((short_name(texts[events.name[place]]), streams[events.number[place]]) for place in (at, last))
        wait = (*kernel, *after, texts[self._trace.calls.name[events.launch[at]]])
        many, total = self._found.waits.get(wait, (0, 0))
        self._found.waits[wait] = (many + 1, total + spent)

    def _before_the_launch(self, thread: int, first: int, until: int, sums: dict[Cause, int]) -> None:
        """Add the time before a launch to its causes, the first that holds: data, loading of modules, allocator, other
        work for long, after a wait, launching."""
        rest = until - first
        remaining: Intervals = [(first, until)]
        causes: tuple[Cause, ...] = ("data", "module_load", "allocator")
        for cause in causes:
            if near := touching(self._host.during(cause, thread), first, until):
                remaining = subtract(remaining, near)
                now = length(remaining)
                sums[cause] += rest - now
                rest = now
        waits, call = self._host.waits.get(thread), ABSENT
        if waits is not None and first == self._begin:
            # The queue may hold work from before the trace: while a call waits for it, the GPU may not be idle.
            waited = length(intersect(remaining, touching(waits.during, first, until)))
            sums["unknown"] += waited
            rest -= waited
        elif waits is not None and rest:
            call = waits.running_at(first)
        if call != ABSENT:
            self._found.after_call[call] = self._found.after_call.get(call, 0) + rest
        if rest >= HOST_WORK_NS:
            sums["host_work"] += rest
            self._found.working.setdefault(thread, []).extend(remaining)
        else:
            sums["launching" if call == ABSENT else "after_sync"] += rest


# Where the host waits for the GPU, and what that costs: the idle time that follows, not the waiting itself.

_ASKING = re.compile(r"aten::(item|_local_scalar_dense|nonzero|is_nonzero|to|copy_|equal|masked_select|unique\w*)$")


class SyncRow(Struct, frozen=True):
    """Waiting calls of one kind. ``op`` is the operator that asked for it, or the call itself.

    ``host_ms`` is how long the host waited, ``idle_after_ms`` how long the GPU then stood without work.
    """

    op: str
    calls: int
    host_ms: float
    idle_after_ms: float


def sync_rows(trace: Trace, idle: IdleTime, host: HostCauses, begin: int, end: int) -> list[SyncRow]:
    """Waiting calls inside of [begin, end), by the idle time that follows them, the costliest first."""
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


def _asking(trace: Trace, thread: int, calls: _Rows) -> list[str]:
    """For each call the nearest operator around it that is known to wait, empty where there is none."""
    spans, texts = trace.spans, trace.names.texts
    asking = {number for number, text in enumerate(texts) if _ASKING.match(text)}
    operators = sorted(
        (begin, -end, 0, name)
        for begin, end, name, of, kind in zip(spans.start, spans.end, spans.name, spans.thread, spans.kind, strict=True)
        if name in asking and of == thread and kind == OPERATOR
    )
    open_then = _deepest(operators, [(first, first + 1) for first, *_ in calls])
    return ["" if name == ABSENT else texts[name] for _, name, _ in open_then]
