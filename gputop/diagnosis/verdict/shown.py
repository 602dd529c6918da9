"""Values of a frame as every screen shows them: means, settled once.

A number that changes each second cannot be read, and must agree with the verdict beside it. Exporter, recording,
alerts, ``once`` and the library's samples keep the measured values: a mean under their names would be another metric.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.rules.device_badges import COUNTER_FAULT
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.history import History
from gputop.model.metrics import ACTIVITY_KEYS
from gputop.model.process_history import ProcessHistory
from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot

OF_VERDICT = (
    "util_pct", "sm_active_pct", "sm_occupancy_pct", "tensor_active_pct", "fp32_active_pct", "fp64_active_pct",
    "dram_active_pct",
)  # fmt: skip
"""What is shown as the mean over the verdict's window, so that numbers and words agree."""
RESTLESS = (
    "power_w", "temp_c", "sm_clock_mhz", "pcie_rx_bytes_per_s", "pcie_tx_bytes_per_s", "nvlink_rx_bytes_per_s",
    "nvlink_tx_bytes_per_s",
)  # fmt: skip
"""What has no verdict and never stands still: the mean of the last full ``RESTLESS_S`` seconds."""
RESTLESS_S = 10.0
OF_PROCESSES = ("cpu_pct", "gpu_time_pct")
"""What never stands still of a process: the mean of the last full ``OF_PROCESSES_S`` seconds."""
OF_PROCESSES_S = 30.0
NOT_BELIEVED = "the counter is broken: not believed"


class Shown(Struct, frozen=True):
    """GPUs and processes of a snapshot with their means, in its order.

    ``mean_s`` has for each GPU the seconds over which a value is a mean, by key; the others are the moment's.
    Example: ``frame.shown.gpus[0].util_pct`` is the UTIL of the first GPU in its pane, its line and its page.
    """

    gpus: tuple[GpuSample, ...]
    mean_s: tuple[Mapping[str, float], ...]
    processes: tuple[ProcessSample, ...]


def settled(
    snapshot: Snapshot,
    diagnoses: Sequence[GpuDiagnosis],
    history: History,
    process_history: ProcessHistory,
) -> Shown:
    """Return what screens show of a snapshot.

    The same at whatever later time it is called, as long as history reaches back to the snapshot.
    """
    gpus: list[GpuSample] = []
    mean_s: list[Mapping[str, float]] = []
    for gpu, d in zip(snapshot.gpus, diagnoses, strict=True):
        means = _verdict_means(d)
        restless = _restless_means(gpu, history, snapshot.t)
        spans = {**dict.fromkeys(restless, RESTLESS_S), **dict.fromkeys(means, d.window_s)}
        gpus.append(_believed(replace(gpu, **restless, **means), d))
        mean_s.append(spans)
    processes = [_settled_process(p, process_history, snapshot.t) for p in snapshot.processes]
    return Shown(tuple(gpus), tuple(mean_s), tuple(processes))


def counts_truly(d: GpuDiagnosis) -> bool:
    """Return whether the GPU's counters can be trusted.

    A broken counter measures nothing, whatever it reads.
    """
    return not any(badge.id == COUNTER_FAULT.id for badge in d.badges)


def is_newest(d: GpuDiagnosis) -> bool:
    """Return whether activity is a single second's.

    Otherwise it is the mean of a verdict.
    """
    return d.means is None or d.means.is_few


def _verdict_means(d: GpuDiagnosis) -> dict[str, float]:
    """Return the means of a verdict's window.

    Empty while there are too few samples for one; a value without a mean is left out.
    """
    if d.means is None or d.means.is_few:
        return {}
    means = {key: getattr(d.means, key) for key in OF_VERDICT}
    return {key: mean for key, mean in means.items() if mean is not None}


def _restless_means(gpu: GpuSample, history: History, t: float) -> dict[str, float]:
    """Return the means of the restless values that are measured now."""
    means: dict[str, float] = {}
    for key in RESTLESS:
        if getattr(gpu, key) is None:
            continue
        mean = history.last_full_mean(gpu.static.uuid, key, RESTLESS_S, t)
        if mean is not None:
            means[key] = mean
    return means


def _believed(gpu: GpuSample, d: GpuDiagnosis) -> GpuSample:
    """Return the sample without a broken counter's values.

    Its 0 is not shown as a measurement.
    """
    if counts_truly(d):
        return gpu
    reasons = {**gpu.unavailable, **dict.fromkeys(ACTIVITY_KEYS, NOT_BELIEVED)}
    return replace(gpu, unavailable=reasons, **dict.fromkeys(ACTIVITY_KEYS))


def _settled_process(process: ProcessSample, history: ProcessHistory, t: float) -> ProcessSample:
    """Return a process with the means of its restless values."""
    means: dict[str, float] = {}
    for key in OF_PROCESSES:
        mean = history.last_full_mean(process, key, OF_PROCESSES_S, t)
        if mean is not None:
            means[key] = mean
    return replace(process, **means) if means else process
