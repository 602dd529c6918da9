"""Sum up one GPU over a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.memory_trend import MemoryTrend
from gputop.diagnosis.signals import EFFICIENCY_UTIL, Leak
from gputop.diagnosis.types import STATES, GpuDiagnosis, GpuOwner, State
from gputop.diagnosis.verdict.time_ledger import RisingSums
from gputop.diagnosis.window.sanity import has_impossible_power
from gputop.model.derived import lacks_sm, work
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample, ProcessSample
from gputop.report.time_means import TimeMeans

_J_PER_KWH = 3.6e6


class GpuReport(
    Struct,
    frozen=True,
    kw_only=True,
    rename={"causes": "busy_not_working_seconds", "lost": "lost_seconds"},
):
    """One GPU over a recording.

    Means are weighted by time, None where nothing was measured. ``energy_from`` is "counter" for the difference of the
    board's counter, "power" for the integral of its power.
    """

    index: int
    uuid: str
    name: str
    measured_s: float
    util_pct: float | None
    sm_pct: float | None
    work_pct: float | None
    efficiency_pct: float | None
    memory_peak_bytes: float | None
    memory_total_bytes: float | None
    power_w: float | None
    energy_kwh: float | None
    energy_from: Literal["counter", "power"] | None
    dram_pct: float | None
    tensor_pct: float | None
    mig_instance: str | None
    card_share: float
    """Share of the card: 1, of a MIG instance less, and 0 for a GPU that MIG has split."""
    owner: GpuOwner | None
    """Process that owned it longest."""
    seconds: Mapping[State, float]
    causes: Mapping[str, float]
    """Seconds of ``busy_not_working`` by verdict."""
    lost: Mapping[str, float]
    """Wasted seconds by verdict."""
    memory_growth: Leak | None = None
    """Memory of one process that grew until the end, and when the GPU is full at that rate."""

    @property
    def label(self) -> str:
        """Index for people, of a MIG instance with its GPU instance."""
        return f"{self.index}/{self.mig_instance}" if self.mig_instance else str(self.index)


def mean_of(gpus: Iterable[GpuReport], read: Callable[[GpuReport], float | None]) -> float | None:
    """Mean over GPUs, weighted by measured time and card share."""
    pairs = [
        (value, gpu.measured_s * gpu.card_share) for gpu in gpus if (value := read(gpu)) is not None
    ]
    seconds = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / seconds if seconds > 0.0 else None


class GpuAccount:
    """Sums of one GPU."""

    def __init__(self, gpu: GpuSample) -> None:
        self.static = gpu.static
        self.card_share = 1.0
        self._means = TimeMeans()
        self._measured_s = 0.0
        self._seconds, self._causes, self._lost = RisingSums({}), RisingSums({}), RisingSums({})
        self._owners: dict[GpuOwner, float] = {}
        self._peak: float | None = None
        self._total: float | None = None
        self._trend = MemoryTrend()
        self._counter: float | None = None
        self._energy_j: float | None = None
        self._power_j = 0.0
        self._uncounted_j = 0.0
        """Integral of power since the counter was last read, which happens every few seconds."""

    def add(self, gpu: GpuSample, diagnosis: GpuDiagnosis, seconds: float) -> tuple[float, float]:
        """Count a sample; return its diagnosed and wasted seconds."""
        means = self._means
        means.add("util", gpu.util_pct, seconds)
        means.add("power", gpu.power_w, seconds)
        measured = gpu.sm_source in MEASURED and gpu.sm_active_pct is not None
        if measured:
            means.add("sm", gpu.sm_active_pct, seconds)
            means.add("util where sm", gpu.util_pct, seconds)
            means.add("dram", gpu.dram_active_pct, seconds)
            means.add("tensor", gpu.tensor_active_pct, seconds)
        if (measured or lacks_sm(gpu)) and (busy := work(gpu)) is not None:
            means.add("work", busy.pct, seconds)
        if gpu.lost_reason is None:
            self._measured_s += seconds
        self._power_j += (gpu.power_w or 0.0) * seconds
        if gpu.mem_used_bytes is not None:
            self._peak = max(self._peak or 0.0, gpu.mem_used_bytes)
        self._total = gpu.mem_total_bytes if gpu.mem_total_bytes is not None else self._total
        self._uncounted_j += (gpu.power_w or 0.0) * seconds
        if has_impossible_power(gpu):
            # The board's counter sums up the same wrong reading.
            self._counter = None
        if gpu.energy_j is not None and gpu.energy_j != self._counter:
            # The counter restarts with the driver; what it counted in between is unknown.
            if self._counter is not None:
                self._energy_j = (self._energy_j or 0.0) + max(0.0, gpu.energy_j - self._counter)
            self._counter, self._uncounted_j = gpu.energy_j, 0.0
        self._causes.take(diagnosis.causes)
        spent_s, lost_s = self._seconds.take(diagnosis.seconds), self._lost.take(diagnosis.lost)
        if (owner := diagnosis.owner) is not None:
            self._owners[owner] = self._owners.get(owner, 0.0) + seconds
        return spent_s, lost_s

    def add_owners(self, gpu: GpuSample, t: float, processes: Iterable[ProcessSample]) -> None:
        """Follow the memory of the processes that hold it."""
        free_bytes = None
        if gpu.mem_total_bytes is not None and gpu.mem_used_bytes is not None:
            free_bytes = gpu.mem_total_bytes - gpu.mem_used_bytes
        index = gpu.static.index
        owners = (owner for owner in processes if owner.gpu == index and owner.role == "gpu")
        self._trend.observe(t, owners, free_bytes)

    def _energy(self) -> tuple[float, Literal["counter", "power"] | None]:
        """Energy in joules and its source; None without either."""
        if self._energy_j is not None:
            return self._energy_j + self._uncounted_j, "counter"
        return self._power_j, "power" if self._means.seconds("power") > 0.0 else None

    def report(self) -> GpuReport:
        """Report the sums so far."""
        means = self._means
        util, sm = means["util where sm"], means["sm"]
        efficiency = (
            sm / util * 100.0
            if sm is not None and util is not None and util >= EFFICIENCY_UTIL
            else None
        )
        joules, source = self._energy()
        return GpuReport(
            index=self.static.index,
            uuid=self.static.uuid,
            name=self.static.name,
            measured_s=self._measured_s,
            util_pct=means["util"],
            sm_pct=sm,
            work_pct=means["work"],
            efficiency_pct=efficiency,
            memory_peak_bytes=self._peak,
            memory_total_bytes=self._total,
            power_w=means["power"],
            energy_kwh=None if source is None else joules / _J_PER_KWH,
            energy_from=source,
            dram_pct=means["dram"],
            tensor_pct=means["tensor"],
            mig_instance=self.static.mig_instance,
            card_share=self.card_share,
            owner=max(self._owners, key=self._owners.__getitem__, default=None),
            seconds={state: self._seconds.risen.get(state, 0.0) for state in STATES},
            causes=dict(self._causes.risen),
            lost=dict(self._lost.risen),
            memory_growth=self._trend.leak,
        )
