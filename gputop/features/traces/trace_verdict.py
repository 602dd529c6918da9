"""The verdict on one GPU of a trace.

The screen would give the same one for the same job.

Ids, titles and remedies are the diagnosis' own; its thresholds are used where it has them. Pure: numbers in, words out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.rules.half_working import USE_TENSOR_CORES
from gputop.diagnosis.rules.remedy_rows import IN_WORKERS, LIGHTER_HOST
from gputop.diagnosis.rules.remedy_words import HIDE_COMMUNICATION, LARGER_WORK, PINNED
from gputop.diagnosis.thresholds import (
    EMPTY_QUEUE,
    EXPOSED_COMM,
    FEWEST_STEPS,
    FP32_SHARE,
    HALF_RATIO,
    HALF_UTIL,
    HEALTHY_SM,
    HEALTHY_UTIL,
    IDLE_PCT,
    LEAST_LOSS,
    SLOW_FAULTS,
    SMALL_KERNEL_US,
    SOME_COMM,
    SOME_LOSS,
    TENSOR_CORES_SINCE,
    WORKING_UTIL,
)
from gputop.diagnosis.types import Confidence, Flag, Level, Role, full_title
from gputop.diagnosis.verdict.catalogue import (
    DATALOADER_WAIT,
    STREAM_WAIT,
    verdict_roles,
    verdict_rows,
)
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE, ROLE_OF_STATE
from gputop.diagnosis.window.conditions import busy_not_working
from gputop.features.traces.columns import Trace
from gputop.features.traces.host_causes import GRAPH_LAUNCH, SINGLE_PROCESS
from gputop.features.traces.host_stack import NOTHING
from gputop.features.traces.trace_report import (
    CAUSE_WORDS,
    HOST_CAUSES,
    Measures,
    StreamWaitRow,
    TraceVerdict,
    Under,
)
from gputop.model.quantity import count, file_size, pct

_ROWS = {row.id: row for row in verdict_rows()}
OUT_OF_THE_STEP = (
    'do it on the GPU (device="cuda") or in a DataLoader\'s workers, or prepare the next batch '
    "while the GPU computes"
)
NAME_IT = f"look at what the kernel is; if it moves data between GPUs: {HIDE_COMMUNICATION}"
WITH_THE_HOST = (
    "record the host as well: profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
)
WARM_UP = (
    "profile after a warm-up (schedule(wait=…, warmup=…)): each kernel's module is loaded at its first launch; "
    "CUDA_MODULE_LOADING=EAGER loads all at the start"
)
PREFETCH = (
    "cudaMemPrefetchAsync or cudaMemAdvise before the kernels, or device memory that is copied to "
    "explicitly"
)
MORE_STEPS = (
    "profile several steps, with profiler.step() after each one: what comes again in them is the "
    "cause"
)
OF_THE_REST = "of the rest"
"""Words of a share without what is not recorded, and what came once: the tables have shares of the window."""
MOSTLY_ONCE = 0.5
"""Where less of the window than this comes again, the window is of a start and not of work."""
_SAME_SHAPES = (
    "keep tensor shapes constant, no empty_cache() in the loop, "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)


class _Conclusion(Struct, frozen=True):
    """A verdict before its final wording.

    ``because`` is one sentence that fits behind the verdict's name.
    """

    id: str
    because: str
    evidence: tuple[str, ...]
    remedy: str = ""
    cause: str | None = None
    saves: float | None = None
    flag: Flag | None = None
    role: Role | None = None
    """What it means, where that is not what the verdict means on the screen."""
    is_judged: bool = True

    @property
    def level(self) -> Level:
        """The level of the screen for this verdict."""
        return LEVEL_OF_ROLE[self.role or verdict_roles()[self.id]]


def judged(trace: Trace, m: Measures, *, stacks: bool) -> TraceVerdict:
    """The verdict on one GPU's numbers.

    ``stacks``: the trace holds Python's functions, which slow the host.
    """
    hole = m.idle_cause_pct["not_recorded"]
    recorded = _without(m, {"not_recorded": hole}) if hole else m
    conclusion = _with_once(m, recorded) if m.once else _starved(recorded) or _working(recorded)
    row = _ROWS[conclusion.id]
    name = conclusion.flag is not None and full_title(row.title, conclusion.flag, alarm=True)
    head = row.title.removeprefix("starved: ")
    not_judged, _, seen = head.partition(": ")
    if seen:
        head = seen if conclusion.is_judged else not_judged
    return TraceVerdict(
        id=conclusion.id,
        level=conclusion.level,
        title=row.title,
        headline=f"{name or head.upper()}: {conclusion.because}",
        flag=conclusion.flag,
        cause=conclusion.cause,
        confidence=_confidence(trace, m, stacks, conclusion),
        evidence=conclusion.evidence,
        remedy=conclusion.remedy or ("" if conclusion.level in ("green", "grey") else row.remedy),
        notes=_notes(trace, m, conclusion, stacks),
        # A share of the rest of a step, told as a share of the step.
        saves_pct=None if conclusion.saves is None else conclusion.saves * m.step_judged_part,
    )


def _without(m: Measures, parts: Mapping[str, float]) -> Measures:
    """The same measures without parts of the idle causes.

    The parts are in percent of the window; the shares become shares of the rest.
    """
    left = max(1.0 - sum(parts.values()) / 100.0, 1e-9)
    causes = {
        cause: max(0.0, share - parts.get(cause, 0.0)) for cause, share in m.idle_cause_pct.items()
    }
    idle = sum(share for cause, share in causes.items() if cause != "not_recorded")

    unknown = m.unknown_comm

    def scaled(value: float | None) -> float | None:
        return None if value is None else min(100.0, value / left)

    return replace(
        m,
        share_pct={
            part: share / left for part, share in (dict(m.share_pct) | {"idle": idle}).items()
        },
        idle_cause_pct={cause: share / left for cause, share in causes.items()},
        bus_exposed_pct=m.bus_exposed_pct / left,
        util_pct=min(100.0, m.util_pct / left),
        sm_active_pct=scaled(m.sm_active_pct),
        sm_high_pct=scaled(m.sm_high_pct),
        judged_part=left,
        unknown_comm=unknown and Under(unknown.name, min(100.0, unknown.pct / left)),
    )


def _with_once(m: Measures, recorded: Measures) -> _Conclusion:
    """The verdict on recurring time; single events stay evidence.

    ``recorded`` are the measures of the recorded time.
    """
    parts: dict[str, float] = {"not_recorded": m.idle_cause_pct["not_recorded"]}
    for row in m.once:
        parts[row.cause] = parts.get(row.cause, 0.0) + row.pct
    rest = _without(m, parts)
    conclusion = _starved(rest) or _working(rest)
    longest = m.once[0]
    line = (
        f"once: {', '.join(f'{row.name} {_time(row.ms)} ({row.pct:.0f} %)' for row in m.once[:3])}"
    )
    is_mostly_work = rest.judged_part > MOSTLY_ONCE * recorded.judged_part
    is_finding = conclusion.level in ("red", "yellow")
    if recorded.share_pct["idle"] < IDLE_PCT or (is_mostly_work and is_finding):
        return replace(conclusion, evidence=(*conclusion.evidence, f"{line}: in no share of this"))
    sentence = f"once: {longest.name} {_time(longest.ms)}, {longest.pct:.0f} % of the time"
    evidence = (line, *(f"of the rest: {words}" for words in conclusion.evidence[:1]))
    if longest.cause in ("allocator", "module_load"):
        return _Conclusion("startup", sentence, evidence, WARM_UP)
    return _Conclusion("no_bottleneck_seen", sentence, evidence, MORE_STEPS, is_judged=False)


def _time(ms: float) -> str:
    return f"{ms / 1000.0:.1f} s" if ms >= 1000.0 else f"{ms:.3g} ms"


def is_launch_bound(m: Measures) -> bool:
    """Whether the GPU waits for a host that cannot launch fast enough."""
    causes, idle = m.idle_cause_pct, m.share_pct["idle"]
    launching = causes["launching"] + causes["launch_latency"]
    return (
        idle >= IDLE_PCT and launching >= idle / 2.0 and (m.queue_empty_pct or 0.0) >= EMPTY_QUEUE
    )


def _flag(m: Measures) -> Flag | None:
    """A or B, from SM activity or its upper bound.

    Either proves it.
    """
    return busy_not_working(
        m.util_pct, m.sm_active_pct if m.sm_active_pct is not None else m.sm_high_pct
    )


def _starved(m: Measures) -> _Conclusion | None:
    """The first cause of an idle GPU.

    Copies count as idle, as on the screen: util is of kernels.
    """
    idle = m.share_pct["idle"]
    standing = idle + m.share_pct["copy_exposed"]
    if idle >= IDLE_PCT and m.idle_cause_pct["data"] >= idle / 2.0:
        return _data(m, idle)
    if standing >= IDLE_PCT and m.bus_exposed_pct >= idle / 2.0 and m.bus_exposed_pct > 0.0:
        pageable = f", {m.pageable_copies} of them pageable" if m.pageable_copies else ""
        line = (
            f"GPU idle {idle:.0f} %, copies between host and GPU with no kernel beside them "
            f"{m.bus_exposed_pct:.0f} %"
        )
        because = (
            f"{m.bus_exposed_pct:.0f} % {_time_word(m)} the GPU only copies to or from the host"
        )
        return _Conclusion(
            "pcie_transfer",
            because,
            (line + pageable,),
            PINNED,
            "transfer",
            m.bus_exposed_pct,
        )
    if idle < IDLE_PCT:
        return None
    if m.late_host_pct >= idle / 2.0:
        return _late_host(m)
    flag = _flag(m)
    if flag is not None:
        return _low_activity(m, flag)
    causes = m.idle_cause_pct
    if causes["dependency"] + m.late_host_pct >= idle / 2.0:
        return _host_or_device(m)
    rest = ", ".join(
        f"{CAUSE_WORDS[name]} {causes[name]:.1f}"
        for name in ("dependency", "kernel_gap", "unknown")
    )
    host = (
        ""
        if m.queue_empty_pct is None
        else f"the host was late in {m.late_host_pct:.1f} points of it; "
    )
    line = f"GPU idle {idle:.0f} %: {host}{rest}"
    if causes["kernel_gap"] >= idle / 2.0 and m.queue_empty_pct is not None:
        because = f"{idle:.0f} % {_unit(m)} lies between kernels that were launched in time"
        return _Conclusion(
            "small_kernels",
            because,
            (line,),
            LARGER_WORK,
            saves=causes["kernel_gap"],
            role=ROLE_OF_STATE["starved"],
        )
    because = f"the GPU is idle {idle:.0f} % {_time_word(m)}, and the trace does not say why"
    remedy = WITH_THE_HOST if m.queue_empty_pct is None else _ROWS["starved_unattributed"].remedy
    return _Conclusion("starved_unattributed", because, (line,), remedy)


def _device_waits(m: Measures) -> _Conclusion:
    """Work that was launched in time and began late."""
    waits = m.idle_cause_pct["dependency"]
    line = (
        f"GPU idle {m.share_pct['idle']:.0f} %: {waits:.1f} points of it before work that had long "
        "been launched"
    )
    because = f"{waits:.0f} % {_unit(m)} it waits for work that it was given long before"
    lines = [line, *(_wait_words(row) for row in m.stream_waits[:2] if row.pct >= 1.0)]
    return _Conclusion(
        STREAM_WAIT.id, because, tuple(lines), STREAM_WAIT.remedy, "dependency", waits
    )


def _wait_words(row: StreamWaitRow) -> str:
    after = (
        f"{row.after} on stream {row.after_stream}" if row.after_stream != row.stream else row.after
    )
    inside = " inside of a graph" if GRAPH_LAUNCH.match(row.launch) else ""
    return (
        f"stream {row.stream} waits{inside} before {row.kernel}, after {after}: {row.times} ×, "
        f"{row.pct:.1f} points"
    )


def _unit(m: Measures) -> str:
    """Words behind a share of the steps."""
    if _time_word(m) == OF_THE_REST:
        return OF_THE_REST
    return "of each step" if m.named_steps else "of the time"


def _time_word(m: Measures) -> str:
    """Words behind a share of the time; it is a share of the rest where some is left out."""
    return OF_THE_REST if m.judged_part <= 1.0 - SOME_HOLE / 100.0 else "of the time"


def _rest_first(m: Measures) -> str:
    """Words before shares of the rest."""
    return f"{OF_THE_REST}: " if _time_word(m) == OF_THE_REST else ""


def _data(m: Measures, idle: float) -> _Conclusion:
    data = m.idle_cause_pct["data"]
    line = f"GPU idle {idle:.0f} %, {data:.1f} points of it inside {m.iterator}.__next__"
    if (m.iterator or "").startswith(SINGLE_PROCESS):
        because = f"it loads the batches itself, the GPU waits {data:.0f} % {_unit(m)}"
        line += " (num_workers 0)"
        return _Conclusion("main_process", because, (line,), IN_WORKERS, "data", data)
    because = f"the workers are late, the GPU waits {data:.0f} % {_unit(m)}"
    return _Conclusion(DATALOADER_WAIT.id, because, (line,), DATALOADER_WAIT.remedy, "data", data)


def _late_host(m: Measures) -> _Conclusion:
    """The main process, by the largest of what it did."""
    causes, idle = m.idle_cause_pct, m.share_pct["idle"]
    launching = causes["launching"] + causes["launch_latency"]
    again = "in the loop" if m.named_steps and m.steps > 1 else "again and again"
    kinds: dict[str, tuple[float, str, str]] = {
        "launch_bound": (launching, "it launches too slowly", LARGER_WORK),
        "host_work": (causes["host_work"], _host_work_words(m), OUT_OF_THE_STEP),
        "module_load": (
            causes["module_load"],
            "it loads kernels' modules at their first launch",
            WARM_UP,
        ),
        "sync_points": (causes["after_sync"], "it stops to wait for the GPU", LIGHTER_HOST),
        "allocator": (causes["allocator"], f"it allocates device memory {again}", _SAME_SHAPES),
        "data": (causes["data"], "it waits for data", IN_WORKERS),
    }
    cause = max(kinds, key=lambda kind: kinds[kind][0])
    share, because, remedy = kinds[cause]
    line = (
        f"GPU idle {idle:.0f} %: the host was late in {m.late_host_pct:.1f} points of it, "
        + _host_parts(m)
    )
    if cause == "launch_bound" and not is_launch_bound(m):
        because, remedy = "it is late with its launches", LIGHTER_HOST
    evidence = [line]
    if m.queue_empty_pct is not None:
        delay = f"{m.launch_delay_us:,.0f}".replace(",", " ")
        evidence.append(
            f"queue empty at {m.queue_empty_pct:.0f} % of kernels, {delay} µs from launch to begin"
        )
    if cause == "sync_points" and m.syncs:
        top = m.syncs[0]
        evidence.append(f"{top.calls} × {top.op}: {top.idle_after_ms:.1f} ms idle after them")
    if cause == "host_work":
        work = [f"{row.name} {row.pct:.0f} %" for row in m.at_work if row.pct >= 1.0][:3]
        evidence += (
            [f"while it launched nothing for 1 ms and more, it was in {', '.join(work)}"]
            if work
            else []
        )
    sentence = f"{because}, the GPU waits {share:.0f} % {_unit(m)}"
    return _Conclusion("main_process", sentence, tuple(evidence), remedy, cause, share)


def _host_work_words(m: Measures) -> str:
    """The host's work in place of launching.

    The largest operator is named.
    """
    top = next((row for row in m.at_work if row.name != NOTHING), None)
    known = top is not None and top.pct >= m.idle_cause_pct["host_work"] / 2.0
    return (
        f"it is in {top.name} on the CPU"
        if top and known
        else "it does other work before it launches"
    )


def _host_parts(m: Measures) -> str:
    causes = m.idle_cause_pct
    return ", ".join(
        f"{CAUSE_WORDS[name]} {causes[name]:.1f}" for name in HOST_CAUSES if causes[name] >= 0.05
    )


def _working(m: Measures) -> _Conclusion:
    """The verdict on a GPU that is hardly ever idle."""
    comm = m.share_pct["comm_exposed"]
    if comm >= EXPOSED_COMM:
        because = f"{comm:.0f} % {_time_word(m)} the GPU only communicates"
        line = _comm_line(m)
        return _Conclusion(
            "communication",
            because,
            (line,),
            HIDE_COMMUNICATION,
            "communication",
            comm,
            _flag(m),
        )
    unknown = m.unknown_comm
    if unknown is not None and comm + unknown.pct >= EXPOSED_COMM:
        return _perhaps_communication(m, unknown)
    flag = _flag(m)
    if flag is not None:
        return _low_activity(m, flag)
    line = f"util {pct(m.util_pct)}"
    if m.sm_active_pct is not None:
        line += f", SM {pct(m.sm_active_pct)}"
        if m.util_pct >= HALF_UTIL and m.sm_active_pct < HALF_RATIO * m.util_pct:
            because = f"{100.0 * m.sm_active_pct / m.util_pct:.0f} of 100 while kernels run"
            return _Conclusion("half_working", because, (line,))
        in_fp32 = (m.fp32_gemm_pct or 0.0) >= FP32_SHARE
        if m.util_pct >= HEALTHY_UTIL and m.sm_active_pct >= HEALTHY_SM and not in_fp32:
            return _Conclusion("healthy", "nothing to object to", (f"healthy: {line}",))
        if m.util_pct >= WORKING_UTIL:
            return _Conclusion("working", f"{_rest_first(m)}{line}", (line,))
    line += "" if m.sm_high_pct is None else f", SM ≤ {pct(m.sm_high_pct)} from launch grids"
    if m.util_pct >= HEALTHY_UTIL and m.sm_active_pct is None:
        return _Conclusion("no_bottleneck_seen", "busy; SM activity was not measured", (line,))
    return _largest_loss(m, line)


def _perhaps_communication(m: Measures, unknown: Under) -> _Conclusion:
    """The verdict where a kernel without a known name may be waiting for other ranks."""
    because = (
        f"{unknown.pct:.0f} % {_time_word(m)} only {unknown.name} runs: unknown, perhaps "
        "communication"
    )
    line = (
        "it runs for 1 ms and more on a stream of its own and few multiprocessors, in a job of "
        "several ranks"
    )
    return _Conclusion(
        "communication",
        because,
        (line,),
        NAME_IT,
        "communication",
        unknown.pct,
        role="waiting",
    )


def _comm_line(m: Measures) -> str:
    overlap = (
        "" if m.overlap_pct is None else f"; {m.overlap_pct:.0f} % of it is hidden behind compute"
    )
    comm = m.share_pct["comm_exposed"]
    return (
        f"communication {m.comm_pct:.0f} % of the time, {comm:.0f} % with nothing beside "
        f"it{overlap}"
    )


def _largest_loss(m: Measures, line: str) -> _Conclusion:
    """Name the largest loss of a GPU without a clear cause."""
    shares = m.share_pct
    compute = shares["compute"]
    role: Role = "waiting" if 100.0 - compute >= SOME_LOSS else "information"
    losses = {
        "communication": shares["comm_exposed"],
        "transfer": m.bus_exposed_pct,
        "idle": shares["idle"],
    }
    largest, loss = max(losses.items(), key=lambda part: part[1])
    sentence = (
        f"{_rest_first(m)}{compute:.0f} % compute; the largest loss is {_LOSS_WORDS[largest]}, "
        f"{loss:.0f} %"
    )
    if loss < LEAST_LOSS:
        return _Conclusion(
            "no_bottleneck_seen", "busy; copies within the GPU count as work", (line,)
        )
    if largest == "communication":
        lines = (_comm_line(m), line)
        return _Conclusion(
            "communication", sentence, lines, HIDE_COMMUNICATION, "communication", loss, role=role
        )
    if largest == "transfer":
        return _Conclusion("pcie_transfer", sentence, (line,), PINNED, "transfer", loss, role=role)
    cause = _host_or_device(m)
    sentence = f"{sentence}: {cause.because}"
    return replace(cause, because=sentence, evidence=(*cause.evidence, line), role=role)


_LOSS_WORDS = {
    "communication": "communication",
    "transfer": "copies to or from the host",
    "idle": "an idle GPU",
}


def _host_or_device(m: Measures) -> _Conclusion:
    """Why the GPU is idle, by the larger side."""
    causes = m.idle_cause_pct
    if m.iterator is not None and causes["data"] >= m.share_pct["idle"] / 2.0:
        return _data(m, m.share_pct["idle"])
    return _device_waits(m) if causes["dependency"] > m.late_host_pct else _late_host(m)


def _low_activity(m: Measures, flag: Flag) -> _Conclusion:
    """A or B: kernels run, and most of the chip has nothing to do."""
    measured = m.sm_active_pct is not None
    sm = (
        f"SM {pct(m.sm_active_pct)}"
        if measured
        else f"SM ≤ {pct(m.sm_high_pct)} (bound from launch grids)"
    )
    line = f"util {pct(m.util_pct)} but {sm}"
    small = (
        m.median_kernel_us is not None and m.median_kernel_us < SMALL_KERNEL_US
    ) or is_launch_bound(m)
    if small and m.median_kernel_us is not None:
        line += f"; half of the kernels' time is in kernels under {m.median_kernel_us:.0f} µs"
    because = f"{_rest_first(m)}util {m.util_pct:.0f} %, but {'' if measured else 'at most '}"
    because += f"{(m.sm_active_pct if measured else m.sm_high_pct) or 0.0:.0f} % of the chip works"
    return _Conclusion(
        "small_kernels" if small else "low_sm",
        because,
        (line,),
        LARGER_WORK,
        None,
        None,
        flag,
    )


_CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


def _confidence(trace: Trace, m: Measures, stacks: bool, conclusion: _Conclusion) -> Confidence:
    """Confidence of the verdict.

    Doubtful times and warnings of the profiler lower it by one. It is low where kernels that may communicate decide,
    or would take back that nothing is wrong.
    """
    idle = m.share_pct["idle"]
    if conclusion.remedy == NAME_IT:
        return "low"
    is_clean = conclusion.level not in ("red", "yellow")
    if is_clean and _is_unknown_noted(m):
        return "low"
    if trace.truncated or (idle >= IDLE_PCT and m.idle_cause_pct["unknown"] >= idle / 2.0):
        return "low"
    doubts = (trace.doubts.notes(), trace.warnings, trace.notes, trace.false_samples)
    damaged = trace.dropped_events + trace.far_gpus
    lower = (m.steps < FEWEST_STEPS or stacks or damaged > 0) + any(doubts)
    return _CONFIDENCES[min(lower, 2)]


def _notes(trace: Trace, m: Measures, conclusion: _Conclusion, stacks: bool) -> tuple[str, ...]:
    """Other findings of the trace, and its limits."""
    return tuple(
        words
        for holds, words in (*_other_costs(m, conclusion), *_unsure(trace, m, stacks))
        if holds
    )


def _other_costs(m: Measures, conclusion: _Conclusion) -> Iterator[tuple[bool, str]]:
    """Other costs, each with whether it occurs."""
    comm, loading, cause = (
        m.share_pct["comm_exposed"],
        m.idle_cause_pct["module_load"],
        conclusion.cause,
    )
    exposed = conclusion.id != "communication" and comm >= SOME_COMM
    yield exposed, f"communication with nothing beside it: {comm:.0f} % → {HIDE_COMMUNICATION}"
    copies = "1 pageable copy" if m.pageable_copies == 1 else f"{m.pageable_copies} pageable copies"
    yield cause != "transfer" and m.pageable_copies > 0, f"{copies} → {PINNED}"
    fp32 = m.fp32_gemm_pct or 0.0
    yield (
        fp32 >= FP32_SHARE and (m.compute_major or 0) >= TENSOR_CORES_SINCE,
        f"no tensor cores: {fp32:.0f} % of the compute time is in FP32 matrix products → {USE_TENSOR_CORES}",
    )
    unknown = m.unknown_comm
    if unknown is not None and conclusion.remedy != NAME_IT:
        words = f"only {unknown.name} runs {unknown.pct:.0f} % of the time: unknown, perhaps"
        yield _is_unknown_noted(m), f"{words} communication → {NAME_IT}"
    faults = m.page_faults
    if faults is not None:
        words = f"unified memory: {count(faults.gpu_faults, 'page fault')} of the GPU"
        cost = f"{faults.handling_ms:.1f} ms to handle them, {file_size(faults.moved_bytes)} moved"
        is_slow = faults.handling_ms >= SLOW_FAULTS / 100.0 * m.window_ms
        yield is_slow, f"{words}, {cost} → {PREFETCH}"
    flag = _flag(m)
    yield flag is not None and conclusion.flag is None, f"busy but not working ({flag})"
    yield (
        conclusion.remedy != WARM_UP and loading >= SOME_COMM,
        f"kernels' modules are loaded: {loading:.0f} % → {WARM_UP}",
    )


def _is_unknown_noted(m: Measures) -> bool:
    """Whether kernels that may communicate run alone for a time that is worth a note."""
    return m.unknown_comm is not None and m.unknown_comm.pct >= SOME_COMM


_STEP_CALL = "call profiler.step() after each one to see them"
MOST_WARNINGS = 3
SOME_HOLE = 5.0
"""Percent of the time that is not recorded: from here on the verdict's shares differ from the table's [judged]."""


def _unsure(trace: Trace, m: Measures, stacks: bool) -> Iterator[tuple[bool, str]]:
    """Reasons for doubt, each with whether it applies."""
    hint = f", or take its ranges: --step {shlex.quote(m.range_hint)}" if m.range_hint else ""
    call = (
        'mark each with torch.cuda.nvtx.range_push("step") and give --step step'
        if trace.is_nsys
        else _STEP_CALL
    )
    yield not m.named_steps, f"no steps: {call}{hint}"
    few = m.named_steps and m.steps < FEWEST_STEPS
    yield few, f"only {count(m.steps, 'step')}: too few to tell the typical one"
    yield stacks, "recorded with Python stacks, which slow the host: its shares are upper bounds"
    yield from ((True, words) for words in trace.doubts.notes())
    hole = m.idle_cause_pct["not_recorded"]
    yield hole >= SOME_HOLE, f"judged from the {100.0 - hole:.0f} % of the time that is recorded"
    yield bool(trace.warnings), f"the profiler warns: {'; '.join(trace.warnings[:MOST_WARNINGS])}"
    yield trace.truncated, "the end of the file is missing: the numbers are of what is there"
