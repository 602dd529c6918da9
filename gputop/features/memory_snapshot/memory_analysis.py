"""What a snapshot says: the peak and what was alive then, what is held without use, what grew, what did not fit.

Between two events the memory in use is that of the blocks which are active: allocated, or freed and still in use by a
stream. It is reckoned backwards from the blocks at the end, so that a ring of events that has lost its begin is right,
too. Sums are of what was asked for; rounding is said apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, pairwise
from typing import Literal

from msgspec import Struct

from gputop.features.memory_snapshot.allocator_snapshot import (
    ALLOC,
    ALLOCATED,
    CATEGORIES,
    FREE,
    NO_STACK,
    OOM,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    AllocationStack,
    AllocatorSnapshot,
    Category,
    DeviceMemory,
    Events,
)

LEAST_STEPS = 3
"""Steps from which on growth is told from chance."""
LEAST_GROWTH = 1 << 20
"""Bytes a step below which nothing is said to grow [judged]."""


class HeldMemory(Struct, frozen=True):
    """Memory by the place that allocated it: bytes asked for, in how many allocations."""

    place: str
    category: Category
    bytes: int
    allocations: int
    frames: tuple[str, ...]


class Reserved(Struct, frozen=True):
    """What the allocator holds of the driver, at the end of the snapshot. The parts sum to ``reserved_bytes``.

    ``rounding_bytes`` is what was added to requests, ``awaiting_free_bytes`` was freed and is still in use by a stream.
    What is free is in segments with something in use (``free_beside_used_bytes``), or in empty ones
    (``free_segments_bytes``): empty_cache() returns these.
    """

    reserved_bytes: int
    allocated_bytes: int
    rounding_bytes: int
    awaiting_free_bytes: int
    free_beside_used_bytes: int
    free_segments_bytes: int
    largest_free_bytes: int
    fragmentation_pct: float
    """The share of the reserved memory that is free and cannot be given back."""
    segments: int

    @property
    def free(self) -> int:
        """Reserved and not in use."""
        return self.free_beside_used_bytes + self.free_segments_bytes


class OutOfMemory(Struct, frozen=True):
    """An allocation that failed: bytes asked for, free on the device, and free in what the allocator held.

    ``missing_bytes`` more would have sufficed if the free pieces were one; 0 where only fragmentation stood against it.
    """

    wanted_bytes: int
    device_free_bytes: int
    reserved_bytes: int
    in_use_bytes: int
    cached_free_bytes: int
    """Held by the allocator and not in use."""
    missing_bytes: int
    fragmented: bool
    place: str
    alive: tuple[HeldMemory, ...]


class Growth(Struct, frozen=True):
    """A place that holds more at each step's begin than at the one before: bytes a step, over how many steps."""

    place: str
    category: Category
    bytes_a_step: int
    first_bytes: int
    last_bytes: int
    steps: int
    frames: tuple[str, ...]


class DeviceReport(Struct, frozen=True):
    """One device. ``peak_bytes`` is None without events, and then ``alive`` is of the end; ``survived`` was allocated
    during the recording and is still alive. ``curve`` are (event, bytes in use, bytes reserved), thinned out.
    """

    index: int
    events: int
    peak_bytes: int | None
    peak_event: int | None
    peak_reserved_bytes: int | None
    preexisting_bytes: int
    end: Reserved
    tables_are: Literal["at the end", "at the peak"]
    """Of which moment ``alive`` and ``categories`` are."""
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
        pool = self.end
        is_over = pool.allocated_bytes + pool.rounding_bytes + pool.awaiting_free_bytes > pool.reserved_bytes
        return is_over or (self.peak_bytes or 0) > (self.peak_reserved_bytes or self.peak_bytes or 0)


class MemoryReport(Struct, frozen=True):
    """A snapshot's devices; ``stacks`` says whether any allocation has one."""

    path: str
    devices: tuple[DeviceReport, ...]
    expandable: bool | None
    stacks: bool


