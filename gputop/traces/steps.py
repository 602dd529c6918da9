"""Steps that tile the GPU's time: every nanosecond of the window belongs to exactly one.

A step owns the GPU events that were launched between its begin on the host and the next one's. On the GPU it ends
where the last of these ends; the next begins there. So the rows sum to the window, and asynchronous work counts for
the step that asked for it.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from msgspec import Struct

from gputop.traces.columns import ABSENT, ANNOTATION, OPERATOR, Trace
from gputop.traces.device import DeviceEvents

_PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)$")


class HostStep(Struct, frozen=True):
    """A step as the host announced it: its name and when it began and ended, in nanoseconds."""

    name: str
    begin: int
    end: int
    thread: int


class StepRow(Struct, frozen=True):
    """A step on the GPU: [begin, end) in nanoseconds. ``name`` is empty for a trace without steps."""

    name: str
    begin: int
    end: int
    events: int


def host_steps(trace: Trace, name: str | None = None) -> list[HostStep]:
    """Steps in order: the ranges called ``name``, or profiler.step()'s own; of the thread that has most of them."""
    spans = trace.spans
    labels: dict[int, str] = {}
    for number, text in enumerate(trace.names.texts):
        if name is None:
            found = _PROFILER_STEP.match(text)
            if found:
                labels[number] = f"#{found[1]}"
        elif text == name:
            labels[number] = ""
    if not labels:
        return []
    by_thread: dict[int, list[HostStep]] = {}
    for at, (number, kind) in enumerate(zip(spans.name, spans.kind, strict=True)):
        if number in labels and kind in (ANNOTATION, OPERATOR):
            step = HostStep(labels[number], spans.start[at], spans.end[at], spans.thread[at])
            by_thread.setdefault(step.thread, []).append(step)
    if not by_thread:
        return []
    thread = max(by_thread, key=lambda of: len(by_thread[of]))
    steps = sorted(by_thread[thread], key=lambda step: step.begin)
    if name is not None:
        steps = [HostStep(f"#{at}", s.begin, s.end, s.thread) for at, s in enumerate(steps)]
    return steps


def step_rows(trace: Trace, events: DeviceEvents, steps: list[HostStep]) -> list[StepRow]:
    """The steps as the GPU ran them; one row over everything for a trace without steps."""
    if not len(events):
        return []
    if not steps:
        return [StepRow("", events.start[0], max(events.end), len(events))]
    begins = [step.begin for step in steps]
    ends = list(begins)
    counts = [0] * len(steps)
    calls = trace.calls.start
    final = steps[-1].end
    for start, end, launch in zip(events.start, events.end, events.launch, strict=True):
        at = calls[launch] if launch != ABSENT else start
        owner = bisect_right(begins, at) - 1
        if owner < 0 or at >= final:
            continue
        counts[owner] += 1
        if end > ends[owner]:
            ends[owner] = end
    rows, boundary = [], begins[0]
    for step, last, count in zip(steps, ends, counts, strict=True):
        until = max(boundary, last) if count else boundary
        rows.append(StepRow(step.name, boundary, until, count))
        boundary = until
    return rows
