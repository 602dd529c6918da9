"""Training steps: as a job announces them, how fast this machine's jobs step, and a step's length as seen from outside.

A job announces them by ``gputop.watch``; they cannot be measured from outside. What a datagram or a recording claims is
checked here. Pure.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import sqrt
from typing import Any, Literal, cast, get_args

from msgspec import Struct

from gputop.model.quantity import clean_text, is_number
from gputop.model.run_identity import DIGITS
from gputop.model.secrets import masked_text

# Training steps as a job announces them: how many in about a second, and how long they took.

MOST_NAME = 64
"""Characters of the name of a run."""
MOST_STEPS = 10_000_000
_MOST_S = 1e7
_MOST_ID = 2**31
_MOST_SAMPLES = 1e15
_LEEWAY = 1e-3
"""Rounding of sums against minimum and maximum, as a share."""
MOST_MFU_PCT = 100.0
"""More than this a GPU cannot do: such a figure is refused, in words, wherever it would be shown."""
MFU_REMEDY = (
    "check what work() is told: tokens, parameters or flops are of one step of this process, peak_flops of one GPU"
)
_MOST_CLAIMED_PCT = 1e6
_RUN = re.compile(f"[0-9a-f]{{1,{DIGITS}}}")


Phase = Literal["forward", "backward", "optimizer", "between"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "optimizer", "between")
"""The phases of a step, in the order of a step but for the time between two, which is last."""


class StepRow(Struct, frozen=True):
    """The steps of one process in about a second.

    ``pid`` is as this machine sees it. ``rank`` is the job's, ``gpu`` an index where the job knows it; both may be
    None. ``count`` steps took ``sum_s`` seconds together; the shortest, the longest, the median and the 99th
    percentile follow. The order of the fields up to here is that of the rows in a recording. ``samples`` is how many
    samples these steps had, ``wait_s`` how many of their seconds the process waited for others, ``data_wait_s`` for
    its own batches, ``tokens`` how many tokens they had, ``mfu_pct`` their model FLOPs utilisation in percent as the
    job works it out, which may be more than can be; each None where the job does not say. ``forward_s``,
    ``backward_s``, ``optimizer_s`` and ``between_s`` are the host time of a step by phase, in seconds: the mean of the
    steps that the job has looked at. ``run`` is the same for the ranks of one run alone (``model/run_identity.py``);
    None where an older gputop announced or recorded the steps.
    """

    pid: int
    rank: int | None
    gpu: int | None
    name: str
    count: int
    sum_s: float
    min_s: float
    max_s: float
    p50_s: float
    p99_s: float
    samples: float | None = None
    wait_s: float | None = None
    data_wait_s: float | None = None
    tokens: float | None = None
    mfu_pct: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    optimizer_s: float | None = None
    between_s: float | None = None
    run: str | None = None

    @property
    def phases(self) -> dict[Phase, float]:
        """Seconds of host time a step, by phase; without those that are not known."""
        seconds_of_phases = (self.forward_s, self.backward_s, self.optimizer_s, self.between_s)
        return {phase: seconds for phase, seconds in zip(PHASES, seconds_of_phases, strict=True) if seconds is not None}


PHASE_FIELDS = ("forward_s", "backward_s", "optimizer_s", "between_s")
BESIDE = ("samples", "wait_s", "data_wait_s", "tokens", "mfu_pct", *PHASE_FIELDS, "run")
COLUMNS = StepRow.__struct_fields__[: -len(BESIDE)]
"""The fields of a row in a recording; samples, waits, tokens and MFU stand beside the rows."""


def step_row(
    values: Sequence[object],
    samples: object = None,
    wait_s: object = None,
    data_wait_s: object = None,
    tokens: object = None,
    mfu_pct: object = None,
    forward_s: object = None,
    backward_s: object = None,
    optimizer_s: object = None,
    between_s: object = None,
    run: object = None,
) -> StepRow | None:
    """A row of these values, in the order of the fields, and what stands beside it; None where they cannot be true."""
    if len(values) != len(COLUMNS):
        return None
    pid, rank, gpu, name, count, *times = values
    if not (_is_whole(pid, 1) and _is_whole(count, 1, MOST_STEPS) and isinstance(name, str)):
        return None
    if not all(value is None or _is_whole(value, 0) for value in (rank, gpu)):
        return None
    if not all(map(is_number, times)):
        return None
    total, low, high, p50, p99 = (float(t) for t in times)  # type: ignore[arg-type]
    steps = float(count)  # type: ignore[arg-type]
    above, below = 1.0 + _LEEWAY, 1.0 - _LEEWAY
    if not (0.0 <= low <= high * above and high <= _MOST_S and low * below <= p50 <= high * above):
        return None
    if not (p50 * below <= p99 <= high * above and steps * low * below <= total <= steps * high * above):
        return None
    if not all(amount is None or _is_amount(amount) for amount in (samples, tokens, mfu_pct)):
        return None
    if mfu_pct is not None and mfu_pct > _MOST_CLAIMED_PCT:  # type: ignore[operator]
        return None
    for wait in (wait_s, data_wait_s):
        if wait is not None and not (is_number(wait) and 0.0 <= wait <= total * above):
            return None
    phases = (forward_s, backward_s, optimizer_s, between_s)
    for spent in phases:
        if spent is not None and not (is_number(spent) and 0.0 <= spent <= _MOST_S):
            return None
    if not (run is None or (isinstance(run, str) and _RUN.fullmatch(run))):
        return None
    label = masked_text(clean_text(name))[:MOST_NAME]
    return StepRow(
        pid, rank, gpu, label, count, total, low, high, p50, p99, samples, wait_s, data_wait_s,  # type: ignore[arg-type]
        tokens, mfu_pct, *phases, run,  # type: ignore[arg-type]
    )  # fmt: skip


def _is_amount(value: object) -> bool:
    return is_number(value) and 0.0 < value <= _MOST_SAMPLES


def _is_whole(value: object, least: int, limit: int = _MOST_ID) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < limit


# How fast the jobs of this machine step: the last minute of what each process announced. Pure; time enters with it.

WINDOW_S = 60.0
SILENT_S = 30.0
"""A job that has announced no step for so long, and for ten of its steps, is no longer stepping."""
SILENT_STEPS = 10.0
LEAST_ROWS = 4
"""With fewer announcements their spread says nothing."""
MOST_RANKS = 256
_MOST_ROWS = 256
_Z95 = 1.96


def phase_word(phase: Phase) -> str:
    """A phase in the words of the screen and of summaries."""
    return "between steps" if phase == "between" else phase


NO_PHASES: Mapping[Phase, float] = {}
_MOST_LOOKED_AT = 256
"""Rows with phases that are kept of a process; beyond that every second one is dropped."""


class PhaseGrowth(Struct, frozen=True):
    """The phase that grew most, from ``before_s`` to ``after_s`` seconds of host time a step."""

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
    """None where the job does not say how many samples a step has."""
    wait_s: float | None = None
    """The part of the mean step spent waiting for other ranks; None where the job does not say."""

    tokens_per_s: float | None = None
    """None where the job does not say how many tokens a step has."""
    mfu_pct: float | None = None
    """Model FLOPs utilisation as the job works it out; above 100 it cannot be, and is shown with that reason alone."""

    run: str = ""
    """The run whose rank it is."""

    phases: Mapping[Phase, float] = NO_PHASES
    """Seconds of host time a step, by phase, over the last minute; without those that the job does not say."""
    growth: PhaseGrowth | None = None
    """The phase that grew since the job was first heard, where a step now takes longer."""

    @property
    def steps_per_s(self) -> float:
        return 1.0 / self.mean_s

    @property
    def own_s(self) -> float | None:
        """The mean step without what it waited; None where that is unknown."""
        return None if self.wait_s is None else self.mean_s - self.wait_s


class PhaseSeries:
    """The phases of steps in order, at most ``most_steps`` of them: beyond that every second one is dropped, so that
    the whole run stays represented."""

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
    """Takes rows in order of time and gives the pace of each process."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, str], deque[tuple[float, StepRow]]] = {}
        self._looked_at: dict[tuple[int, str], PhaseSeries] = {}

    def looked_at(self, pace: StepPace) -> Sequence[Mapping[Phase, float]]:
        """The phases of this process since it was first heard, in order."""
        series = self._looked_at.get((pace.pid, pace.name))
        return () if series is None else series.steps

    def observe(self, t: float, rows: Iterable[StepRow]) -> None:
        """Add the rows of one snapshot; forget processes that have gone silent."""
        for row in rows:
            history = self._rows.get((row.pid, row.name))
            if history is None:
                if len(self._rows) >= MOST_RANKS:
                    continue
                history = self._rows[row.pid, row.name] = deque(maxlen=_MOST_ROWS)
            history.append((t, row))
            if row.phases:
                self._looked_at.setdefault((row.pid, row.name), PhaseSeries(_MOST_LOOKED_AT)).add(row.phases)
        for identity in [i for i, history in self._rows.items() if _is_silent(t, history)]:
            del self._rows[identity]
            self._looked_at.pop(identity, None)

    def paces(self, t: float) -> tuple[StepPace, ...]:
        """The pace of each process that is stepping, by rank and pid."""
        if not self._rows:
            return ()
        paces = [pace for history in self._rows.values() if (pace := _pace(t, history)) is not None]
        return tuple(sorted(paces, key=lambda p: (p.name, p.run, -1 if p.rank is None else p.rank, p.pid)))