MOST_FAILURES = 5
MOST_STEPS = 50
"""The last ones: what was alive is kept for each."""
_CURVE = 200
"""Points: an attribute of a page takes some 4,000 characters."""
_Live = dict[int, tuple[int, int]]
"""Address → (bytes asked for, number of the stack)."""


def analyse(snapshot: AllocatorSnapshot) -> MemoryReport:
    """Every device of a snapshot."""
    devices = tuple(_device(device, snapshot.stacks) for device in snapshot.devices)
    return MemoryReport(
        snapshot.path, devices, snapshot.expandable, any(stack.frames for stack in snapshot.stacks)
    )  # fmt: skip


def _device(device: DeviceMemory, stacks: list[AllocationStack]) -> DeviceReport:
    events = device.events
    end = _live_at_end(device)
    before = _live_before(events, end, stacks)
    in_use, reserved = [size for _, size in _replayed(events, before)], _reserved_after(device)
    peak = max(range(len(in_use)), key=in_use.__getitem__)
    failures = [number for number, action in enumerate(events.action) if action == OOM][-MOST_FAILURES:]
    bounds = _step_events(device)
    wanted_events = {peak, *failures, *bounds}
    alive = {at: dict(live) for at, (live, _) in enumerate(_replayed(events, before)) if at in wanted_events}
    at_peak = alive[peak]
    survived = {address: end[address] for address in _allocated(events) if address in end}
    has_events = len(events) > 0
    return DeviceReport(
        index=device.index,
        events=len(events),
        end=_reserved(device),
        peak_bytes=in_use[peak] if has_events else None,
        peak_reserved_bytes=max(reserved) if has_events else None,
        peak_event=peak if has_events else None,
        preexisting_bytes=sum(size for size, _ in before.values()),
        alive=_by_place(at_peak.values(), stacks),
        categories_bytes=_by_category(at_peak.values(), stacks),
        survived=_by_place(survived.values(), stacks) if has_events else (),
        steps=len(bounds),
        steps_from=device.step_name or None,
        tables_are="at the peak" if has_events else "at the end",
        growth=_growth([alive[at] for at in bounds], stacks),
        out_of_memory=tuple(_failure(events, at, alive[at], reserved[at], stacks) for at in failures),
        curve=_thinned(in_use, reserved) if has_events else (),
    )


def _live_at_end(device: DeviceMemory) -> _Live:
    return {
        block.address: (block.requested, block.stack)
        for segment in device.segments
        for block in segment.blocks
        if block.active
    }


def _live_before(events: Events, end: _Live, stacks: list[AllocationStack]) -> _Live:
    """What was alive before the first event: the end, with each event undone."""
    live = dict(end)
    for number in range(len(events) - 1, -1, -1):
        action, address = events.action[number], events.address[number]
        if action == ALLOC:
            live.pop(address, None)
        elif action == FREE:
            # Who allocated it is told by an earlier event, or by none: then it was there before the recording.
            live[address] = (events.size[number], _UNKNOWN)
    return {
        address: (size, _UNKNOWN if number != _UNKNOWN and stacks[number].place == NO_STACK else number)
        for address, (size, number) in live.items()
    }


_UNKNOWN = -1


def _allocated(events: Events) -> set[int]:
    """Addresses that were allocated during the recording and not freed again."""
    addresses: set[int] = set()
    for action, address in zip(events.action, events.address, strict=True):
        if action == ALLOC:
            addresses.add(address)
        elif action == FREE:
            addresses.discard(address)
    return addresses


def _replayed(events: Events, before: _Live) -> Iterator[tuple[_Live, int]]:
    """What is alive after so many events, from none on, and how many bytes: the same dictionary, as it changes."""
    live = dict(before)
    in_use = sum(size for size, _ in live.values())
    yield live, in_use
    for action, address, size, stack in zip(events.action, events.address, events.size, events.stack, strict=True):
        if action in (ALLOC, FREE):
            in_use -= live.pop(address, (0, 0))[0]
        if action == ALLOC:
            live[address] = (size, stack)
            in_use += size
        yield live, in_use


