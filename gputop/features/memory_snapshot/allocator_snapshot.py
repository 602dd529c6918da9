"""Reads a memory snapshot: segments, blocks and events.

The format is torch.cuda.memory._snapshot's (torch/cuda/memory.py): a list of segments with blocks that tile them, and a
list of events for each device. Sizes are bytes; addresses are the device's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec import Struct

from gputop.features.memory_snapshot.stacks import AllocationStack, Stacks
from gputop.model.foreign_values import text_of, whole_number
from gputop.system.plain_pickle import NotPlain, load_plain
from gputop.system.safe_open import open_regular

MOST_DEVICES = 1024
"""More than any machine has."""
ENTRY_BYTES = 8
"""A pickle has at least so many bytes for an entry: a dictionary, and two keys with their values.

One list or dictionary can occur in a pickle many times, for two bytes each.
"""
LONGEST_STATE = 40
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


class MemoryBlock(Struct, frozen=True, gc=False):
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
    """Read a file. Raises NotPlain if it is not a snapshot, OSError and MemoryError."""
    _refuse_sqlite(path)
    data = load_plain(path)
    if isinstance(data, list):
        # Only the segments, as torch.cuda.memory_snapshot() gives them.
        data = {"segments": data}
    if not isinstance(data, dict) or not isinstance(data.get("segments"), list):
        raise NotPlain(
            "holds no segments: a snapshot is what torch.cuda.memory._dump_snapshot writes"
        )
    return _Reader(path, os.path.getsize(path) // ENTRY_BYTES).snapshot(data)


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


def _malformed(words: str) -> NotPlain:
    return NotPlain(f"is not a memory snapshot that PyTorch writes: {words}")


class _Reader:
    """Reads the parts of one snapshot.

    ``most_entries`` is how many entries the file can hold. What was read is let go: the entries of
    a million blocks take as much memory as all that is made of them. So a list is read only once.
    """

    def __init__(self, path: str, most_entries: int) -> None:
        self._path = path
        self._stacks = Stacks()
        self._impossible = 0
        self._left = most_entries

    def snapshot(self, data: dict[str, Any]) -> AllocatorSnapshot:
        """Return all devices. Raises NotPlain."""
        segments = self._segments(data["segments"])
        traces = data.get("device_traces") or []
        if not isinstance(traces, list) or len(traces) > MOST_DEVICES:
            raise NotPlain("is not a memory snapshot: its events are no list")
        events = {at: self._read(trace, self._event) for at, trace in enumerate(traces)}
        steps = self._steps(data.get("external_annotations"))
        with_events = {at for at, device_events in events.items() if device_events}
        devices = [
            DeviceMemory(at, segments.get(at, []), events.get(at, []), *steps.get(at, ([], "")))
            for at in sorted({*segments, *with_events})
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
        """Read entries, and let each go; one with an impossible number is only counted."""
        if not isinstance(entries, list):
            raise _malformed(f"{_quoted(entries)} where a list belongs")
        self._left -= len(entries)
        if self._left < 0:
            raise NotPlain("holds more entries than its size explains: some occur many times")
        results: list[T] = []
        for at, entry in enumerate(entries):
            if not isinstance(entry, dict):
                raise _malformed(f"{_quoted(entry)} where a dictionary belongs")
            entries[at] = None
            try:
                results.append(read(entry))
            except _Impossible:
                self._impossible += 1
        return results

    def _segments(self, recorded: list[Any]) -> dict[int, list[MemorySegment]]:
        """Segments by device."""
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
            begin, size = _whole(block.get("address", end)), _size(_of(block, "size"))
            end = begin + size
            return MemoryBlock(
                begin,
                size,
                _requested(block, size),
                text_of(_of(block, "state"), LONGEST_STATE),
                self._stacks.number(block),
            )

        blocks = self._read(_of(segment, "blocks"), read)
        is_private = isinstance(pool, (tuple, list)) and any(pool)
        stream = _whole(segment.get("stream") or 0)
        device = _size(segment.get("device", 0), MOST_DEVICES)
        return device, MemorySegment(
            address,
            _size(_of(segment, "total_size")),
            tuple(blocks),
            stream,
            is_private,
            segment.get("is_expandable") is True,
        )

    def _event(self, event: dict[str, Any]) -> AllocatorEvent:
        action = _of(event, "action")
        if not isinstance(action, str):
            raise _malformed(f"{_quoted(action)} where an action belongs")
        free_bytes = whole_number(event.get("device_free", 0), 0, MOST_BYTES - 1)
        return AllocatorEvent(
            _ACTIONS.get(action, OTHER),
            _whole(event.get("addr") or 0),
            _size(event.get("size", 0)),
            _whole(event.get("time_us", 0)),
            _whole(event.get("stream") or 0),
            self._stacks.number(event),
            free_bytes,
        )

    def _steps(self, annotations: Any) -> dict[int, tuple[list[int], str]]:
        """Begin of each device's steps, and the annotation marking them."""
        if not isinstance(annotations, list):
            return {}
        begins: dict[tuple[int, str], list[int]] = {}
        for mark in self._read([row for row in annotations if isinstance(row, dict)], _step_mark):
            if mark is not None:
                begins.setdefault((mark.device, mark.kind), []).append(mark.time_us)
        # The last kind that is set is the best one.
        return {
            device: (sorted(times), kind)
            for wanted in reversed(_STEP_NAMES)
            for (device, kind), times in begins.items()
            if kind == wanted and len(times) > 1
        }


class _StepMark(Struct, frozen=True):
    """Begin of a step on one device."""

    device: int
    kind: str
    time_us: int


def _step_mark(entry: dict[str, Any]) -> _StepMark | None:
    """The step that an annotation begins. Raises NotPlain."""
    name = text_of(entry.get("name"), LONGEST_STATE)
    kind = next((kind for kind in _STEP_NAMES if name.startswith(kind)), None)
    if kind is None or text_of(entry.get("stage"), LONGEST_STATE) != "START":
        return None
    return _StepMark(_whole(entry.get("device", 0)), kind, _whole(entry.get("time_us", 0)))


def _quoted(value: Any) -> str:
    return "nothing" if value is None else repr(text_of(value, 40))


def _of(entry: dict[str, Any], key: str) -> Any:
    """A value that every entry has. Raises NotPlain."""
    try:
        return entry[key]
    except KeyError:
        raise _malformed(f"an entry has no {key!r}") from None


def _whole(value: Any) -> int:
    """An address, a stream or a time, of any size: none is shown. Raises NotPlain."""
    if not isinstance(value, int):
        raise _malformed(f"{_quoted(value)} where a whole number belongs")
    return value


def _size(value: Any, limit: int = MOST_BYTES) -> int:
    """A size, or another number below ``limit``. Raises NotPlain and _Impossible."""
    size = _whole(value)
    if not 0 <= size < limit:
        raise _Impossible
    return size


def _requested(block: dict[str, Any], size: int) -> int:
    history = block.get("history")
    if "frames" not in block and isinstance(history, list) and history:
        first = history[0]
        if not isinstance(first, dict):
            raise _malformed(f"{_quoted(first)} where a dictionary belongs")
        return _size(_of(first, "real_size"))
    return min(_size(block.get("requested_size", size)), size)


_STEP_NAMES = ("ProfilerStep", "Optimizer.step", "Optimizer.zero_grad")
"""Annotations that occur once a step, the best first."""