def run_name(row: StepRow) -> str:
    """The run whose rank announced these steps; where that is not known, a run of this process alone."""
    return row.run or f"pid {row.pid}"


def slowest(paces: Sequence[StepPace]) -> StepPace | None:
    """The process whose steps take longest, without what they waited where each of them says it. Where all wait for
    each other and do not say so, their steps are equal: it is the first of them."""
    return max(paces, key=comparable_s(paces), default=None)


def comparable_s(paces: Sequence[StepPace]) -> Callable[[StepPace], float]:
    """What tells the processes of a job apart: a step's own time where all of them know it, else the whole step."""
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
    mfu = sum((row.mfu_pct or 0.0) * row.sum_s for row in claimed) / busy_s if busy_s > 0.0 else None
    late = max(row.p99_s for row in recent)
    waiting = [row for row in recent if row.wait_s is not None]
    wait = sum(row.wait_s or 0.0 for row in waiting) / sum(row.count for row in waiting) if waiting else None
    return StepPace(
        last.pid, last.rank, last.gpu, last.name, mean, error, late, steps, samples,
        None if wait is None else min(wait, mean), tokens, mfu, run_name(last),
        mean_phases([row.phases for row in recent]),
    )  # fmt: skip


def mean_phases(steps: Sequence[Mapping[Phase, float]]) -> dict[Phase, float]:
    """Their means, over the steps that have the phases of the newest one with any."""
    newest = next((step.keys() for step in reversed(steps) if step), None)
    alike = [step for step in steps if step and step.keys() == newest]
    return {phase: sum(step[phase] for step in alike) / len(alike) for phase in PHASES if alike and phase in alike[0]}


