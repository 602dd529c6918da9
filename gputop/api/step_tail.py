"""Spread of a process's steps, and activity of the machine while the slow ones ran."""

from __future__ import annotations

from msgspec import Struct

from gputop.api.slow_steps import NO_SIGNS, MachineSigns, difference_words
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

    Mean, median and 99th percentile are in seconds. ``slow_words`` names a 99th percentile far above the median
    and says how the machine differed in slow steps.
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


class _Length(Struct, frozen=True):
    """Length of one step, and the machine at about that time."""

    seconds: float
    signs: MachineSigns


class StepTail:
    """Takes the lengths of steps, with what the machine did about then."""

    def __init__(self) -> None:
        self._steps: list[_Length] = []
        self._every = 1
        self._count = 0
        self._waits = [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
        """Over the steps whose waits for batches, and for others, are known: seconds waited, seconds in all, number of
        steps."""

    def add(self, ended: EndedSteps, signs: MachineSigns = NO_SIGNS) -> None:
        """Take the steps of about a second."""
        lengths = ended.lengths
        for sums, waited_s in zip(self._waits, (ended.data_wait_s, ended.wait_s), strict=True):
            if waited_s is not None:
                for place, amount in enumerate((waited_s, sum(lengths), len(lengths))):
                    sums[place] += amount
        for length in lengths:
            self._count += 1
            if self._count % self._every == 0:
                self._steps.append(_Length(length, signs))
        if len(self._steps) > MOST_KEPT:
            self._steps = self._steps[::2]
            self._every *= 2

    def summary(self, count: int) -> StepSummary | None:
        """Summarise the steps without the warm-up; None without steps.

        ``count`` is how many ended.
        """
        if not self._steps:
            return None
        from statistics import median

        steps = self._without_warm_up(median(step.seconds for step in self._steps[:WARM_UP]))
        lengths = sorted(step.seconds for step in steps)
        p50 = median(lengths)
        p99 = lengths[min(len(lengths) - 1, int(0.99 * len(lengths)))]
        words = ""
        if len(lengths) >= LEAST_STEPS and p99 > SLOW_STEP * p50:
            words = _slow_words(steps, p50, p99)
        waited: list[float | None] = []
        for wait_s, of_s, told in self._waits:
            waited += (
                (wait_s / told, 100.0 * wait_s / of_s) if told and of_s > 0.0 else (None, None)
            )
        return StepSummary(count, sum(lengths) / len(lengths), p50, p99, words, *waited)

    def _without_warm_up(self, usual_s: float) -> list[_Length]:
        for place, step in enumerate(self._steps[:WARM_UP]):
            if step.seconds <= WARM_UP_FACTOR * usual_s:
                return self._steps[place:]
        return self._steps


def _slow_words(steps: list[_Length], p50: float, p99: float) -> str:
    slow = [step.signs for step in steps if step.seconds > SLOW_STEP * p50]
    other = [step.signs for step in steps if step.seconds <= SLOW_STEP * p50]
    text = f"slow steps: the 99th percentile is {step_time(p99)}, {p99 / p50:.1f} × the median"
    difference = difference_words(slow, other)
    return f"{text}; {difference}" if difference else text
