"""Source 1: GPU performance monitoring by NVML, on Hopper and newer.

Also on GeForce and MIG instances. Two samples, swapped at each tick, and one metrics structure that is reused. Never
calls nvmlGpmSetStreamingEnabled: it is global and zeroes everybody's buffer. Samples have no finaliser: ``close`` must
come before nvmlShutdown.
"""

from __future__ import annotations

from contextlib import suppress
from math import isfinite
from typing import Any, Literal

import pynvml

from gputop.model.metrics import GPU_METRICS, IMPOSSIBLE
from gputop.sources.activity.fallback_chain import MeasuredActivity, SmReadFailed, Waiting
from gputop.sources.nvml.handle import Handle, LostGpu
from gputop.sources.nvml.nvml_errors import LOST_CODES, NEVER_CODES, reason

CLOSEST_PAIR_S = 0.11
"""Pairs closer than about 100 ms give NaN: NVIDIA asks for more than that (nvmlGpmMetricsGet). A tenth to spare."""
OLDEST_PAIR_INTERVALS = 10
MIB = 1048576
SM_METRIC = 2
WORKS_PCT = 1.0
"""From this SM activity on, an engine at 0 is one that is not counted [judged]."""
OTHER_STRUCTURE = (
    "GPM: this driver wants another structure of the question than nvidia-ml-py sends: update "
    "either"
)
COLLECTING = Waiting("collecting: needs two samples", kind="collecting")

METRICS: dict[int, tuple[str, float]] = {
    1: ("graphics_active_pct", 1.0),
    SM_METRIC: ("sm_active_pct", 1.0),
    3: ("sm_occupancy_pct", 1.0),
    4: ("int_active_pct", 1.0),
    5: ("tensor_active_pct", 1.0),
    7: ("hmma_active_pct", 1.0),
    8: ("dmma_active_pct", 1.0),
    9: ("imma_active_pct", 1.0),
    10: ("dram_active_pct", 1.0),
    11: ("fp64_active_pct", 1.0),
    12: ("fp32_active_pct", 1.0),
    13: ("fp16_active_pct", 1.0),
    20: ("pcie_tx_bytes_per_s", MIB),
    21: ("pcie_rx_bytes_per_s", MIB),
    60: ("nvlink_rx_bytes_per_s", MIB),
    61: ("nvlink_tx_bytes_per_s", MIB),
}
"""GPM metric id → catalogue key and the factor to its unit (nvml.h, nvmlGpmMetricId_t)."""
REFUSED_CODES = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NOT_FOUND,
    }
)
"""What a driver may answer to a call that names an id of a newer list than its own: nvml.h grew, id 8 came later."""
UNKNOWN_ID = "this driver does not know this counter"


