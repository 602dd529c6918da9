"""The spread of a process's steps, and what the machine did while the slow ones ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gputop.model.quantity import step_time

if TYPE_CHECKING:
    from gputop.model.snapshot import HostSample

SLOW_TAIL = 2.0
"""From this ratio of the 99th percentile to the median on, slow steps are reported."""
MOST_KEPT = 20_000
"""Step lengths kept; beyond that every second one is dropped, so that the whole run stays represented."""
LEAST_STEPS = 100
NOTICED = 0.05
"""From this share of the steps on, waiting for batches has a remedy."""
WARM_UP = 30
WARM_UP_FACTOR = 2.0
_SIGNS = (
    ("psi_cpu_pct", "tasks waited for a core", "%"),
    ("psi_io_pct", "tasks waited for the disk", "%"),
    ("psi_mem_pct", "tasks waited for memory", "%"),
    ("cpu_pct", "the cores were busy", "%"),
)
_LEAST_APART = 15.0
"""Points between slow and other steps from which on a difference is named."""


class StepSummary(Struct, frozen=True):
    """The steps of this process: how many, and their mean, median and 99th percentile in seconds, the warm-up left out.

    ``slow_words`` says what the machine did in the slow ones, where that differs. ``data_wait_s`` is the mean wait for
    a batch and ``data_wait_pct`` its share of the steps, both None where the program does not say it.
    """

    count: int
    mean_s: float
    p50_s: float
    p99_s: float
    slow_words: str = ""
    data_wait_s: float | None = None
    data_wait_pct: float | None = None

    @property
    def data_words(self) -> str:
        """The wait for batches; empty where it is not known."""
        if self.data_wait_s is None or self.data_wait_pct is None:
            return ""
        said = f"waits {step_time(self.data_wait_s)} of each step for its batch ({self.data_wait_pct:.0f} %)"
        remedy = "; gputop loader finds how many workers it takes"
        return said + (remedy if self.data_wait_pct >= 100.0 * NOTICED else "")


class StepTail:
    """Takes the lengths of steps with what the host showed about then."""

    def __init__(self) -> None:
        self._steps: list[tuple[float, tuple[float | None, ...]]] = []
        self._every = 1
        self._count = 0
        self._waited = [0.0, 0.0, 0.0]
        """Over the steps whose waits for batches are known: seconds waited, seconds in all, number of steps."""

    def add(self, lengths: Sequence[float], host: HostSample | None, data_wait_s: float | None = None) -> None:
        """The steps of about a second, the host's newest sample, and how long they waited for batches in all."""
        if data_wait_s is not None:
            for place, more in enumerate((data_wait_s, sum(lengths), len(lengths))):
                self._waited[place] += more
        signs = tuple(None if host is None else getattr(host, key) for key, _, _ in _SIGNS)
        for length in lengths:
            self._count += 1
            if self._count % self._every == 0:
                self._steps.append((length, signs))
        if len(self._steps) > MOST_KEPT:
            self._steps = self._steps[::2]
            self._every *= 2

    def summary(self, count: int) -> StepSummary | None:
        """Mean, median and 99th percentile without the warm-up; None without steps. ``count`` is how many ended."""
        steps = self._warm()
        if not steps:
            return None
        from statistics import median

        lengths = sorted(length for length, _ in steps)
        p50 = median(lengths)
        p99 = lengths[min(len(lengths) - 1, int(0.99 * len(lengths)))]
        words = self._slow_words(steps, p50, p99) if len(steps) >= LEAST_STEPS and p99 > SLOW_TAIL * p50 else ""
        wait_s, of_s, told = self._waited
        waited = (wait_s / told, 100.0 * wait_s / of_s) if told and of_s > 0.0 else (None, None)
        return StepSummary(count, sum(lengths) / len(lengths), p50, p99, words, *waited)

    def _warm(self) -> list[tuple[float, tuple[float | None, ...]]]:
        early = self._steps[:WARM_UP]
        if not early:
            return []
        from statistics import median

        usual = median(length for length, _ in early)
        first = next((i for i, (length, _) in enumerate(early) if length <= WARM_UP_FACTOR * usual), 0)
        return self._steps[first:]

    def _slow_words(self, steps: Sequence[tuple[float, tuple[float | None, ...]]], p50: float, p99: float) -> str:
        said = f"slow steps: the 99th percentile is {step_time(p99)}, {p99 / p50:.1f} × the median"
        found = []
        for place, (_, words, unit) in enumerate(_SIGNS):
            slow = [signs[place] for length, signs in steps if length > SLOW_TAIL * p50]
            rest = [signs[place] for length, signs in steps if length <= SLOW_TAIL * p50]
            of_slow, of_rest = _mean(slow), _mean(rest)
            if of_slow is not None and of_rest is not None and of_slow - of_rest >= _LEAST_APART:
                found.append(f"{words} {of_slow:.0f} {unit} ({of_rest:.0f} {unit} otherwise)")
        return f"{said}; in them {', '.join(found)}" if found else f"{said}; the machine looked no different in them"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
