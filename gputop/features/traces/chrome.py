"""Reads Chrome traces of Kineto (torch.profiler) into columns.

Categories and arguments are Kineto's (libkineto, ActivityType.h and output_json.cpp). Nothing is analysed here.
"""

from __future__ import annotations

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
    DAY_NS,
    FARTHEST_NS,
    MOST_GPUS,
    MOST_RANKS,
    MOST_SMS,
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
from gputop.model.foreign_values import finite_number, text_of, whole_number

Value = int | float | str | None


_KEYS = {
    "blocks": "blocks per SM", "occupancy": "est. achieved occupancy %", "operation": "Collective name",
    "group": "Process Group Name", "seq": "Seq",
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
    occupancy: Value = None
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
        name=event.name if isinstance(event.name, str) else text_of(event.name),
        ts=_time_us(event.ts, -_FARTHEST_US, _FARTHEST_US),
        dur=_time_us(event.dur, 0.0, _DAY_US),
        args=replace(
            args,
            device=max(0, whole(args.device)),
            stream=whole(args.stream),
            correlation=whole(args.correlation),
            bytes=whole(args.bytes),
            blocks=finite_number(args.blocks) or float(ABSENT),
            occupancy=finite_number(args.occupancy) or float(ABSENT),
        ),
    )


def _time_us(value: Value, least: float, most: float) -> float:
    """A time as a number. Raises ValueError for one that is missing or cannot be."""
    number = None if value is None else finite_number(value, least, most)
    if number is None:
        raise ValueError("no time")
    return number


def whole(value: Value) -> int:
    """Convert a device, stream or correlation; -1 for none.

    Of a text such as "stream 7" the digits count. A number beyond 64 bits matches nothing.
    """
    if isinstance(value, str):
        digits = re.search("[0-9]{1,19}", value)
        value = digits[0] if digits else None
    number = whole_number(value, ABSENT, _LARGEST)
    return ABSENT if number is None else number


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
_PARTS, _FEW = 8, 512
"""Into how many parts a group with an odd value is split, and how many events are read one by one."""
_MOST_BLOCKS = 1e9
_MOST_MAJOR = 1000
"""Far beyond any compute capability."""
_LARGEST = 2**63 - 1
_FARTHEST_US = FARTHEST_NS / 1000.0
_DAY_US = DAY_NS / 1000.0


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
            elif category in _WORK:
                complete = [event for event in group if event.ph == "X"]
                self._fill(category, self._of_near_gpus(complete))
            elif category in _SPANS or category in _CALLS:
                self._fill(category, [event for event in group if event.ph == "X"])
            elif category is None:
                self._note_processes(group)

    def _note_processes(self, group: list[ChromeEvent]) -> None:
        """Note the processes by which JAX and TensorFlow are known: their events have no category."""
        names = [
            text_of(event.args.name)
            for event in group
            if event.name == "process_name" and event.args is not None
        ]
        self._trace.other_processes += filter(_OF_XPROF.match, names)

    def _of_near_gpus(self, group: list[ChromeEvent]) -> list[ChromeEvent]:
        """Leave out and count the work of GPUs with numbers that no machine has."""
        near = [event for event in group if not _is_of_far_gpu(event)]
        self._trace.far_gpus += len(group) - len(near)
        return near

    def _fill(self, category: str, group: list[Any]) -> None:
        """Append a group; it is split around odd values, so that the rest stays fast."""
        with suppress(TypeError, ValueError, OverflowError):
            self._append(category, group)
            return
        if len(group) > _FEW:
            part = -(-len(group) // _PARTS)
            for begin in range(0, len(group), part):
                self._fill(category, group[begin : begin + part])
            return
        good: list[Any] = []
        for event in group:
            with suppress(TypeError, ValueError, OverflowError):
                good.append(plain(event))
        self._trace.dropped_events += len(group) - len(good)
        self._append(category, good)

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
            self.base_us = finite_number(first, -_FARTHEST_US, _FARTHEST_US)
        base = self.base_us
        starts = array("q", [floor((event.ts - base) * 1000.0 + 0.5) for event in group])
        durations = array("q", [floor(event.dur * 1000.0 + 0.5) for event in group])
        if min(durations) < 0 or max(durations) > DAY_NS or max(map(abs, starts)) > 2 * FARTHEST_NS:
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
        # Its 0 is "not estimated" as well.
        occupancy = array(
            "f",
            [value if 0.0 < (value := arg.occupancy or 0.0) <= 100.0 else ABSENT for arg in args],
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
            occupancy,
        )
        for number, arg in enumerate(args, first):
            if arg.operation is not None:
                self._trace.collectives[number] = Collective(
                    text_of(arg.group), text_of(arg.operation), whole(arg.seq)
                )

    def _kernel_kind(self, name: int) -> int:
        comm = self._comm.get(name)
        if comm is None:
            comm = self._comm[name] = is_communication(self._trace.names.texts[name])
        return COMM if comm else COMPUTE

    def _counters(self, group: list[ChromeEvent]) -> None:
        for event in group:
            value = event.args.sm_active if event.args is not None else None
            if value is None:
                continue
            active_pct = finite_number(value, 0.0, 100.0)
            moment_us = finite_number(event.ts, -_FARTHEST_US, _FARTHEST_US)
            if active_pct is None or moment_us is None:
                self._trace.false_samples += 1
                continue
            if self.base_us is None:
                self.base_us = moment_us
            device = max(0, whole(event.pid))
            t = round((moment_us - self.base_us) * 1000.0)
            self._trace.counters.append(CounterSample(t, device, active_pct))
            self._trace.counter_source = "kineto"


def _is_of_far_gpu(event: ChromeEvent) -> bool:
    device = event.args.device if event.args is not None else None
    if isinstance(device, str):
        device = whole(device)
    return device is not None and device >= MOST_GPUS


def _describe(trace: Trace, meta: dict[str, Any], base_us: float | None) -> None:
    """Reads what the trace holds besides events: devices, rank, and its start time."""
    properties_of_all = meta.get("deviceProperties")
    for properties in properties_of_all if isinstance(properties_of_all, list) else ():
        if isinstance(properties, dict):
            _describe_device(trace, properties)
    # One that is not described is of a process that sees fewer: if all that are described are alike, it is too.
    if len({replace(device, index=0) for device in trace.devices.values()}) == 1:
        known = next(iter(trace.devices.values()))
        for index in set(trace.gpu.device) - set(trace.devices):
            trace.devices[index] = replace(known, index=index)
    distributed = meta.get("distributedInfo")
    if isinstance(distributed, dict):
        trace.rank = whole_number(distributed.get("rank"), 0, MOST_RANKS)
        trace.world_size = whole_number(distributed.get("world_size"), 1, MOST_RANKS)
    if base_us is not None:
        base_ns = finite_number(meta.get("baseTimeNanoseconds")) or 0.0
        begin = base_us * 1e-6 + base_ns * 1e-9
        # Before 2001 it is not Unix time but the time since some start.
        trace.begin_unix_s = begin if 1e9 <= begin < 1e11 else None


def _describe_device(trace: Trace, properties: dict[str, Any]) -> None:
    """Note a GPU's properties, if there can be such a GPU."""
    index = whole_number(properties.get("id"), 0, MOST_GPUS - 1)
    if index is None:
        return
    trace.devices[index] = TraceDevice(
        index,
        text_of(properties.get("name")).strip() or None,
        whole_number(properties.get("numSms"), 1, MOST_SMS),
        whole_number(properties.get("computeMajor"), 1, _MOST_MAJOR),
    )
