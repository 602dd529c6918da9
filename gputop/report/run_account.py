"""Sum the announced steps of each run: how many, how long, and which rank is the slowest.

A run is one start of one program. Ranks of one launcher share its identity, and a launcher that restarts its workers,
or is started again on the same port, keeps it: a new process for a known rank begins an attempt, with a report of its
own. Otherwise its ranks and samples would count twice.

The warm-up is left out: the first steps compile, allocate and fill caches, and would distort every mean.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.thresholds import WARM_UP_FACTOR
from gputop.model.step_pace import run_name
from gputop.model.steps import StepRow

WARM_UP_ROWS = 30
"""Announcements among which the warm-up is looked for."""
SILENT_S, SILENT_STEPS = 3.0, 3.0
"""An attempt that announces nothing for so long, and for so many steps, takes no new rank in: every rank announces once
a second, and a restarted program has to import its framework first."""


class StepReport(Struct, frozen=True, kw_only=True):
    """The steps of one attempt of a run.

    ``steps_per_s`` and ``mean_s`` are means over the ranks, which step together in a synchronous job; ``max_s`` is the
    longest step after the warm-up.
    """

    label: str
    """The name, with a number where several reports have it: ``train.py#2`` is the second to begin."""
    name: str
    run: str
    """The identity of the run, as its ranks announce it; the same for all of its attempts."""
    attempt: int
    begin: float
    """When the first announced step began, Unix time."""
    seconds: float
    """From then until the last announcement."""
    gpus: tuple[int, ...]
    """The GPUs on which its ranks hold contexts, by index."""
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
    """The rank with the longest time of its own: a step without the wait for others. None with one rank, and where one
    of them does not say how long it waits."""
    slow_own_s: float | None = None
    """That time, in seconds a step."""
    waiting_rank: int | None = None
    """The rank that waits longest, where ``slow_rank`` is known."""
    wait_s: float | None = None
    """How long it waits, in seconds a step."""


class _Steps(Struct):
    """Steps, their seconds, and their amounts.

    Samples, tokens and MFU each have the seconds of the rows that announce them.
    """

    steps: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    amounts: dict[str, tuple[float, float]] = {}

    def add(self, row: StepRow) -> None:
        self.steps += row.count
        self.total_s += row.sum_s
        self.max_s = max(self.max_s, row.max_s)
        mfu = None if row.mfu_pct is None else row.mfu_pct * row.sum_s
        for key, amount in (("samples", row.samples), ("tokens", row.tokens), ("mfu", mfu)):
            if amount is not None:
                total, seconds = self.amounts.get(key, (0.0, 0.0))
                self.amounts[key] = total + amount, seconds + row.sum_s

    def rate(self, key: str) -> float | None:
        """Return the amount of one second."""
        total, seconds = self.amounts.get(key, (0.0, 0.0))
        return total / seconds if seconds > 0.0 else None


