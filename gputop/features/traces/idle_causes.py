"""Splits each gap between a GPU's events by cause.

The launching thread's activity during the gap decides.

A gap ends with the event K, launched by the call L on thread T. Launched before the gap began, K waited for something
on the GPU; launched inside of it, the host was late, and the host's activity until then is the cause. From the launch
on, time inside of a long call is the loading of the kernel's module; after the call a short time is the launch's own
latency, and a longer one is a wait on the GPU again: for an event of another stream, or for work that the trace omits.
Where kernels of launches between the two events are missing in the file, the gap is not recorded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from heapq import nlargest

from msgspec import Struct

from gputop.diagnosis.thresholds import (
    DEVICE_WAIT_NS,
    HOST_WORK_NS,
    KERNEL_GAP_NS,
    LATENCY_NS,
    LONG_OPERATOR_NS,
    MODULE_LOAD_NS,
)
from gputop.features.traces.columns import ABSENT, COPY, Trace
from gputop.features.traces.device_events import DeviceEvents
from gputop.features.traces.host_causes import CAUSES, GRAPH_LAUNCH, Cause, HostCauses
from gputop.features.traces.intervals import (
    Interval,
    Intervals,
    intersect,
    length,
    subtract,
    touching,
)
from gputop.features.traces.kernel_names import short_name

LONGEST_GAPS = 12
LONG_PART = 0.05
"""Of the window: a gap from here on is looked at by itself, since it can decide a verdict alone."""
START_CALL_NS = 50_000_000
"""A call for memory or a module that takes as long starts a library: a caching allocator's own take under 10 ms."""
RECURS = 0.25
"""A cause that elsewhere takes less than this of what it takes in one gap or step happened once."""
_NEARBY = 64


class Gap(Struct, frozen=True):
    """Idle time before one event.

    ``host`` is the part in which ``thread`` had not launched it yet.
    """

    begin: int
    end: int
    thread: int
    host: Interval

    @property
    def length(self) -> int:
        """Nanoseconds."""
        return self.end - self.begin


class LongIdle(Struct, frozen=True):
    """A gap that is a good part of the window.

    ``spent`` are nanoseconds by cause, ``row`` is the step's number in the window.
    """

    gap: Gap
    row: int
    spent: dict[Cause, int]


class OnceIdle(Struct, frozen=True):
    """Idle time of one cause that occurs once.

    ``spent`` are its nanoseconds in ``gap``, ``row`` is the step's number in the window.
    """

    cause: Cause
    gap: Gap
    spent: int
    row: int


StreamWait = tuple[str, int, str, int, str]
"""Idle time on the GPU's side, by the names that people see: the kernel that was launched long before and began late,
its stream, what ended last before it, the stream of that, and the call that launched the kernel."""


class IdleTime(Struct):
    """All gaps of a window in nanoseconds, by cause.

    ``by_step`` has a row per step with a sum for each cause. ``host`` holds the late host's moments by thread,
    ``after_call`` the idle time behind each waiting call, ``working`` the moments of ``host_work`` by thread, ``waits``
    how often and how long streams waited, ``long`` each gap of at least ``LONG_PART`` of the window, ``longest`` the
    longest gaps, the longest first.
    """

    by_step: list[dict[Cause, int]]
    host: dict[int, Intervals] = {}
    after_call: dict[int, int] = {}
    working: dict[int, Intervals] = {}
    waits: dict[StreamWait, tuple[int, int]] = {}
    long: list[LongIdle] = []
    longest: list[LongIdle] = []

    def by_cause(self) -> dict[Cause, int]:
        """The sums over all steps."""
        return {cause: sum(row[cause] for row in self.by_step) for cause in CAUSES}


