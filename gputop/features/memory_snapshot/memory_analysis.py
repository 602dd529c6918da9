"""Analyses a snapshot: peak, live memory, growth, failures.

Memory in use between two events belongs to active blocks: allocated, or freed and still used by a stream. It is
computed backwards from the blocks at the end, so that a ring of events without its begin is right, too. Sums are of the
requested sizes; rounding is reported separately.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Literal

from msgspec import Struct

from gputop.features.memory_snapshot.allocator_snapshot import (
    ALLOC,
    ALLOCATED,
    FREE,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    AllocatorEvent,
    AllocatorSnapshot,
    DeviceMemory,
)
from gputop.features.memory_snapshot.pools import FreeMemory, Range, free_memory, ranges_after
from gputop.features.memory_snapshot.stacks import CATEGORIES, NO_STACK, AllocationStack, Category

LEAST_STEPS = 3
"""Number of steps from which growth is distinguished from chance."""
LEAST_GROWTH = 1 << 20
"""Bytes a step below which growth is not reported [judged]."""
OutOfMemoryCause = Literal["fragmentation", "private_pool", "other_stream", "full"]


class HeldMemory(Struct, frozen=True):
    """Memory by place of allocation: bytes requested, number of allocations, frames."""

    place: str
    category: Category
    bytes: int
    allocations: int
    frames: tuple[str, ...]


class Reserved(Struct, frozen=True):
    """Memory that the allocator holds at the end.

    ``rounding_bytes`` is what rounding added to requests. The parts and all of ``free`` sum to ``reserved_bytes``.
    """

    reserved_bytes: int
    allocated_bytes: int
    rounding_bytes: int
    awaiting_free_bytes: int
    free: FreeMemory
    segments: int


class OutOfMemory(Struct, frozen=True):
    """A failed allocation.

    ``missing_bytes`` more would have sufficed if all usable free pieces were one.

    ``device_free_bytes`` is None where the file does not say. ``cause`` says why free memory did not help:
    ``fragmentation``, ``private_pool``, ``other_stream``, or ``full``.
    """

    wanted_bytes: int
    device_free_bytes: int | None
    reserved_bytes: int
    in_use_bytes: int
    free: FreeMemory
    missing_bytes: int
    cause: OutOfMemoryCause
    place: str
    alive: tuple[HeldMemory, ...]


class Growth(Struct, frozen=True):
    """A place that holds more at each step's begin."""

    place: str
    category: Category
    bytes_a_step: int
    first_bytes: int
    last_bytes: int
    steps: int
    frames: tuple[str, ...]


class MemoryPeak(Struct, frozen=True):
    """The moment with most bytes in use, after ``event`` events.

    ``most_reserved_bytes`` is of the whole recording.
    """

    bytes: int
    event: int
    reserved_bytes: int
    most_reserved_bytes: int
    free: FreeMemory

    @property
    def fragmentation_pct(self) -> float:
        """Share of the reserved memory that is free and cannot be returned."""
        return 100.0 * self.free.stuck_bytes / self.reserved_bytes if self.reserved_bytes else 0.0


class DeviceReport(Struct, frozen=True):
    """One device.

    ``peak`` is None without events; then ``alive`` and ``categories_bytes`` are of the end.

    ``survived`` was allocated during the recording and is still alive. ``curve`` holds points of (event, bytes in use,
    bytes reserved).
    """

    index: int
    events: int
    peak: MemoryPeak | None
    preexisting_bytes: int
    end: Reserved
    categories_bytes: Mapping[str, int]
    alive: tuple[HeldMemory, ...]
    survived: tuple[HeldMemory, ...]
    steps: int
    steps_from: str | None
    growth: tuple[Growth, ...]
    out_of_memory: tuple[OutOfMemory, ...]
    curve: tuple[tuple[int, int, int], ...]

    @property
    def contradicts_itself(self) -> bool:
        """Whether more is in use than was reserved, which no allocator can do."""
        end, peak = self.end, self.peak
        is_over = (
            end.allocated_bytes + end.rounding_bytes + end.awaiting_free_bytes > end.reserved_bytes
        )
        return is_over or (peak is not None and peak.bytes > peak.most_reserved_bytes)


class MemoryReport(Struct, frozen=True):
    """All devices of a snapshot. ``stacks``: some allocation has a stack."""

    path: str
    devices: tuple[DeviceReport, ...]
    expandable: bool | None
    stacks: bool
    impossible: int


MOST_FAILURES = 5
MOST_STEPS = 50
"""The last ones: memory is summed by place at each."""
_CURVE = 200
"""Points: an attribute of a page takes some 4,000 characters."""
_Live = dict[int, tuple[int, int]]
"""Address → (bytes requested, number of the stack)."""


