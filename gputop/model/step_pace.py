"""Pace of this machine's jobs: the last minute of each process's announcements."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gputop.model.steps import PHASES, Index, Phase, StepRow

WINDOW_S = 60.0
SILENT_S = 30.0
"""Silence after which a job is no longer stepping.

Its last ten step times must have passed too.
"""
SILENT_STEPS = 10.0
REPLACED_S = 2.0
"""Silence after which a rank can be replaced.

Another process of its run then announces steps under its number.
"""
LEAST_ROWS = 4
"""Minimum announcements for a meaningful spread."""
MOST_RANKS = 256
_MOST_ROWS = 256
_Z95 = 1.96


def phase_word(phase: Phase) -> str:
    """Return a phase's name for screens and summaries."""
    return "between steps" if phase == "between" else phase


NO_PHASES: Mapping[Phase, float] = {}
_MOST_LOOKED_AT = 256
"""Rows with phases that are kept of a process.

Beyond that every second one is dropped.
"""


class PhaseGrowth(Struct, frozen=True):
    """Phase that grew most.

    Its host time a step grew from ``before_s`` to ``after_s`` seconds.
    """

    phase: Phase
    before_s: float
    after_s: float


class StepPace(Struct, frozen=True):
    """One process: the mean step over the last minute.

    ``error_pct`` is half of the mean's 95 % interval in percent of it, from how the announcements differ; None for
    fewer than four. ``p99_s`` is the longest 99th percentile that was announced, ``steps`` how many steps this is of.
    """

    pid: int
    rank: int | None
    gpu: int | None
    name: str
    mean_s: float
    error_pct: float | None
    p99_s: float
    steps: int
    samples_per_s: float | None = None
    """None if the job does not announce samples."""
    wait_s: float | None = None
    """Part of the mean step spent waiting for other ranks.

    None if the job does not announce it.
    """

    tokens_per_s: float | None = None
    """None if the job does not announce tokens."""
    mfu_pct: float | None = None
    """Model FLOPs utilisation by the job's own calculation.

    A value above 100 is impossible, and is shown with that reason alone.
    """

    run: str = ""
    """Run of the rank."""

    phases: Mapping[Phase, float] = NO_PHASES
    """Seconds of host time a step, by phase, over the last minute.

    Phases that the job does not announce are missing.
    """
    growth: PhaseGrowth | None = None
    """Phase that grew since the first announcement, if steps take longer."""

    @property
    def steps_per_s(self) -> float:
        return 1.0 / self.mean_s

    @property
    def own_s(self) -> float | None:
        """Mean step without waits; None if the waits are unknown."""
        return None if self.wait_s is None else self.mean_s - self.wait_s


class PhaseSeries:
    """Phases of steps in order, at most ``most_steps``.

    Beyond the limit every second step is dropped, so that the whole run stays represented.
    """

    def __init__(self, most_steps: int) -> None:
        self.steps: list[Mapping[Phase, float]] = []
        self.count = 0
        self._most_steps, self._every = most_steps, 1

    def add(self, phases: Mapping[Phase, float]) -> None:
        """Add one step."""
        self.count += 1
        if self.count % self._every == 0:
            self.steps.append(phases)
        if len(self.steps) > self._most_steps:
            self.steps = self.steps[::2]
            self._every *= 2