def _reserved_after(device: DeviceMemory) -> list[int]:
    """Bytes reserved after so many events, from none on."""
    signs = {SEGMENT_ALLOC: 1, SEGMENT_FREE: -1}
    events = device.events
    changes = [signs.get(action, 0) * size for action, size in zip(events.action, events.size, strict=True)]
    begin = sum(segment.size for segment in device.segments) - sum(changes)
    return [max(0, reserved) for reserved in accumulate(changes, initial=begin)]


def _reserved(device: DeviceMemory) -> Reserved:
    allocated = rounding = awaiting = in_used = whole = largest = 0
    for segment in device.segments:
        used = any(block.active for block in segment.blocks)
        for block in segment.blocks:
            if block.state == ALLOCATED:
                allocated += block.requested
                rounding += block.size - block.requested
            elif block.active:
                awaiting += block.size
            else:
                largest = max(largest, block.size)
                in_used += block.size if used else 0
                whole += 0 if used else block.size
    total = sum(segment.size for segment in device.segments)
    fragmented_pct = 100.0 * in_used / total if total else 0.0
    segments = len(device.segments)
    return Reserved(total, allocated, rounding, awaiting, in_used, whole, largest, fragmented_pct, segments)


def _by_place(sizes_and_stacks: Iterable[tuple[int, int]], stacks: list[AllocationStack]) -> tuple[HeldMemory, ...]:
    """Memory by place, the most first; stacks that share their innermost own line are one."""
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


def _by_category(sizes_and_stacks: Iterable[tuple[int, int]], stacks: list[AllocationStack]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for size, number in sizes_and_stacks:
        category = _stack(stacks, number).category
        sums[category] = sums.get(category, 0) + size
    return {category: sums[category] for category in CATEGORIES if category in sums}


def _step_events(device: DeviceMemory) -> list[int]:
    """How many events had happened when each step began."""
    times = device.events.time_us
    event_numbers: list[int] = []
    at = 0
    for begin in device.steps_us[-MOST_STEPS:]:
        while at < len(times) and times[at] < begin:
            at += 1
        if not event_numbers or at > event_numbers[-1]:
            event_numbers.append(at)
    return event_numbers


def _growth(at_steps: list[_Live], stacks: list[AllocationStack]) -> tuple[Growth, ...]:
    """Places that hold more at each step's begin than at the one before. The first step is left out: it makes what
    lives as long as the program, such as the optimizer's state."""
    later = at_steps[1:]
    if len(later) < LEAST_STEPS:
        return ()
    by_step = [{(row.place, row.category): row for row in _by_place(live.values(), stacks)} for live in later]
    grown: list[Growth] = []
    for key, row in by_step[-1].items():
        sizes = [step[key].bytes if key in step else 0 for step in by_step]
        a_step = (sizes[-1] - sizes[0]) / (len(sizes) - 1)
        if a_step >= LEAST_GROWTH and all(now > was for was, now in pairwise(sizes)):
            grown.append(Growth(row.place, row.category, round(a_step), sizes[0], sizes[-1], len(sizes), row.frames))
    return tuple(sorted(grown, key=lambda place_growth: (-place_growth.bytes_a_step, place_growth.place)))


def _failure(events: Events, at: int, live: _Live, reserved: int, stacks: list[AllocationStack]) -> OutOfMemory:
    wanted_bytes, free = events.size[at], events.free_bytes.get(at, 0)
    in_use = sum(size for size, _ in live.values())
    cached_free = max(0, reserved - in_use)
    missing = max(0, wanted_bytes - free - cached_free)
    return OutOfMemory(
        wanted_bytes, free, reserved, in_use, cached_free, missing, missing == 0,
        _stack(stacks, events.stack[at]).place, _by_place(live.values(), stacks),
    )  # fmt: skip


def _thinned(in_use: list[int], reserved: list[int]) -> tuple[tuple[int, int, int], ...]:
    """At most so many points, each with the most of its part."""
    part = -(-len(in_use) // _CURVE)
    return tuple(
        (at, max(in_use[at : at + part]), max(reserved[at : at + part])) for at in range(0, len(in_use), part)
    )  # fmt: skip
