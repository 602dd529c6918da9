"""Several runs in one table, with the best and the worst of each measure marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from gputop.diagnosis.thresholds import SAME_POINTS, SAME_RATIO
from gputop.diagnosis.verdict.catalogue import titles
from gputop.model.durations import energy_words, gpu_time, length, per_second
from gputop.model.quantity import NOT_MEASURED, gib, kinds, known, share
from gputop.output.comparison import compare, more_waste, slower_pct
from gputop.output.document import Cell, Document, Items, LevelText, Table, Verdict, indented_json
from gputop.report.job_report import JobReport
from gputop.report.time_account import WORKED

SCHEMA = 1
_LEAST_CAUSE = 0.01
"""Smallest wasted share that has a place in a row's remark [judged]."""


class RunRow(Struct, frozen=True):
    """One run: its label and its report, with the steps of the compared run alone."""

    label: str
    report: JobReport

    @property
    def working(self) -> float | None:
        """Share of the judged time that worked, 0 to 1."""
        time = self.report.time
        if time.judged_s <= 0.0:
            return None
        worked = [row.of_judged for row in time.rows() if row.key == WORKED]
        return sum(known(worked))

    @property
    def wasted(self) -> float | None:
        """Share of the judged time that was wasted, 0 to 1."""
        return self.report.time.lost_share

    @property
    def steps_per_s(self) -> float | None:
        """Announced steps in a second."""
        return self.report.steps[0].steps_per_s if self.report.steps else None

    @property
    def energy_kwh(self) -> float | None:
        """Energy of all GPUs; None where one was not measured."""
        values = [gpu.energy_kwh for gpu in self.report.counted]
        measured = known(values)
        return sum(measured) if measured and len(measured) == len(values) else None

    @property
    def memory_peak_bytes(self) -> float | None:
        """Highest memory that was held on one GPU."""
        return max(known(gpu.memory_peak_bytes for gpu in self.report.gpus), default=None)

    @property
    def causes(self) -> dict[str, float]:
        """Wasted shares of the judged time by verdict, the largest first."""
        time = self.report.time
        if time.judged_s <= 0.0:
            return {}
        return {verdict: wasted_s / time.judged_s for verdict, wasted_s in time.lost.items()}


class _Measure(Struct, frozen=True):
    """A measure that has a best and a worst run.

    More of it is better for ``sign`` 1, worse for -1. Runs are alike up to ``difference``, a ratio if ``is_ratio``.
    """

    key: str
    sign: int
    difference: float
    is_ratio: bool
    read: Callable[[RunRow], float | None]


_MEASURES = (
    _Measure("steps_per_s", 1, SAME_RATIO, True, lambda run: run.steps_per_s),
    _Measure("working_share", 1, SAME_POINTS / 100.0, False, lambda run: run.working),
    _Measure("wasted_share", -1, SAME_POINTS / 100.0, False, lambda run: run.wasted),
)
"""Most telling first. Energy and memory are not judged: runs differ in length and in work."""


class Extremes(Struct, frozen=True):
    """Indices of the best and the worst runs of a measure."""

    best: int
    worst: int


def extremes(runs: Sequence[RunRow]) -> dict[str, Extremes]:
    """Best and worst run of each measure.

    A measure is left out where fewer than two runs have it, or all are alike.
    """
    found = {}
    for measure in _MEASURES:
        values = {i: measure.read(run) for i, run in enumerate(runs)}
        scores = {i: measure.sign * value for i, value in values.items() if value is not None}
        if len(scores) < 2:
            continue
        best, worst = max(scores, key=scores.__getitem__), min(scores, key=scores.__getitem__)
        apart = scores[best] - scores[worst]
        scale = max(abs(score) for score in scores.values()) if measure.is_ratio else 1.0
        if apart >= measure.difference * scale and apart > 0.0:
            found[measure.key] = Extremes(best, worst)
    return found


def first_line(runs: Sequence[RunRow]) -> str:
    """The best and the worst run by the most telling measure."""
    found = extremes(runs)
    for measure in _MEASURES:
        ends = found.get(measure.key)
        if ends is None:
            continue
        best, worst = runs[ends.best], runs[ends.worst]
        return (
            f"best: {best.label} ({_value_words(measure, best)}), worst: {worst.label} "
            f"({_value_words(measure, worst)})"
        )
    return f"{len(runs)} runs, none clearly better than another"


