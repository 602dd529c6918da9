"""Analyses a trace: each of its GPUs with its numbers and its verdict."""

from __future__ import annotations

import re
from itertools import compress
from statistics import mean, median, quantiles
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.thresholds import SLOW_STEP
from gputop.features.traces.columns import (
    ABSENT,
    ANNOTATION,
    COPY,
    MOST_GPUS,
    PYTHON,
    CounterSample,
    Trace,
    TraceDevice,
    TraceError,
)
from gputop.features.traces.device_events import (
    Busy,
    DeviceEvents,
    busiest_stream_ns,
    busy,
    device_events,
    launches,
    numbers_by_device,
)
from gputop.features.traces.host_causes import DATA_LOADER, Cause, HostCauses
from gputop.features.traces.host_stack import Times, sync_rows, underneath
from gputop.features.traces.idle_causes import (
    IdleTime,
    LongIdle,
    OnceIdle,
    happened_once,
    idle_time,
)
from gputop.features.traces.intervals import (
    Interval,
    Intervals,
    clip,
    intersect,
    length,
    length_by,
    subtract,
    union,
)
from gputop.features.traces.kernels import (
    category_rows,
    fp32_gemm_pct,
    kernel_rows,
    median_kernel_us,
    queue,
    sm_high_pct,
    spent_by_kind,
)
from gputop.features.traces.occupancy import occupancy, with_occupancy
from gputop.features.traces.page_faults import FaultIndex, page_faults
from gputop.features.traces.trace_report import (
    CAUSE_WORDS,
    HOST_CAUSES,
    SHARES,
    LongGap,
    Measures,
    OnceRow,
    StepShare,
    StreamWaitRow,
    TraceGpuReport,
    Under,
)
from gputop.features.traces.trace_steps import (
    HostStep,
    TraceStep,
    host_steps,
    proposed_range,
    step_rows,
)
from gputop.features.traces.trace_verdict import judged
from gputop.features.traces.unknown_kernels import has_ranks, unknown_communication
from gputop.model.quantity import count

MOST_EXPLAINED = 32
"""What the host was in is told for GPUs with lower numbers: twice the largest machine's [judged]."""
MOST_UNDER = 5
MOST_WARNINGS = 3
_MOST_WAITS = 5
_MOST_IN_GAP = 3
_LEAST_WINDOW_NS = 2_000_000
"""In a shorter window one hiccup of the host is half of the time [judged]."""
_FEWEST_EVENTS = 20
_LEAST_WORK_NS = 500_000
"""Fewer kernels and copies are judged only if the GPU worked longer for them: a handful of long kernels tells what it
does, a handful of microseconds nothing [judged]."""
_LEAST_IN_ALL_NS = 100_000
"""Less work is that of a program that tries a GPU, however many kernels [judged]."""
_LEAST_COPIES_NS = 1_000_000
"""Without a kernel, less time in copies says nothing of a job [judged]."""
_BUS = re.compile(r"HtoD|DtoH|HostToDevice|DeviceToHost")
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-f]+")
_LOADER_PREFIX = "enumerate(DataLoader)#"


class StepChoice(Struct, frozen=True):
    """The steps to analyse.

    Ranges called ``name`` replace the profiler's; only the given numbers count.
    """

    name: str | None = None
    first: int | None = None
    last: int | None = None


class Analysis(Struct, frozen=True):
    """The GPUs of a trace, and one line for each that could not be judged."""

    gpus: tuple[TraceGpuReport, ...]
    notes: tuple[str, ...]


class _Host(Struct, frozen=True):
    """The host's side of a trace, which its devices share."""

    steps: list[HostStep]
    launched: dict[int, int]
    threads: HostCauses
    iterator: str | None
    pageable: set[int]
    """Numbers of the names of copies from or to pageable memory."""
    over_the_bus: set[int]
    """Numbers of the names of copies between host and device."""
    stacks: bool
    range_hint: str | None
    samples: dict[int, list[CounterSample]]
    """The samples of SM activity by device."""
    has_ranks: bool
    faults: FaultIndex


def analyse(trace: Trace, choice: StepChoice | None = None) -> tuple[TraceGpuReport, ...]:
    """Analyse every GPU of the trace, however little it did.

    Raises TraceError if it holds no GPU work, or not the wanted steps.
    """
    return full_analysis(trace, choice, needs_enough=False).gpus


