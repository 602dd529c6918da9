"""What one GPU and one inference server did over a recording or a job: sums, frame by frame."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, sqrt
from typing import Any, Literal

from msgspec import Struct

from gputop.diagnosis.sanity import has_impossible_power
from gputop.diagnosis.signals import EFFICIENCY_UTIL
from gputop.diagnosis.types import STATES, GpuDiagnosis, GpuOwner, State
from gputop.diagnosis.verdict_log import RisingSums
from gputop.model.derived import lacks_sm, work
from gputop.model.serving import TIMES, WORDS, Bounds, ServerKind, ServerRow
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample


class TimeMeans:
    """Means over time, by name. Where no time has passed, as with a single frame, the mean of the values."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float, float, int]] = {}

    def add(self, name: str, value: float | None, seconds: float) -> None:
        if value is not None:
            weighted, time, plain, count = self._sums.get(name, (0.0, 0.0, 0.0, 0))
            self._sums[name] = weighted + value * seconds, time + seconds, plain + value, count + 1

    def seconds(self, name: str) -> float:
        """The time over which values were added."""
        return self._sums[name][1] if name in self._sums else 0.0

    def __getitem__(self, name: str) -> float | None:
        if name not in self._sums:
            return None
        weighted, time, plain, count = self._sums[name]
        return weighted / time if time > 0.0 else plain / count


# One GPU: means over time, seconds by state, energy, memory.

_J_PER_KWH = 3.6e6