def happened_once(idle: IdleTime, window: int, *, named: bool) -> list[OnceIdle]:
    """Long gaps, by cause, that occur in one step only.

    ``named``: the window's steps were announced.

    Where only one step was announced its gaps are the step's own, and without any, one gap has to represent all
    others. Memory and modules are the exception: one step does not tell a program's start from its loop.
    """
    once, total = [], idle.by_cause()
    for long in idle.long:
        for cause, spent in long.spent.items():
            if cause == "not_recorded" or spent < LONG_PART * window:
                continue
            if len(idle.by_step) > 1:
                single = total[cause] - idle.by_step[long.row][cause] < RECURS * spent
            elif cause in ("allocator", "module_load") and (named or spent >= START_CALL_NS):
                single = True
            else:
                single = not named and idle.by_step[0][cause] - spent < RECURS * spent
            if single:
                once.append(OnceIdle(cause, long.gap, spent, long.row))
    return sorted(once, key=lambda row: -row.spent)


def idle_time(
    trace: Trace, events: DeviceEvents, busy: Intervals, boundaries: list[int], host: HostCauses
) -> IdleTime:
    """Every gap between ``boundaries`` with its cause. ``busy`` is the union of the device's events."""
    begin, end = boundaries[0], boundaries[-1]
    found = IdleTime([dict.fromkeys(CAUSES, 0) for _ in boundaries[1:]])
    gaps = _Gaps(trace, events, host, found, begin)
    row = at = shortest = 0
    for first, last in subtract([(begin, end)], busy):
        while boundaries[row + 1] <= first:
            row += 1
        at = bisect_right(events.start, last - 1, at)
        sums = found.by_step[row]
        before = sums.copy()
        gap = gaps.explained(first, last, at, sums)
        is_long = gap.length >= LONG_PART * (end - begin)
        if is_long or gap.length > shortest:
            spent = {cause: sums[cause] - before[cause] for cause in CAUSES}
            idle = LongIdle(gap, row, spent)
            if is_long:
                found.long.append(idle)
            found.longest.append(idle)
            if len(found.longest) >= 2 * LONGEST_GAPS:
                found.longest = _longest(found.longest)
                shortest = found.longest[-1].gap.length
    found.longest = _longest(found.longest)
    return found


def _longest(gaps: list[LongIdle]) -> list[LongIdle]:
    return nlargest(LONGEST_GAPS, gaps, key=lambda idle: idle.gap.length)


