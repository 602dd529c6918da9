"""Why the GPU was idle: each gap between its events is split by what the launching thread did meanwhile.

A gap ends with the event K, launched by the call L on thread T. Launched before the gap began, K waited for something
on the GPU; launched inside of it, the host was late, and what the host did until then is the cause.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import nlargest

from msgspec import Struct

from gputop.traces.columns import ABSENT, Trace
from gputop.traces.device import DeviceEvents
from gputop.traces.host import HostThreads
from gputop.traces.intervals import Interval, Intervals, intersect, length, subtract, touching

CAUSES = (
    "data", "after_sync", "allocator", "launching", "launch_latency", "dependency", "kernel_gap", "unknown",
)  # fmt: skip
"""In the order in which they are printed."""
_DATA, _AFTER_SYNC, _ALLOCATOR, _LAUNCHING, _LATENCY, _DEPENDENCY, _KERNEL_GAP, _UNKNOWN = range(len(CAUSES))
KERNEL_GAP_NS = 30_000
"""Shorter waits between launched kernels are the GPU's own switching time, as in Holistic Trace Analysis."""
LONGEST_GAPS = 40


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


class IdleTime(Struct):
    """All gaps of a window in nanoseconds: by cause, by step and cause, and what the host was doing meanwhile.

    ``by_step`` has a row per step with a sum for each of ``CAUSES``. ``host`` holds the late host's moments by thread,
    ``after_call`` the idle time behind each waiting call, ``longest`` the longest gaps in the order of time.
    """

    by_step: list[list[int]]
    host: dict[int, Intervals]
    after_call: dict[int, int]
    longest: list[Gap]

    def by_cause(self) -> dict[str, int]:
        """The sums over all steps."""
        return {cause: sum(row[at] for row in self.by_step) for at, cause in enumerate(CAUSES)}


def idle_time(
    trace: Trace, events: DeviceEvents, busy: Intervals, boundaries: list[int], host: HostThreads
) -> IdleTime:
    """Every gap between ``boundaries`` with its cause. ``busy`` is the union of the device's events."""
    begin, end = boundaries[0], boundaries[-1]
    idle = subtract([(begin, end)], busy) if end > begin else []
    result = IdleTime([[0] * len(CAUSES) for _ in boundaries[1:]], {}, {}, [])
    start, launch = events.start, events.launch
    call_start, call_thread = trace.calls.start, trace.calls.thread
    gaps: list[Gap] = []
    row = at = 0
    for first, last in idle:
        while boundaries[row + 1] <= first:
            row += 1
        at = bisect_right(start, last - 1, at)
        sums = result.by_step[row]
        number = launch[at] if at < len(start) and start[at] == last else ABSENT
        if number == ABSENT:
            sums[_UNKNOWN] += last - first
            gaps.append(Gap(first, last, ABSENT, (first, first)))
            continue
        launched, thread = call_start[number], call_thread[number]
        if launched <= first:
            sums[_KERNEL_GAP if last - first < KERNEL_GAP_NS else _DEPENDENCY] += last - first
            gaps.append(Gap(first, last, thread, (first, first)))
            continue
        until = launched if launched < last else last
        sums[_LATENCY] += last - until
        _host_time(result, host, thread, first, until, sums, leading=first == begin)
        result.host.setdefault(thread, []).append((first, until))
        gaps.append(Gap(first, last, thread, (first, until)))
    result.longest = sorted(nlargest(LONGEST_GAPS, gaps, key=lambda gap: gap.length), key=lambda gap: gap.begin)
    return result


def _host_time(
    result: IdleTime, host: HostThreads, thread: int, begin: int, until: int, sums: list[int], *, leading: bool
) -> None:
    """Add the time before a launch to its causes, the first that holds: data, allocator, after a wait, launching."""
    rest = until - begin
    left: Intervals = [(begin, until)]
    for cause, when in ((_DATA, host.data(thread)), (_ALLOCATOR, host.allocator(thread))):
        if when and (near := touching(when, begin, until)):
            left = subtract(left, near)
            now = length(left)
            sums[cause] += rest - now
            rest = now
    waits = host.waits.get(thread)
    if rest == 0 or waits is None:
        sums[_LAUNCHING] += rest
    elif leading:
        # The queue may hold work from before the trace: while a call waits for it, the GPU may not be idle.
        waited = length(intersect(left, touching(host.waiting(thread), begin, until)))
        sums[_UNKNOWN] += waited
        sums[_LAUNCHING] += rest - waited
    elif (call := waits.running_at(begin)) != ABSENT:
        sums[_AFTER_SYNC] += rest
        result.after_call[call] = result.after_call.get(call, 0) + rest
    else:
        sums[_LAUNCHING] += rest
