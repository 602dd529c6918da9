"""Reads Chrome traces of Kineto (torch.profiler), new and old, for CUDA and ROCm, into columns.

Categories and arguments are Kineto's (libkineto, ActivityType.h and output_json.cpp); traces of PyTorch up to 1.8 use
other names for the same things. Nothing is analysed here.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Callable
from math import floor
from operator import add, attrgetter
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from gputop.features.traces.chunks import EventText, Text, framing
from gputop.features.traces.columns import (
    ABSENT,
    ANNOTATION,
    COMM,
    COMPUTE,
    COPY,
    OPERATOR,
    PYTHON,
    Collective,
    CounterSample,
    Trace,
    TraceDevice,
    TraceError,
    is_communication,
)

# One event of a Chrome trace as Kineto writes it, and the same with odd values normalised.
#
# Arguments are Kineto's (libkineto, output_json.cpp). Nothing here knows what an event means.

Value = int | float | str | None


class Args(Struct, gc=False, frozen=True):
    """The arguments that nearly every trace needs. Each further one slows reading down."""

    device: Value = None
    stream: Value = None
    correlation: Value = None
    blocks: Value = field(name="blocks per SM", default=None)
    occupancy: Value = field(name="est. achieved occupancy %", default=None)


class AllArgs(Args, gc=False, frozen=True):
    """Also with the arguments of collectives and hardware counters, and grids, which ROCm's traces have alone."""

    operation: Value = field(name="Collective name", default=None)
    group: Value = field(name="Process Group Name", default=None)
    seq: Value = field(name="Seq", default=None)
    sent: Value = field(name="In msg nelems", default=None)
    received: Value = field(name="Out msg nelems", default=None)
    ranks: Value = field(name="Group size", default=None)
    dtype: Any = None
    grid: Any = None
    sm_active: Value = field(name="sm__cycles_active.avg.pct_of_peak_sustained_elapsed", default=None)


class _Event(Struct, gc=False, frozen=True):
    ph: str = ""
    cat: str | None = None
    name: Value = None
    pid: Value = None
    tid: Value = None
    ts: Value = None
    dur: Value = None


class ChromeEvent(_Event, gc=False, frozen=True):
    """One event as the file has it."""

    args: Args | None = None


class FullEvent(_Event, gc=False, frozen=True):
    """One event with all arguments that are used here."""

    args: AllArgs | None = None


NO_ARGS = AllArgs()
_LEAN = msgspec.json.Decoder(list[ChromeEvent])
_FULL = msgspec.json.Decoder(list[FullEvent])
_RARE = (b'"Collective name"', b'"hardware_counters"')
_GRID, _BLOCKS = b'"grid"', b'"blocks per SM"'


def decode(text: bytes) -> list[Any]:
    """A list of events, with the rarer arguments where the text holds any."""
    rare = any(word in text for word in _RARE) or (_GRID in text and _BLOCKS not in text)
    return (_FULL if rare else _LEAN).decode(text)


def blocks_of(grid: Any) -> float:
    """The number of blocks of a grid as Kineto writes it, ``[x, y, z]``; -1 for anything else."""
    if not isinstance(grid, list) or not grid or not all(isinstance(side, int) and side > 0 for side in grid):
        return float(ABSENT)
    return float(min(math.prod(grid), 1 << 62))


def plain(event: Any) -> ChromeEvent | FullEvent:
    """The event with its values in the types that new traces write. Raises TypeError, ValueError and OverflowError."""
    args = event.args or NO_ARGS
    return replace(  # type: ignore[no-any-return]
        event,
        name="" if event.name is None else str(event.name),
        ts=float(event.ts),
        dur=0.0 if event.dur is None else float(event.dur),
        args=replace(
            args,
            device=whole(args.device if args.device is not None else event.pid),
            stream=whole(args.stream if args.stream is not None else event.tid),
            correlation=whole(args.correlation),
            blocks=_positive(args.blocks),
            occupancy=_positive(args.occupancy),
        ),
    )


def whole(value: Value) -> int:
    """A number of a device, stream or correlation; the digits of a text such as "stream 7"; -1 for none."""
    if value is None:
        return ABSENT
    if isinstance(value, str):
        digits = re.search(r"\d+", value)
        return int(digits[0]) if digits else ABSENT
    number = int(value)
    # Beyond 64 bits it matches nothing.
    return number if -(2**63) <= number < 2**63 else ABSENT


def _positive(value: Value) -> float:
    if value is None or value.__class__ is str:
        return float(ABSENT)
    number = float(value)
    return number if 0.0 < number < 1e9 else float(ABSENT)


