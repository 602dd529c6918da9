"""Steps of a job as its GPUs show them, and their growth.

Pure: time enters with the samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt
from operator import mul

from gputop.model.snapshot import GpuSample, ProcessSample, Snapshot
from gputop.model.step_pace import PeriodSource, StepPeriod

MOST_INTERVAL_S = 0.3
"""Samples must be a quarter of a second apart; a little late is early enough."""
WINDOW_S = 60.0
LEAST_R = 0.8
"""Autocorrelation of a window with itself one step later, see ``period``."""
LEAST_SAMPLES = 8
"""Of one step: two seconds at four samples a second."""
LEAST_PERIODS = 3
"""Of one window."""
FIRST_OF_HIGHEST = 0.9
"""The first peak counts where no later one, a multiple, is clearly higher."""
AMBIGUOUS = 0.5
"""From this share of the highest peak on, an earlier one may be the step; then nothing is said."""
AGREE = 0.03
"""Two successive windows must give the same step, to this share."""
PERIOD_GROWN = 1.10
MULTIPLE = 0.04
"""A step that is a multiple of the one before, to this share, is rather the same step, every other one of it seen."""
LEAST_SPREAD = 0.01
"""Standard deviation over the mean: a constant has no rhythm."""
_READ: tuple[tuple[PeriodSource, Callable[[GpuSample], float | None]], ...] = (
    ("nvlink", lambda gpu: _sum(gpu.nvlink_rx_bytes_per_s, gpu.nvlink_tx_bytes_per_s)),
    ("power", lambda gpu: gpu.power_w),
    ("tensor", lambda gpu: gpu.tensor_active_pct),
)
"""The clearest first: NVLink carries the gradients once a step."""


def _sum(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


def period(values: Sequence[float], spacing_s: float) -> float | None:
    """The period in seconds of evenly spaced values.

    None where none is clear.

    By the first peak of the autocorrelation (Box and Jenkins, "Time Series Analysis", 2.1.5; each lag's sum divided by
    its number of terms), refined by the parabola through the peak and its neighbours.
    """
    n = len(values)
    most_lag = n // LEAST_PERIODS
    if most_lag <= LEAST_SAMPLES:
        return None
    middle = sum(values) / len(values)
    centred = [value - middle for value in values]
    power = sum(map(mul, centred, centred)) / n
    if power <= 0.0 or sqrt(power) < LEAST_SPREAD * abs(middle):
        return None
    r = [sum(map(mul, centred, centred[lag:])) / (n - lag) / power for lag in range(most_lag + 2)]
    fall = next((lag for lag, value in enumerate(r) if value < 0.0), None)
    if fall is None:
        return None
    peaks = [
        lag
        for lag in range(fall, most_lag + 1)
        if r[lag - 1] <= r[lag] > r[lag + 1] and r[lag] > 0.0
    ]
    highest = max((r[lag] for lag in peaks), default=0.0)
    first = next((lag for lag in peaks if r[lag] >= FIRST_OF_HIGHEST * highest), None)
    if first is None or first < LEAST_SAMPLES or r[first] < LEAST_R:
        return None
    # A step that is no whole number of samples peaks higher at a multiple that is one. Where a part of the period has a
    # peak of its own it may be the step, and which is not known.
    if any(r[lag] >= AMBIGUOUS * highest for lag in peaks if lag < first):
        return None
    before, at, after = r[first - 1 : first + 2]
    bend = before - 2.0 * at + after
    peak = first + (0.5 * (before - after) / bend if bend < 0.0 else 0.0)
    return peak * spacing_s if peak >= (1.0 - AGREE) * LEAST_SAMPLES else None


class _Rhythm:
    """One series of one job: windows of a minute, one after the other."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque()
        self._last: float | None = None
        self._spacing_s = 0.0
        self.period_s: float | None = None
        """The step that the last two windows agree on."""
        self.first: float | None = None
        self.grown_t: float | None = None

    def add(self, t: float, value: float | None, spacing_s: float) -> None:
        samples = self._samples
        is_due = not samples or 0.0 < t - samples[-1][0] <= 2.0 * spacing_s
        if value is None or not is_due or spacing_s != self._spacing_s:
            # What is missing, or comes at another rate, would shift the rest: the window starts over.
            samples.clear()
            self._spacing_s = spacing_s
            if value is None:
                return
        samples.append((t, value))
        if t - samples[0][0] < WINDOW_S:
            return
        apart = (samples[-1][0] - samples[0][0]) / (len(samples) - 1)
        period_s = period([sample_value for _, sample_value in samples], apart)
        samples.clear()
        agree = (
            period_s is not None
            and self._last is not None
            and abs(period_s - self._last) <= AGREE * self._last
        )
        self.period_s, self._last = (period_s if agree else None), period_s
        if self.period_s is not None:
            self._compare(t, self.period_s)

    def _compare(self, t: float, period_s: float) -> None:
        if self.first is None:
            self.first = period_s
        ratio = period_s / self.first
        times = round(ratio)
        if ratio < PERIOD_GROWN:
            self.grown_t = None
        elif self.grown_t is None and not (times >= 2 and abs(ratio - times) <= MULTIPLE * times):
            self.grown_t = t


