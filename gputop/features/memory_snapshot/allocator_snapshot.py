"""A memory snapshot as columns: the allocator's segments and blocks at its end, and what it did before.

The format is that of torch.cuda.memory._snapshot (torch/cuda/memory.py): a list of segments with blocks that tile them,
and for each device the last events. Sizes are bytes; addresses are the device's.
"""

from __future__ import annotations

from array import array
from typing import Any

from msgspec import Struct, field

from gputop.features.memory_snapshot.stacks import AllocationStack, Stacks
from gputop.system.plain_pickle import NotPlain, load_plain

MOST_BLOCKS, MOST_EVENTS, MOST_DEVICES = 5_000_000, 20_000_000, 1024
"""More than any allocator has: lists can stand in a pickle many times over."""
ALLOC, FREE_REQUESTED, FREE, SEGMENT_ALLOC, SEGMENT_FREE, OOM, OTHER = range(7)
_ACTIONS = {
    "alloc": ALLOC, "free_requested": FREE_REQUESTED, "free_completed": FREE, "free": FREE,
    "segment_alloc": SEGMENT_ALLOC, "segment_map": SEGMENT_ALLOC, "segment_free": SEGMENT_FREE,
    "segment_unmap": SEGMENT_FREE, "oom": OOM,
}  # fmt: skip
ALLOCATED = "active_allocated"


class MemoryBlock(Struct, frozen=True):
    """A piece of a segment. ``requested`` is what the program asked for; ``size`` is that, rounded."""

    address: int
    size: int
    requested: int
    state: str
    stack: int

    @property
    def active(self) -> bool:
        """Whether it is held: allocated, or freed and still in use by a stream."""
        return self.state.startswith("active")


class MemorySegment(Struct, frozen=True):
    """Memory that the allocator got from the driver in one piece."""

    address: int
    size: int
    blocks: tuple[MemoryBlock, ...]


class Events(Struct):
    """What the allocator did, in order, a column each. ``free_bytes`` are the device's free bytes at an ``OOM``."""

    action: array[int] = field(default_factory=lambda: array("b"))
    address: array[int] = field(default_factory=lambda: array("Q"))
    size: array[int] = field(default_factory=lambda: array("q"))
    time_us: array[int] = field(default_factory=lambda: array("q"))
    stack: array[int] = field(default_factory=lambda: array("i"))
    free_bytes: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.action)


class DeviceMemory(Struct):
    """One device: its segments, its events, and when steps began, in microseconds."""

    index: int
    segments: list[MemorySegment]
    events: Events
    steps_us: list[int]
    step_name: str


class AllocatorSnapshot(Struct):
    """A file. ``expandable`` is None where it does not say whether segments were expandable."""

    path: str
    devices: list[DeviceMemory]
    stacks: list[AllocationStack]
    expandable: bool | None


def read_snapshot(path: str) -> AllocatorSnapshot:
    """Read a file. Raises NotPlain for what is not a snapshot, and OSError."""
    data = load_plain(path)
    if isinstance(data, list):
        # Only the segments, as torch.cuda.memory_snapshot() gives them.
        data = {"segments": data}
    if not isinstance(data, dict) or not isinstance(data.get("segments"), list):
        raise NotPlain("holds no segments: a snapshot is what torch.cuda.memory._dump_snapshot writes")
    stacks = Stacks()
    try:
        segments = _segments(data["segments"], stacks)
        traces = data.get("device_traces") or []
        if not isinstance(traces, list) or len(traces) > MOST_DEVICES:
            raise NotPlain("is not a memory snapshot: its events are no list")
        event_count = sum(len(events) for events in traces if isinstance(events, list))
        if event_count > MOST_EVENTS:
            raise NotPlain(f"holds more than {MOST_EVENTS} events: record fewer (max_entries)")
        events = [_events(trace, stacks) for trace in traces]
        steps = _steps(data.get("external_annotations"))
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        raise NotPlain(f"is not a memory snapshot that PyTorch writes ({type(error).__name__})") from None
    devices = sorted({*segments, *(at for at, device_events in enumerate(events) if len(device_events))})
    if not devices:
        raise NotPlain("holds neither segments nor events: nothing was allocated, and nothing recorded")
    settings = data.get("allocator_settings")
    expandable = settings.get("expandable_segments") if isinstance(settings, dict) else None
    return AllocatorSnapshot(
        path,
        [
            DeviceMemory(
                index, segments.get(index, []), events[index] if index < len(events) else Events(),
                *steps.get(index, ([], "")),
            )
            for index in devices
        ],
        stacks.all,
        expandable if isinstance(expandable, bool) else None,
    )  # fmt: skip


