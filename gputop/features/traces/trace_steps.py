"""Steps that tile the GPU's time: every nanosecond of the window belongs to exactly one.

A step owns the GPU events that were launched between its begin on the host and the next one's. On the GPU it ends
where the last of these ends; the next begins there. So the rows sum to the window, and asynchronous work counts for
the step that asked for it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from fnmatch import translate
from glob import escape

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.thresholds import HOST_WORK_NS, LATENCY_NS
from gputop.features.traces.columns import ABSENT, ANNOTATION, COPY, OPERATOR, Trace
from gputop.features.traces.device_events import DeviceEvents
from gputop.features.traces.intervals import length, union

_PROFILER_STEP = re.compile(r"ProfilerStep#([0-9]{1,18})$")
"""A range with more digits is none that a profiler counted."""
_FAMILY = re.compile(r"[^\d\[\](){}#<>=]{3,}")
_NO_STEP = re.compile(r"ProfilerStep|nccl:|enumerate\(DataLoader\)|Optimizer\.|capture_|[a-z]+::")
"""Ranges of the frameworks themselves, which are part of a step."""


class HostStep(Struct, frozen=True):
    """A step as the host announced it.

    Its name, begin and end in nanoseconds.
    """

    name: str
    begin: int
    end: int
    thread: int


class TraceStep(Struct, frozen=True):
    """A step on the GPU: [begin, end) in nanoseconds.

    ``name`` is empty for a trace without steps.
    """

    name: str
    begin: int
    end: int


def host_steps(trace: Trace, name: str | None = None) -> list[HostStep]:
    """Announced steps in order.

    Ranges called ``name``, or profiler.step()'s own; of the thread that has most of them.

    ``name`` is a whole name, else a pattern where it holds * or ?, else the begin of names: servers name each
    iteration after its requests. Of ranges within one another only the outermost count.
    """
    spans = trace.spans
    labels = _labels(trace.names.texts, name)
    by_thread: dict[int, list[HostStep]] = {}
    for at, (number, kind) in enumerate(zip(spans.name, spans.kind, strict=True)):
        if number in labels and kind in (ANNOTATION, OPERATOR):
            step = HostStep(labels[number], spans.start[at], spans.end[at], spans.thread[at])
            by_thread.setdefault(step.thread, []).append(step)
    steps = max(map(_outermost, by_thread.values()), key=len, default=[])
    return (
        steps if name is None else [replace(step, name=f"#{at}") for at, step in enumerate(steps)]
    )


def _labels(texts: list[str], name: str | None) -> dict[int, str]:
    """Numbers of step names, each with the step's label."""
    if name is None:
        matches = ((number, _PROFILER_STEP.match(text)) for number, text in enumerate(texts))
        return {number: f"#{match[1]}" for number, match in matches if match}
    exact = {number: "" for number, text in enumerate(texts) if text == name}
    if exact:
        return exact
    pattern = re.compile(translate(name if set(name) & set("*?") else escape(name) + "*"))
    return {number: "" for number, text in enumerate(texts) if pattern.match(text)}


def _outermost(steps: list[HostStep]) -> list[HostStep]:
    """Steps in order that lie within no other."""
    outermost: list[HostStep] = []
    for step in sorted(steps, key=lambda step: (step.begin, -step.end)):
        if not outermost or step.begin >= outermost[-1].end:
            outermost.append(step)
    return outermost


def proposed_range(trace: Trace) -> str | None:
    """Common begin of range names that could be steps.

    None if there are no such outermost ranges.

    Of all families of names (up to the first digit or bracket) the one whose ranges cover most of the host's time,
    and of those that cover as much the outer one; at least half of the time in which GPU work was launched.
    """
    calls, spans, texts = trace.calls, trace.spans, trace.names.texts
    if not len(calls):
        return None
    matches = (
        (number, _FAMILY.match(text))
        for number, text in enumerate(texts)
        if not _NO_STEP.match(text)
    )
    families = {number: family[0] for number, family in matches if family}
    ranges: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for at, (number, kind) in enumerate(zip(spans.name, spans.kind, strict=True)):
        if kind == ANNOTATION and number in families:
            ranges.setdefault((families[number], spans.thread[at]), []).append(
                (spans.start[at], spans.end[at])
            )
    launching = max(calls.end) - min(calls.start)
    covered = {key: length(union(sorted(intervals))) for key, intervals in ranges.items()}
    best = max(covered, key=lambda key: (covered[key], -len(ranges[key])), default=None)
    return best[0] if best is not None and covered[best] >= launching / 2 else None


def step_rows(trace: Trace, events: DeviceEvents, steps: list[HostStep]) -> list[TraceStep]:
    """The steps as the GPU ran them; those without work of the GPU are no rows.

    A trace without steps is one row.
    """
    if not len(events):
        return []
    if not steps:
        return [TraceStep("", _first_work(events), max(events.end))]
    begins = [step.begin for step in steps]
    ends: dict[int, int] = {}
    calls = trace.calls.start
    final = steps[-1].end
    for start, end, launch in zip(events.start, events.end, events.launch, strict=True):
        at = calls[launch] if launch != ABSENT else start
        owner = bisect_right(begins, at) - 1
        if owner >= 0 and at < final and end > ends.setdefault(owner, begins[owner]):
            ends[owner] = end
    rows: list[TraceStep] = []
    boundary = events.start[0] if _cut_off(trace, events, begins[0]) else begins[0]
    for number in sorted(ends):
        until = max(boundary, ends[number])
        rows.append(TraceStep(steps[number].name, boundary, until))
        boundary = until
    return rows


def _first_work(events: DeviceEvents) -> int:
    """Begin of the first kernel or the copies right before.

    Earlier work belongs to the program's start.
    """
    first = next((at for at, kind in enumerate(events.kind) if kind != COPY), 0)
    while first and events.start[first] - events.end[first - 1] < HOST_WORK_NS:
        first -= 1
    return events.start[first]


def _cut_off(trace: Trace, events: DeviceEvents, begin: int) -> bool:
    """Whether the GPU was at work at ``begin`` on what the trace does not hold.

    So it was where the first event of all begins long after it was launched, or was launched before: servers that
    schedule ahead are a step ahead of their GPU.
    """
    first, launch = events.start[0], events.launch[0]
    if first <= begin or not len(trace.calls):
        return False
    return (
        launch == ABSENT
        or trace.calls.start[launch] < begin
        or first - trace.calls.end[launch] > LATENCY_NS
    )