_KERNEL, _COPY, _CALL, _SPAN, _COUNTER = range(5)
_CATEGORIES: dict[str, tuple[int, int]] = {
    "kernel": (_KERNEL, COMPUTE), "Kernel": (_KERNEL, COMPUTE),
    "gpu_memcpy": (_COPY, COPY), "gpu_memset": (_COPY, COPY), "Memcpy": (_COPY, COPY), "Memset": (_COPY, COPY),
    "cuda_runtime": (_CALL, 0), "cuda_driver": (_CALL, 0), "Runtime": (_CALL, 0),
    "cpu_op": (_SPAN, OPERATOR), "Operator": (_SPAN, OPERATOR),
    "user_annotation": (_SPAN, ANNOTATION),
    "python_function": (_SPAN, PYTHON),
    "hardware_counters": (_COUNTER, 0),
}  # fmt: skip
_FOREIGN = re.compile(r"(mtia|xpu|hpu|privateuse1)_?\w*$")
_NAME, _THREAD = attrgetter("name"), attrgetter("pid", "tid")
_PARTS = 8
_FARTHEST_NS = 2**62
"""A larger time is damage: nanoseconds are kept in 64 bits."""


def read_chrome(path: str, progress: Callable[[int, int], None] | None = None) -> Trace:
    """Read a trace. ``progress`` is given the bytes read and the bytes in all.

    Raises TraceError for a file that is not a trace, and OSError.
    """
    text = Text(path)
    trace = Trace(path, text.size_bytes)
    try:
        events = EventText(text.pieces())
        filler = _Filler(trace)
        for events_read in events.lists(decode):
            filler.take(events_read)
            if progress is not None:
                progress(text.read_bytes, text.size_bytes)
        trace.truncated = events.truncated or text.truncated
        trace.dropped_events += events.dropped
        _describe(trace, framing(events.head, events.tail), filler.base_us)
        _fill_blocks(trace)
    except TraceError as error:
        raise TraceError(f"{path} {error}") from None
    finally:
        text.close()
    return trace