def _value_words(measure: _Measure, run: RunRow) -> str:
    value = measure.read(run)
    if value is None:
        return NOT_MEASURED
    if measure.key == "steps_per_s":
        return f"{per_second(value)} steps/s"
    word = measure.key.partition("_")[0]
    return f"{share(value)} {word}"


_HEAD = ("RUN", "GPU TIME", "WORKING", "WASTED", "STEPS/S", "ENERGY", "MEM PEAK")


def run_table_document(runs: Sequence[RunRow]) -> Document:
    """The table of several runs, with its result first."""
    found = extremes(runs)
    rows = tuple(_row(i, run, found) for i, run in enumerate(runs))
    below = tuple(_remark(run) for run in runs)
    table = Table(_HEAD, rows, "~" + ">" * (len(_HEAD) - 1), below)
    title = first_line(runs)
    warning = [Verdict("yellow", text) for text in _warnings(runs)]
    shown = Items(("shares are of the judged GPU time; best and worst are marked",))
    return Document(title, (*warning, table, shown), (title,))


def _warnings(runs: Sequence[RunRow]) -> list[str]:
    """Reasons why differences are not those of one job alone."""
    warnings = []
    if len({_gpus(run) for run in runs}) > 1:
        warnings.append("the runs had different GPUs")
    jobs = {run.report.steps[0].name for run in runs if run.report.steps}
    if len(jobs) > 1:
        warnings.append(f"different jobs: {', '.join(sorted(jobs))}; their steps are not alike")
    return warnings


def _row(index: int, run: RunRow, found: dict[str, Extremes]) -> tuple[Cell, ...]:
    energy, steps = run.energy_kwh, run.steps_per_s
    peak = run.memory_peak_bytes
    return (
        run.label,
        gpu_time(run.report.time.all_s),
        _marked("working_share", index, share(run.working), found),
        _marked("wasted_share", index, share(run.wasted), found),
        _marked("steps_per_s", index, "" if steps is None else per_second(steps), found),
        NOT_MEASURED if energy is None else energy_words(energy),
        NOT_MEASURED if peak is None else f"{gib(peak)} GiB",
    )


def _marked(key: str, index: int, text: str, found: dict[str, Extremes]) -> Cell:
    """A cell, marked in words and colour where it is the best or the worst."""
    ends = found.get(key)
    if ends is None:
        return text
    if index == ends.best:
        return LevelText("green", f"{text} best")
    return LevelText("red", f"{text} worst") if index == ends.worst else text


def _gpus(run: RunRow) -> str:
    return kinds(sorted(gpu.name for gpu in run.report.gpus)) or "no GPU"


def _remark(run: RunRow) -> str:
    """Length, GPUs and causes of waste."""
    parts = [f"{length(run.report.duration_s)} on {_gpus(run)}"]
    causes = [
        f"{titles()[verdict]} {share(wasted)}"
        for verdict, wasted in run.causes.items()
        if wasted >= _LEAST_CAUSE
    ]
    if causes:
        parts.append(f"wasted: {', '.join(causes)}")
    if run.report.too_short:
        parts.append(run.report.too_short)
    return "; ".join(parts)


def run_table_json(runs: Sequence[RunRow]) -> str:
    """The table as one JSON object, schema 1."""
    first = runs[0].report
    data = {
        "schema": SCHEMA,
        "headline": first_line(runs),
        "runs": [_run_data(run, first) for run in runs],
        "extremes": to_builtins(extremes(runs)),
    }
    return indented_json(data)


def _run_data(run: RunRow, first: JobReport) -> dict[str, Any]:
    comparison = compare(first, run.report)
    return {
        "run": run.label,
        "host": run.report.host,
        "begin": run.report.begin,
        "duration_s": run.report.duration_s,
        "gpus": [gpu.name for gpu in run.report.gpus],
        "gpu_time_s": run.report.time.all_s,
        "judged_s": run.report.time.judged_s,
        "working_share": run.working,
        "wasted_share": run.wasted,
        "wasted_by_cause": run.causes,
        "steps_per_s": run.steps_per_s,
        "energy_kwh": run.energy_kwh,
        "memory_peak_bytes": run.memory_peak_bytes,
        "slower_than_first_pct": slower_pct(comparison),
        "more_waste_than_first_points": more_waste(comparison),
    }
