"""Page faults of unified memory: data that moves to a GPU when a kernel touches it.

Nsight Systems records groups of faults with the time that the driver takes for them, and the copies that they cause.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import compress
from typing import NamedTuple

from gputop.features.traces.columns import ABSENT, Trace
from gputop.features.traces.device_events import DeviceEvents
from gputop.features.traces.intervals import clip, length, union
from gputop.features.traces.trace_report import PageFaults

_MIGRATION = "unified memory"


class _Group(NamedTuple):
    """Page faults that the driver handled together."""

    begin: int
    end: int
    many: int


class FaultIndex:
    """The page faults of a trace by GPU, for all GPUs at once; the CPU's belong to none."""

    def __init__(self, trace: Trace) -> None:
        self._by_device: dict[int, list[_Group]] = {}
        faults = trace.faults
        rows = zip(faults.start, faults.end, faults.device, faults.many, strict=True)
        for begin, end, device, many in sorted(rows):
            self._by_device.setdefault(device, []).append(_Group(begin, end, many))
        self._on_cpu = [group.begin for group in self._by_device.get(ABSENT, ())]

    def on_gpu(self, device: int, begin: int, end: int) -> list[_Group]:
        """Groups of a GPU's faults that begin in [begin, end)."""
        groups = self._by_device.get(device, [])
        return groups[bisect_left(groups, (begin,)) : bisect_left(groups, (end,))]

    def on_cpu(self, begin: int, end: int) -> int:
        """How many faults the CPU had in [begin, end)."""
        return bisect_left(self._on_cpu, end) - bisect_left(self._on_cpu, begin)


def page_faults(
    trace: Trace, faults: FaultIndex, events: DeviceEvents, begin: int, end: int
) -> PageFaults | None:
    """Count the page faults and migrations of a GPU in [begin, end); None without any."""
    groups = faults.on_gpu(events.index, begin, end)
    moved = _moved_bytes(trace, events, begin, end)
    if not groups and not moved:
        return None
    handled = clip(union((group.begin, group.end) for group in groups), begin, end)
    return PageFaults(
        gpu_faults=sum(group.many for group in groups),
        handling_ms=length(handled) / 1e6,
        cpu_faults=faults.on_cpu(begin, end),
        moved_bytes=moved,
    )


def _moved_bytes(trace: Trace, events: DeviceEvents, begin: int, end: int) -> int:
    """Bytes that migrated between host and device in [begin, end)."""
    migrations = trace.names.matching(_migrates)
    if not migrations:
        return 0
    numbers = compress(events.number, map(migrations.__contains__, events.name))
    gpu = trace.gpu
    inside = (number for number in numbers if begin <= gpu.start[number] < end)
    return sum(max(0, gpu.size_bytes[number]) for number in inside)


def _migrates(name: str) -> bool:
    return _MIGRATION in name
