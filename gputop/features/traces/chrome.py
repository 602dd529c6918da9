"""Reads Chrome traces of Kineto (torch.profiler) into columns.

Categories and arguments are Kineto's (libkineto, ActivityType.h and output_json.cpp). Nothing is analysed here.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from math import floor
from operator import add, attrgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gputop.features.traces.chunks import EventText, framing
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
)
from gputop.features.traces.comm_kernels import is_communication
from gputop.features.traces.time_checks import check_times
from gputop.features.traces.trace_text import Text

Value = int | float | str | None


_KEYS = {
    "blocks": "blocks per SM", "operation": "Collective name", "group": "Process Group Name", "seq": "Seq",
    "sm_active": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
}  # fmt: skip


class Args(Struct, gc=False, frozen=True, rename=_KEYS):
    """Arguments of an event that are used here."""

    name: Any = None
    device: Value = None
    stream: Value = None
    correlation: Value = None
    bytes: Value = None
    blocks: Value = None
    operation: Value = None
    group: Value = None
    seq: Value = None
    sm_active: Value = None


class ChromeEvent(Struct, gc=False, frozen=True):
    """One event as the file has it."""

    ph: str = ""
    cat: str | None = None
    name: Value = None
    pid: Value = None
    tid: Value = None
    ts: Value = None
    dur: Value = None
    args: Args | None = None


NO_ARGS = Args()
decode = msgspec.json.Decoder(list[ChromeEvent]).decode


def plain(event: ChromeEvent) -> ChromeEvent:
    """The event with values in the types of new traces.

    Raises TypeError, ValueError and OverflowError.
    """
    args = event.args or NO_ARGS
    return replace(
        event,
        name="" if event.name is None else str(event.name),
        ts=float(event.ts),  # type: ignore[arg-type]
        dur=float(event.dur),  # type: ignore[arg-type]
        args=replace(
            args,
            device=whole(args.device),
            stream=whole(args.stream),
            correlation=whole(args.correlation),
            bytes=whole(args.bytes),
            blocks=_positive(args.blocks),
        ),
    )


def whole(value: Value) -> int:
    """Convert a device, stream or correlation; -1 for none.

    Of a text such as "stream 7" the digits count.
    """
    if isinstance(value, str):
        digits = re.search(r"\d+", value)
        return int(digits[0]) if digits else ABSENT
    # Beyond 64 bits it matches nothing.
    return int(value) if value is not None and -(2**63) <= value < 2**63 else ABSENT


def _positive(value: Value) -> float:
    return (
        float(value)
        if isinstance(value, int | float) and 0.0 < value < _MOST_BLOCKS
        else float(ABSENT)
    )


_SPANS: dict[str, int] = {
    "cpu_op": OPERATOR,
    "user_annotation": ANNOTATION,
    "python_function": PYTHON,
}
_CALLS = frozenset({"cuda_runtime", "cuda_driver"})
_COPIES = frozenset({"gpu_memcpy", "gpu_memset"})
_WORK = _COPIES | {"kernel"}
_OF_XPROF = re.compile(r"/(device|host):\w+")
_NAME, _THREAD = attrgetter("name"), attrgetter("pid", "tid")
_PARTS = 8
_MOST_BLOCKS = 1e9
_FARTHEST_NS = 2**62
"""A larger time is damage: nanoseconds are kept in 64 bits."""


def read_chrome(path: str, progress: Callable[[int, int], None] | None = None) -> Trace:
    """Read a trace. ``progress`` is given the bytes read and the bytes in all.

    Raises TraceError for a file that is not a trace, and OSError.
    """
    text = Text(path)
    trace = Trace(path, text.size_bytes)
    filler = _Filler(trace)
    try:
        with closing(text.pieces()) as pieces:
            events = EventText(pieces)
            for some in events.lists(decode):
                filler.take(some)
                if progress is not None:
                    progress(text.read_bytes, text.size_bytes)
    except TraceError as error:
        raise TraceError(f"{path} {error}") from None
    trace.truncated = events.truncated or text.truncated
    trace.dropped_events += events.dropped
    _describe(trace, framing(events.head, events.tail), filler.base_us)
    check_times(trace, -round((filler.base_us or 0.0) * 1000.0))
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

    def take(self, events: list[ChromeEvent]) -> None:
        """Append all events of a list; those that are damaged are counted."""
        groups: defaultdict[str | None, list[ChromeEvent]] = defaultdict(list)
        for event in events:
            groups[event.cat].append(event)
        for category, group in groups.items():
            if category == "hardware_counters":
                self._counters(group)
            elif category in _SPANS or category in _CALLS or category in _WORK:
                self._fill(category, [event for event in group if event.ph == "X"])
            elif category is None:
                self._note_processes(group)

    def _note_processes(self, group: list[ChromeEvent]) -> None:
        """Note the processes by which JAX and TensorFlow are known: their events have no category."""
        names = [
            str(event.args.name)
            for event in group
            if event.name == "process_name" and event.args is not None
        ]
        self._trace.other_processes += filter(_OF_XPROF.match, names)

    def _fill(self, category: str, group: list[Any]) -> None:
        """Append a group; it is split around odd values, so that the rest stays fast."""
        with suppress(TypeError, ValueError, OverflowError):
            self._append(category, group)
            return
        if len(group) > 1:
            part = -(-len(group) // _PARTS)
            for begin in range(0, len(group), part):
                self._fill(category, group[begin : begin + part])
            return
        try:
            self._append(category, [plain(group[0])])
        except (TypeError, ValueError, OverflowError):
            self._trace.dropped_events += 1

    def _append(self, category: str, group: list[Any]) -> None:
        """Append a group, or nothing of it.

        Raises TypeError, ValueError and OverflowError for odd values.
        """
        if not group:
            return
        trace = self._trace
        args: list[Any] = [event.args or NO_ARGS for event in group]
        rows = (
            *self._times(group),
            array("i", list(map(trace.names.__getitem__, map(_NAME, group)))),
        )
        if category in _WORK:
            self._append_work(rows, args, category in _COPIES)
            return
        threads = array("i", list(map(trace.threads.__getitem__, map(_THREAD, group))))
        if category in _SPANS:
            trace.spans.extend(*rows, threads, array("b", [_SPANS[category]]) * len(group))
        else:
            trace.calls.extend(*rows, threads, array("q", [arg.correlation for arg in args]))

    def _times(self, group: list[Any]) -> tuple[array[int], array[int]]:
        """Begins and ends in nanoseconds."""
        if self.base_us is None:
            # A time of 0 is none, and with it as the base the others lose digits.
            first = next((event.ts for event in group if event.ts > 0), group[0].ts)
            self.base_us = float(first) if math.isfinite(first) else None
        base = self.base_us
        starts = array("q", [floor((event.ts - base) * 1000.0 + 0.5) for event in group])
        durations = array("q", [floor(event.dur * 1000.0 + 0.5) for event in group])
        if (
            min(durations) < 0
            or max(durations) > _FARTHEST_NS
            or max(map(abs, starts)) >= _FARTHEST_NS
        ):
            raise ValueError("a time out of every range")
        return starts, array("q", map(add, starts, durations))

    def _append_work(self, rows: tuple[array[int], ...], args: list[Any], copies: bool) -> None:
        names = rows[-1]
        kinds = array("b", [COPY] * len(names) if copies else list(map(self._kernel_kind, names)))
        # Kineto writes 0 for kernels that it could not estimate, such as Hopper's with much shared memory.
        blocks = array(
            "f",
            [
                value if 0.0 < (value := arg.blocks or 0.0) < _MOST_BLOCKS else ABSENT
                for arg in args
            ],
        )
        gpu = self._trace.gpu
        first = len(gpu)
        gpu.extend(
            *rows,
            kinds,
            array("i", [arg.device for arg in args]),
            array("q", [arg.stream for arg in args]),
            array("q", [arg.correlation for arg in args]),
            array("q", [ABSENT if arg.bytes is None else arg.bytes for arg in args]),
            blocks,
        )
        for number, arg in enumerate(args, first):
            if arg.operation is not None:
                self._trace.collectives[number] = Collective(
                    str(arg.group or ""), str(arg.operation), whole(arg.seq)
                )

    def _kernel_kind(self, name: int) -> int:
        comm = self._comm.get(name)
        if comm is None:
            comm = self._comm[name] = is_communication(self._trace.names.texts[name])
        return COMM if comm else COMPUTE

    def _counters(self, group: list[Any]) -> None:
        for event in group:
            value = event.args.sm_active if event.args is not None else None
            if (
                isinstance(value, int | float)
                and isinstance(event.ts, int | float)
                and math.isfinite(value)
            ):
                if self.base_us is None:
                    self.base_us = float(event.ts)
                digits = re.search(r"\d+", str(event.pid))
                t = round((event.ts - self.base_us) * 1000.0)
                self._trace.counters.append(
                    CounterSample(t, int(digits[0]) if digits else 0, float(value))
                )
                self._trace.counter_source = "kineto"


def _describe(trace: Trace, meta: dict[str, Any], base_us: float | None) -> None:
    """Reads what the trace holds besides events: devices, rank, and its start time."""
    properties_of_all = meta.get("deviceProperties")
    for properties in properties_of_all if isinstance(properties_of_all, list) else ():
        index = properties.get("id") if isinstance(properties, dict) else None
        if isinstance(index, int):
            name = properties.get("name")
            trace.devices[index] = TraceDevice(
                index,
                name if isinstance(name, str) and name.strip() else None,
                _count(properties.get("numSms")),
                _count(properties.get("computeMajor")),
            )
    # One that is not described is of a process that sees fewer: if all that are described are alike, it is too.
    if len({replace(device, index=0) for device in trace.devices.values()}) == 1:
        known = next(iter(trace.devices.values()))
        for index in set(trace.gpu.device) - set(trace.devices):
            trace.devices[index] = replace(known, index=index)
    distributed = meta.get("distributedInfo")
    if isinstance(distributed, dict):
        rank = distributed.get("rank")
        trace.rank = 0 if rank == 0 else _count(rank)
        trace.world_size = _count(distributed.get("world_size"))
    if base_us is not None:
        base_ns = meta.get("baseTimeNanoseconds")
        begin = base_us * 1e-6 + (
            float(base_ns) * 1e-9 if isinstance(base_ns, int | float) else 0.0
        )
        # Before 2001 it is not Unix time but the time since some start.
        trace.begin_unix_s = begin if 1e9 <= begin < 1e11 else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