class _Gaps:
    """Explains gaps one by one, and sums them."""

    def __init__(
        self, trace: Trace, events: DeviceEvents, host: HostCauses, idle: IdleTime, begin: int
    ) -> None:
        """``begin`` is the window's."""
        self._trace, self._events, self._host, self._idle, self._begin = (
            trace,
            events,
            host,
            idle,
            begin,
        )
        self._graphs = trace.names.matching(GRAPH_LAUNCH.match)
        streams = {trace.gpu.stream[number] for number in events.number}
        self._is_sequential = len(streams) < 2 and not host.waits_for_events
        self._lost = host.lost_launches

    def explained(self, first: int, last: int, at: int, sums: dict[Cause, int]) -> Gap:
        """Add the gap [first, last) to ``sums`` by its causes.

        ``at`` is the place of the event that ends it.
        """
        events, calls = self._events, self._trace.calls
        call = events.launch[at] if at < len(events) and events.start[at] == last else ABSENT
        if self._lost and self._is_hole(at, call):
            sums["not_recorded"] += last - first
            return Gap(first, last, ABSENT, (first, first))
        if call == ABSENT:
            sums["unknown"] += last - first
            return Gap(first, last, ABSENT, (first, first))
        thread = calls.thread[call]
        # The host had not launched it until then; from there on it is launched, or being launched.
        until = min(max(calls.start[call], first), last)
        self._from_the_launch(first, until, last, at, sums)
        if until > first:
            self._before_the_launch(thread, first, until, at, sums)
            self._idle.host.setdefault(thread, []).append((first, until))
        return Gap(first, last, thread, (first, until))

    def _is_hole(self, at: int, call: int) -> bool:
        """Whether a kernel launched in between is missing.

        Its launch lies between the launches of the events around the gap.
        """
        starts, launch = self._trace.calls.start, self._events.launch
        before = launch[at - 1] if at else ABSENT
        since = starts[before] if before != ABSENT else -(2**63)
        until = starts[call] if call != ABSENT else 2**63
        return bisect_left(self._lost, until) > bisect_left(self._lost, since)

    def _from_the_launch(
        self, first: int, until: int, last: int, at: int, sums: dict[Cause, int]
    ) -> None:
        """Add the time from the launch on to its causes.

        It began at ``until``: inside of the launching call, and after it.
        """
        call = self._events.launch[at]
        inside = max(0, min(self._trace.calls.end[call], last) - until)
        kernel = self._events.kind[at] != COPY
        of_graph = self._trace.calls.name[call] in self._graphs
        if until == first and (not kernel or inside < KERNEL_GAP_NS):
            longest = DEVICE_WAIT_NS if self._is_sequential and not of_graph else KERNEL_GAP_NS
            if last - first < longest:
                sums["kernel_gap"] += last - first
                return
            inside, late, allowed = 0, last - first, 0
        else:
            late, allowed = last - until - inside, LATENCY_NS
        if inside < MODULE_LOAD_NS or (kernel and of_graph):
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
        """Add a wait of an event to the waits of its kind.

        The last event that ended before it is searched nearby.
        """
        events, streams = self._events, self._trace.gpu.stream
        before = [
            place
            for place in range(max(0, at - _NEARBY), at)
            if events.end[place] <= events.start[at]
        ]
        last = max(before, key=events.end.__getitem__, default=at)
        texts = self._trace.names.texts
        kernel, after = (
            (short_name(texts[events.name[place]]), streams[events.number[place]])
            for place in (at, last)
        )
        wait = (*kernel, *after, texts[self._trace.calls.name[events.launch[at]]])
        many, total = self._idle.waits.get(wait, (0, 0))
        self._idle.waits[wait] = (many + 1, total + spent)

    def _before_the_launch(
        self, thread: int, first: int, until: int, at: int, sums: dict[Cause, int]
    ) -> None:
        """Add the time before a launch to its causes.

        The first that holds: data, loading of modules, allocator, a long operator, other work, after a wait, launching.
        """
        remaining, rest = self._without_causes(thread, first, until, sums)
        waits, call = self._host.waits.get(thread), ABSENT
        if waits is not None and first == self._begin:
            # The queue may hold work from before the trace: while a call waits for it, the GPU may not be idle.
            waited = length(intersect(remaining, touching(waits.during, first, until)))
            sums["unknown"] += waited
            rest -= waited
        elif waits is not None and rest:
            call = waits.running_at(first)
        if call != ABSENT:
            self._idle.after_call[call] = self._idle.after_call.get(call, 0) + rest
        # How long the host launched nothing counts, also while the GPU was still busy, and not the gap's length.
        last_call, before = (
            self._host.quiet_since(thread, until),
            self._events.launch[at - 1] if at else ABSENT,
        )
        since = first if last_call is None else last_call
        if before != ABSENT:
            # Forward and backward run on two threads: what either launches counts.
            since = min(until, max(since, self._trace.calls.end[before]))
        quiet, _ = self._without_causes(thread, since, until, None)
        if length(quiet) >= (LONG_OPERATOR_NS if call == ABSENT else HOST_WORK_NS):
            worked = rest
            self._idle.working.setdefault(thread, []).extend(remaining)
        elif rest and (own := touching(self._host.own_work(thread), first, until)):
            intervals = intersect(remaining, own)
            worked = min(rest, length(intervals))
            self._idle.working.setdefault(thread, []).extend(intervals)
        else:
            worked = 0
        sums["host_work"] += worked
        sums["launching" if call == ABSENT else "after_sync"] += rest - worked

    def _without_causes(
        self, thread: int, first: int, until: int, sums: dict[Cause, int] | None
    ) -> tuple[Intervals, int]:
        """[first, until) without data, module loading and allocation, and its length.

        Their times are added to ``sums``.
        """
        remaining: Intervals = [(first, until)] if until > first else []
        rest = until - first
        causes: tuple[Cause, ...] = ("data", "module_load", "allocator")
        for cause in causes:
            if near := touching(self._host.during(cause, thread), first, until):
                remaining = subtract(remaining, near)
                now = length(remaining)
                if sums is not None:
                    sums[cause] += rest - now
                rest = now
        return remaining, rest