def full_analysis(
    trace: Trace, choice: StepChoice | None = None, *, needs_enough: bool = True
) -> Analysis:
    """Analyse every GPU of the trace, and say which were left out.

    ``needs_enough`` leaves out GPUs that did too little for a verdict. Raises TraceError if the trace holds no GPU
    work, or not the wanted steps, or if no GPU is left.
    """
    choice = choice or StepChoice()
    if not len(trace.gpu):
        raise TraceError(f"{trace.path}: {_without_work(trace)}")
    if trace.names.matching(re.compile("hip(Launch|Module|Memcpy)").match):
        raise TraceError(f"{trace.path}: a trace of ROCm, which is not read: NVIDIA GPUs only")
    host = _host_side(trace, choice)
    gpus: list[TraceGpuReport] = []
    left_out: list[_LeftOut] = []
    for device, numbers in numbers_by_device(trace).items():
        events = device_events(trace, device, numbers, host.launched)
        try:
            gpus.append(_gpu(trace, events, host, choice, needs_enough=needs_enough))
        except _LeftOut as reason:
            left_out.append(reason)
    if not gpus:
        raise TraceError(f"{trace.path}: {_why_none(left_out)}")
    return Analysis(tuple(gpus), tuple(f"GPU {one.index} is left out: {one}" for one in left_out))


class _LeftOut(Exception):
    """One GPU that cannot be judged, and why.

    ``steps`` are the lowest and the highest number of its steps, where others were wanted.
    """

    def __init__(self, index: int, reason: str, steps: tuple[int, int] | None = None) -> None:
        super().__init__(reason)
        self.index = index
        self.steps = steps


def _why_none(left_out: list[_LeftOut]) -> str:
    """Why no GPU of a trace can be judged: the reason of the one that comes nearest."""
    held = [one.steps for one in left_out if one.steps is not None]
    if not held:
        return str(left_out[0])
    reason = next(str(one) for one in left_out if one.steps is not None)
    lowest = min(first for first, _ in held)
    highest = max(last for _, last in held)
    return f"{reason}: it has {lowest}–{highest}"


def _without_work(trace: Trace) -> str:
    """Why a trace without GPU work cannot be analysed."""
    if trace.warnings:
        return f"no kernels; the profiler says: {'; '.join(trace.warnings[:MOST_WARNINGS])}"
    if trace.far_gpus:
        return f"no kernel of a GPU below number {MOST_GPUS}: {trace.far_gpus} events are of others"
    if trace.doubts.untimed:
        return f"no kernel with a time: all {trace.doubts.untimed} are at time 0"
    if trace.dropped_events:
        damaged = trace.dropped_events
        events = "1 event has" if damaged == 1 else f"{damaged} events have"
        return (
            f"no kernel that can be read: {events} no times, or an end before the start, or a day "
            "and more between them"
        )
    if len(trace.calls):
        return (
            f"{len(trace.calls)} CUDA calls but no kernels: the profiler was not given any (another profiler was "
            "running, or the rights to profile are missing)"
        )
    if len(trace.spans):
        return "no GPU work: profile with ProfilerActivity.CUDA while a GPU computes"
    if trace.other_processes:
        named = ", ".join(trace.other_processes[:2])
        return (
            f"a trace of JAX, TensorFlow or XProf (its processes: {named}), which is not read: open it in XProf or "
            "Perfetto, or record with `nsys profile --trace cuda,nvtx` and export SQLite"
        )
    return (
        "no events that a GPU profiler writes: a trace is what torch.profiler's "
        "export_chrome_trace makes"
    )


def _host_side(trace: Trace, choice: StepChoice) -> _Host:
    steps = host_steps(trace, choice.name)
    if choice.name is not None and not steps:
        raise TraceError(f"{trace.path}: no range called {choice.name!r}; {_ranges(trace)}")
    if choice.first is not None and not steps:
        raise TraceError(
            f"{trace.path}: no steps to choose from: call profiler.step() after each one"
        )
    launched = launches(trace)
    pageable, bus = (
        trace.names.matching(re.compile("Pageable").search),
        trace.names.matching(_BUS.search),
    )
    copies = map(pageable.__contains__, trace.gpu.name) if pageable else ()
    blocking = {
        launched.get(correlation, ABSENT) for correlation in compress(trace.gpu.correlation, copies)
    }
    iterators = {match[1] for text in trace.names.texts if (match := DATA_LOADER.match(text))}
    threads = HostCauses(trace, steps[0].thread if steps else ABSENT, blocking - {ABSENT})
    return _Host(
        steps,
        launched,
        threads,
        min(iterators, default=None),
        pageable,
        bus,
        PYTHON in trace.spans.kind,
        None if steps else proposed_range(trace),
        _samples_by_device(trace),
        has_ranks(trace),
        FaultIndex(trace),
    )


