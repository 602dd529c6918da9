"""A memory snapshot as columns: the allocator's segments and blocks at its end, and what it did before.

The format is that of torch.cuda.memory._snapshot (torch/cuda/memory.py): a list of segments with blocks that tile them,
and for each device the last events. Sizes are bytes; addresses are the device's.
"""

from __future__ import annotations

import re
from array import array
from functools import partial
from typing import Any, Literal, get_args

from msgspec import Struct, field

from gputop.system.plain_pickle import NotPlain, load_plain

# Where memory was allocated: a stack's own line of the user's code, and what the memory is for by where that is.
#
# A snapshot says of an allocation only its stack, and of some (those of a profile) a category. The category of a stack
# is therefore a convention, by the files and functions in it; without a stack there is none.

MOST_FRAMES = 256
"""Frames of a stack that are looked at, from the innermost on."""
_SHOWN_FRAMES = 12
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3|<string>|<frozen|_dynamo|_inductor/")
_OF_PYTORCH = re.compile(r"(?:^|/)(?:torch|torchgen|triton|functorch)/")
NO_STACK = "no stack recorded"
NO_PYTHON = "no Python frame (C++ or the backward pass)"
Category = Literal[
    "parameters", "gradients", "optimizer", "activations", "inputs", "communication", "workspace", "other"
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
_RECORDED: dict[str, Category] = {
    "parameter": "parameters", "gradient": "gradients", "optimizer_state": "optimizer", "activation": "activations",
    "temporary": "activations", "autograd_detail": "activations", "input": "inputs",
}  # fmt: skip
"""The profiler's own categories (torch.profiler._memory_profiler.Category)."""
_WORDS: tuple[tuple[Category, str, str], ...] = (
    ("workspace", r"(?!)", r"getCurrentCUDABlas|[Ww]orkspace"),
    (
        "communication",
        r"torch/distributed/distributed_c10d|ProcessGroupNCCL",
        r"ncclAll|c10d::|_all_gather|_reduce_scatter",
    ),
    (
        "optimizer",
        r"torch/optim/|bitsandbytes/optim|/optimizers?(?:/|\.py)|deepspeed/ops/adam",
        r"_init_group|optimizer_step",
    ),
    (
        "gradients",
        r"torch/autograd/(?:__init__|graph)\.py",
        r"^backward$|_engine_run_backward|torch::autograd::Engine|AccumulateGrad",
    ),
    ("inputs", r"torch/utils/data/|dataloader", r"pin_memory|collate"),
    (
        "parameters",
        r"torch/nn/(?:init|parameter)\.py|modeling_utils\.py|safetensors",
        r"reset_parameters|load_state_dict|_apply$|convert$|from_pretrained",
    ),
    ("activations", r"torch/nn/modules/|torch/nn/functional\.py", r"^forward$|_call_impl|_wrapped_call"),
)
_BY_FRAME: tuple[tuple[Category, re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (category, re.compile(files), re.compile(names)) for category, files, names in _WORDS
)
"""The first that a frame fits: its file or its function. Asked category by category, the innermost frames first."""


class AllocationStack(Struct, frozen=True):
    """One place of allocation: the innermost line of the user's code, the frames (innermost first), its category."""

    place: str
    frames: tuple[str, ...]
    category: Category


class Stacks:
    """Stacks by number. The same list of frames, and lists that say the same, are one."""

    def __init__(self) -> None:
        self.all: list[AllocationStack] = []
        self._by_list: dict[tuple[int, str], int] = {}
        self._by_stack: dict[AllocationStack, int] = {}
        self._lines: dict[int, tuple[str, str, str]] = {}

    def number(self, entry: dict[str, Any]) -> int:
        """The number of an event's or block's stack. Its frames must live as long as this. Raises NotPlain."""
        frames = entry.get("frames")
        if frames is None:
            frames = _legacy(entry)
        recorded = entry.get("category")
        category = recorded if isinstance(recorded, str) else ""
        key = (id(frames), category)
        number = self._by_list.get(key)
        if number is None:
            stack = self._stack(frames, category)
            number = self._by_stack.setdefault(stack, len(self.all))
            if number == len(self.all):
                self.all.append(stack)
            self._by_list[key] = number
        return number

    def _stack(self, frames: Any, category_name: str) -> AllocationStack:
        if not isinstance(frames, (list, tuple)):
            raise NotPlain("is not a memory snapshot: a stack is no list")
        lines = [self._line(frame) for frame in frames[:MOST_FRAMES]]
        category = _RECORDED.get(category_name) or _category(lines)
        python = [line for line in lines if line[0].endswith(".py")]
        if not python:
            return AllocationStack(NO_PYTHON if lines else NO_STACK, (), category)
        strangers = [line for line in python if not _OF_PYTORCH.search(line[0])]
        own_line = next((line for line in strangers if not _INSTALLED.search(line[0])), (strangers or python)[0])
        return AllocationStack(own_line[2], tuple(line[2] for line in python[:_SHOWN_FRAMES]), category)

    def _line(self, frame: Any) -> tuple[str, str, str]:
        """A frame's file, function and words."""
        line = self._lines.get(id(frame))
        if line is None:
            if not isinstance(frame, dict):
                raise NotPlain("is not a memory snapshot: a frame is no dictionary")
            file, name, number = str(frame.get("filename", "")), str(frame.get("name", "")), frame.get("line")
            short = "/".join(file.rsplit("/", 2)[-2:])
            where = f"{short}:{number}" if isinstance(number, int) and number > 0 else short
            line = self._lines[id(frame)] = (file[:500], name[:500], f"{where} {name}"[:300])
        return line


def _legacy(entry: dict[str, Any]) -> Any:
    """The frames of a block as PyTorch 2.0 wrote it, in its history."""
    history = entry.get("history")
    if isinstance(history, list) and history and isinstance(history[0], dict):
        return history[0].get("frames", _NONE)
    return _NONE


_NONE: list[Any] = []


def _category(lines: list[tuple[str, str, str]]) -> Category:
    for category, files, names in _BY_FRAME:
        if any(files.search(file) or names.search(name) for file, name, _ in lines):
            return category
    return "other"


# The columns.

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

    action: array[int] = field(default_factory=partial(array, "b"))
    address: array[int] = field(default_factory=partial(array, "Q"))
    size: array[int] = field(default_factory=partial(array, "q"))
    time_us: array[int] = field(default_factory=partial(array, "q"))
    stack: array[int] = field(default_factory=partial(array, "i"))
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