class GpuReport(
    Struct, frozen=True, kw_only=True, rename={"causes": "busy_not_working_seconds", "lost": "lost_seconds"}
):
    """One GPU over the whole time. Means are weighted by time; None where nothing was measured.

    ``energy_from`` says whether energy is the difference of the board's counter or the integral of its power.
    ``rhythm_s`` is the period of a visible cycle of util, as of steps or epochs.
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
    rhythm_s: float | None
    dram_pct: float | None
    tensor_pct: float | None
    served: bool
    """Whether a server ran there, which takes the memory that it is allowed, not what it needs."""
    mig_instance: str | None
    card_share: float
    """Share of the card: 1, of a MIG instance less, and 0 for a GPU that MIG has split."""
    owner: GpuOwner | None
    """The process that had it for the longest."""
    seconds: Mapping[State, float]
    causes: Mapping[str, float]
    """The seconds of ``busy_not_working`` by verdict."""
    lost: Mapping[str, float]
    """The seconds lost by verdict."""

    @property
    def label(self) -> str:
        """Its number, for people; a MIG instance is named after its parent and instance."""
        return f"{self.index}/{self.mig_instance}" if self.mig_instance else str(self.index)


def mean_of(gpus: Iterable[GpuReport], read: Callable[[GpuReport], float | None]) -> float | None:
    """Mean of the GPUs that have a value, weighted by measured time and share of the card."""
    pairs = [(value, gpu.measured_s * gpu.card_share) for gpu in gpus if (value := read(gpu)) is not None]
    seconds = sum(weight for _, weight in pairs)
    return sum(value * weight for value, weight in pairs) / seconds if seconds > 0.0 else None


class GpuAccount:
    """Sums of one GPU."""

    def __init__(self, gpu: GpuSample) -> None:
        self.static = gpu.static
        self.served = False
        self.card_share = 1.0
        self._means = TimeMeans()
        self._measured_s = 0.0
        self._seconds, self._causes, self._lost = RisingSums({}), RisingSums({}), RisingSums({})
        self._owners: dict[GpuOwner, float] = {}
        self._peak: float | None = None
        self._total: float | None = None
        self._counter: float | None = None
        self._energy_j: float | None = None
        self._power_j = 0.0
        self._uncounted_j = 0.0
        """The integral of power since the counter was last read: it is asked every few seconds."""
        self._rhythm: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        """The last samples of util."""

    def add(self, gpu: GpuSample, diagnosis: GpuDiagnosis, t: float, seconds: float) -> tuple[float, float]:
        """Count a sample that stands for ``seconds`` up to Unix time ``t``; return its seconds by state and lost."""
        means = self._means
        means.add("util", gpu.util_pct, seconds)
        means.add("power", gpu.power_w, seconds)
        if gpu.util_pct is not None:
            self._rhythm.append((t, gpu.util_pct))
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

    def _energy(self) -> tuple[float, Literal["counter", "power"] | None]:
        """Joules, and where from; None where neither counter nor power was measured over any time."""
        if self._energy_j is not None:
            return self._energy_j + self._uncounted_j, "counter"
        return self._power_j, "power" if self._means.seconds("power") > 0.0 else None

    def report(self) -> GpuReport:
        """The account so far."""
        means = self._means
        util, sm = means["util where sm"], means["sm"]
        efficiency = sm / util * 100.0 if sm is not None and util is not None and util >= EFFICIENCY_UTIL else None
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
            rhythm_s=rhythm_s(self._rhythm),
            dram_pct=means["dram"],
            tensor_pct=means["tensor"],
            served=self.served,
            mig_instance=self.static.mig_instance,
            card_share=self.card_share,
            owner=max(self._owners, key=self._owners.__getitem__, default=None),
            seconds={state: self._seconds.risen.get(state, 0.0) for state in STATES},
            causes=dict(self._causes.risen),
            lost=dict(self._lost.risen),
        )


# The rhythm of a job as its GPU's util shows it: the length of a step or an epoch, when it is visible at all.
#
# Most steps are shorter than a sample and leave no trace; None is the normal answer.

SAMPLES = 600
LEAST_SAMPLES = 60
LEAST_SPREAD_PCT = 10.0
LEAST_CORRELATION = 0.5
"""Of the series with itself one period later; the same bounds as for the correlation line of the diagnosis."""
LEAST_LAG = 3
LEAST_PERIODS = 3


def rhythm_s(samples: Sequence[tuple[float, float]]) -> float | None:
    """The period of util in seconds, by the first clear peak of its autocorrelation; None when there is none.

    ``samples`` are the last ones, at most ``SAMPLES``: Unix time and util in percent.
    """
    n = len(samples)
    if n < LEAST_SAMPLES:
        return None
    values = [value for _, value in samples]
    mean = sum(values) / n
    centred = [value - mean for value in values]
    power = sum(value * value for value in centred)
    if sqrt(power / n) < LEAST_SPREAD_PCT:
        return None
    lags = range(1, n // LEAST_PERIODS + 2)
    r = [1.0] + [sum(map(float.__mul__, centred, centred[lag:])) / power * n / (n - lag) for lag in lags]
    # Before its first fall below 0 the correlation is high only because the lag is short.
    fall = next((lag for lag in lags if r[lag] < 0.0), None)
    if fall is None:
        return None
    for lag in range(max(fall, LEAST_LAG), len(r) - 1):
        if r[lag] >= LEAST_CORRELATION and r[lag - 1] <= r[lag] > r[lag + 1]:
            return lag * (samples[-1][0] - samples[0][0]) / (n - 1)
    return None


# What inference servers served: mean rates, the queue, and the usual and the worst waiting times.
#
# A server's quantiles are known as buckets over half a minute each; those of half minutes cannot be joined to one of
# the whole. So the median is told as the bucket that stood longest, and the 99th percentile as the worst bucket.

_PEAKS = {"queue": "queue_max", "kv_cache_pct": "kv_cache_max_pct"}
"""Of these the highest value is told as well."""


class ServerReport(Struct, frozen=True):
    """One server. Means are over the ``seconds`` in which it answered; ``silent_s`` are those in which it did not.

    ``…_p50_s`` is the bucket of the median that stood longest, ``…_p99_s`` the worst of the 99th percentile.
    """

    place: str
    kind: ServerKind | None
    seconds: float
    silent_s: float
    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    prompt_tokens_per_s: float | None = None
    queue: float | None = None
    queue_max: float | None = None
    running: float | None = None
    first_token_p50_s: Bounds | None = None
    first_token_p99_s: Bounds | None = None
    first_response_p50_s: Bounds | None = None
    first_response_p99_s: Bounds | None = None
    between_tokens_p50_s: Bounds | None = None
    between_tokens_p99_s: Bounds | None = None
    kv_cache_pct: float | None = None
    kv_cache_max_pct: float | None = None
    preemptions_per_s: float | None = None
    prefix_hit_pct: float | None = None
    error: str | None = None
    """Why it was silent last."""


class _Server:
    def __init__(self) -> None:
        self._kind: ServerKind | None = None
        self._seconds = self._silent_s = 0.0
        self._means = TimeMeans()
        self._peaks: dict[str, float] = {}
        self._buckets: dict[str, dict[Bounds, float]] = {key: {} for key in TIMES}
        self._worst: dict[str, Bounds] = {}
        self._error: str | None = None

    def add(self, row: ServerRow, seconds: float) -> None:
        self._kind = row.kind or self._kind
        if row.error is not None:
            self._silent_s += seconds
            self._error = row.error
            return
        self._seconds += seconds
        for key in WORDS:
            self._means.add(key, getattr(row, key), seconds)
        for key, peak in _PEAKS.items():
            if (value := getattr(row, key)) is not None:
                self._peaks[peak] = max(self._peaks.get(peak, 0.0), value)
        for key, stood in self._buckets.items():
            usual, late = getattr(row, f"{key}_p50_s"), getattr(row, f"{key}_p99_s")
            if usual is not None:
                stood[usual] = stood.get(usual, 0.0) + seconds
            if late is not None and (key not in self._worst or _upper(late) > _upper(self._worst[key])):
                self._worst[key] = late

    def report(self, place: str) -> ServerReport:
        columns: dict[str, Any] = {key: self._means[key] for key in WORDS} | self._peaks
        for key, stood in self._buckets.items():
            columns[f"{key}_p50_s"] = max(stood, key=stood.__getitem__, default=None)
            columns[f"{key}_p99_s"] = self._worst.get(key)
        return ServerReport(place, self._kind, self._seconds, self._silent_s, error=self._error, **columns)


def _upper(bounds: Bounds) -> tuple[float, float]:
    low, high = bounds
    return (inf if high is None else high), low


class ServerAccount:
    """Takes the rows of every frame."""

    def __init__(self) -> None:
        self._servers: dict[str, _Server] = {}

    def add(self, rows: Iterable[ServerRow], seconds: float) -> None:
        """Count the rows of a frame that stands for so many seconds."""
        for row in rows:
            self._servers.setdefault(row.place, _Server()).add(row, seconds)

    def report(self) -> tuple[ServerReport, ...]:
        """One for each server, in the order in which they were first seen."""
        return tuple(server.report(place) for place, server in self._servers.items())
