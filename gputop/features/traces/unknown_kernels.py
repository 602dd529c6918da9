"""Finds kernels without a known name that may communicate.

Libraries bring their own kernels between GPUs faster than their names can be listed. Such a kernel runs long, because
it waits for other ranks, on few multiprocessors, because it leaves the chip to compute, and on a stream of its own.
Counted as compute it would make a waiting rank look busy.
"""

from __future__ import annotations

from collections import Counter

from gputop.features.traces.columns import ABSENT, COMM, COMPUTE, Trace
from gputop.features.traces.device_events import Busy, DeviceEvents
from gputop.features.traces.intervals import clip, length, subtract, union
from gputop.features.traces.kernel_names import category, short_name
from gputop.features.traces.trace_report import Under

LEAST_NS = 1_000_000
"""Duration from which a kernel on few multiprocessors is suspected."""
FEW_BLOCKS = 0.2
"""Blocks per multiprocessor: communication leaves most of the chip to compute (DeepEP: 20 to 24 of 132)."""
OWN_STREAM = 0.9
"""Share of a stream's kernel time in such kernels from which on the stream is theirs [judged]."""
_COMPUTING = frozenset({"gemm", "attention", "normalisation"})
"""Kernels whose names say that they compute."""


def unknown_communication(
    trace: Trace, events: DeviceEvents, when: Busy, begin: int, end: int
) -> Under | None:
    """Return the share of [begin, end) in which only suspected kernels run, and the largest one's name.

    None without such a kernel. ``trace`` is of a job with several ranks.
    """
    suspects = _suspects(trace, events)
    if not suspects:
        return None
    suspected = union(zip(*_times(events, suspects), strict=True))
    others = [
        place for place, kind in enumerate(events.kind) if kind == COMPUTE and place not in suspects
    ]
    known = union(zip(*_times(events, others), strict=True))
    alone = subtract(subtract(clip(suspected, begin, end), known), when.comm)
    if not alone:
        return None
    by_name: Counter[str] = Counter()
    for place in suspects:
        name = short_name(trace.names.texts[events.name[place]])
        by_name[name] += events.end[place] - events.start[place]
    largest = max(by_name, key=by_name.__getitem__)
    return Under(largest, 100.0 * length(alone) / (end - begin))


def has_ranks(trace: Trace) -> bool:
    """Whether the job has several ranks: the trace says so, or holds known communication."""
    if trace.world_size is not None:
        return trace.world_size > 1
    return COMM in trace.gpu.kind


def _suspects(trace: Trace, events: DeviceEvents) -> dict[int, None]:
    """Places of the suspected kernels, in order: those on streams that are theirs."""
    stream_ns: Counter[int] = Counter()
    suspect_ns: Counter[int] = Counter()
    places: dict[int, int] = {}
    for place, kind in enumerate(events.kind):
        if kind != COMPUTE:
            continue
        stream = trace.gpu.stream[events.number[place]]
        duration = events.end[place] - events.start[place]
        stream_ns[stream] += duration
        if duration >= LEAST_NS and _may_communicate(trace, events, place):
            suspect_ns[stream] += duration
            places[place] = stream
    return {
        place: None
        for place, stream in places.items()
        if suspect_ns[stream] >= OWN_STREAM * stream_ns[stream]
    }


def _may_communicate(trace: Trace, events: DeviceEvents, place: int) -> bool:
    """Whether a kernel fills few multiprocessors, and its name does not say that it computes."""
    if not ABSENT < events.blocks[place] <= FEW_BLOCKS:
        return False
    return category(trace.names.texts[events.name[place]]) not in _COMPUTING


def _times(
    events: DeviceEvents, places: dict[int, None] | list[int]
) -> tuple[list[int], list[int]]:
    """Begins and ends of events."""
    return [events.start[place] for place in places], [events.end[place] for place in places]