class StepPeriods:
    """Feed it snapshots in order of time.

    It gives the steps of the jobs on their GPUs.
    """

    def __init__(self) -> None:
        self._jobs: dict[str, dict[PeriodSource, _Rhythm]] = {}
        self.periods: tuple[StepPeriod, ...] = ()
        """The steps as they stand; a recording's own where the snapshot carries them."""

    def observe(self, snapshot: Snapshot) -> None:
        """Add one snapshot.

        One that repeats a reading, or comes too seldom, says nothing new.
        """
        if snapshot.periods:
            self.periods = snapshot.periods
            return
        if not 0.0 < snapshot.interval_s <= MOST_INTERVAL_S:
            self.periods = ()
            self._jobs.clear()
            return
        if "nvml" in snapshot.repeats:
            return
        groups = jobs_of(snapshot.gpus, snapshot.processes)
        # Requests that come in bursts are no steps.
        serving = {
            process.gpu for process in snapshot.processes if process.static.server is not None
        }
        groups = {
            key: gpus
            for key, gpus in groups.items()
            if serving.isdisjoint(g.static.index for g in gpus)
        }
        self._jobs = {key: self._jobs.get(key, {}) for key in groups}
        periods = []
        for key, gpus in groups.items():
            rhythms = self._jobs[key]
            for source, read in _READ:
                values = [value for gpu in gpus if (value := read(gpu)) is not None]
                rhythm = rhythms.setdefault(source, _Rhythm())
                rhythm.add(
                    snapshot.t,
                    sum(values) / len(values) if len(values) == len(gpus) else None,
                    snapshot.interval_s,
                )
            clearest = next(
                ((s, r) for s, _ in _READ if (r := rhythms[s]).period_s is not None), None
            )
            if (
                clearest is not None
                and clearest[1].period_s is not None
                and clearest[1].first is not None
            ):
                indices = tuple(sorted(gpu.static.index for gpu in gpus))
                periods.append(
                    StepPeriod(
                        indices,
                        clearest[1].period_s,
                        clearest[0],
                        clearest[1].first,
                        clearest[1].grown_t,
                    )
                )
        self.periods = tuple(periods)

    def period_of(self, gpu: int) -> StepPeriod | None:
        """The step on the GPU with this index."""
        return next((period for period in self.periods if gpu in period.gpus), None)


def jobs_of(
    gpus: Iterable[GpuSample], processes: Iterable[ProcessSample]
) -> Mapping[str, list[GpuSample]]:
    """The GPUs of each job.

    A GPU whose job is not known is a group of its own, a lost one nowhere.
    """
    owner: dict[int, str] = {}
    for process in processes:
        if process.role == "gpu" and process.gpu is not None and process.static.job_key is not None:
            owner.setdefault(process.gpu, process.static.job_key)
    groups: dict[str, list[GpuSample]] = {}
    for gpu in gpus:
        if gpu.lost_reason is None:
            groups.setdefault(owner.get(gpu.static.index, gpu.static.uuid), []).append(gpu)
    return groups
