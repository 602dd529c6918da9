"""Spread of a process's steps, and activity of the machine while the slow ones ran."""

from __future__ import annotations

from msgspec import Struct

from gputop.api.step_clock import EndedSteps
from gputop.diagnosis.thresholds import NOTICED_WAIT, SLOW_STEP, WARM_UP_FACTOR
from gputop.model.durations import step_time

MOST_KEPT = 20_000
"""Step lengths kept; beyond that every second one is dropped, so that the whole run stays represented."""
LEAST_STEPS = 100
WARM_UP = 30
"""Steps among which the warm-up is looked for."""


class StepSummary(Struct, frozen=True):
    """The steps of this process, without the warm-up.

    Mean, median and 99th percentile are in seconds. ``slow_words`` names a 99th percentile far above the median.
    ``data_wait_s`` is the mean wait for a batch and ``data_wait_pct`` its share of the steps, ``wait_s`` and
    ``wait_pct`` are the wait for other ranks; all None where the program does not say it.
    """

    count: int
    mean_s: float
    p50_s: float
    p99_s: float
    slow_words: str = ""
    data_wait_s: float | None = None
    data_wait_pct: float | None = None
    wait_s: float | None = None
    wait_pct: float | None = None

    @property
    def wait_words(self) -> str:
        """The wait for other ranks; empty where it is not known."""
        return _wait_words(self.wait_s, self.wait_pct, "others")

    @property
    def data_words(self) -> str:
        """The wait for batches; empty where it is not known."""
        text = _wait_words(self.data_wait_s, self.data_wait_pct, "its batch")
        is_long = (self.data_wait_pct or 0.0) >= 100.0 * NOTICED_WAIT
        return f"{text}; gputop loader finds how many workers it takes" if is_long else text


def _wait_words(wait_s: float | None, pct: float | None, waits_for: str) -> str:
    if wait_s is None or pct is None:
        return ""
    return f"waits {step_time(wait_s)} of each step for {waits_for} ({pct:.0f} %)"


class StepTail:
    """Takes the lengths of steps."""

    def __init__(self) -> None:
        self._lengths: list[float] = []
        self._every = 1
        self._count = 0
        self._waits = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
        """Over the steps whose waits for batches, and for others, are known: seconds waited, seconds in all, number of
        steps."""

    def add(self, ended: EndedSteps) -> None:
        """The steps of about a second."""
        lengths = ended.lengths
        for sums, waited_s in zip(self._waits, (ended.data_wait_s, ended.wait_s), strict=True):
            if waited_s is not None:
                for place, amount in enumerate((waited_s, sum(lengths), len(lengths))):
                    sums[place] += amount
        for length in lengths:
            self._count += 1
            if self._count % self._every == 0:
                self._lengths.append(length)
        if len(self._lengths) > MOST_KEPT:
            self._lengths = self._lengths[::2]
            self._every *= 2

    def summary(self, count: int) -> StepSummary | None:
        """Summarise the steps without the warm-up; None without steps.

        ``count`` is how many ended.
        """
        if not self._lengths:
            return None
        from statistics import median

        usual = median(self._lengths[:WARM_UP])
        warm = (
            i
            for i, length in enumerate(self._lengths[:WARM_UP])
            if length <= WARM_UP_FACTOR * usual
        )
        lengths = sorted(self._lengths[next(warm, 0) :])
        p50 = median(lengths)
        p99 = lengths[min(len(lengths) - 1, int(0.99 * len(lengths)))]
        is_slow = len(lengths) >= LEAST_STEPS and p99 > SLOW_STEP * p50
        words = (
            f"slow steps: the 99th percentile is {step_time(p99)}, {p99 / p50:.1f} × the median"
            if is_slow
            else ""
        )
        waited: list[float | None] = []
        for wait_s, of_s, told in self._waits:
            waited += (
                (wait_s / told, 100.0 * wait_s / of_s) if told and of_s > 0.0 else (None, None)
            )
        return StepSummary(count, sum(lengths) / len(lengths), p50, p99, words, *waited)
