"""Long kernels without a known name that may be communication, in traces of several ranks."""

from __future__ import annotations

from gputop.features.traces.columns import ABSENT, COMPUTE, Trace, clip, length, subtract, union
from gputop.features.traces.device_events import Busy, DeviceEvents
from gputop.features.traces.kernel_names import short_name
from gputop.features.traces.trace_report import Under

LEAST_NS = 1_000_000
"""Duration from which a kernel on few multiprocessors is suspected."""
FEW_BLOCKS = 0.2
"""Blocks per multiprocessor: communication leaves most of the chip to compute (DeepEP: 20 to 24 of 132)."""
OWN_STREAM = 0.9
"""Share of a stream's kernel time in such kernels from which on the stream is theirs."""


def unknown_communication(trace: Trace, events: DeviceEvents, when: Busy, begin: int, end: int) -> Under | None:
    """Time in which only suspected kernels run, in percent.

    The name is the largest one's.

    None for a trace of one rank, or without such a kernel.
    """
    if (trace.world_size or 1) < 2:
        return None
    spent: dict[int, int] = {}
    suspects: dict[int, list[int]] = {}
    for at, (number, kind, first, last) in enumerate(
        zip(events.number, events.kind, events.start, events.end, strict=True)
    ):
        if kind == COMPUTE:
            stream = trace.gpu.stream[number]
            spent[stream] = spent.get(stream, 0) + last - first
            if last - first >= LEAST_NS and ABSENT < events.blocks[at] <= FEW_BLOCKS:
                suspects.setdefault(stream, []).append(at)
    times: dict[str, int] = {}
    chosen: set[int] = set()
    for stream, places in suspects.items():
        taken = sum(events.end[at] - events.start[at] for at in places)
        if len(spent) > 1 and taken >= OWN_STREAM * spent[stream]:
            chosen.update(places)
            for at in places:
                name = short_name(trace.names.texts[events.name[at]])
                times[name] = times.get(name, 0) + events.end[at] - events.start[at]
    if not chosen:
        return None
    rows = list(zip(events.start, events.end, events.kind, strict=True))
    suspected = clip(union(rows[at][:2] for at in sorted(chosen)), begin, end)
    known = union(row[:2] for at, row in enumerate(rows) if at not in chosen and row[2] == COMPUTE)
    alone = length(subtract(subtract(suspected, known), when.comm))
    return Under(max(times, key=times.__getitem__), 100.0 * alone / (end - begin)) if alone else None
