"""One GPU's part of a trace in the order of time, joined to the calls that launched it."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from heapq import nlargest
from itertools import compress, islice
from operator import le, sub

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
    order = array("q", compress(range(len(gpu)), map(device.__eq__, gpu.device)))
    begins = array("q", map(gpu.start.__getitem__, order))
    if not all(map(le, begins, islice(begins, 1, None))):
        order = array("q", sorted(order, key=gpu.start.__getitem__))
        begins = array("q", map(gpu.start.__getitem__, order))
    correlations = map(gpu.correlation.__getitem__, order)
    return DeviceEvents(
        device,
        order,
        begins,
        array("q", map(gpu.end.__getitem__, order)),
        array("b", map(gpu.kind.__getitem__, order)),
        array("i", map(gpu.name.__getitem__, order)),
        array("q", [launched.get(correlation, ABSENT) for correlation in correlations]),
        array("f", map(gpu.blocks_per_sm.__getitem__, order)),
        array("f", map(gpu.occupancy.__getitem__, order)),
    )


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
_NONE: Intervals = []


class Waits(Struct, frozen=True):
    """The calls of one thread that wait for the GPU, sorted by their begin; ``number`` is theirs in the calls."""

    start: list[int]
    end: list[int]
    number: list[int]

    def running_at(self, moment: int) -> int:
        """The call in which the thread waited when the GPU ran empty at ``moment``; -1 for none."""
        at = bisect_left(self.start, moment) - 1
        # Waiting calls do not nest deeper than a synchronisation within a copy.
        for place in range(at, max(-1, at - 3), -1):
            if self.end[place] + SYNC_SLACK_NS >= moment:
                return self.number[place]
        return ABSENT


class HostCauses:
    """The causes of idle time that lie on the host, by thread."""

    def __init__(self, trace: Trace, step_thread: int, pageable: set[int]) -> None:
        """``step_thread`` announces the steps and loads data for all threads; -1 for none.

        ``pageable`` are the numbers of the calls whose copy is from or to pageable memory: these return only after it.
        """
        texts = trace.names.texts
        loaders = {number for number, text in enumerate(texts) if DATA_LOADER.match(text) is not None}
        allocators = {number for number, text in enumerate(texts) if ALLOCATOR_CALLS.match(text)}
        syncs = {number for number, text in enumerate(texts) if SYNC_CALLS.match(text)}
        modules = {number for number, text in enumerate(texts) if MODULE_CALLS.match(text)}
        data = _by_thread(trace.spans, loaders, set())
        self._step_thread = step_thread
        self._data = {
            thread: union(sorted((begin, end) for begin, end, _ in rows + data.get(step_thread, [])))
            for thread, rows in data.items()
        }
        self._allocator = _when(trace.calls, allocators)
        self._loading = _when(trace.calls, modules)
        rows_of = _by_thread(trace.calls, syncs, pageable)
        self.waits = {thread: Waits(*map(list, zip(*rows, strict=True))) for thread, rows in rows_of.items()}
        self._waiting = {thread: union((begin, end) for begin, end, _ in rows) for thread, rows in rows_of.items()}

    def data(self, thread: int) -> Intervals:
        """When this thread, or the one of the steps, waited for a batch."""
        return self._data.get(thread) or self._data.get(self._step_thread, _NONE)

    def loading(self, thread: int) -> Intervals:
        """When this thread loaded kernels' modules."""
        return self._loading.get(thread, _NONE)

    def allocator(self, thread: int) -> Intervals:
        """When this thread allocated or freed memory."""
        return self._allocator.get(thread, _NONE)

    def waiting(self, thread: int) -> Intervals:
        """When this thread waited for the GPU."""
        return self._waiting.get(thread, _NONE)


def _when(calls: Calls, names: set[int]) -> dict[int, Intervals]:
    """When each thread was in a call with one of these names."""
    rows_by_thread = _by_thread(calls, names, set())
    return {thread: union((begin, end) for begin, end, _ in rows) for thread, rows in rows_by_thread.items()}


