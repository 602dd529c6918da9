"""One GPU's part of a trace in the order of time, joined to the calls that launched it."""

from __future__ import annotations

from array import array
from itertools import compress, islice
from operator import le

from msgspec import Struct

from gputop.traces.columns import ABSENT, COMM, COMPUTE, COPY, Trace
from gputop.traces.intervals import Intervals, clip, union


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


def devices_of(trace: Trace) -> list[int]:
    """The GPUs on which something ran, in their order."""
    return sorted(set(trace.gpu.device))


def launches(trace: Trace) -> dict[int, int]:
    """The call behind each correlation that an event of a GPU has. The first of several, which is the outermost."""
    wanted = set(trace.gpu.correlation)
    wanted.discard(ABSENT)
    found: dict[int, int] = {}
    for number, correlation in enumerate(trace.calls.correlation):
        if correlation in wanted:
            found.setdefault(correlation, number)
    return found


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
        wanted = map(kind.__eq__, events.kind)
        return clip(union(compress(zip(events.start, events.end, strict=True), wanted)), begin, end)

    compute, comm, copy = of(COMPUTE), of(COMM), of(COPY)
    kernels = union(sorted(compute + comm)) if comm else compute
    return Busy(compute, comm, copy, kernels, union(sorted(kernels + copy)) if copy else kernels)
