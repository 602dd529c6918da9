"""What stands beside a trace: another one, from before a change, or a recording of the same time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.signals import WINDOW_S
from gputop.diagnosis.thresholds import SAME_STEP_PCT
from gputop.features.traces.host_causes import CAUSES
from gputop.features.traces.kernel_names import CATEGORIES
from gputop.features.traces.kernels import CATEGORY_WORDS
from gputop.features.traces.trace_document import LEAST_SHOWN, SHARE_WORDS, gpu_data, ms, worst
from gputop.features.traces.trace_ranks import TraceReport
from gputop.features.traces.trace_report import (
    CAUSE_WORDS,
    SHARES,
    Measures,
    RecordedGpu,
    RecordedWindow,
    TraceGpuReport,
)
from gputop.model.quantity import NOT_MEASURED, mean, number
from gputop.model.snapshot import Snapshot
from gputop.output.document import Document, Table, Verdict

# Two traces side by side: what a change did to a step, over the GPU to look at first in each.

TRACE_COMPARE_SCHEMA = 1
_KERNELS = 8


class MeasurePair(Struct, frozen=True):
    """One measure of both traces; None where it is unknown."""

    key: str
    label: str
    unit: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float | None:
        """After minus before."""
        return None if self.before is None or self.after is None else self.after - self.before


class TraceComparison(Struct, frozen=True):
    """The GPUs that are compared, and every measure that differs or matters.

    ``change_pct`` is by how much a step takes longer (negative: shorter); None where one of them has no steps.
    """

    before: TraceGpuReport
    after: TraceGpuReport
    names: tuple[str, str]
    rows: tuple[MeasurePair, ...]
    change_pct: float | None

    @property
    def headline(self) -> str:
        """Slower or faster, by how much; or why that cannot be said."""
        step = self.rows[0]
        if self.change_pct is None or step.before is None or step.after is None:
            return "cannot be judged: only steps can be compared, and one has none (profiler.step(), or --step NAME)"
        word = "slower" if self.change_pct > 0 else "faster"
        word = "about the same" if abs(self.change_pct) < SAME_STEP_PCT else word
        change = f"{self.change_pct:+.0f}".replace("-", "−")
        return f"{word}: {ms(step.before)} → {ms(step.after)} ms a step ({change} %)"

    @property
    def gpus(self) -> str | None:
        """The two GPUs where they are not of the same kind, which may be all of the difference."""
        names = [gpu.measures.name or "unknown" for gpu in (self.before, self.after)]
        return f"different GPUs: {names[0]} → {names[1]}" if names[0] != names[1] else None


def compare_traces(before: TraceReport, after: TraceReport) -> TraceComparison:
    """Compare the worst GPU of each. A step's time where both have steps, else shares only."""
    ranks = worst(before), worst(after)
    first, second = (max(rank.gpus, key=lambda gpu: gpu.measures.share_pct["idle"]) for rank in ranks)
    a, b = first.measures, second.measures
    was, now = (m.step_median_ms if m.named_steps else None for m in (a, b))
    rows = [
        MeasurePair("step_ms.median", "step, median", "ms", was, now),
        MeasurePair("util", "UTIL", "%", a.util_pct, b.util_pct),
    ]
    if a.sm_active_pct is not None and b.sm_active_pct is not None:
        rows.append(MeasurePair("sm_active_pct", "SM", "%", a.sm_active_pct, b.sm_active_pct))
    else:
        rows.append(MeasurePair("sm_high_pct", "SM ≤", "%", a.sm_high_pct, b.sm_high_pct))
    rows += [MeasurePair(f"share.{s}", SHARE_WORDS[s], "%", a.share_pct[s], b.share_pct[s]) for s in SHARES]
    causes = {cause: (a.idle_cause_pct[cause], b.idle_cause_pct[cause]) for cause in CAUSES}
    rows += [
        MeasurePair(f"idle.{cause}", f"idle: {CAUSE_WORDS[cause]}", "%", *shares)
        for cause, shares in causes.items()
        if max(shares) >= LEAST_SHOWN
    ]
    rows += _time_rows(a, b) if a.named_steps and b.named_steps else []
    change = None if not was or now is None else 100.0 * (now / was - 1.0)
    return TraceComparison(first, second, (ranks[0].path, ranks[1].path), tuple(rows), change)


