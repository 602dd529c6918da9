"""Average frames and steps for loggers, under the catalogue's names.

Single samples miss everything between them, which is why W&B's and Lightning's own figures jump: a logger gets means
over the time since its last call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gputop.api.watch_options import Metrics
from gputop.api.work import Rates, StepWork, rates_of
from gputop.model.metrics import GPU_METRICS, HOST_METRICS
from gputop.model.snapshot import value
from gputop.model.steps import Phase, StepRow

if TYPE_CHECKING:
    from gputop.monitor import Frame

FEW = ("util_pct", "sm_active_pct", "mem_used_bytes", "power_w", "temp_c", "dram_active_pct")
"""The metrics of each GPU; with ``efficiency_pct`` and ``busy_not_working`` they are eight."""
FLAGS = {None: 0.0, "B": 1.0, "A": 2.0, "C": 2.0}
"""``busy_not_working`` as a number: 0 no, 1 probably (B), 2 certainly (A, and C where kernels hardly reach the SMs)."""


class FrameMeans:
    """Adds frames and steps up; ``take`` returns the means and starts over."""

    def __init__(self, metrics: Metrics) -> None:
        is_all = metrics == "all"
        self._gpu_keys: Iterable[str] = GPU_METRICS if is_all else FEW
        self._host_keys: Iterable[str] = HOST_METRICS if is_all else ("cpu_pct",)
        self._sums: dict[str, list[float]] = {}
        """For each key a total, and the weight that divides it."""
        self._last: dict[str, float] = {}
        self.work: StepWork | None = None
        """The work of one step, where the program describes it."""
        self.own_gpus: tuple[str, ...] = ()

    def add(self, frame: Frame, own_gpus: tuple[str, ...] = ()) -> None:
        """Add a frame, without values that only repeat an earlier reading.

        ``own_gpus`` are the names of the GPUs that this process computes on.
        """
        self.own_gpus = own_gpus
        snapshot = frame.snapshot
        if "nvml" not in snapshot.repeats:
            for gpu, diagnosis in zip(snapshot.gpus, frame.diagnoses, strict=False):
                place = f"gputop/gpu{gpu.static.index}/"
                for key in self._gpu_keys:
                    self._add(place + key, value(gpu, key))
                self._add(place + "efficiency_pct", diagnosis.efficiency_pct)
                self._last[place + "busy_not_working"] = FLAGS[diagnosis.busy_not_working]
                if diagnosis.state != "unmeasured":
                    self._add("gputop/starved_pct", 100.0 * (diagnosis.state == "starved"))
        if "proc" not in snapshot.repeats:
            for key in self._host_keys:
                self._add(f"gputop/{key}", value(snapshot.host, key))

    def add_steps(self, row: StepRow) -> None:
        """Add steps of this process."""
        self._add("gputop/step_ms", 1000.0 * row.sum_s, row.count)
        self._add("gputop/steps_per_s", row.count, row.sum_s)
        self._add("gputop/samples_per_s", row.samples, row.sum_s)
        for key, waited_s in (("wait", row.wait_s), ("data_wait", row.data_wait_s)):
            if waited_s is not None:
                self._add(f"gputop/step_{key}_ms", 1000.0 * waited_s, row.count)

    def add_phases(self, taken: Iterable[Mapping[Phase, float]]) -> None:
        """Add the host time of observed steps, by phase."""
        for phase, seconds in (pair for phases in taken for pair in phases.items()):
            self._add(f"gputop/step_{phase}_ms", 1000.0 * seconds)

    def take(self) -> dict[str, float]:
        """Return the means since the last call.

        Absent means not measured.
        """
        means = {
            key: total / of for key, (total, of) in self._sums.items() if of > 0.0
        } | self._last
        if (step_ms := means.get("gputop/step_ms")) is not None:
            rates = rates_of(self.work, step_ms / 1000.0, self.own_gpus) or Rates()
            own = (("gputop/tokens_per_s", rates.tokens_per_s), ("gputop/mfu_pct", rates.mfu_pct))
            means |= {key: rate for key, rate in own if rate is not None}
        self._sums.clear()
        self._last.clear()
        return means

    def _add(self, key: str, value: object, of: float = 1.0) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            sums = self._sums.setdefault(key, [0.0, 0.0])
            sums[0] += value
            sums[1] += of