def _samples_by_device(trace: Trace) -> dict[int, list[CounterSample]]:
    samples: dict[int, list[CounterSample]] = {}
    for sample in trace.counters:
        samples.setdefault(sample.device, []).append(sample)
    return samples


def _ranges(trace: Trace) -> str:
    numbers = set(compress(trace.spans.name, map(ANNOTATION.__eq__, trace.spans.kind)))
    named = sorted(trace.names.texts[number] for number in numbers)
    return f"it has {', '.join(map(repr, named[:5]))}" if named else "it has no named ranges"


def _gpu(
    trace: Trace, events: DeviceEvents, host: _Host, choice: StepChoice, *, needs_enough: bool
) -> TraceGpuReport:
    """Report one GPU. Raises _LeftOut where it cannot be judged."""
    device = events.index
    rows = []
    if host.steps:
        rows = [row for row in step_rows(trace, events, host.steps) if row.end > row.begin]
    named = bool(rows)
    whole = rows if named else step_rows(trace, events, [])
    begin, end = whole[0].begin, whole[-1].end
    if end <= begin:
        raise _LeftOut(device, "its GPU events have no duration: nothing can be judged")
    when = busy(events, begin, end)
    if not when.kernels and length(when.any) < _LEAST_COPIES_NS:
        raise _LeftOut(
            device, "too little GPU work to judge: no kernel, and less than 1 ms of copies"
        )
    if needs_enough:
        too_little = _too_little(events, begin, end, length(when.any))
        if too_little is not None:
            raise _LeftOut(device, f"too little GPU work to judge: {too_little}")
    if choice.first is not None and choice.last is not None:
        rows = _chosen(device, rows, choice.first, choice.last)
    else:
        rows = whole
    boundaries = [rows[0].begin, *(row.end for row in rows)]
    when = busy(events, boundaries[0], boundaries[-1])
    idle = idle_time(trace, events, when.any, boundaries, host.threads)
    measures = _measures(trace, events, host, rows, named, when, idle)
    return TraceGpuReport(measures, judged(trace, measures, stacks=host.stacks))


def _too_little(events: DeviceEvents, begin: int, end: int, worked_ns: int) -> str | None:
    """How little a GPU did in a window, where that is too little for any verdict."""
    kinds = [kind for kind, last in zip(events.kind, events.end, strict=True) if last > begin]
    least_work_ns = _LEAST_IN_ALL_NS
    if len(kinds) < _FEWEST_EVENTS:
        least_work_ns = _LEAST_WORK_NS
    is_long = end - begin >= _LEAST_WINDOW_NS
    if is_long and worked_ns >= least_work_ns:
        return None
    kernels = count(len(kinds) - kinds.count(COPY), "kernel")
    return f"{kernels}, {_time_words(worked_ns)} of work in {_time_words(end - begin)}"


def _time_words(ns: int) -> str:
    """``20.5 µs``, ``1.2 ms``."""
    return f"{ns / 1e6:.3g} ms" if ns >= 1_000_000 else f"{ns / 1e3:.3g} µs"


def _chosen(device: int, rows: list[TraceStep], first: int, last: int) -> list[TraceStep]:
    """The rows of the steps with these numbers. Raises _LeftOut for none."""
    if not rows:
        raise _LeftOut(device, "no work in any step")
    numbers = [int(row.name.lstrip("#")) for row in rows]
    places = [place for place, number in enumerate(numbers) if first <= number <= last]
    if not places:
        raise _LeftOut(device, f"no step {first}–{last}", (min(numbers), max(numbers)))
    # Also what ran between them: rows tile the time, whatever their numbers.
    return rows[min(places) : max(places) + 1]


