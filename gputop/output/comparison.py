"""Compare two reports: differences and their direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.thresholds import CLEAR_POINTS, SAME_POINTS, SAME_RATIO
from gputop.diagnosis.types import NOT_WORK, STATE_WORDS, STATES, Level, State
from gputop.model.durations import duration
from gputop.model.quantity import GIB, clamp_pct
from gputop.model.steps import MOST_MFU_PCT
from gputop.report.gpu_account import GpuReport, mean_of
from gputop.report.job_report import JobReport
from gputop.report.run_choice import with_steps_of

SCHEMA = 1
LEVELS: dict[str, Level] = {"better": "green", "worse": "red"}
Direction = Literal["better", "worse", "same", "changed", "unknown"]
Pair = tuple[float, float]
"""Of before and after."""


def _moved(change: float, least: float, sign: int) -> Direction:
    """Direction of a change.

    More is better for ``sign`` 1, worse for -1 and neither for 0; a change below ``least`` is none.
    """
    if abs(change) < least:
        return "same"
    return "changed" if sign == 0 else "better" if change * sign > 0.0 else "worse"


class Difference(Struct, frozen=True):
    """One measure before and after.

    ``unit`` is ``%``, compared in points, or a unit, compared in ratio.
    """

    key: str
    label: str
    unit: str
    earlier: float | None
    later: float | None
    direction: Direction

    @property
    def change(self) -> float | None:
        """After minus before, in the unit."""
        return None if self.earlier is None or self.later is None else self.later - self.earlier


class Comparison(Struct, frozen=True):
    """Every measure of two reports, with gone and new findings."""

    earlier: JobReport
    later: JobReport
    differences: tuple[Difference, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def step_s(self) -> Pair | None:
        """Seconds a step before and after; None where one is unknown.

        Announced by both jobs, else seen in the rhythm of their GPUs.
        """
        before, after = self.earlier, self.later
        if before.steps and after.steps:
            return before.steps[0].mean_s, after.steps[0].mean_s
        if before.periods and after.periods and not before.steps and not after.steps:
            return before.periods[0].period_s, after.periods[0].period_s
        return None

    @property
    def lost_pct(self) -> Pair | None:
        """Wasted share of the judged time in percent, before and after.

        None where nothing was judged in one of them.
        """
        was, now = self.earlier.time.lost_share, self.later.time.lost_share
        return None if was is None or now is None else (100.0 * was, 100.0 * now)

    @property
    def direction(self) -> Direction:
        """Direction of the step time, else of the wasted GPU time."""
        return (
            _moved(self.step_s[1] / self.step_s[0] - 1.0, SAME_RATIO, -1)
            if self.step_s
            else self.lost_direction
        )

    @property
    def lost_direction(self) -> Direction:
        """Direction of the wasted GPU time."""
        return (
            _moved(self.lost_pct[1] - self.lost_pct[0], SAME_POINTS, -1)
            if self.lost_pct
            else "unknown"
        )


def compare(before: JobReport, after: JobReport) -> Comparison:
    """Compare two reports over all GPUs of each.

    Shares, not seconds: the two may differ in length. Of several runs in a recording, the steps of the run that the
    recording is of are compared.
    """
    before, after = (with_steps_of(report, report.own_steps) for report in (before, after))
    values = {measure.key: (measure.read(before), measure.read(after)) for measure in _MEASURES}
    was_work, now_work = values["work_pct"]
    # Where SM is known, util is not a goal: it also rises where a GPU only looks busier.
    # As SM is none where the pipes or the memory are driven clearly otherwise: warps may be resident and wait.
    no_goals = [] if None in values["sm_pct"] else ["util_pct"]
    if was_work is not None and now_work is not None and abs(now_work - was_work) >= CLEAR_POINTS:
        no_goals += ["sm_pct", "efficiency_pct"]
    differences = tuple(
        _difference(measure, *values[measure.key], 0 if measure.key in no_goals else measure.sign)
        for measure in _MEASURES
    )
    was, now = _finding_names(before), _finding_names(after)
    gone = tuple(text for name, text in was.items() if name not in now)
    return Comparison(
        before,
        after,
        differences,
        gone,
        tuple(text for name, text in now.items() if name not in was),
    )


class _Measure(Struct, frozen=True):
    """A compared measure.

    More of it is better for ``sign`` 1, worse for -1 and neither for 0.
    """

    key: str
    label: str
    unit: str
    sign: int
    read: Callable[[JobReport], float | None]


def _share(state: State) -> _Measure:
    """Share of a state in the judged GPU time.

    Time that was not judged has its share of all measured time.
    """

    def read(report: JobReport) -> float | None:
        time = report.time
        total = time.all_s if state == "unmeasured" else time.judged_s
        return 100.0 * time.states[state] / total if total > 0.0 else None

    sign = 1 if state == "working" else -1 if state in NOT_WORK else 0
    return _Measure(f"share.{state}", STATE_WORDS[state], "%", sign, read)


def _mean(key: str, label: str, unit: str, sign: int, divisor: float = 1.0) -> _Measure:
    """Mean of the GPUs that have the value."""

    def of_gpu(gpu: GpuReport) -> float | None:
        value: float | None = getattr(gpu, key)
        return None if value is None else value / divisor

    return _Measure(key, label, unit, sign, lambda report: mean_of(report.gpus, of_gpu))


def _of_steps(key: str, label: str, unit: str) -> _Measure:
    """A step figure of the compared run.

    A utilisation above 100 % is wrong and left out.
    """

    def read(report: JobReport) -> float | None:
        value: float | None = getattr(report.steps[0], key) if report.steps else None
        return None if key == "mfu_pct" and value is not None and value > MOST_MFU_PCT else value

    return _Measure(key, label, unit, 1, read)


def _of_server(key: str, label: str, unit: str, sign: int) -> _Measure:
    """A figure of the only server; None for several."""

    def read(report: JobReport) -> float | None:
        return getattr(report.servers[0], key) if len(report.servers) == 1 else None

    return _Measure(f"server_{key}", label, unit, sign, read)


_MEASURES = (
    *map(_share, STATES),
    _mean("util_pct", "util", "%", 1),
    _mean("sm_pct", "SM", "%", 1),
    _mean("work_pct", "work", "%", 1),
    _mean("efficiency_pct", "efficiency", "%", 1),
    _mean("memory_peak_bytes", "memory peak", "GiB", 0, GIB),
    _mean("power_w", "power", "W", 0),
    _of_steps("steps_per_s", "steps", "1/s"),
    _of_steps("samples_per_s", "samples", "1/s"),
    _of_steps("tokens_per_s", "tokens", "1/s"),
    _of_steps("mfu_pct", "MFU", "%"),
    # A server is asked as much as its clients ask: requests are no merit of it, waiting is its fault.
    _of_server("requests_per_s", "served requests", "1/s", 0),
    _of_server("tokens_per_s", "served tokens", "1/s", 0),
    _of_server("queue", "server's queue", "", -1),
)


def _difference(
    measure: _Measure, before: float | None, after: float | None, sign: int
) -> Difference:
    # As they are shown: two counters read in a burst may give more than 100.
    was, now = (clamp_pct(value) if measure.unit == "%" else value for value in (before, after))
    direction: Direction = "unknown"
    if was is not None and now is not None:
        least = SAME_POINTS if measure.unit == "%" else SAME_RATIO * max(abs(was), abs(now), 1e-9)
        direction = _moved(now - was, least, sign)
    return Difference(measure.key, measure.label, measure.unit, before, after, direction)


def _finding_names(report: JobReport) -> dict[str, str]:
    """Alarms and warnings by id, with the words of the longest."""
    names: dict[str, str] = {}
    for finding in report.findings:
        if finding.level in ("red", "yellow"):
            names.setdefault(
                finding.id, f"{finding.text} ({duration(finding.seconds)} on GPU {finding.gpu})"
            )
    return names


def slower_pct(comparison: Comparison) -> float | None:
    """Increase of the step time in percent; None without steps."""
    steps = comparison.step_s
    return None if steps is None else 100.0 * (steps[1] / steps[0] - 1.0)


def more_waste(comparison: Comparison) -> float | None:
    """Increase of the wasted share in points; None without judged time."""
    lost = comparison.lost_pct
    return None if lost is None else lost[1] - lost[0]