class Gpm:
    """GPM on one GPU, or on one GPU instance of a MIG parent."""

    name: Literal["gpm"] = "gpm"

    def __init__(
        self,
        handle: Handle,
        interval_s: float,
        architecture: str | None,
        mig: tuple[Any, int] | None = None,
        name: str = "",
    ) -> None:
        """``name`` is the GPU's, for advice on other sources."""
        self._handle, self._mig = handle, mig
        self._architecture, self._name = architecture, name
        self._oldest_s = OLDEST_PAIR_INTERVALS * interval_s
        self._supported = False
        self._samples: list[Any] = []
        self._first_at: float | None = None
        self._last: MeasuredActivity | None = None
        self._pair: Any = None
        self._metrics: list[tuple[Any, str, float]] = []
        self._unknown: dict[str, str] = {}
        """Reasons of the metrics that this driver refuses."""
        self._has_tried_each = False

    def read(self, now: float) -> MeasuredActivity | Waiting:
        """Return the means since the sample before.

        Raises SmReadFailed, and LostGpu when the GPU itself is gone.
        """
        if self._first_at is not None and now - self._first_at < CLOSEST_PAIR_S:
            return self._last or COLLECTING
        try:
            if not self._supported:
                self._prepare()
            return self._measure(now)
        except pynvml.NVMLError as error:
            self._first_at = self._last = None
            why = reason(error.value)
            if error.value in LOST_CODES:
                raise LostGpu(why) from error
            raise SmReadFailed(
                f"GPM: {why}", error.value in NEVER_CODES and not self._supported, self._fix
            ) from error

    def close(self) -> None:
        samples, self._samples = self._samples, []
        self._first_at = self._last = None
        self._supported = False
        for sample in samples:
            with suppress(pynvml.NVMLError):
                self._handle.run_bare("nvmlGpmSampleFree", sample)

    @property
    def _fix(self) -> str:
        """Return another way to measure SM activity here."""
        from gputop.sources.activity.sm_remedies import sm_fix

        return sm_fix(self._name, self._architecture)

    def _prepare(self) -> None:
        raw = self._handle.raw if self._mig is None else self._mig[0]
        try:
            supported = self._handle.run_bare("nvmlGpmQueryDeviceSupport", raw).isSupportedDevice
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
                # About the question, not about the GPU.
                raise SmReadFailed(OTHER_STRUCTURE, fix=self._fix) from error
            if error.value not in NEVER_CODES:
                raise
            supported = False
        if not supported:
            # Where GPM works nothing of this is needed, and it is not loaded before the first picture.
            from gputop.sources.activity.sm_remedies import no_gpm

            raise SmReadFailed(no_gpm(self._architecture), True, self._fix)
        if not self._samples:
            self._samples.append(self._handle.run_bare("nvmlGpmSampleAlloc"))
        if self._pair is None:
            self._ask_for(tuple(METRICS))
        self._supported = True

    def _ask_for(self, ids: tuple[int, ...]) -> None:
        """Fill in the structure of the question."""
        pair = self._pair = pynvml.c_nvmlGpmMetricsGet_t()
        pair.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        pair.numMetrics = len(ids)
        self._metrics = []
        for slot, metric in enumerate(ids):
            pair.metrics[slot].metricId = metric
            self._metrics.append((pair.metrics[slot], *METRICS[metric]))

    def _compute(self) -> None:
        """Compute the metrics between the two samples.

        A driver that refuses an id that it does not know is asked for each one alone, once, and then without those
        that it refused. Raises NVMLError.
        """
        try:
            self._ask_pair()
            return
        except pynvml.NVMLError as error:
            if error.value not in REFUSED_CODES or self._has_tried_each:
                raise
            self._has_tried_each = True
            known = tuple(metric for metric in METRICS if self._knows(metric))
            if not known:
                self._ask_for(tuple(METRICS))
                raise
        unknown = [METRICS[metric][0] for metric in METRICS if metric not in known]
        self._unknown = dict.fromkeys(unknown, UNKNOWN_ID)
        self._ask_for(known)
        self._ask_pair()

    def _knows(self, metric: int) -> bool:
        """Whether the driver answers a question for this metric alone."""
        self._ask_for((metric,))
        try:
            self._ask_pair()
        except pynvml.NVMLError as error:
            if error.value not in REFUSED_CODES:
                raise
            return False
        return True

    def _ask_pair(self) -> None:
        """Ask about the two samples. Raises NVMLError."""
        self._pair.sample1, self._pair.sample2 = self._samples[1], self._samples[0]
        self._handle.run_bare("nvmlGpmMetricsGet", self._pair)

    def _measure(self, now: float) -> MeasuredActivity | Waiting:
        if self._first_at is not None and len(self._samples) < 2:
            self._samples.append(self._handle.run_bare("nvmlGpmSampleAlloc"))
        newer = self._samples[-1]
        if self._mig is None:
            self._handle.run("nvmlGpmSampleGet", newer)
        else:
            self._handle.run_bare("nvmlGpmMigSampleGet", self._mig[0], self._mig[1], newer)
        before, self._first_at = self._first_at, now
        self._samples.reverse()
        if before is None or now - before > self._oldest_s:
            return COLLECTING
        self._compute()
        values: dict[str, float] = {}
        missing = self._unknown.copy()
        for metric, key, factor in self._metrics:
            value, status = metric.value, metric.nvmlReturn
            if status != pynvml.NVML_SUCCESS:
                missing[key] = reason(status)
            elif not isfinite(value):
                missing[key] = "GPM gives no number for this interval"
            elif (believed := GPU_METRICS[key].believed(value)) is None:
                missing[key] = f"GPM gives {IMPOSSIBLE} ({value:g})"
            else:
                values[key] = believed * factor
        if (
            values.get("graphics_active_pct") == 0.0
            and values.get("sm_active_pct", 0.0) >= WORKS_PCT
        ):
            # No multiprocessor works while the engine that feeds them does not.
            del values["graphics_active_pct"]
            missing["graphics_active_pct"] = (
                "this GPU does not count it: it stays 0 while its multiprocessors work"
            )
        if "sm_active_pct" not in values:
            self._first_at = self._last = None
            raise SmReadFailed(f"GPM: SM activity: {missing['sm_active_pct']}", False, self._fix)
        self._last = MeasuredActivity(values, missing, now - before, now)
        return self._last