def _measures(
    trace: Trace,
    events: DeviceEvents,
    host: _Host,
    rows: list[TraceStep],
    named: bool,
    when: Busy,
    idle: IdleTime,
) -> Measures:
    boundaries = [rows[0].begin, *(row.end for row in rows)]
    begin, end = boundaries[0], boundaries[-1]
    window = end - begin
    exposed_comm = subtract(when.comm, when.compute)
    exposed_copy = subtract(when.copy, when.kernels)
    parts = (when.compute, exposed_comm, exposed_copy)
    by_step = [length_by(part, boundaries) for part in parts]
    sums = [sum(part) for part in by_step]
    comm = length(when.comm)
    unknown = None
    if host.has_ranks:
        unknown = unknown_communication(trace, events, when, begin, end)
    steps = [(row.end - row.begin) / 1e6 for row in rows]
    described = trace.devices.get(events.index, TraceDevice(events.index))
    samples = host.samples.get(events.index, [])
    measured = [sample.sm_active_pct for sample in samples if begin <= sample.t <= end]
    bound = None if measured else sm_high_pct(events, begin, end)
    spent = spent_by_kind(trace, events, begin, end)
    queue_empty_pct, launch_delay_us = queue(trace, events, begin, end)
    once = happened_once(idle, window, named=named)
    doings = _underneath(trace, events.index, host.threads, idle, window, once)
    occupied = occupancy(trace, events, begin, end)
    waits = [
        StreamWaitRow(*wait, times, 100.0 * spent / window)
        for wait, (times, spent) in idle.waits.items()
    ]
    unix = trace.begin_unix_s
    not_recorded = idle.by_cause()["not_recorded"]
    standing = window - sum(sums) - not_recorded
    return Measures(
        index=events.index,
        name=described.name,
        sm_count=described.sm_count,
        compute_major=described.compute_major,
        window_ms=window / 1e6,
        steps=len(rows),
        named_steps=named,
        step_median_ms=median(steps),
        step_p95_ms=quantiles(steps, n=20, method="inclusive")[-1] if len(steps) > 1 else steps[0],
        step_range_ms=(min(steps), max(steps)),
        share_pct={
            share: 100.0 * spent / window
            for share, spent in zip(SHARES, (*sums, standing), strict=True)
        },
        comm_pct=100.0 * comm / window,
        overlap_pct=100.0 * length(intersect(when.compute, when.comm)) / comm if comm else None,
        bus_exposed_pct=100.0
        * length(intersect(exposed_copy, _bus_copies(host, events, begin, end)))
        / window,
        idle_cause_pct={cause: 100.0 * spent / window for cause, spent in idle.by_cause().items()},
        util_pct=100.0 * length(when.kernels) / window,
        sm_active_pct=mean(measured) if measured else None,
        sm_high_pct=bound,
        sm_source=(trace.counter_source or "none")
        if measured
        else "bound"
        if bound is not None
        else "none",
        queue_empty_pct=queue_empty_pct,
        launch_delay_us=launch_delay_us,
        median_kernel_us=median_kernel_us(events),
        iterator=host.iterator,
        pageable_copies=sum(map(host.pageable.__contains__, events.name)) if host.pageable else 0,
        under=doings.under,
        steps_table=_steps_table(rows, by_step, idle) if named else (),
        kernels=with_occupancy(kernel_rows(trace, spent, window), occupied),
        fp32_gemm_pct=fp32_gemm_pct(trace, events),
        syncs=tuple(sync_rows(trace, idle, host.threads, begin, end)),
        categories=tuple(category_rows(trace, spent, window)),
        stream_waits=tuple(sorted(waits, key=lambda row: (-row.pct, row.kernel))[:_MOST_WAITS]),
        at_work=doings.at_work,
        once=tuple(
            OnceRow(row.cause, name, row.spent / 1e6, 100.0 * row.spent / window)
            for row, name in zip(once, doings.once_names, strict=True)
        ),
        other_streams_pct=100.0
        * max(0, length(when.any) - busiest_stream_ns(trace, events, begin, end))
        / window,
        range_hint=host.range_hint,
        begin_unix_s=None if unix is None else unix + begin / 1e9,
        end_unix_s=None if unix is None else unix + end / 1e9,
        step_judged_part=_step_judged_part(rows, idle, once),
        unknown_comm=unknown,
        occupancy_pct=occupied.pct,
        page_faults=page_faults(trace, host.faults, events, begin, end),
        gaps=tuple(_long_gap(gap, begin, doings.in_gaps) for gap in idle.longest),
    )


