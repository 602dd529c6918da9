"""Records of an analysis, the source of all outputs.

Times are in ms, shares in % of the window unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.types import Confidence, Flag, Level
from gputop.features.traces.kernels import CategoryRow, KernelRow

SHARES = ("compute", "comm_exposed", "copy_exposed", "idle")
"""Disjoint, and 100 together with ``not_recorded``: times in which kernels are missing in the file."""
HOST_CAUSES = (
    "data", "module_load", "allocator", "host_work", "after_sync", "launching", "launch_latency",
)  # fmt: skip
"""Causes of idle time that lie on the host."""
CAUSE_WORDS = {
    "data": "data loading", "module_load": "module loading", "allocator": "allocator", "host_work": "other host work",
    "after_sync": "after a sync", "launching": "launching", "launch_latency": "launch latency",
    "dependency": "waits on the device", "kernel_gap": "kernel gaps", "unknown": "unknown",
    "not_recorded": "not recorded",
}  # fmt: skip
_OF_THE_HOST = ("data", "launch_bound", "host_work", "module_load", "sync_points", "allocator")
_LEVELS: tuple[Level, ...] = ("green", "grey", "info", "yellow", "red")


def severity(level: str) -> int:
    """How bad a level is; a higher number is worse."""
    return _LEVELS.index(level)


class StepShare(Struct, frozen=True):
    """One step: its length and shares.

    Shares of compute, exposed communication and copies, idle; ``data`` is part of idle.

    ``flag`` is ``first``, or ``slow`` (over twice the median).
    """

    step: str
    ms: float
    compute: float
    comm: float
    copy: float
    idle: float
    data: float
    flag: Literal["first", "slow"] | None


class Under(Struct, frozen=True):
    """One activity of the host, and its share of time."""

    name: str
    pct: float


class SyncRow(Struct, frozen=True):
    """Waiting calls of one kind.

    ``op`` is the operator that asked for it, or the call itself.

    ``host_ms`` is how long the host waited, ``idle_after_ms`` how long the GPU then stood without work.
    """

    op: str
    calls: int
    host_ms: float
    idle_after_ms: float


class StreamWaitRow(Struct, frozen=True):
    """Idle time before work that had long been launched.

    ``kernel`` on ``stream``, how often, and its share.

    ``after`` ended last before it, on ``after_stream``; ``launch`` is the call that launched it.
    """

    kernel: str
    stream: int
    after: str
    after_stream: int
    launch: str
    times: int
    pct: float


class LongGap(Struct, frozen=True):
    """A long idle time: its begin in the window, its length, its largest cause, activity of the host.

    The shares of ``under`` are of the gap.
    """

    at_ms: float
    ms: float
    cause: str
    under: tuple[Under, ...]


class PageFaults(Struct, frozen=True):
    """Unified memory of one GPU: page faults, and bytes that moved between host and device.

    ``handling_ms`` is the time in which the GPU's faults were handled. Those of the CPU belong to no GPU.
    """

    gpu_faults: int
    handling_ms: float
    cpu_faults: int
    moved_bytes: int


class OnceRow(Struct, frozen=True):
    """Idle time of one cause that occurred once."""

    cause: str
    name: str
    ms: float
    pct: float


class TraceVerdict(Struct, frozen=True):
    """The verdict on one GPU.

    Id, title and remedy are the diagnosis' own; the evidence is of the trace.

    ``cause`` narrows the id: ``data``, ``launch_bound``, ``host_work``, ``module_load``, ``sync_points``,
    ``allocator``, ``dependency``, ``transfer``, ``communication``; None without.
    ``saves_pct`` is the share of the median step that would go if the cause were gone, None where no share can be
    named.
    """

    id: str
    level: Level
    title: str
    headline: str
    flag: Flag | None
    cause: str | None
    confidence: Confidence
    evidence: tuple[str, ...]
    remedy: str
    notes: tuple[str, ...]
    saves_pct: float | None = None


class Measures(Struct, frozen=True):
    """One GPU's numbers in the window.

    ``share_pct`` is disjoint, ``idle_cause_pct`` sums to its idle and ``not_recorded``.

    ``bus_exposed_pct`` is the part of the exposed copies that crosses the bus, ``pageable_copies`` counts those from
    or to pageable memory, ``iterator`` is the DataLoader's. ``sm_active_pct`` is measured, ``sm_high_pct`` a bound.
    ``other_streams_pct`` is the time in which only streams ran that are not the busiest one: what could run beside it.
    ``at_work`` is what the host did in ``host_work``. ``once`` is the part of the idle time that was not seen to come
    again, which stays in all shares and alone decides nothing. ``range_hint`` begins the names of ranges that could
    be steps. ``judged_part`` is the part (0 to 1) of the window that the shares are of: all of it, but in the verdict's
    own measures, which leave out holes of the recording and single events. ``step_judged_part`` is the same part of
    the median step. ``unknown_comm`` is the time in which only kernels run that may communicate, with the name of the
    largest. ``occupancy_pct`` is the profiler's estimate over the kernels' time. ``gaps`` are the longest idle times.
    """

    index: int
    name: str | None
    sm_count: int | None
    compute_major: int | None
    window_ms: float
    steps: int
    named_steps: bool
    step_median_ms: float
    step_p95_ms: float
    step_range_ms: tuple[float, float]
    share_pct: Mapping[str, float]
    comm_pct: float
    overlap_pct: float | None
    bus_exposed_pct: float
    idle_cause_pct: Mapping[str, float]
    util_pct: float
    sm_active_pct: float | None
    sm_high_pct: float | None
    sm_source: str
    queue_empty_pct: float | None
    launch_delay_us: float | None
    median_kernel_us: float | None
    iterator: str | None
    pageable_copies: int
    under: tuple[Under, ...]
    steps_table: tuple[StepShare, ...]
    kernels: tuple[KernelRow, ...]
    fp32_gemm_pct: float | None
    syncs: tuple[SyncRow, ...]
    categories: tuple[CategoryRow, ...]
    stream_waits: tuple[StreamWaitRow, ...]
    at_work: tuple[Under, ...]
    once: tuple[OnceRow, ...]
    other_streams_pct: float
    range_hint: str | None
    begin_unix_s: float | None
    end_unix_s: float | None
    step_judged_part: float = 1.0
    judged_part: float = 1.0
    unknown_comm: Under | None = None
    occupancy_pct: float | None = None
    page_faults: PageFaults | None = None
    gaps: tuple[LongGap, ...] = ()

    @property
    def late_host_pct(self) -> float:
        """Idle time in which the host was late, launch latency included."""
        return sum(self.idle_cause_pct[cause] for cause in HOST_CAUSES)


class TraceGpuReport(Struct, frozen=True):
    """One GPU of one trace: its numbers and what they say."""

    measures: Measures
    verdict: TraceVerdict

    @property
    def best_case_step_ms(self) -> float | None:
        """Median step without the time of the cause.

        It is a lower bound.

        With a host that is never late, what other streams did alone can run beside the busiest stream as well.
        """
        gain = self.gain_pct
        return None if gain is None else self.measures.step_median_ms * (1.0 - gain / 100.0)

    @property
    def gain_pct(self) -> float | None:
        """Share of a step that could go with the cause.

        None if no share can be named.
        """
        saves = self.verdict.saves_pct
        if saves is not None and self.verdict.cause in _OF_THE_HOST:
            return min(100.0, saves + self.measures.other_streams_pct)
        return saves


class RankReport(Struct, frozen=True):
    """One file: a rank of a job, with its GPUs.

    ``rank_from`` says where its number comes from.
    """

    path: str
    rank: int | None
    rank_from: str
    world_size: int | None
    truncated: bool
    dropped_events: int
    gpus: tuple[TraceGpuReport, ...]
    notes: tuple[str, ...]