def _whole(value: Any) -> int:
    """A number of bytes or an address. Raises TypeError for anything else, ValueError for less than nothing."""
    if not isinstance(value, int):
        raise TypeError("no whole number")
    if not 0 <= value < 1 << 63:
        raise ValueError("out of every range")
    return value


def _segments(recorded: list[Any], stacks: Stacks) -> dict[int, list[MemorySegment]]:
    """Segments by device."""
    if sum(len(segment["blocks"]) for segment in recorded) > MOST_BLOCKS:
        raise NotPlain(f"holds more than {MOST_BLOCKS} blocks")
    by_device: dict[int, list[MemorySegment]] = {}
    for segment in recorded:
        at = _whole(segment.get("address") or 0)
        blocks: list[MemoryBlock] = []
        for block in segment["blocks"]:
            size = _whole(block["size"])
            # Blocks tile their segment; PyTorch 2.0 did not write their addresses.
            address = _whole(block.get("address", at))
            blocks.append(
                MemoryBlock(address, size, _requested(block, size), str(block["state"]), stacks.number(block))
            )
            at = address + size
        device = _whole(segment.get("device", 0))
        total = _whole(segment["total_size"])
        by_device.setdefault(device, []).append(
            MemorySegment(_whole(segment.get("address") or 0), total, tuple(blocks))
        )
    return by_device


def _requested(block: dict[str, Any], size: int) -> int:
    history = block.get("history")
    if "frames" not in block and isinstance(history, list) and history:
        return _whole(history[0]["real_size"])
    return min(_whole(block.get("requested_size", size)), size)


def _events(recorded: Any, stacks: Stacks) -> Events:
    events = Events()
    if not isinstance(recorded, list):
        raise TypeError("events are no list")
    for number, event in enumerate(recorded):
        action = _ACTIONS.get(event["action"], OTHER)
        events.action.append(action)
        events.address.append(_whole(event.get("addr") or 0))
        events.size.append(_whole(event.get("size", 0)))
        events.time_us.append(_whole(event.get("time_us", 0)))
        events.stack.append(stacks.number(event))
        if action == OOM:
            events.free_bytes[number] = _whole(event.get("device_free", 0))
    return events


_STEP_NAMES = ("ProfilerStep", "Optimizer.step", "Optimizer.zero_grad")
"""Annotations that come once a step, the best first."""


def _steps(annotations: Any) -> dict[int, tuple[list[int], str]]:
    """When each device's steps began, and what announced them."""
    begins: dict[tuple[int, str], list[int]] = {}
    entries = [entry for entry in annotations if isinstance(entry, dict)] if isinstance(annotations, list) else []
    for entry in entries:
        name = str(entry.get("name", ""))
        kind = next((kind for kind in _STEP_NAMES if name.startswith(kind)), None)
        if kind is not None and entry.get("stage") == "START":
            begins.setdefault((_whole(entry.get("device", 0)), kind), []).append(_whole(entry.get("time_us", 0)))
    steps: dict[int, tuple[list[int], str]] = {}
    for device in {device for device, _ in begins}:
        for kind in _STEP_NAMES:
            times = begins.get((device, kind), [])
            if len(times) > 1:
                steps[device] = (sorted(times), kind)
                break
    return steps
