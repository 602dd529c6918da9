"""The account of one GPU over a recording or a job: means over time, seconds by state, energy, memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.signals import EFFICIENCY_UTIL
from gputop.diagnosis.types import STATES, GpuDiagnosis, GpuOwner, State
from gputop.diagnosis.verdict_log import RisingSums
from gputop.model.derived import lacks_sm, work
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample
from gputop.report.step_account import SAMPLES, rhythm_s

_J_PER_KWH = 3.6e6


class GpuReport(Struct, frozen=True):
    """One GPU over the whole time. Means are weighted by time; None where nothing was measured.

    ``energy_from`` says whether energy is the difference of the board's counter or the integral of its power.
    ``rhythm_s`` is the period of a visible cycle of util, as of steps or epochs.
    """

    index: int
    uuid: str
    name: str
    measured_s: float
    seconds: Mapping[State, float]
    util_pct: float | None
    sm_pct: float | None
    work_pct: float | None
    efficiency_pct: float | None
    memory_peak_bytes: float | None
    memory_total_bytes: float | None
    power_w: float | None
    energy_kwh: float | None
    energy_from: Literal["counter", "power"] | None
    rhythm_s: float | None
    causes: Mapping[str, float] = MappingProxyType({})
    """The seconds of ``busy_not_working`` by verdict."""
    dram_pct: float | None = None
    tensor_pct: float | None = None
    served: bool = False
    """Whether a server ran there, which takes the memory that it is allowed, not what it needs."""
    mig_instance: str | None = None
    is_split: bool = False
    """Whether MIG has split it: its instances have its time."""
    lost: Mapping[str, float] = MappingProxyType({})
    """The seconds lost by verdict."""
    owner: GpuOwner | None = None
    """The process that had it for the longest."""

    @property
    def label(self) -> str:
        """Its number, for people; a MIG instance is named after its parent and instance."""
        return f"{self.index}/{self.mig_instance}" if self.mig_instance else str(self.index)


class _Mean:
    """A mean over time. Where no time has passed, as with a single frame, the mean of the values."""

    __slots__ = ("count", "plain", "seconds", "total")

    def __init__(self) -> None:
        self.seconds = self.total = self.plain = 0.0
        self.count = 0

    def add(self, value: float | None, seconds: float) -> None:
        if value is not None:
            self.seconds += seconds
            self.total += value * seconds
            self.plain += value
            self.count += 1

    def value(self) -> float | None:
        if self.seconds > 0.0:
            return self.total / self.seconds
        return self.plain / self.count if self.count else None


class GpuAccount:
    """Sums of one GPU."""

    def __init__(self, gpu: GpuSample) -> None:
        self.static = gpu.static
        self.util, self.sm, self.work, self.power = _Mean(), _Mean(), _Mean(), _Mean()
        self.util_where_sm = _Mean()
        self.dram, self.tensor = _Mean(), _Mean()
        self.served = self.is_split = False
        self.measured_s = 0.0
        self.seconds, self.causes, self.lost = RisingSums({}), RisingSums({}), RisingSums({})
        self.owners: dict[GpuOwner, float] = {}
        self.peak: float | None = None
        self.total: float | None = None
        self.counter: float | None = None
        self.energy_j: float | None = None
        self.power_j = 0.0
        self.rhythm: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        """The last samples of util."""

    def add(self, gpu: GpuSample, diagnosis: GpuDiagnosis, t: float, seconds: float) -> None:
        """Count one sample that stands for ``seconds`` up to Unix time ``t``."""
        self.util.add(gpu.util_pct, seconds)
        if gpu.util_pct is not None:
            self.rhythm.append((t, gpu.util_pct))
        measured = gpu.sm_source in MEASURED and gpu.sm_active_pct is not None
        if measured:
            self.sm.add(gpu.sm_active_pct, seconds)
            self.util_where_sm.add(gpu.util_pct, seconds)
            self.dram.add(gpu.dram_active_pct, seconds)
            self.tensor.add(gpu.tensor_active_pct, seconds)
        if measured or lacks_sm(gpu):
            busy = work(gpu)
            self.work.add(None if busy is None else busy.pct, seconds)
        if gpu.lost_reason is None:
            self.measured_s += seconds
        if gpu.power_w is not None:
            self.power.add(gpu.power_w, seconds)
            self.power_j += gpu.power_w * seconds
        if gpu.mem_used_bytes is not None:
            self.peak = max(self.peak or 0.0, gpu.mem_used_bytes)
        self.total = gpu.mem_total_bytes if gpu.mem_total_bytes is not None else self.total
        self._add_energy(gpu.energy_j)
        if not self.is_split:
            self.seconds.take(diagnosis.seconds)
            self.causes.take(diagnosis.causes)
            self.lost.take(diagnosis.lost)
        owner = diagnosis.owner
        if owner is not None:
            self.owners[owner] = self.owners.get(owner, 0.0) + seconds

    def _add_energy(self, counter: float | None) -> None:
        """The counter restarts with the driver; what it counted in between is unknown."""
        if counter is None:
            return
        if self.counter is not None:
            self.energy_j = (self.energy_j or 0.0) + max(0.0, counter - self.counter)
        self.counter = counter

    def report(self) -> GpuReport:
        """The account so far."""
        util, sm = self.util_where_sm.value(), self.sm.value()
        efficiency = None
        if util is not None and sm is not None and util >= EFFICIENCY_UTIL:
            efficiency = sm / util * 100.0
        joules = self.energy_j if self.energy_j is not None else (self.power_j if self.power.seconds > 0.0 else None)
        return GpuReport(
            index=self.static.index,
            uuid=self.static.uuid,
            name=self.static.name,
            measured_s=self.measured_s,
            seconds={state: self.seconds.risen.get(state, 0.0) for state in STATES},
            util_pct=self.util.value(),
            sm_pct=sm,
            work_pct=self.work.value(),
            efficiency_pct=efficiency,
            memory_peak_bytes=self.peak,
            memory_total_bytes=self.total,
            power_w=self.power.value(),
            energy_kwh=None if joules is None else joules / _J_PER_KWH,
            energy_from=None if joules is None else ("counter" if self.energy_j is not None else "power"),
            rhythm_s=rhythm_s(self.rhythm),
            causes=dict(self.causes.risen),
            lost=dict(self.lost.risen),
            owner=max(self.owners, key=lambda owner: self.owners[owner], default=None),
            dram_pct=self.dram.value(),
            tensor_pct=self.tensor.value(),
            served=self.served,
            mig_instance=self.static.mig_instance,
            is_split=self.is_split,
        )