def analyse(snapshot: AllocatorSnapshot) -> MemoryReport:
    """Analyse every device of a snapshot."""
    devices = tuple(_device(device, snapshot.stacks) for device in snapshot.devices)
    has_stacks = any(stack.frames for stack in snapshot.stacks)
    return MemoryReport(
        snapshot.path, devices, snapshot.expandable, has_stacks, snapshot.impossible
    )


def _device(device: DeviceMemory, stacks: list[AllocationStack]) -> DeviceReport:
    # A million live blocks are some hundred megabytes: each step lets go what the next does not need.
    events, end = device.events, _reserved(device)
    live_at_end = _live_at_end(device)
    allocated = {event.address for event in events if event.action == ALLOC}
    survived = [live_at_end[address] for address in allocated if address in live_at_end]
    before = _live_before(events, live_at_end, stacks)
    preexisting_bytes = sum(size for size, _ in before.values())
    in_use = [size for _, size in _replayed(events, dict(before))]
    reserved = _reserved_after(device)
    peak = max(range(len(in_use)), key=in_use.__getitem__)
    failed = [number for number, event in enumerate(events) if event.action == OOM]
    failures = set(failed[-MOST_FAILURES:])
    times = list(accumulate((event.time_us for event in events), max))
    bounds = {bisect_left(times, begin) for begin in device.steps_us[-MOST_STEPS:]}
    ranges = ranges_after(device, (peak, *failures))
    held_at_bounds: list[tuple[HeldMemory, ...]] = []
    out_of_memory: list[OutOfMemory] = []
    # What is wanted of a moment is computed when the replay passes it: to keep the live blocks of
    # fifty moments would take fifty times their memory.
    for at, (live, _) in enumerate(_replayed(events, before)):
        if at == peak:
            free_at_peak = _free(ranges[at], live)
            categories_bytes = _by_category(live.values(), stacks)
            held_at_peak = _by_place(live.values(), stacks)
        if at in failures:
            event = events[at]
            free = _free(ranges[at], live, event.stream)
            held = _by_place(live.values(), stacks)
            place = _stack(stacks, event.stack).place
            out_of_memory.append(_failure(event, place, held, in_use[at], reserved[at], free))
        if at in bounds:
            held_at_bounds.append(_by_place(live.values(), stacks))
    return DeviceReport(
        index=device.index,
        events=len(events),
        peak=MemoryPeak(in_use[peak], peak, reserved[peak], max(reserved), free_at_peak)
        if events
        else None,
        preexisting_bytes=preexisting_bytes,
        end=end,
        categories_bytes=categories_bytes,
        alive=held_at_peak,
        survived=_by_place(survived, stacks) if events else (),
        steps=len(bounds),
        steps_from=device.step_name or None,
        growth=_growth(held_at_bounds),
        out_of_memory=tuple(out_of_memory),
        curve=_thinned(in_use, reserved) if events else (),
    )


def _free(ranges: list[Range], live: _Live, stream: int | None = None) -> FreeMemory:
    sizes = ((address, size) for address, (size, _) in live.items())
    return free_memory(ranges, sizes, stream)


def _live_at_end(device: DeviceMemory) -> _Live:
    return {
        block.address: (block.requested, block.stack)
        for segment in device.segments
        for block in segment.blocks
        if block.active
    }


def _live_before(events: list[AllocatorEvent], live: _Live, stacks: list[AllocationStack]) -> _Live:
    """Blocks alive before the first event: ``live``, those at the end, with each event undone in it."""
    for event in reversed(events):
        if event.action == ALLOC:
            live.pop(event.address, None)
        elif event.action == FREE:
            # Its stack is in an earlier event, or it was allocated before the recording.
            live[event.address] = (event.size, _UNKNOWN)
    without_stack = {number for number, stack in enumerate(stacks) if stack.place == NO_STACK}
    for address, (size, number) in live.items():
        if number in without_stack:
            live[address] = (size, _UNKNOWN)
    return live


_UNKNOWN = -1


def _replayed(events: list[AllocatorEvent], live: _Live) -> Iterator[tuple[_Live, int]]:
    """Yield live blocks and their bytes, before and between events.

    It is always the dictionary that was given, which changes.
    """
    in_use = sum(size for size, _ in live.values())
    yield live, in_use
    for event in events:
        if event.action in (ALLOC, FREE):
            in_use -= live.pop(event.address, (0, 0))[0]
        if event.action == ALLOC:
            live[event.address] = (event.size, event.stack)
            in_use += event.size
        yield live, in_use


