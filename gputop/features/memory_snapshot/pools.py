"""Layout of the allocator's memory at a past moment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.memory_snapshot.allocator_snapshot import (
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    DeviceMemory,
)

EXPANDABLE_PAGE = 20 << 20
"""Expandable segments return whole pages of this size to the driver (kLargeBuffer of CUDACachingAllocator)."""


class FreeMemory(Struct, frozen=True):
    """Free memory of the allocator at one moment, in disjoint parts.

    ``stuck_bytes`` lies beside blocks in use and cannot be returned to the driver; its largest piece has
    ``largest_bytes``. ``whole_bytes`` can be returned (empty_cache()). ``private_bytes`` lies in private pools, which
    serve CUDA graphs or a MemPool and no other allocation; ``other_streams_bytes`` belongs to other streams than the
    one in question.
    """

    stuck_bytes: int
    whole_bytes: int
    largest_bytes: int
    private_bytes: int
    other_streams_bytes: int


class Range(Struct, frozen=True):
    """Reserved addresses [begin, end) of one pool and stream."""

    begin: int
    end: int
    stream: int
    private: bool
    expandable: bool


def ranges_after(device: DeviceMemory, moments: Iterable[int]) -> dict[int, list[Range]]:
    """Reserved ranges after so many events.

    They are found by undoing the events from the end.
    """
    ranges = {
        part.address: Range(
            part.address, part.address + part.size, part.stream, part.private, part.expandable
        )
        for part in device.segments
    }
    wanted, found = set(moments), {}
    for number in range(len(device.events), -1, -1):
        if number in wanted:
            found[number] = list(ranges.values())
        event = device.events[number - 1] if number else None
        if event is not None and event.action == SEGMENT_ALLOC:
            _remove(ranges, event.address, event.address + event.size)
        elif event is not None and event.action == SEGMENT_FREE:
            ranges[event.address] = Range(
                event.address, event.address + event.size, event.stream, False, False
            )
    return found


def _remove(ranges: dict[int, Range], begin: int, end: int) -> None:
    """Take [begin, end) out of all ranges.

    Parts of expandable segments are mapped one by one.
    """
    exact = ranges.get(begin)
    overlapping = [exact] if exact is not None and exact.end == end else list(ranges.values())
    for part in overlapping:
        if part.begin < end and part.end > begin:
            del ranges[part.begin]
            if part.begin < begin:
                ranges[part.begin] = replace(part, end=begin)
            if part.end > end:
                ranges[end] = replace(part, begin=end)


def free_memory(
    ranges: list[Range], live: Iterable[tuple[int, int]], stream: int | None = None
) -> FreeMemory:
    """Free memory in ``ranges`` beside the live blocks, given as (address, size).

    With ``stream``, the free memory of other streams is counted apart.
    """
    blocks = sorted(live)
    stuck = whole = largest = private = other = 0
    for part in ranges:
        pieces: list[int] = []
        now, first = part.begin, bisect_left(blocks, (part.begin,))
        for address, size in blocks[first : bisect_left(blocks, (part.end,))]:
            pieces.append(max(0, address - now))
            now = max(now, address + size)
        is_used, free = bool(pieces), sum(pieces) + max(0, part.end - now)
        if part.private:
            private += free
        elif stream is not None and part.stream != stream:
            other += free
        elif is_used:
            pieces.append(max(0, part.end - now))
            left = [size for size in pieces if not part.expandable or size < EXPANDABLE_PAGE]
            stuck, whole = stuck + sum(left), whole + free - sum(left)
            largest = max(largest, *left, 0)
        else:
            whole += free
    return FreeMemory(stuck, whole, largest, private, other)
