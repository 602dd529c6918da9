"""One GPU's events in the order of time, with their launches."""

from __future__ import annotations

from array import array
from itertools import compress
from typing import Any

from msgspec import Struct

from gputop.features.traces.columns import ABSENT, COMM, COMPUTE, COPY, Trace
from gputop.features.traces.intervals import Intervals, clip, union


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
    """The call behind each correlation of a GPU event.

    Of several calls it is the first, which is the outermost.
    """
    correlations = set(trace.gpu.correlation)
    correlations.discard(ABSENT)
    call_of_correlation: dict[int, int] = {}
    for number, correlation in enumerate(trace.calls.correlation):
        if correlation in correlations:
            call_of_correlation.setdefault(correlation, number)
    return call_of_correlation


def numbers_by_device(trace: Trace) -> dict[int, array[int]]:
    """The numbers of each device's events in the order of time, by device."""
    gpu = trace.gpu
    by_device: dict[int, array[int]] = {}
    for number in sorted(range(len(gpu)), key=gpu.start.__getitem__):
        device = gpu.device[number]
        if device not in by_device:
            by_device[device] = array("q")
        by_device[device].append(number)
    return dict(sorted(by_device.items()))


def device_events(
    trace: Trace, device: int, order: array[int], launched: dict[int, int]
) -> DeviceEvents:
    """Events of a device, each with its launch.

    ``order`` are their numbers in order, ``launched`` is the result of ``launches``.
    """
    gpu = trace.gpu

    def column(values: Any) -> Any:
        return array(values.typecode, map(values.__getitem__, order))

    launch = array("q", [launched.get(gpu.correlation[number], ABSENT) for number in order])
    return DeviceEvents(
        device,
        order,
        column(gpu.start),
        column(gpu.end),
        column(gpu.kind),
        column(gpu.name),
        launch,
        column(gpu.blocks_per_sm),
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

    def union_of(kind: int) -> Intervals:
        is_kind = map(kind.__eq__, events.kind)
        return clip(
            union(compress(zip(events.start, events.end, strict=True), is_kind)), begin, end
        )

    compute, comm, copy = union_of(COMPUTE), union_of(COMM), union_of(COPY)
    kernels = union(sorted(compute + comm)) if comm else compute
    return Busy(compute, comm, copy, kernels, union(sorted(kernels + copy)) if copy else kernels)
