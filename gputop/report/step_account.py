"""A run's steps over a recording: how many, how long, and which rank was the slowest.

Warm-up is left out: the first steps compile, allocate and fill caches, and would distort every mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt

from msgspec import Struct

from gputop.diagnosis.thresholds import WARM_UP_FACTOR
from gputop.model.steps import StepRow, run_name

WARM_UP_ROWS = 30
"""Announcements among which the warm-up is looked for."""


class StepReport(Struct, frozen=True):
    """The steps of the ranks of one run. ``steps_per_s`` and ``mean_s`` are means over the ranks, which step
    together in a synchronous job; ``max_s`` is the longest step after the warm-up."""

    name: str
    ranks: int
    steps: int
    mean_s: float
    max_s: float
    steps_per_s: float
    slowest_rank: int | None
    slowest_mean_s: float
    warm_up_steps: int
    samples_per_s: float | None = None
    """Of all ranks together; None where one of them does not say how many samples a step has."""
    tokens_per_s: float | None = None
    """The same of tokens."""
    mfu_pct: float | None = None
    """Model FLOPs utilisation as the job works it out, the mean over the ranks; above 100 it cannot be."""
    slow_rank: int | None = None
    """The rank whose own time, the step without what it waited for others, is the longest. None with one rank, and
    where one of them does not say how long it waits."""
    slow_own_s: float | None = None
    """That time, in seconds a step."""
    waiting_rank: int | None = None
    """The rank that waits longest, where ``slow_rank`` is known."""
    wait_s: float | None = None
    """How long it does, in seconds a step."""


class _Sums:
    """An amount that rows may say, and the seconds of those that do."""

    def __init__(self) -> None:
        self.amount = self.seconds = 0.0

    def add(self, amount: float | None, seconds: float) -> None:
        if amount is not None:
            self.amount, self.seconds = self.amount + amount, self.seconds + seconds

    def rate(self) -> float | None:
        return self.amount / self.seconds if self.seconds > 0.0 else None


class _Useful:
    """Samples, tokens and MFU of rows."""

    def __init__(self) -> None:
        self.samples, self.tokens, self.mfu = _Sums(), _Sums(), _Sums()

    def add(self, row: StepRow) -> None:
        self.samples.add(row.samples, row.sum_s)
        self.tokens.add(row.tokens, row.sum_s)
        self.mfu.add(None if row.mfu_pct is None else row.mfu_pct * row.sum_s, row.sum_s)


class _Account(Struct, frozen=True):
    """One rank without its warm-up: its steps, their seconds, the longest; rates; and the steps of the warm-up."""

    rank: int | None
    steps: int
    total_s: float
    max_s: float
    samples_per_s: float | None
    tokens_per_s: float | None
    mfu_pct: float | None
    warm_up_steps: int


class _Rank:
    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.early: list[StepRow] = []
        self.steps = 0
        self.total_s = self.max_s = 0.0
        self.useful = _Useful()
        self.waited_s, self.steps_with_wait = 0.0, 0
        """Over the steps whose waits for others are known: seconds, and how many steps."""

    @property
    def wait_s(self) -> float | None:
        """The mean wait for others, in seconds a step; None where it is not known."""
        return self.waited_s / self.steps_with_wait if self.steps_with_wait else None

    def add(self, row: StepRow) -> None:
        if row.wait_s is not None:
            self.waited_s, self.steps_with_wait = self.waited_s + row.wait_s, self.steps_with_wait + row.count
        if len(self.early) < WARM_UP_ROWS:
            self.early.append(row)
        else:
            self._count(row)

    def _count(self, row: StepRow) -> None:
        self.steps += row.count
        self.total_s += row.sum_s
        self.max_s = max(self.max_s, row.max_s)
        self.useful.add(row)

    def account(self) -> _Account:
        # Importing it takes 4 ms, for which a report without steps need not wait.
        from copy import deepcopy
        from statistics import median

        usual = median(row.sum_s / row.count for row in self.early)
        first = next((i for i, r in enumerate(self.early) if r.sum_s / r.count <= WARM_UP_FACTOR * usual), 0)
        useful = deepcopy(self.useful)
        counted = self.early[first:]
        for row in counted:
            useful.add(row)
        return _Account(
            self.rank,
            self.steps + sum(row.count for row in counted),
            self.total_s + sum(row.sum_s for row in counted),
            max(self.max_s, max((row.max_s for row in counted), default=0.0)),
            useful.samples.rate(),
            useful.tokens.rate(),
            useful.mfu.rate(),
            sum(row.count for row in self.early[:first]),
        )


class StepAccount:
    """Takes the rows of every frame."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, str, int], _Rank] = {}

    def add(self, rows: Iterable[StepRow]) -> None:
        """Count the rows of a frame."""
        for row in rows:
            self._ranks.setdefault((run_name(row), row.name, row.pid), _Rank(row.rank)).add(row)

    def report(self) -> tuple[StepReport, ...]:
        """One for each run, the one with the most steps first."""
        runs: dict[tuple[str, str], list[_Rank]] = {}
        for (run, name, _), rank in self._ranks.items():
            runs.setdefault((run, name), []).append(rank)
        reports = [_of_run(name, ranks) for (_, name), ranks in runs.items()]
        return tuple(sorted((report for report in reports if report is not None), key=lambda r: -r.steps))


def _of_run(name: str, ranks: Sequence[_Rank]) -> StepReport | None:
    accounts = [rank.account() for rank in ranks]
    means = [(of.rank, of.total_s / of.steps) for of in accounts if of.steps and of.total_s > 0.0]
    if not means:
        return None
    slowest_rank, slowest_s = max(means, key=lambda pair: pair[1])
    mfu = [of.mfu_pct for of in accounts if of.mfu_pct is not None]
    waits = {rank.rank: rank.wait_s for rank in ranks}
    slow: tuple[int | None, float | None, int | None, float | None] = (None, None, None, None)
    if len(means) > 1 and all(waits.get(rank) is not None for rank, _ in means):
        own_s = {rank: max(0.0, mean - (waits[rank] or 0.0)) for rank, mean in means}
        waiting = max(own_s, key=lambda rank: waits[rank] or 0.0)
        slow_rank = max(own_s, key=lambda rank: own_s[rank])
        slow = (slow_rank, own_s[slow_rank], waiting, waits[waiting])
    return StepReport(
        name,
        len(means),
        max(of.steps for of in accounts),
        sum(mean for _, mean in means) / len(means),
        max(of.max_s for of in accounts),
        sum(1.0 / mean for _, mean in means) / len(means),
        slowest_rank if len(means) > 1 else None,
        slowest_s,
        max(of.warm_up_steps for of in accounts),
        _sum([of.samples_per_s for of in accounts]),
        _sum([of.tokens_per_s for of in accounts]),
        sum(mfu) / len(mfu) if mfu and len(mfu) == len(accounts) else None,
        *slow,
    )


def _sum(rates: Sequence[float | None]) -> float | None:
    measured = [rate for rate in rates if rate is not None]
    return sum(measured) if len(measured) == len(rates) else None


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