def _reserved_after(device: DeviceMemory) -> list[int]:
    """Bytes reserved before the first and after each event."""
    signs = {SEGMENT_ALLOC: 1, SEGMENT_FREE: -1}
    changes = [signs.get(event.action, 0) * event.size for event in device.events]
    begin = sum(segment.size for segment in device.segments) - sum(changes)
    return [max(0, reserved) for reserved in accumulate(changes, initial=begin)]


def _reserved(device: DeviceMemory) -> Reserved:
    """Memory at the end, by the sizes of the blocks."""
    blocks = [block for segment in device.segments for block in segment.blocks if block.active]
    allocated = [block for block in blocks if block.state == ALLOCATED]
    requested, taken = (
        sum(block.requested for block in allocated),
        sum(block.size for block in allocated),
    )
    ranges = ranges_after(device, (len(device.events),))[len(device.events)]
    return Reserved(
        sum(segment.size for segment in device.segments),
        requested,
        taken - requested,
        sum(block.size for block in blocks) - taken,
        free_memory(ranges, ((block.address, block.size) for block in blocks)),
        len(device.segments),
    )


def _by_place(
    sizes_and_stacks: Iterable[tuple[int, int]], stacks: list[AllocationStack]
) -> tuple[HeldMemory, ...]:
    """Memory by place, largest first."""
    sums: dict[tuple[str, Category], list[int]] = {}
    frames: dict[tuple[str, Category], tuple[int, tuple[str, ...]]] = {}
    for size, number in sizes_and_stacks:
        stack = _stack(stacks, number)
        key = (stack.place, stack.category)
        row = sums.setdefault(key, [0, 0])
        row[0] += size
        row[1] += 1
        if size > frames.get(key, (-1, ()))[0]:
            frames[key] = (size, stack.frames)
    rows = [HeldMemory(*key, size, many, frames[key][1]) for key, (size, many) in sums.items()]
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.place)))


def _stack(stacks: list[AllocationStack], number: int) -> AllocationStack:
    return stacks[number] if number != _UNKNOWN else _BEFORE


_BEFORE = AllocationStack("before the recording began", (), "other")


def _by_category(
    sizes_and_stacks: Iterable[tuple[int, int]], stacks: list[AllocationStack]
) -> dict[str, int]:
    sums: dict[str, int] = {}
    for size, number in sizes_and_stacks:
        category = _stack(stacks, number).category
        sums[category] = sums.get(category, 0) + size
    return {category: sums[category] for category in CATEGORIES if category in sums}


def _growth(held_at_steps: list[tuple[HeldMemory, ...]]) -> tuple[Growth, ...]:
    """Places that hold more at each step's begin than at the one before.

    The first step is left out: it allocates memory that lives as long as the program, such as the optimizer's state.
    """
    later = held_at_steps[1:]
    if len(later) < LEAST_STEPS:
        return ()
    by_step = [{(row.place, row.category): row for row in held} for held in later]
    grown: list[Growth] = []
    for key, row in by_step[-1].items():
        sizes = [step[key].bytes if key in step else 0 for step in by_step]
        a_step = (sizes[-1] - sizes[0]) / (len(sizes) - 1)
        if a_step >= LEAST_GROWTH and all(now > was for was, now in pairwise(sizes)):
            grown.append(
                Growth(
                    row.place,
                    row.category,
                    round(a_step),
                    sizes[0],
                    sizes[-1],
                    len(sizes),
                    row.frames,
                )
            )
    return tuple(
        sorted(grown, key=lambda place_growth: (-place_growth.bytes_a_step, place_growth.place))
    )


def _failure(
    event: AllocatorEvent,
    place: str,
    alive: tuple[HeldMemory, ...],
    in_use: int,
    reserved: int,
    free: FreeMemory,
) -> OutOfMemory:
    missing = max(0, event.size - (event.free_bytes or 0) - free.stuck_bytes - free.whole_bytes)
    if not missing:
        cause: OutOfMemoryCause = "fragmentation"
    elif missing > free.private_bytes + free.other_streams_bytes:
        cause = "full"
    else:
        cause = "private_pool" if free.private_bytes >= free.other_streams_bytes else "other_stream"
    return OutOfMemory(
        event.size, event.free_bytes, reserved, in_use, free, missing, cause, place, alive
    )


def _thinned(in_use: list[int], reserved: list[int]) -> tuple[tuple[int, int, int], ...]:
    """Thin out a curve; each point is its part's maximum."""
    part = -(-len(in_use) // _CURVE)
    places = range(0, len(in_use), part)
    return tuple((at, max(in_use[at : at + part]), max(reserved[at : at + part])) for at in places)
