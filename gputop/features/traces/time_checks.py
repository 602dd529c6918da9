"""Checks of a trace's times; impossible ones are cut.

Times are compared with the stream, the launches and the bus.

Profilers write such events: kineto#109 (kernels with time 0), a copy that "takes" 3 s past its successors on the
stream, pytorch#192021 (launches whose kernels were dropped).
"""

from __future__ import annotations

import re
from array import array
from itertools import compress, pairwise
from statistics import median_low
from typing import TypeVar

from gputop.features.traces.columns import (
    ABSENT,
    COPY,
    DAY_NS,
    Columns,
    DeviceStream,
    GpuEvents,
    TimeDoubts,
    Trace,
)
from gputop.features.traces.host_causes import GRAPH_LAUNCH
from gputop.features.traces.intervals import touching

OVERRUN_NS = 1_000_000
"""An event that ends so long after the next begin on its stream is wrong; programmatic launches overlap by µs."""
SLOWEST_BUS = 50e6
"""Bytes a second: a fifth of PCIe 1.0 x1, so no copy of ``LEAST_COPY`` bytes is slower."""
LEAST_COPY = 1_000_000
NOT_SEQUENTIAL = 0.5
"""A stream on which more of the events overrun, or of their time overlaps, is not one stream: nothing is cut there."""
BEFORE_HOST_NS = 3600 * 10**9
"""A kernel so long before the host's first event has no time."""
KERNEL_LAUNCH = re.compile(r"cudaLaunch(Cooperative)?Kernel|cuLaunch\w*Kernel")
_CAPTURE = re.compile(r"(cuda|cu)Stream(Begin|End)Capture")


Table = TypeVar("Table", bound=Columns)


def check_times(trace: Trace, zero: int) -> None:
    """Cut or remove impossible events of a trace.

    Their numbers are stored in ``trace.doubts``.

    ``zero`` is the file's own time 0 in the trace's nanoseconds.
    """
    far = _drop_far(trace, zero)
    twice = _drop_repeated_calls(trace)
    untimed = _untimed(trace, zero)
    again = _repeated(trace.gpu, trace.gpu.stream, trace.gpu.device) - untimed
    overruns, tangled = _cut_overruns(trace, untimed | again)
    slow = _slow_copies(trace.gpu) - untimed
    gone = untimed | slow
    # A launch has its kernel also where the file holds that twice.
    correlations = enumerate(trace.gpu.correlation)
    known = {correlation for number, correlation in correlations if number not in gone}
    if gone or again:
        _remove(trace, gone | again)
    launches, calls = _launches(trace), trace.calls
    lost = sorted(
        (n for n in launches if calls.correlation[n] not in known), key=calls.start.__getitem__
    )
    trace.doubts = TimeDoubts(
        overruns=overruns,
        slow_copies=len(slow),
        untimed=len(untimed),
        lost=tuple(lost) if len(trace.gpu) else (),
        launches=len(launches),
        twice=twice + len(again),
        far=far,
        tangled=frozenset(tangled),
    )


def _slow_copies(gpu: GpuEvents) -> set[int]:
    """Numbers of the copies that no bus makes so slow."""
    rows = enumerate(zip(gpu.kind, gpu.size_bytes, gpu.start, gpu.end, strict=True))
    return {
        number
        for number, (kind, size, first, last) in rows
        if kind == COPY and size >= LEAST_COPY and (last - first) * SLOWEST_BUS > size * 1e9
    }


def _drop_far(trace: Trace, zero: int) -> int:
    """Remove events that lie a day and more from the middle one of the GPU's; return how many.

    Events at the file's time 0 are left: these have no time.
    """
    starts = [start for start in trace.gpu.start if start > zero]
    if not starts:
        return 0
    middle = median_low(starts)
    far_work = _far_from(trace.gpu, middle)
    far_work -= {number for number in far_work if zero - DAY_NS < trace.gpu.start[number] <= zero}
    far_calls, far_spans = _far_from(trace.calls, middle), _far_from(trace.spans, middle)
    if far_work:
        _remove(trace, far_work)
    trace.calls = _without_rows(trace.calls, far_calls)
    trace.spans = _without_rows(trace.spans, far_spans)
    return len(far_work) + len(far_calls) + len(far_spans)


def _far_from(table: Columns, middle: int) -> set[int]:
    """Numbers of the events that begin a day and more from a moment."""
    if not len(table):
        return set()
    if max(table.start) - middle < DAY_NS and middle - min(table.start) < DAY_NS:
        return set()
    return {number for number, start in enumerate(table.start) if abs(start - middle) >= DAY_NS}


def _drop_repeated_calls(trace: Trace) -> int:
    """Remove calls that the file holds again; return how many."""
    again = _repeated(trace.calls, trace.calls.thread, trace.calls.correlation)
    trace.calls = _without_rows(trace.calls, again)
    return len(again)


def _repeated(table: Columns, lane: array[int], other: array[int]) -> set[int]:
    """Numbers of the rows that have the times, the name and the lane of another one.

    A file that was appended to itself, or joined of traces, has such rows.
    """
    repeated: set[int] = set()
    seen: set[tuple[int, int, int, int]] = set()
    begin = None
    for number in sorted(range(len(table)), key=table.start.__getitem__):
        if table.start[number] != begin:
            begin = table.start[number]
            seen.clear()
        row = (table.end[number], table.name[number], lane[number], other[number])
        if row in seen:
            repeated.add(number)
        seen.add(row)
    return repeated