class _Filler:
    """Appends events to a trace's columns, a column at a time.

    That is three times as fast as event by event. Events with odd values (a number as text, no duration) are filled
    one at a time, and what even then makes no sense is dropped and counted.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.base_us: float | None = None
        self._comm: dict[int, bool] = {}
        self._fillers = {_KERNEL: self._gpu, _COPY: self._gpu, _CALL: self._calls, _SPAN: self._spans}

    def take(self, events: list[Any]) -> None:
        """Append all events of a list; those that are damaged are counted."""
        groups: defaultdict[str | None, list[Any]] = defaultdict(list)
        for event in events:
            groups[event.cat].append(event)
        for category, group in groups.items():
            if category in _CATEGORIES:
                filler, kind = _CATEGORIES[category]
                if filler == _COUNTER:
                    self._counters(group)
                    continue
                complete = [event for event in group if event.ph == "X"]
                if complete:
                    self._fill(filler, kind, complete)
            elif category is not None and _FOREIGN.match(category):
                self._trace.foreign[category] = self._trace.foreign.get(category, 0) + len(group)

    def _fill(self, filler: int, kind: int, group: list[Any]) -> None:
        """Append a group; it is split around odd values, so that the rest stays fast."""
        try:
            self._fillers[filler](group, kind)
            return
        except (TypeError, ValueError, OverflowError):
            pass
        if len(group) > 1:
            part = -(-len(group) // _PARTS)
            for begin in range(0, len(group), part):
                self._fill(filler, kind, group[begin : begin + part])
            return
        try:
            self._fillers[filler]([plain(group[0])], kind)
        except (TypeError, ValueError, OverflowError):
            self._trace.dropped_events += 1

    def _times(self, group: list[Any]) -> tuple[array[int], array[int]]:
        """Begins and ends in nanoseconds. Raises TypeError, ValueError and OverflowError for what is not a time."""
        if self.base_us is None:
            first = group[0].ts
            self.base_us = float(first) if math.isfinite(first) else None
        base = self.base_us
        starts = array("q", [floor((event.ts - base) * 1000.0 + 0.5) for event in group])
        durations = array("q", [floor(event.dur * 1000.0 + 0.5) for event in group])
        if min(durations) < 0 or max(durations) > _FARTHEST_NS or max(map(abs, starts)) >= _FARTHEST_NS:
            raise ValueError("a time out of every range")
        return starts, array("q", map(add, starts, durations))

    def _names_and_threads(self, group: list[Any]) -> tuple[array[int], array[int]]:
        trace = self._trace
        names = array("i", list(map(trace.names.__getitem__, map(_NAME, group))))
        return names, array("i", list(map(trace.threads.__getitem__, map(_THREAD, group))))

    def _spans(self, group: list[Any], kind: int) -> None:
        starts, ends = self._times(group)
        names, threads = self._names_and_threads(group)
        spans = self._trace.spans
        spans.start.extend(starts)
        spans.end.extend(ends)
        spans.name.extend(names)
        spans.thread.extend(threads)
        spans.kind.extend(array("b", [kind]) * len(group))

    def _calls(self, group: list[Any], kind: int) -> None:
        starts, ends = self._times(group)
        args: list[Any] = [event.args or NO_ARGS for event in group]
        correlations = array("q", [arg.correlation for arg in args])
        names, threads = self._names_and_threads(group)
        calls = self._trace.calls
        calls.start.extend(starts)
        calls.end.extend(ends)
        calls.name.extend(names)
        calls.thread.extend(threads)
        calls.correlation.extend(correlations)

    def _gpu(self, group: list[Any], kind: int) -> None:
        trace = self._trace
        starts, ends = self._times(group)
        args: list[Any] = [event.args or NO_ARGS for event in group]
        devices = array("i", [arg.device for arg in args])
        streams = array("q", [arg.stream for arg in args])
        correlations = array("q", [arg.correlation for arg in args])
        # Kineto writes 0 for kernels that it could not estimate, such as Hopper's with much shared memory.
        blocks = array("f", [arg.blocks or ABSENT for arg in args])
        occupancy = array("f", [arg.occupancy or ABSENT for arg in args])
        names = array("i", list(map(trace.names.__getitem__, map(_NAME, group))))
        gpu = trace.gpu
        first = len(gpu)
        gpu.start.extend(starts)
        gpu.end.extend(ends)
        gpu.name.extend(names)
        gpu.kind.extend(array("b", [COPY] * len(group) if kind == COPY else list(map(self._kernel_kind, names))))
        gpu.device.extend(devices)
        gpu.stream.extend(streams)
        gpu.correlation.extend(correlations)
        gpu.blocks_per_sm.extend(blocks)
        gpu.occupancy.extend(occupancy)
        if set(map(type, args)) == {Args}:
            gpu.grid.extend(array("f", [ABSENT]) * len(group))
            return
        # The parts of a damaged piece are decoded apart, each with the arguments that it needs.
        full = [arg if isinstance(arg, AllArgs) else NO_ARGS for arg in args]
        gpu.grid.extend(array("f", [blocks_of(arg.grid) for arg in full]))
        for number, arg in enumerate(full, first):
            if arg.operation is not None:
                trace.collectives[number] = Collective(
                    str(arg.group or ""), str(arg.operation), whole(arg.seq), whole(arg.sent), whole(arg.received),
                    whole(arg.ranks), str(arg.dtype or ""),
                )  # fmt: skip

    def _kernel_kind(self, name: int) -> int:
        comm = self._comm.get(name)
        if comm is None:
            comm = self._comm[name] = is_communication(self._trace.names.texts[name])
        return COMM if comm else COMPUTE

    def _counters(self, group: list[Any]) -> None:
        for event in group:
            value = event.args.sm_active if event.args is not None else None
            if isinstance(value, int | float) and isinstance(event.ts, int | float) and math.isfinite(value):
                if self.base_us is None:
                    self.base_us = float(event.ts)
                digits = re.search(r"\d+", str(event.pid))
                t = round((event.ts - self.base_us) * 1000.0)
                self._trace.counters.append(CounterSample(t, int(digits[0]) if digits else 0, float(value)))
                self._trace.counter_source = "kineto"


def _describe(trace: Trace, meta: dict[str, Any], base_us: float | None) -> None:
    """Reads what the trace holds besides events: devices, rank, and its start time."""
    for properties in _dicts(meta.get("deviceProperties")):
        index = properties.get("id")
        if isinstance(index, int):
            name = properties.get("name")
            trace.devices[index] = TraceDevice(
                index,
                name if isinstance(name, str) and name.strip() else None,
                _count(properties.get("numSms")),
                _count(properties.get("computeMajor")),
                _count(properties.get("totalGlobalMem")),
            )
    distributed = meta.get("distributedInfo")
    if isinstance(distributed, dict):
        trace.rank = _index(distributed.get("rank"))
        trace.world_size = _count(distributed.get("world_size"))
    if base_us is not None:
        base_ns = meta.get("baseTimeNanoseconds")
        begin = base_us * 1e-6 + (float(base_ns) * 1e-9 if isinstance(base_ns, int | float) else 0.0)
        # Before 2001 it is not Unix time but the time since some start.
        trace.begin_unix_s = begin if 1e9 <= begin < 1e11 else None


def _fill_blocks(trace: Trace) -> None:
    """Blocks per multiprocessor from the grids, where the file has only these (ROCm), and devices not described.

    A device that is not described is one of a process that sees fewer: if all that are described are alike, it is too.
    """
    alike = {(device.name, device.sm_count, device.compute_major) for device in trace.devices.values()}
    if len(alike) == 1:
        ((name, count, major),) = alike
        for index in set(trace.gpu.device) - set(trace.devices):
            trace.devices[index] = TraceDevice(index, name, count, major)
    counts = {index: device.sm_count for index, device in trace.devices.items()}
    gpu = trace.gpu
    for number, (grid, device) in enumerate(zip(gpu.grid, gpu.device, strict=True)):
        if grid != ABSENT and gpu.blocks_per_sm[number] == ABSENT and (count := counts.get(device)):
            gpu.blocks_per_sm[number] = grid / count


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _index(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
