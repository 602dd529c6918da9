"""Checks of a trace's times; impossible ones are cut.

Times are compared with the stream, the launches and the bus.

Profilers write such events: kineto#109 (kernels with time 0), a copy that "takes" 3 s past its successors on the
stream, pytorch#192021 (launches whose kernels were dropped).
"""

from __future__ import annotations

import re
from array import array
from itertools import compress, pairwise

from gputop.features.traces.columns import ABSENT, COPY, GpuEvents, TimeDoubts, Trace
from gputop.features.traces.host_causes import GRAPH_LAUNCH
from gputop.features.traces.intervals import touching

OVERRUN_NS = 1_000_000
"""An event that ends so long after the next begin on its stream is wrong; programmatic launches overlap by µs."""
SLOWEST_BUS = 50e6
"""Bytes a second: a fifth of PCIe 1.0 x1, so no copy of ``LEAST_COPY`` bytes is slower."""
LEAST_COPY = 1_000_000
NOT_SEQUENTIAL = 0.5
"""A stream on which more of the events overrun is not one stream: nothing is cut there."""
BEFORE_HOST_NS = 3600 * 10**9
"""A kernel so long before the host's first event has no time."""
KERNEL_LAUNCH = re.compile(r"cudaLaunch(Cooperative)?Kernel|cuLaunch\w*Kernel")
_CAPTURE = re.compile(r"(cuda|cu)Stream(Begin|End)Capture")


def check_times(trace: Trace, zero: int) -> None:
    """Cut or remove impossible events of a trace.

    Their numbers are stored in ``trace.doubts``.

    ``zero`` is the file's own time 0 in the trace's nanoseconds.
    """
    gpu = trace.gpu
    untimed = _untimed(trace, zero)
    overruns = _cut_overruns(trace, untimed)
    slow = {
        number
        for number, (kind, size, first, last) in enumerate(
            zip(gpu.kind, gpu.size_bytes, gpu.start, gpu.end, strict=True)
        )
        if kind == COPY
        and size >= LEAST_COPY
        and (last - first) * SLOWEST_BUS > size * 1e9
        and number not in untimed
    }
    if untimed or slow:
        _remove(trace, untimed | slow)
    launches, known, calls = _launches(trace), set(trace.gpu.correlation), trace.calls
    lost = sorted(
        (n for n in launches if calls.correlation[n] not in known), key=calls.start.__getitem__
    )
    trace.doubts = TimeDoubts(
        overruns, len(slow), len(untimed), tuple(lost) if len(gpu) else (), len(launches)
    )


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


def _cut_overruns(trace: Trace, untimed: set[int]) -> int:
    """Cut events at the next begin on their stream; return how many."""
    gpu = trace.gpu
    by_stream: dict[tuple[int, int], list[int]] = {}
    for number, key in enumerate(zip(gpu.device, gpu.stream, strict=True)):
        if key[1] != ABSENT and number not in untimed:
            by_stream.setdefault(key, []).append(number)
    graphs = trace.names.matching(GRAPH_LAUNCH.match)
    of_graphs = (
        set(compress(trace.calls.correlation, map(graphs.__contains__, trace.calls.name)))
        if graphs
        else set()
    )
    cut = 0
    for numbers in by_stream.values():
        numbers.sort(key=gpu.start.__getitem__)
        # Branches of a graph run side by side, all under the stream of its launch.
        over = [
            (number, gpu.start[after])
            for number, after in pairwise(numbers)
            if gpu.end[number] - gpu.start[after] > OVERRUN_NS
            and gpu.correlation[number] not in of_graphs
        ]
        if len(over) <= NOT_SEQUENTIAL * len(numbers):
            cut += len(over)
            for number, until in over:
                gpu.end[number] = until
    return cut


def _remove(trace: Trace, numbers: set[int]) -> None:
    """Remove rows of the GPU's events; collectives keep their kernels."""
    gpu = trace.gpu
    kept = [number for number in range(len(gpu)) if number not in numbers]
    columns = (getattr(gpu, name) for name in gpu.__struct_fields__)
    trace.gpu = GpuEvents(
        *(array(column.typecode, map(column.__getitem__, kept)) for column in columns)
    )
    moved = {was: now for now, was in enumerate(kept)} if trace.collectives else {}
    trace.collectives = {moved[was]: row for was, row in trace.collectives.items() if was in moved}
