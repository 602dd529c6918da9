"""Reads a memory snapshot: segments, blocks and events.

The format is torch.cuda.memory._snapshot's (torch/cuda/memory.py): a list of segments with blocks that tile them, and a
list of events for each device. Sizes are bytes; addresses are the device's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from gputop.features.memory_snapshot.stacks import AllocationStack, Stacks
from gputop.system.plain_pickle import NotPlain, load_plain
from gputop.system.safe_open import open_regular

MOST_BLOCKS, MOST_EVENTS, MOST_DEVICES = 5_000_000, 20_000_000, 1024
"""More than any allocator has: one list can occur in a pickle many times."""
MOST_BYTES = 1 << 48
"""More than any device has."""
ALLOC, FREE_REQUESTED, FREE, SEGMENT_ALLOC, SEGMENT_FREE, OOM, OTHER = range(7)
_ACTIONS = {
    "alloc": ALLOC, "free_requested": FREE_REQUESTED, "free_completed": FREE, "free": FREE,
    "segment_alloc": SEGMENT_ALLOC, "segment_map": SEGMENT_ALLOC, "segment_free": SEGMENT_FREE,
    "segment_unmap": SEGMENT_FREE, "oom": OOM,
}  # fmt: skip
ALLOCATED = "active_allocated"
_SQLITE = b"SQLite format 3\x00"
_SQLITE_KINDS: tuple[tuple[bytes, str], ...] = (
    (b"device_traces", "is a memory snapshot as SQLite"),
    (b"CUPTI_ACTIVITY", "is an export of Nsight Systems, which `gputop trace` reads"),
    (b"", "is an SQLite database"),
)


T = TypeVar("T")


class MemoryBlock(Struct, frozen=True):
    """Part of a segment.

    ``requested`` is the program's size, ``size`` the rounded one.
    """

    address: int
    size: int
    requested: int
    state: str
    stack: int

    @property
    def active(self) -> bool:
        """Whether it is allocated, or still used by a stream."""
        return self.state.startswith("active")


class MemorySegment(Struct, frozen=True):
    """Memory that the driver gave to the allocator in one piece.

    ``private``: it belongs to a private pool (CUDA graphs, MemPool), which serves no other allocation.
    """

    address: int
    size: int
    blocks: tuple[MemoryBlock, ...]
    stream: int = 0
    private: bool = False
    expandable: bool = False


class AllocatorEvent(Struct, frozen=True, gc=False):
    """One action of the allocator.

    ``free_bytes`` is the device's free memory at an ``OOM``, None if unknown.
    """

    action: int
    address: int
    size: int
    time_us: int
    stream: int
    stack: int
    free_bytes: int | None


class DeviceMemory(Struct):
    """One device: segments, events, and the times at which steps began, in microseconds."""

    index: int
    segments: list[MemorySegment]
    events: list[AllocatorEvent]
    steps_us: list[int]
    step_name: str


class AllocatorSnapshot(Struct):
    """One file. ``expandable`` is None if the file does not record that setting.

    ``impossible`` counts numbers outside of every range, whose entries are left out.
    """

    path: str
    devices: list[DeviceMemory]
    stacks: list[AllocationStack]
    expandable: bool | None
    impossible: int


def read_snapshot(path: str) -> AllocatorSnapshot:
    """Read a file. Raises NotPlain if it is not a snapshot, and OSError."""
    _refuse_sqlite(path)
    data = load_plain(path)
    if isinstance(data, list):
        # Only the segments, as torch.cuda.memory_snapshot() gives them.
        data = {"segments": data}
    if not isinstance(data, dict) or not isinstance(data.get("segments"), list):
        raise NotPlain(
            "holds no segments: a snapshot is what torch.cuda.memory._dump_snapshot writes"
        )
    try:
        return _Reader(path).snapshot(data)
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        found = f"an entry has no {error}" if isinstance(error, KeyError) else str(error)
        raise NotPlain(f"is not a memory snapshot that PyTorch writes: {found}") from None


def _refuse_sqlite(path: str) -> None:
    """Raise NotPlain for an SQLite file, also a truncated one."""
    with open_regular(path) as file:
        begin = file.read(1 << 16)
    if begin.startswith(_SQLITE):
        kind = next(words for mark, words in _SQLITE_KINDS if mark in begin)
        raise NotPlain(
            f"{kind}: write the pickle with torch.cuda.memory._dump_snapshot(FILE), only that is read here"
        )


class _Impossible(Exception):
    """A number that no allocator writes; its entry is left out."""


class _Reader:
    """Reads the parts of one snapshot; ``impossible`` counts entries left out."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._stacks = Stacks()
        self._impossible = 0

    def snapshot(self, data: dict[str, Any]) -> AllocatorSnapshot:
        """Return all devices. Raises NotPlain, KeyError, TypeError, AttributeError and ValueError."""
        segments = self._segments(data["segments"])
        traces = data.get("device_traces") or []
        if not isinstance(traces, list) or len(traces) > MOST_DEVICES:
            raise NotPlain("is not a memory snapshot: its events are no list")
        if sum(len(events) for events in traces if isinstance(events, list)) > MOST_EVENTS:
            raise NotPlain(f"holds more than {MOST_EVENTS} events: record fewer (max_entries)")
        events = {at: self._read(trace, self._event) for at, trace in enumerate(traces)}
        steps = self._steps(data.get("external_annotations"))
        devices = [
            DeviceMemory(at, segments.get(at, []), events.get(at, []), *steps.get(at, ([], "")))
            for at in sorted(
                {*segments, *(at for at, device_events in events.items() if device_events)}
            )
        ]
        if not devices:
            raise NotPlain(
                "holds neither segments nor events: nothing was allocated, and nothing recorded"
            )
        settings = data.get("allocator_settings")
        expandable = settings.get("expandable_segments") if isinstance(settings, dict) else None
        known = expandable if isinstance(expandable, bool) else None
        return AllocatorSnapshot(self._path, devices, self._stacks.all, known, self._impossible)

    def _read(self, entries: Any, read: Callable[[dict[str, Any]], T]) -> list[T]:
        """Read entries; one with an impossible number is only counted."""
        if not isinstance(entries, list):
            raise TypeError(f"{str(entries)[:40]!r} where a list belongs")
        results: list[T] = []
        for entry in entries:
            try:
                results.append(read(entry))
            except _Impossible:
                self._impossible += 1
        return results

    def _segments(self, recorded: list[Any]) -> dict[int, list[MemorySegment]]:
        """Segments by device."""
        if sum(len(segment["blocks"]) for segment in recorded) > MOST_BLOCKS:
            raise NotPlain(f"holds more than {MOST_BLOCKS} blocks")
        by_device: dict[int, list[MemorySegment]] = {}
        for device, segment in self._read(recorded, self._segment):
            by_device.setdefault(device, []).append(segment)
        return by_device

    def _segment(self, segment: dict[str, Any]) -> tuple[int, MemorySegment]:
        """A segment and its device."""
        address, pool = _whole(segment.get("address") or 0), segment.get("segment_pool_id")
        end = address

        def read(block: dict[str, Any]) -> MemoryBlock:
            nonlocal end
            # Blocks tile their segment; PyTorch 2.0 did not write their addresses.
            begin, size = _whole(block.get("address", end)), _size(block["size"])
            end = begin + size
            return MemoryBlock(
                begin,
                size,
                _requested(block, size),
                str(block["state"]),
                self._stacks.number(block),
            )

        blocks = self._read(segment["blocks"], read)
        is_private, is_expandable = (
            isinstance(pool, (tuple, list)) and any(pool),
            segment.get("is_expandable") is True,
        )
        stream, device = (
            _whole(segment.get("stream") or 0),
            _size(segment.get("device", 0), MOST_DEVICES),
        )
        total = _size(segment["total_size"])
        return device, MemorySegment(
            address, total, tuple(blocks), stream, is_private, is_expandable
        )

    def _event(self, event: dict[str, Any]) -> AllocatorEvent:
        action, free = _ACTIONS.get(event["action"], OTHER), _whole(event.get("device_free", 0))
        address, size = _whole(event.get("addr") or 0), _size(event.get("size", 0))
        time_us, stream = _whole(event.get("time_us", 0)), _whole(event.get("stream") or 0)
        number = self._stacks.number(event)
        return AllocatorEvent(
            action, address, size, time_us, stream, number, free if 0 <= free < MOST_BYTES else None
        )

    def _steps(self, annotations: Any) -> dict[int, tuple[list[int], str]]:
        """Begin of each device's steps, and the annotation marking them."""
        begins: dict[tuple[int, str], list[int]] = {}
        for entry in annotations if isinstance(annotations, list) else ():
            name = str(entry.get("name", "")) if isinstance(entry, dict) else ""
            kind = next((kind for kind in _STEP_NAMES if name.startswith(kind)), None)
            if kind is not None and entry.get("stage") == "START":
                key = (_whole(entry.get("device", 0)), kind)
                begins.setdefault(key, []).append(_whole(entry.get("time_us", 0)))
        # The last kind that is set is the best one.
        return {
            device: (sorted(times), kind)
            for wanted in reversed(_STEP_NAMES)
            for (device, kind), times in begins.items()
            if kind == wanted and len(times) > 1
        }


def _whole(value: Any) -> int:
    """An address, a stream or a time. Raises TypeError."""
    if not isinstance(value, int):
        raise TypeError(f"{str(value)[:40]!r} where a whole number belongs")
    return value


def _size(value: Any, limit: int = MOST_BYTES) -> int:
    """A size, or another number below ``limit``. Raises TypeError and _Impossible."""
    if not 0 <= _whole(value) < limit:
        raise _Impossible
    return int(value)


def _requested(block: dict[str, Any], size: int) -> int:
    history = block.get("history")
    if "frames" not in block and isinstance(history, list) and history:
        return _size(history[0]["real_size"])
    return min(_size(block.get("requested_size", size)), size)


_STEP_NAMES = ("ProfilerStep", "Optimizer.step", "Optimizer.zero_grad")
"""Annotations that occur once a step, the best first."""
