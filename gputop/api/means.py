"""What a logger is given: means over the time since its last call, under the catalogue's names.

Single samples miss what lies between them, which is why W&B's and Lightning's own figures jump.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from gputop.api.work import Work, rates_of
from gputop.model.steps import StepRow

if TYPE_CHECKING:
    from gputop.monitor import Frame

Metrics = Literal["few", "all"]
METRICS: tuple[Metrics, ...] = ("few", "all")
FEW = ("util_pct", "sm_active_pct", "mem_used_bytes", "power_w", "temp_c", "dram_active_pct")
"""The metrics of each GPU; with ``efficiency_pct`` and ``busy_not_working`` they are eight."""
FLAGS = {None: 0.0, "B": 1.0, "A": 2.0}
"""``busy_not_working`` as a number: 0 no, 1 probably (B), 2 certainly (A)."""


class Means:
    """Adds up frames; ``take`` gives the means and begins anew."""

    def __init__(self, metrics: Metrics) -> None:
        if metrics not in METRICS:
            raise ValueError(f"metrics must be one of {', '.join(map(repr, METRICS))}, not {metrics!r}")
        self._gpu_keys: Sequence[str] = FEW
        self._host_keys: Sequence[str] = ("cpu_pct",)
        if metrics == "all":
            from gputop.model.metrics import GPU_METRICS, HOST_METRICS

            self._gpu_keys, self._host_keys = tuple(GPU_METRICS), tuple(HOST_METRICS)
        self._sums: dict[str, list[float]] = {}
        self._last: dict[str, float] = {}
        self._starved = [0.0, 0]
        self._steps = [0.0, 0]
        self._samples = [0.0, 0.0]
        self._waits = [0.0, 0]
        self._data_waits = [0.0, 0]
        self.work: Work | None = None
        """What a step does, where the program has said it."""
        self.own_gpus: tuple[str, ...] = ()
        """The names of the GPUs that this process computes on."""

    def add(self, frame: Frame) -> None:
        """Add what is new in a frame: repeated values were not measured again."""
        snapshot = frame.snapshot
        if "nvml" not in snapshot.repeats:
            for gpu, diagnosis in zip(snapshot.gpus, frame.diagnoses, strict=False):
                place = f"gputop/gpu{gpu.static.index}/"
                for key in self._gpu_keys:
                    self._add(place + key, getattr(gpu, key))
                self._add(place + "efficiency_pct", diagnosis.efficiency_pct)
                self._last[place + "busy_not_working"] = FLAGS[diagnosis.busy_not_working]
                if diagnosis.state != "unmeasured":
                    self._starved[0] += diagnosis.state == "starved"
                    self._starved[1] += 1
        if "proc" not in snapshot.repeats:
            for key in self._host_keys:
                self._add(f"gputop/{key}", getattr(snapshot.host, key))

    def add_steps(self, rows: Iterable[StepRow]) -> None:
        """Add this process's own steps."""
        for row in rows:
            self._steps[0] += row.sum_s
            self._steps[1] += row.count
            if row.samples is not None:
                self._samples[0] += row.samples
                self._samples[1] += row.sum_s
            if row.wait_s is not None:
                self._waits[0] += row.wait_s
                self._waits[1] += row.count
            if row.data_wait_s is not None:
                self._data_waits[0] += row.data_wait_s
                self._data_waits[1] += row.count

    def take(self) -> dict[str, float]:
        """The means since the last call. What was not measured is absent."""
        found = {key: total / n for key, (total, n) in self._sums.items()}
        found.update(self._last)
        if self._starved[1]:
            found["gputop/starved_pct"] = 100.0 * self._starved[0] / self._starved[1]
        seconds, steps = self._steps
        if steps and seconds > 0.0:
            found["gputop/step_ms"] = 1000.0 * seconds / steps
            found["gputop/steps_per_s"] = steps / seconds
            rates = rates_of(self.work, seconds / steps, self.own_gpus)
            if rates is not None and rates.tokens_per_s is not None:
                found["gputop/tokens_per_s"] = rates.tokens_per_s
            if rates is not None and rates.mfu_pct is not None:
                found["gputop/mfu_pct"] = rates.mfu_pct
        if self._samples[1] > 0.0:
            found["gputop/samples_per_s"] = self._samples[0] / self._samples[1]
        if self._waits[1]:
            found["gputop/step_wait_ms"] = 1000.0 * self._waits[0] / self._waits[1]
        if self._data_waits[1]:
            found["gputop/step_data_wait_ms"] = 1000.0 * self._data_waits[0] / self._data_waits[1]
        self._sums.clear()
        self._last.clear()
        self._starved, self._steps, self._samples = [0.0, 0], [0.0, 0], [0.0, 0.0]
        self._waits, self._data_waits = [0.0, 0], [0.0, 0]
        return found

    def _add(self, key: str, value: object) -> None:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            total = self._sums.setdefault(key, [0.0, 0.0])
            total[0] += value
            total[1] += 1.0