def _by_thread(table: Spans | Calls, names: set[int], numbers: set[int]) -> dict[int, list[tuple[int, int, int]]]:
    """(begin, end, number) of the rows with one of these names or numbers, sorted, by thread."""
    rows_by_thread: dict[int, list[tuple[int, int, int]]] = {}
    if names or numbers:
        for number, name in enumerate(table.name):
            if name in names or number in numbers:
                rows_by_thread.setdefault(table.thread[number], []).append(
                    (table.start[number], table.end[number], number)
                )
    for rows in rows_by_thread.values():
        rows.sort()
    return rows_by_thread


# What a host thread was doing at given times, by the deepest open call, operator or function.

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
    times: Times = {}
    steps = {number for number, text in enumerate(trace.names.texts) if text.startswith(_STEP)}
    for thread, moments in when.items():
        intervals = union(sorted(moments))
        if intervals:
            _deepest(_touching(trace, thread, intervals, steps), thread, intervals, trace.names.texts, times, apart)
    return times


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
    times: Times,
    apart: dict[tuple[int, Interval], Times],
) -> None:
    """Walk through both in order of time with a stack of the open entries."""
    stack: list[tuple[int, int]] = []  # (end, name)
    at, many = 0, len(rows)
    for begin, end in intervals:
        gap_times = apart.get((thread, (begin, end)))
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
            times[name] = times.get(name, 0) + until - now
            if gap_times is not None:
                gap_times[name] = gap_times.get(name, 0) + until - now
            now = until


# Why the GPU was idle: each gap between its events is split by what the launching thread did during it.
#
# A gap ends with the event K, launched by the call L on thread T. Launched before the gap began, K waited for something
# on the GPU; launched inside of it, the host was late, and what the host did until then is the cause. From the launch
# on, time inside of a long call is the loading of the kernel's module; after the call a short time is the launch's own
# latency, and what is longer is a wait on the GPU again: for an event of another stream, or for what the trace omits.

CAUSES = (
    "data", "module_load", "allocator", "host_work", "after_sync", "launching", "launch_latency", "dependency",
    "kernel_gap", "unknown",
)  # fmt: skip
"""In the order in which they are printed."""
(
    _DATA, _MODULE_LOAD, _ALLOCATOR, _HOST_WORK, _AFTER_SYNC, _LAUNCHING, _LATENCY, _DEPENDENCY, _KERNEL_GAP, _UNKNOWN,
) = range(len(CAUSES))  # fmt: skip
LONGEST_GAPS = 40
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
    spent: list[int]


class OnceIdle(Struct, frozen=True):
    """Idle time of one cause that has not been seen to come again: in ``gap``, ``spent`` nanoseconds of it."""

    cause: str
    gap: Gap
    spent: int


class StreamWait(Struct, frozen=True):
    """Idle time on the GPU's side: what was launched long before and began late. Streams are the trace's numbers.

    ``kernel`` is the name's number of what waited on ``stream``, ``after`` of what ended last before it, on
    ``after_stream``; ``call`` is the name's number of the call that launched it.
    """

    kernel: int
    stream: int
    after: int
    after_stream: int
    call: int


class IdleTime(Struct):
    """All gaps of a window in nanoseconds: by cause, by step and cause, and what the host was doing during it.

    ``by_step`` has a row per step with a sum for each of ``CAUSES``. ``host`` holds the late host's moments by thread,
    ``after_call`` the idle time behind each waiting call, ``longest`` the longest gaps in the order of time,
    ``working`` the moments of ``host_work`` by thread, ``waits`` how often and how long a stream waited, ``long`` each
    gap of at least ``LONG_PART`` of the window.
    """

    by_step: list[list[int]]
    host: dict[int, Intervals]
    after_call: dict[int, int]
    longest: list[Gap]
    working: dict[int, Intervals]
    waits: dict[StreamWait, tuple[int, int]]
    long: list[LongIdle]

    def by_cause(self) -> dict[str, int]:
        """The sums over all steps."""
        return {cause: sum(row[at] for row in self.by_step) for at, cause in enumerate(CAUSES)}