def _rate(rows: Sequence[StepRow], key: str) -> float | None:
    """Samples or tokens a second, over the rows that say them."""
    announced = [(amount, row.sum_s) for row in rows if (amount := getattr(row, key)) is not None]
    seconds = sum(seconds for _, seconds in announced)
    return sum(amount for amount, _ in announced) / seconds if seconds > 0.0 else None


# The length of a job's step as seen from outside: a value with its source. Checked here, found in the diagnosis.

PeriodSource = Literal["nvlink", "power", "tensor"]
SOURCES: tuple[PeriodSource, ...] = get_args(PeriodSource)
SOURCE_WORDS: Mapping[PeriodSource, str] = {"nvlink": "NVLink", "power": "power", "tensor": "tensor activity"}
MOST_PERIODS = 256
_MOST_GPUS = 256
_MOST_PERIOD_S, _MOST_T = 1e5, 1e11


class StepPeriod(Struct, frozen=True):
    """A step of about ``period_s`` seconds on the GPUs with these indices, as ``source`` shows it.

    ``first_s`` is the length that was found first; ``grown_t`` is when it had become longer by a tenth, Unix time, None
    while it has not.
    """

    gpus: tuple[int, ...]
    period_s: float
    source: PeriodSource
    first_s: float
    grown_t: float | None = None


def period_value(period: StepPeriod) -> dict[str, Any]:
    """A period as an object of a recording."""
    values = {"gpus": list(period.gpus), "period_s": round(period.period_s, 3), "source": period.source,
             "first_s": round(period.first_s, 3)}  # fmt: skip
    return values if period.grown_t is None else {**values, "grown_t": round(period.grown_t, 3)}


def step_period(recorded: object) -> StepPeriod | None:
    """A period of what a recording says; None where it cannot be true."""
    if not isinstance(recorded, dict) or recorded.get("source") not in SOURCES:
        return None
    gpus, grown = recorded.get("gpus"), recorded.get("grown_t")
    if not isinstance(gpus, list) or not 0 < len(gpus) <= _MOST_GPUS:
        return None
    if not all(isinstance(gpu, int) and not isinstance(gpu, bool) and 0 <= gpu < 2**31 for gpu in gpus):
        return None
    times = recorded.get("period_s"), recorded.get("first_s")
    if not all(_is_time(time, _MOST_PERIOD_S) for time in times) or not (grown is None or _is_time(grown, _MOST_T)):
        return None
    period_s, first_s = cast("tuple[float, float]", times)
    return StepPeriod(tuple(gpus), float(period_s), recorded["source"], float(first_s), grown)


def _is_time(value: object, limit: float) -> bool:
    return is_number(value) and 0.0 < value < limit