def _step_judged_part(rows: list[TraceStep], idle: IdleTime, once: list[OnceIdle]) -> float:
    """Part of the median step without holes of the recording and single events."""
    left_out = [causes["not_recorded"] for causes in idle.by_step]
    for event in once:
        left_out[event.row] += event.spent
    lengths = [row.end - row.begin for row in rows]
    judged_lengths = [whole - part for whole, part in zip(lengths, left_out, strict=True)]
    return median(judged_lengths) / median(lengths)


def _bus_copies(host: _Host, events: DeviceEvents, begin: int, end: int) -> Intervals:
    """When data moved between the host and the device."""
    moved = (
        (first, last)
        for first, last, kind, name in zip(
            events.start, events.end, events.kind, events.name, strict=True
        )
        if kind == COPY and name in host.over_the_bus
    )
    return clip(union(moved), begin, end)


def _steps_table(
    rows: list[TraceStep], by_step: list[list[int]], idle: IdleTime
) -> tuple[StepShare, ...]:
    typical = median(row.end - row.begin for row in rows)
    table = []
    for at, (row, causes) in enumerate(zip(rows, idle.by_step, strict=True)):
        spent = row.end - row.begin
        compute, comm, copy = (100.0 * part[at] / spent for part in by_step)
        flag: Literal["first", "slow"] | None = (
            "slow" if spent > SLOW_STEP * typical else None if at else "first"
        )
        data = 100.0 * causes["data"] / spent
        idle_pct = 100.0 - compute - comm - copy - 100.0 * causes["not_recorded"] / spent
        table.append(StepShare(row.name, spent / 1e6, compute, comm, copy, idle_pct, data, flag))
    return tuple(table)


class _Doings(Struct, frozen=True):
    """Activity of the host while the GPU waited: in all, in its own long work, and in single gaps.

    Shares are of the window. ``once_names`` has a name for each gap that happened once; ``in_gaps`` nanoseconds by
    thread and host's part of these and of the longest gaps.
    """

    under: tuple[Under, ...]
    at_work: tuple[Under, ...]
    once_names: list[str]
    in_gaps: dict[tuple[int, Interval], Times]


def _underneath(
    trace: Trace,
    device: int,
    host: HostCauses,
    idle: IdleTime,
    window: int,
    once: list[OnceIdle],
) -> _Doings:
    """Activity of the host while the GPU waited for it."""
    gaps = [row.gap for row in once] + [row.gap for row in idle.longest]
    apart: dict[tuple[int, Interval], Times] = {(gap.thread, gap.host): {} for gap in gaps}
    times: Times = {}
    at_work: Times = {}
    if device < MOST_EXPLAINED:
        times = underneath(trace, host, idle.host, apart)
        at_work = underneath(trace, host, idle.working, {})
    in_once = [_top(apart[row.gap.thread, row.gap.host], row.gap.length, 1) for row in once]
    names = [_once_name(row.cause, rows) for row, rows in zip(once, in_once, strict=True)]
    return _Doings(_top(times, window, MOST_UNDER), _top(at_work, window, MOST_UNDER), names, apart)


def _long_gap(long: LongIdle, begin: int, in_gaps: dict[tuple[int, Interval], Times]) -> LongGap:
    """A long gap of a window that begins at ``begin``, with what the host was in."""
    gap = long.gap
    cause = max(long.spent, key=long.spent.__getitem__)
    under = _top(in_gaps[gap.thread, gap.host], gap.length, _MOST_IN_GAP)
    return LongGap((gap.begin - begin) / 1e6, gap.length / 1e6, cause, under)


def _once_name(cause: Cause, rows: tuple[Under, ...]) -> str:
    """The name of what happened once: what the host was in, if it was the host's."""
    if cause == "module_load":
        return "modules' loading"
    if cause not in HOST_CAUSES:
        return "a wait on the device"
    return rows[0].name if rows else CAUSE_WORDS[cause]


def _top(times: dict[str, int], whole: int, limit: int) -> tuple[Under, ...]:
    rows = sorted(times.items(), key=lambda row: (-row[1], row[0]))[:limit]
    return tuple(
        Under(_ADDRESS.sub("", name.removeprefix(_LOADER_PREFIX)), 100.0 * spent / whole)
        for name, spent in rows
    )