def happened_once(idle: IdleTime, window: int, *, named: bool) -> list[OnceIdle]:
    """The long gaps, by cause, that come again in no other step; ``named``: the window's steps were announced.

    Where only one step was announced its gaps are the step's own, and where none was, one gap has to stand for all
    others. Memory and modules are the exception: one step does not tell a program's start from its loop.
    """
    rows = idle.by_step
    once = []
    for long in idle.long:
        for cause, spent in enumerate(long.spent):
            if spent < LONG_PART * window:
                continue
            starts = cause in (_ALLOCATOR, _MODULE_LOAD)
            if len(rows) > 1:
                elsewhere = sum(row[cause] for at, row in enumerate(rows) if at != long.row)
                single = elsewhere < RECURS * spent
            elif starts and (named or spent >= START_CALL_NS):
                single = True
            else:
                single = not named and rows[0][cause] - spent < RECURS * spent
            if single:
                once.append(OnceIdle(CAUSES[cause], long.gap, spent))
    return sorted(once, key=lambda row: -row.spent)


def idle_time(trace: Trace, events: DeviceEvents, busy: Intervals, boundaries: list[int], host: HostCauses) -> IdleTime:
    """Every gap between ``boundaries`` with its cause. ``busy`` is the union of the device's events."""
    begin, end = boundaries[0], boundaries[-1]
    idle = subtract([(begin, end)], busy) if end > begin else []
    result = IdleTime([[0] * len(CAUSES) for _ in boundaries[1:]], {}, {}, [], {}, {}, [])
    start = events.start
    graphs = {number for number, text in enumerate(trace.names.texts) if GRAPH_LAUNCH.match(text)}
    gaps: list[Gap] = []
    row = at = 0
    for first, last in idle:
        while boundaries[row + 1] <= first:
            row += 1
        at = bisect_right(start, last - 1, at)
        sums = result.by_step[row]
        before = sums[:] if last - first >= LONG_PART * (end - begin) else None
        gap = _gap(result, trace, events, (first, last), (at, begin), graphs, sums, host)
        gaps.append(gap)
        if before is not None:
            result.long.append(LongIdle(gap, row, list(map(sub, sums, before))))
    result.longest = sorted(nlargest(LONGEST_GAPS, gaps, key=lambda gap: gap.length), key=lambda gap: gap.begin)
    return result


def _gap(
    result: IdleTime,
    trace: Trace,
    events: DeviceEvents,
    idle: Interval,
    where: tuple[int, int],
    graphs: set[int],
    sums: list[int],
    host: HostCauses,
) -> Gap:
    """Add one gap to its causes; ``where`` is the event that ends it, and the window's begin."""
    first, last = idle
    at, begin = where
    number = events.launch[at] if at < len(events) and events.start[at] == last else ABSENT
    if number == ABSENT:
        sums[_UNKNOWN] += last - first
        return Gap(first, last, ABSENT, (first, first))
    thread = trace.calls.thread[number]
    # The host had not launched it until then; from there on it is launched, or being launched.
    until = min(max(trace.calls.start[number], first), last)
    _gpu_time(result, trace, events, (first, until, last), (at, number, begin), graphs, sums)
    if until > first:
        _host_time(result, host, thread, first, until, sums, leading=first == begin)
        result.host.setdefault(thread, []).append((first, until))
    return Gap(first, last, thread, (first, until))