def _time_rows(a: Measures, b: Measures) -> list[MeasurePair]:
    """Each category's time in a step, and that of the kernels that changed most."""
    categories = [{row.category: _step_ms(m, row.share_pct) for row in m.categories} for m in (a, b)]
    kernels = [{row.name: _step_ms(m, row.share_pct) for row in m.kernels} for m in (a, b)]
    changed = sorted(
        {*kernels[0], *kernels[1]}, key=lambda name: -abs(kernels[1].get(name, 0) - kernels[0].get(name, 0))
    )
    rows = [("category", name, CATEGORY_WORDS[name], categories) for name in CATEGORIES]
    rows += [("kernel", name, name, kernels) for name in changed[:_KERNELS]]
    return [
        MeasurePair(f"{kind}.{name}", label, "ms", times[0].get(name, 0.0), times[1].get(name, 0.0))
        for kind, name, label, times in rows
        if name in times[0] or name in times[1]
    ]


def _step_ms(m: Measures, share_pct: float) -> float:
    return share_pct / 100.0 * m.window_ms / m.steps


def comparison_document(comparison: TraceComparison) -> Document:
    """What the second trace does otherwise, the result first."""
    gpus = [comparison.gpus] if comparison.gpus else []
    both = zip(("before", "after"), comparison.names, (comparison.before, comparison.after), strict=True)
    verdicts = [Verdict(gpu.verdict.level, f"{when}: {gpu.verdict.headline}", name) for when, name, gpu in both]
    rows = tuple(
        (row.label, number(row.before, decimals=1), number(row.after, decimals=1), _change(row), row.unit)
        for row in comparison.rows
    )
    table = Table(("", "before", "after", "change", ""), rows, "~>>><")
    return Document(comparison.headline, (*verdicts, table), (comparison.headline, *gpus))


def _change(row: MeasurePair) -> str:
    return NOT_MEASURED if row.change is None else f"{row.change:+.1f}".replace("-", "−")


def comparison_data(comparison: TraceComparison) -> dict[str, Any]:
    """As a JSON object."""
    return {
        "schema": TRACE_COMPARE_SCHEMA,
        "kind": "trace_comparison",
        "files": list(comparison.names),
        "change_pct": None if comparison.change_pct is None else round(comparison.change_pct, 3),
        "headline": comparison.headline,
        "different_gpus": comparison.gpus is not None,
        "before": gpu_data(comparison.before),
        "after": gpu_data(comparison.after),
        "differences": [
            {key: getattr(row, key) for key in ("key", "unit", "before", "after", "change")} for row in comparison.rows
        ],
    }


# What a recording says of the time that a trace covers: the screen's numbers and verdict beside the profiler's.


def recorded_window(snapshots: Iterable[Snapshot], begin: float | None, end: float | None) -> RecordedWindow:
    """The part of a recording between two Unix times, as the screen showed it."""
    if begin is None or end is None:
        return RecordedWindow("the trace does not say at what time of day it began")
    diagnoser: Diagnoser | None = None
    inside: list[Snapshot] = []
    where = "apart from"
    for snapshot in snapshots:
        if snapshot.t > end + snapshot.interval_s:
            where = "after"
            break
        where = "before" if snapshot.t < begin else where
        if snapshot.t >= begin - WINDOW_S:
            diagnoser = diagnoser or Diagnoser(snapshot.interval_s)
            diagnoser.take(snapshot)
            if snapshot.t >= begin and diagnoser.believed is not None:
                inside.append(diagnoser.believed)
    if diagnoser is None or not inside:
        return RecordedWindow(f"it holds nothing of the trace's time: the recording lies {where} it")
    gpus = []
    for position, found in enumerate(diagnoser.diagnoses()):
        samples = [snapshot.gpus[position] for snapshot in inside if position < len(snapshot.gpus)]
        util, sm = mean(gpu.util_pct for gpu in samples), mean(gpu.sm_active_pct for gpu in samples)
        gpus.append(RecordedGpu(found.index, util, sm, found.verdict, found.title))
    return RecordedWindow(None, len(inside), end - begin, tuple(gpus))