class StepHistory:
    """Collects rows in order of time; computes each process's pace."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, str], deque[tuple[float, StepRow]]] = {}
        self._looked_at: dict[tuple[int, str], PhaseSeries] = {}

    def looked_at(self, pace: StepPace) -> Sequence[Mapping[Phase, float]]:
        """Return the phases of a process's steps in order.

        They cover the time since the process was first heard.
        """
        series = self._looked_at.get((pace.pid, pace.name))
        return () if series is None else series.steps

    def observe(self, t: float, rows: Iterable[StepRow]) -> None:
        """Add the rows of one snapshot; drop silent processes."""
        for row in rows:
            history = self._rows.get((row.pid, row.name))
            if history is None:
                self._forget_replaced(t, row)
                if len(self._rows) >= MOST_RANKS:
                    continue
                history = self._rows[row.pid, row.name] = deque(maxlen=_MOST_ROWS)
            history.append((t, row))
            if row.phases:
                self._looked_at.setdefault((row.pid, row.name), PhaseSeries(_MOST_LOOKED_AT)).add(
                    row.phases
                )
        for identity in [i for i, history in self._rows.items() if _is_silent(t, history)]:
            self._forget(identity)

    def _forget_replaced(self, t: float, new: StepRow) -> None:
        """Drop the earlier process of this rank after a restart."""
        for identity, history in list(self._rows.items()):
            last_t, row = history[-1]
            is_same = (
                new.run is not None
                and new.rank is not None
                and (row.run, row.rank) == (new.run, new.rank)
            )
            if is_same and t - last_t > REPLACED_S:
                self._forget(identity)

    def _forget(self, identity: tuple[int, str]) -> None:
        del self._rows[identity]
        self._looked_at.pop(identity, None)

    def paces(self, t: float) -> tuple[StepPace, ...]:
        """Return the pace of each active process, by rank and pid."""
        if not self._rows:
            return ()
        paces = [pace for history in self._rows.values() if (pace := _pace(t, history)) is not None]
        return tuple(
            sorted(paces, key=lambda p: (p.name, p.run, -1 if p.rank is None else p.rank, p.pid))
        )


def run_name(row: StepRow) -> str:
    """Return the run of the rank that announced these steps.

    Without a known run, the process is a run of its own.
    """
    return row.run or f"pid {row.pid}"


def slowest(paces: Sequence[StepPace]) -> StepPace | None:
    """Return the process with the longest steps.

    Waits are excluded if every process announces them. If all wait for each other without announcing it, their steps
    are equal, and the first process is returned.
    """
    return max(paces, key=comparable_s(paces), default=None)


def comparable_s(paces: Sequence[StepPace]) -> Callable[[StepPace], float]:
    """Return the function whose value ranks processes of a job.

    The value is the own time if all processes know it, else the whole step.
    """
    if all(pace.own_s is not None for pace in paces):
        return lambda pace: pace.mean_s - (pace.wait_s or 0.0)
    return lambda pace: pace.mean_s


def _is_silent(t: float, history: Sequence[tuple[float, StepRow]]) -> bool:
    last_t, row = history[-1]
    return t - last_t > max(SILENT_S, SILENT_STEPS * row.sum_s / row.count)


def _pace(t: float, history: Sequence[tuple[float, StepRow]]) -> StepPace | None:
    recent = [row for at, row in history if at > t - WINDOW_S] or [history[-1][1]]
    steps = sum(row.count for row in recent)
    total = sum(row.sum_s for row in recent)
    if total <= 0.0:
        return None
    mean, last = total / steps, recent[-1]
    error = None
    if len(recent) >= LEAST_ROWS:
        # The mean of groups of unequal size: the variance of a ratio estimator.
        spread = sqrt(sum((row.sum_s - row.count * mean) ** 2 for row in recent))
        n = len(recent)
        error = 100.0 * _Z95 * spread * sqrt(n / (n - 1)) / total
    samples, tokens = (_rate(recent, key) for key in ("samples", "tokens"))
    claimed = [row for row in recent if row.mfu_pct is not None]
    busy_s = sum(row.sum_s for row in claimed)
    mfu = (
        sum((row.mfu_pct or 0.0) * row.sum_s for row in claimed) / busy_s if busy_s > 0.0 else None
    )
    late = max(row.p99_s for row in recent)
    waiting = [row for row in recent if row.wait_s is not None]
    wait = (
        sum(row.wait_s or 0.0 for row in waiting) / sum(row.count for row in waiting)
        if waiting
        else None
    )
    return StepPace(
        last.pid,
        last.rank,
        last.gpu,
        last.name,
        mean,
        error,
        late,
        steps,
        samples,
        None if wait is None else min(wait, mean),
        tokens,
        mfu,
        run_name(last),
        mean_phases([row.phases for row in recent]),
    )


def mean_phases(steps: Sequence[Mapping[Phase, float]]) -> dict[Phase, float]:
    """Return mean phases of similar steps.

    Similar steps have the same phases as the newest step with any.
    """
    newest = next((step.keys() for step in reversed(steps) if step), None)
    alike = [step for step in steps if step and step.keys() == newest]
    return {
        phase: sum(step[phase] for step in alike) / len(alike)
        for phase in PHASES
        if alike and phase in alike[0]
    }


def _rate(rows: Sequence[StepRow], key: str) -> float | None:
    """Return samples or tokens a second.

    Only rows that announce the value count.
    """
    announced = [(amount, row.sum_s) for row in rows if (amount := getattr(row, key)) is not None]
    seconds = sum(seconds for _, seconds in announced)
    return sum(amount for amount, _ in announced) / seconds if seconds > 0.0 else None


PeriodSource = Literal["nvlink", "power", "tensor"]
SOURCE_WORDS: Mapping[PeriodSource, str] = {
    "nvlink": "NVLink",
    "power": "power",
    "tensor": "tensor activity",
}
MOST_PERIODS = 256
_Period = Annotated[float, Meta(gt=0.0, lt=1e5)]


class StepPeriod(Struct, frozen=True, omit_defaults=True):
    """Step of about ``period_s`` seconds on some GPUs.

    ``gpus`` are indices, ``source`` is how the step was found. ``first_s`` is the length that was found first;
    ``grown_t`` is the Unix time when the step had become a tenth longer, None before.
    """

    gpus: Annotated[tuple[Index, ...], Meta(min_length=1, max_length=256)]
    period_s: _Period
    source: PeriodSource
    first_s: _Period
    grown_t: Annotated[float, Meta(gt=0.0, lt=1e11)] | None = None