def _gpu_time(
    result: IdleTime,
    trace: Trace,
    events: DeviceEvents,
    gap: tuple[int, int, int],
    where: tuple[int, int, int],
    graphs: set[int],
    sums: list[int],
) -> None:
    """Add the time of a gap from the launch on to its causes: inside of the launching call, and after it.

    ``gap`` is its begin, the launch in it, and its end; ``where`` the event that ends it, its call, the window's begin.
    """
    first, until, last = gap
    at, call, begin = where
    inside = max(0, min(trace.calls.end[call], last) - until)
    kernel = events.kind[at] != COPY
    if until == first and (not kernel or inside < KERNEL_GAP_NS):
        if last - first < KERNEL_GAP_NS:
            sums[_KERNEL_GAP] += last - first
            return
        inside, late, allowed = 0, last - first, 0
    else:
        late, allowed = last - until - inside, LATENCY_NS
    if inside < MODULE_LOAD_NS or (kernel and trace.calls.name[call] in graphs):
        sums[_LATENCY] += inside
    elif kernel:
        sums[_MODULE_LOAD] += inside
    else:
        # A copy that returns only when it is done waits in its call for what was queued before it.
        late += inside
    sums[_LATENCY] += min(late, allowed)
    if late > allowed:
        # Before the first event of a window it may wait for work from before the trace.
        sums[_UNKNOWN if first == begin else _DEPENDENCY] += late - allowed
        if first != begin:
            _note_wait(result, trace, events, at, call, late - allowed)


def _note_wait(result: IdleTime, trace: Trace, events: DeviceEvents, at: int, call: int, spent: int) -> None:
    """Add a wait of the event at a place to those of its kind. What ended last before it is looked for nearby."""
    begin = events.start[at]
    before = range(max(0, at - _NEARBY), at)
    last = max((place for place in before if events.end[place] <= begin), key=events.end.__getitem__, default=at)
    streams = trace.gpu.stream
    wait = StreamWait(
        events.name[at], streams[events.number[at]], events.name[last], streams[events.number[last]],
        trace.calls.name[call],
    )  # fmt: skip
    many, total = result.waits.get(wait, (0, 0))
    result.waits[wait] = (many + 1, total + spent)


def _host_time(
    result: IdleTime, host: HostCauses, thread: int, begin: int, until: int, sums: list[int], *, leading: bool
) -> None:
    """Add the time before a launch to its causes, the first that holds: data, loading of modules, allocator, other work
    for long, after a wait, launching."""
    rest = until - begin
    remaining: Intervals = [(begin, until)]
    causes = ((_DATA, host.data(thread)), (_MODULE_LOAD, host.loading(thread)), (_ALLOCATOR, host.allocator(thread)))
    for cause, when in causes:
        if when and (near := touching(when, begin, until)):
            remaining = subtract(remaining, near)
            now = length(remaining)
            sums[cause] += rest - now
            rest = now
    waits = host.waits.get(thread)
    if leading and waits is not None:
        # The queue may hold work from before the trace: while a call waits for it, the GPU may not be idle.
        waited = length(intersect(remaining, touching(host.waiting(thread), begin, until)))
        sums[_UNKNOWN] += waited
        rest -= waited
    call = ABSENT if rest == 0 or waits is None or leading else waits.running_at(begin)
    if call != ABSENT:
        result.after_call[call] = result.after_call.get(call, 0) + rest
    if rest >= HOST_WORK_NS:
        sums[_HOST_WORK] += rest
        result.working.setdefault(thread, []).extend(remaining)
    else:
        sums[_AFTER_SYNC if call != ABSENT else _LAUNCHING] += rest


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
        calls = [row for row in zip(waits.start, waits.end, waits.number, strict=True) if begin <= row[0] < end]
        names = _asking(trace, thread, calls)
        for first, last, number in calls:
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
    operator_of_call: dict[int, str] = {}
    stack: list[tuple[int, int]] = []
    at = 0
    for first, last, number in calls:
        while at < len(operators) and operators[at][0] <= first:
            stack.append((-operators[at][1], operators[at][2]))
            at += 1
        while stack and stack[-1][0] < last:
            stack.pop()
        if stack:
            operator_of_call[number] = texts[stack[-1][1]]
    return operator_of_call