def _launches(trace: Trace) -> list[int]:
    """Numbers of the calls that launch a kernel; in a graph's capture a call only records one."""
    calls, names = trace.calls, trace.names
    launching, capture = names.matching(KERNEL_LAUNCH.match), names.matching(_CAPTURE.match)
    moments = sorted(
        compress(zip(calls.start, calls.name, strict=True), map(capture.__contains__, calls.name))
    )
    pairs = pairwise([*moments, (2**63, -1)])
    captures = [(begin, end) for (begin, name), (end, _) in pairs if "Begin" in names.texts[name]]
    rows = enumerate(zip(calls.name, calls.correlation, calls.start, strict=True))
    launches = [
        n for n, (name, correlation, _) in rows if name in launching and correlation != ABSENT
    ]
    return (
        [n for n in launches if not touching(captures, calls.start[n], calls.start[n] + 1)]
        if captures
        else launches
    )


def _untimed(trace: Trace, zero: int) -> set[int]:
    """Numbers of the GPU's events without a time.

    They are at the file's time 0, or an hour before all that the host did.

    Relative times may begin at 0: there only an event without a duration has no time.
    """
    gpu = trace.gpu
    first = min(
        (min(table.start) for table in (trace.calls, trace.spans) if len(table)), default=None
    )
    limit = -(2**63) if first is None else first - BEFORE_HOST_NS
    if not len(gpu) or min(gpu.start) > max(limit, zero):
        return set()
    rows = enumerate(zip(gpu.start, gpu.end, strict=True))
    return {
        number
        for number, (start, end) in rows
        if start <= limit or (start <= zero and end <= start)
    }


def _cut_overruns(trace: Trace, removed: set[int]) -> tuple[int, list[DeviceStream]]:
    """Cut events at the next begin on their stream; return how many.

    Streams whose events overlap more than a few outliers do are returned as they are.
    """
    gpu = trace.gpu
    of_graphs = _correlations_of_graphs(trace)
    cut = 0
    tangled: list[DeviceStream] = []
    for stream, numbers in _by_stream(gpu, removed).items():
        # Branches of a graph run side by side, all under the stream of its launch.
        over = [
            (number, gpu.start[after])
            for number, after in pairwise(numbers)
            if gpu.end[number] - gpu.start[after] > OVERRUN_NS
            and gpu.correlation[number] not in of_graphs
        ]
        if len(over) > NOT_SEQUENTIAL * len(numbers):
            tangled.append(stream)
            continue
        cut += len(over)
        for number, until in over:
            gpu.end[number] = until
        alone = [number for number in numbers if gpu.correlation[number] not in of_graphs]
        if _overlap(gpu, alone) > NOT_SEQUENTIAL:
            tangled.append(stream)
    return cut, tangled


def _by_stream(gpu: GpuEvents, removed: set[int]) -> dict[DeviceStream, list[int]]:
    """Numbers of the events of each stream, in the order of their begins."""
    streams: dict[DeviceStream, list[int]] = {}
    for number, stream in enumerate(zip(gpu.device, gpu.stream, strict=True)):
        if number not in removed:
            streams.setdefault(stream, []).append(number)
    streams = {key: numbers for key, numbers in streams.items() if key[1] != ABSENT}
    for numbers in streams.values():
        numbers.sort(key=gpu.start.__getitem__)
    return streams


def _correlations_of_graphs(trace: Trace) -> set[int]:
    graphs = trace.names.matching(GRAPH_LAUNCH.match)
    if not graphs:
        return set()
    return set(compress(trace.calls.correlation, map(graphs.__contains__, trace.calls.name)))


def _overlap(gpu: GpuEvents, numbers: list[int]) -> float:
    """The part (0 to 1) of the time of events in which an earlier one still runs."""
    in_all = apart = 0
    until = -(2**63)
    for number in numbers:
        begin, end = gpu.start[number], gpu.end[number]
        in_all += end - begin
        if end > until:
            apart += end - max(begin, until)
            until = end
    return 1.0 - apart / in_all if in_all else 0.0


def _remove(trace: Trace, numbers: set[int]) -> None:
    """Remove rows of the GPU's events; collectives keep their kernels."""
    kept = [number for number in range(len(trace.gpu)) if number not in numbers]
    trace.gpu = _without_rows(trace.gpu, numbers)
    moved = {was: now for now, was in enumerate(kept)} if trace.collectives else {}
    trace.collectives = {moved[was]: row for was, row in trace.collectives.items() if was in moved}


def _without_rows(table: Table, numbers: set[int]) -> Table:
    """The table without the rows of these numbers."""
    if not numbers:
        return table
    kept = [number for number in range(len(table)) if number not in numbers]
    columns = {name: getattr(table, name) for name in table.__struct_fields__}
    return type(table)(
        **{
            name: array(column.typecode, map(column.__getitem__, kept))
            for name, column in columns.items()
        }
    )
