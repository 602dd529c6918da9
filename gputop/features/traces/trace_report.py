"""What an analysis finds, as frozen records; the outputs of ``gputop trace`` are made of them.

Times are in ms, shares in % of the window unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gputop.diagnosis.types import Confidence, Flag, Level
from gputop.features.traces.kernels import KernelRow, Queue
from gputop.features.traces.timeline import SyncRow

SHARES = ("compute", "comm_exposed", "copy_exposed", "idle")
"""Disjoint, and 100 together."""
_LEVELS = ("green", "grey-green", "info", "grey", "yellow", "red")


def severity(level: str) -> int:
    """How bad a level is; a higher number is worse."""
    return _LEVELS.index(level)


class StepShare(Struct, frozen=True):
    """One step: its length and the shares of compute, exposed communication and copies, idle; ``data`` is part of idle.

    ``flag`` is ``first``, ``slow`` (over twice the median), or nothing.
    """

    name: str
    ms: float
    compute: float
    comm: float
    copy: float
    idle: float
    data: float
    flag: str = ""


class Under(Struct, frozen=True):
    """What the host was executing while the GPU was idle."""

    name: str
    pct: float


class LongGap(Struct, frozen=True):
    """A long idle time: its begin in the window, its length, and what the host mostly did, with its share."""

    at_ms: float
    ms: float
    under: tuple[Under, ...]


class Said(Struct, frozen=True):
    """The verdict on one GPU: the id, title and remedy of the diagnosis' catalogue, with what proves it here.

    ``cause`` narrows the id: ``data``, ``launch_bound``, ``sync_points``, ``allocator``, ``transfer``; None without.
    ``saves_pct`` is the share of a step that would go if the cause were gone, None where no share can be named.
    """

    verdict: str
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
    """One GPU's numbers in the window. ``share_pct`` is disjoint and sums to 100, ``idle_cause_pct`` to its idle.

    ``bus_exposed_pct`` is the part of the exposed copies that crosses the bus, ``pageable_copies`` counts those from
    or to pageable memory, ``iterator`` is the DataLoader's. ``sm_active_pct`` is measured, ``sm_high_pct`` a bound.
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
    occupancy_pct: float | None
    queue: Queue | None
    median_kernel_us: float | None
    iterator: str | None
    pageable_copies: int
    under: tuple[Under, ...]
    steps_table: tuple[StepShare, ...]
    kernels: tuple[KernelRow, ...]
    fp32_gemm_pct: float | None
    syncs: tuple[SyncRow, ...]
    gaps: tuple[LongGap, ...]
    begin_unix_s: float | None
    end_unix_s: float | None

    @property
    def late_host_pct(self) -> float:
        """Idle time in which the host was late, launch latency included."""
        causes = self.idle_cause_pct
        return sum(causes[cause] for cause in ("data", "after_sync", "allocator", "launching", "launch_latency"))


class GpuReport(Struct, frozen=True):
    """One GPU of one trace: its numbers and what they say."""

    measures: Measures
    said: Said

    @property
    def best_case_step_ms(self) -> float | None:
        """A step's median length if the cause were gone: the best that its remedy can do."""
        if self.said.saves_pct is None:
            return None
        return self.measures.step_median_ms * (1.0 - self.said.saves_pct / 100.0)


class RankReport(Struct, frozen=True):
    """One file: a rank of a job, with its GPUs. ``rank_from`` says where its number comes from."""

    path: str
    rank: int | None
    rank_from: str
    world_size: int | None
    size_bytes: int
    read_s: float
    truncated: bool
    dropped_events: int
    gpus: tuple[GpuReport, ...]
    notes: tuple[str, ...]