class _Rank:
    """The steps of one process."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self._early: list[StepRow] = []
        self._later = _Steps()
        self._waited_s, self._steps_with_wait = 0.0, 0
        """Over the steps whose waits for others are known: seconds, and how many steps."""

    @property
    def wait_s(self) -> float | None:
        """Mean wait for other ranks in seconds a step, or None."""
        return self._waited_s / self._steps_with_wait if self._steps_with_wait else None

    def add(self, row: StepRow) -> None:
        if row.wait_s is not None:
            self._waited_s, self._steps_with_wait = (
                self._waited_s + row.wait_s,
                self._steps_with_wait + row.count,
            )
        if len(self._early) < WARM_UP_ROWS:
            self._early.append(row)
        else:
            self._later.add(row)

    def account(self) -> tuple[_Steps, int]:
        """Steps without the warm-up, and the number of warm-up steps."""
        # Importing it takes 4 ms, for which a report without steps need not wait.
        from statistics import median

        usual = median(row.sum_s / row.count for row in self._early)
        first = next(
            (i for i, r in enumerate(self._early) if r.sum_s / r.count <= WARM_UP_FACTOR * usual), 0
        )
        steps = replace(self._later, amounts=dict(self._later.amounts))
        for row in self._early[first:]:
            steps.add(row)
        return steps, sum(row.count for row in self._early[:first])


class _Attempt:
    """The ranks of one run that were started together."""

    def __init__(self, run: str, name: str, number: int, begin: float) -> None:
        self.run, self.name, self.number = run, name, number
        self.begin = self.end = begin
        self.ranks: dict[int, _Rank] = {}
        """By pid."""
        self._gpus: set[int] = set()
        self._step_s = 0.0
        """The mean step of the newest announcement."""

    def takes_in(self, t: float, row: StepRow) -> bool:
        """Whether an unknown process can be one of its ranks."""
        if row.rank is not None and any(rank.rank == row.rank for rank in self.ranks.values()):
            return False
        return t - self.end <= max(
            SILENT_S, SILENT_STEPS * max(self._step_s, row.sum_s / row.count)
        )

    def add(self, t: float, row: StepRow, gpus: Iterable[int]) -> None:
        self.ranks.setdefault(row.pid, _Rank(row.rank)).add(row)
        self.begin, self.end = min(self.begin, t - row.sum_s), max(self.end, t)
        self._step_s = row.sum_s / row.count
        self._gpus.update(gpus)

    def report(self) -> StepReport | None:
        """The report without a number in its label, or None.

        None without a step that took time.
        """
        ranks = list(self.ranks.values())
        accounts = [rank.account() for rank in ranks]
        stepped = [
            (rank.rank, steps.total_s / steps.steps)
            for rank, (steps, _) in zip(ranks, accounts, strict=True)
            if steps.total_s > 0.0
        ]
        if not stepped:
            return None
        slowest_rank, slowest_s = max(stepped, key=lambda pair: pair[1])
        mfu = _sum(steps.rate("mfu") for steps, _ in accounts)
        report = StepReport(
            label=self.name,
            name=self.name,
            run=self.run,
            attempt=self.number,
            begin=self.begin,
            seconds=self.end - self.begin,
            gpus=tuple(sorted(self._gpus)),
            ranks=len(stepped),
            steps=max(steps.steps for steps, _ in accounts),
            mean_s=sum(mean for _, mean in stepped) / len(stepped),
            max_s=max(steps.max_s for steps, _ in accounts),
            steps_per_s=sum(1.0 / mean for _, mean in stepped) / len(stepped),
            slowest_rank=slowest_rank if len(stepped) > 1 else None,
            slowest_mean_s=slowest_s,
            warm_up_steps=max(warm_up for _, warm_up in accounts),
            samples_per_s=_sum(steps.rate("samples") for steps, _ in accounts),
            tokens_per_s=_sum(steps.rate("tokens") for steps, _ in accounts),
            mfu_pct=None if mfu is None else mfu / len(accounts),
        )
        waits = {rank.rank: rank.wait_s for rank in ranks}
        if len(stepped) < 2 or any(waits.get(rank) is None for rank, _ in stepped):
            return report
        own_s = {rank: max(0.0, mean - (waits[rank] or 0.0)) for rank, mean in stepped}
        waiting, slow = (
            max(own_s, key=lambda rank: waits[rank] or 0.0),
            max(own_s, key=own_s.__getitem__),
        )
        return replace(
            report,
            slow_rank=slow,
            slow_own_s=own_s[slow],
            waiting_rank=waiting,
            wait_s=waits[waiting],
        )


class RunAccount:
    """Takes the announced steps of every frame, in order of time."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, str], list[_Attempt]] = {}

    def add(self, t: float, rows: Iterable[tuple[StepRow, Iterable[int]]]) -> None:
        """Count the rows of a frame with their processes' GPUs."""
        for row, gpus in rows:
            run, name = run_name(row), row.name
            attempts = self._attempts.setdefault((run, name), [])
            attempt = next((known for known in reversed(attempts) if row.pid in known.ranks), None)
            if attempt is None and attempts and attempts[-1].takes_in(t, row):
                attempt = attempts[-1]
            if attempt is None:
                attempt = _Attempt(run, name, len(attempts) + 1, t)
                attempts.append(attempt)
            attempt.add(t, row, gpus)

    def report(self) -> tuple[StepReport, ...]:
        """A report for each attempt of each run, in order of begin."""
        made = [attempt.report() for attempts in self._attempts.values() for attempt in attempts]
        reports = sorted(
            (report for report in made if report is not None), key=lambda report: report.begin
        )
        many, numbers, labelled = Counter(report.name for report in reports), Counter[str](), []
        for report in reports:
            numbers[report.name] += 1
            if many[report.name] > 1:
                report = replace(report, label=f"{report.name}#{numbers[report.name]}")
            labelled.append(report)
        return tuple(labelled)


def _sum(values: Iterable[float | None]) -> float | None:
    """None where one of them is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if len(known) == len(found) else None


def run_of_recording(reports: Sequence[StepReport], run: str) -> StepReport | None:
    """The run that a recording names, else the only one.

    None where neither is known.
    """
    own = [report for report in reports if report.run == run]
    return own[-1] if own else reports[0] if len(reports) == 1 and not run else None
