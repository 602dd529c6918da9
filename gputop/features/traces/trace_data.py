"""A trace's report as data: the dictionary behind ``gputop trace --json``, schema 1. Absent is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, to_builtins

from gputop.diagnosis.thresholds import SAME_STEP_PCT
from gputop.diagnosis.types import full_title
from gputop.features.traces.categories import CATEGORY_WORDS
from gputop.features.traces.kernel_names import CATEGORIES
from gputop.features.traces.recorded_window import RecordedWindow
from gputop.features.traces.timeline import CAUSES
from gputop.features.traces.trace_document import LEAST_SHOWN, SHARE_WORDS, ms, worst
from gputop.features.traces.trace_ranks import TraceReport
from gputop.features.traces.trace_report import CAUSE_WORDS, SHARES, Measures, RankReport, TraceGpuReport, phases
from gputop.model.quantity import NOT_MEASURED, number, rounded
from gputop.output.document import Document, Table, Verdict

TRACE_DATA_SCHEMA = 1


_DIGITS = 3
_MEASURES = (
    "index", "name", "sm_count", "begin", "end", "window_ms", "steps", "step_ms", "share_pct", "comm_pct",
    "overlap_pct", "idle_cause_pct", "under", "util_pct", "sm_active_pct", "sm_high_pct", "sm_source", "occupancy_pct",
    "queue_empty_pct", "launch_delay_us", "median_kernel_us",
)  # fmt: skip
"""In the order of the object; what follows is the verdict, and then ``_ROWS``."""
_ROWS = (
    "range_hint", "phases", "at_work", "once", "page_faults", "steps_table", "kernels", "categories", "collectives",
    "stream_waits", "syncs",
)  # fmt: skip
_NAMES = {
    "steps_table": {"name": "step"},
    "collectives": {"bus_median": "bus_median_bytes_per_s", "bus_best": "bus_best_bytes_per_s"},
    "stream_waits": {"call": "launch"},
    "page_faults": {"faults_ms": "handling_ms"},
}
"""Keys that are called otherwise than their fields."""


def trace_data(report: TraceReport, recordings: Sequence[RecordedWindow] = ()) -> dict[str, Any]:
    """The JSON object of one report."""
    data: dict[str, Any] = {
        "schema": TRACE_DATA_SCHEMA,
        "kind": "trace",
        "files": [rank.path for rank in report.ranks],
        "truncated": any(rank.truncated for rank in report.ranks),
        "dropped_events": sum(rank.dropped_events for rank in report.ranks),
        "ranks": [_rank(rank) for rank in report.ranks],
        "straggler": rounded(to_builtins(report.straggler), _DIGITS),
        "notes": list(report.notes),
    }
    if recordings:
        data["recordings"] = [_recorded_data(recorded) for recorded in recordings]
    return data


def _rank(rank: RankReport) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "rank_from": rank.rank_from,
        "world_size": rank.world_size,
        "file": rank.path,
        "truncated": rank.truncated,
        "dropped_events": rank.dropped_events,
        "notes": list(rank.notes),
        "gpus": [gpu_data(gpu) for gpu in rank.gpus],
    }


def gpu_data(gpu: TraceGpuReport) -> dict[str, Any]:
    """One GPU: its numbers and its verdict."""
    m, verdict = gpu.measures, gpu.verdict
    values: dict[str, Any] = to_builtins(m)
    for key, names in _NAMES.items():
        rows = values[key]
        if isinstance(rows, dict):
            values[key] = _renamed(rows, names)
        elif rows is not None:
            values[key] = [_renamed(row, names) for row in rows]
    for row in values["steps_table"]:
        row.update(flag=row["flag"] or None, phase=row["phase"] or None)
    for row in values["collectives"]:
        row["ranks"] = row["ranks"] if row["ranks"] > 0 else None
    values |= {
        "begin": None,
        "end": None,
        "steps": m.steps if m.named_steps else 0,
        "step_ms": {"median": m.step_median_ms, "p95": m.step_p95_ms} if m.named_steps else None,
        "queue_empty_pct": None if m.queue is None else m.queue.empty_pct,
        "launch_delay_us": None if m.queue is None else m.queue.delay_us,
        "phases": [{"phase": phase, "iterations": many, "median_ms": middle} for phase, many, middle in phases(m)],
    }
    told = {
        "verdict": verdict.id,
        "title": full_title(verdict.title, verdict.flag),
        "level": verdict.level,
        "cause": verdict.cause,
        "busy_not_working": verdict.flag,
        "headline": verdict.headline,
        "confidence": verdict.confidence,
        "evidence": list(verdict.evidence),
        "remedy": verdict.remedy,
        "notes": list(verdict.notes),
        "best_case_step_ms": gpu.best_case_step_ms,
    }
    chosen = {key: values[key] for key in _MEASURES} | told | {key: values[key] for key in _ROWS}
    data: dict[str, Any] = rounded(chosen, _DIGITS)
    # A moment keeps all its digits.
    data["begin"], data["end"] = m.begin_unix_s, m.end_unix_s
    return data


def _renamed(row: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in row.items()}


def _recorded_data(recorded: RecordedWindow) -> dict[str, Any]:
    gpus = [{key: value for key, value in to_builtins(gpu).items() if key != "title"} for gpu in recorded.gpus]
    return {
        "reason": recorded.reason,
        "samples": recorded.samples,
        "seconds": round(recorded.seconds, _DIGITS),
        "gpus": rounded(gpus, _DIGITS),
    }


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
    rows = [
        MeasurePair("step_ms.median", "step, median", "ms", _step(a), _step(b)),
        MeasurePair("util", "UTIL", "%", a.util_pct, b.util_pct),
    ]
    if a.sm_active_pct is not None and b.sm_active_pct is not None:
        rows.append(MeasurePair("sm_active_pct", "SM", "%", a.sm_active_pct, b.sm_active_pct))
    else:
        rows.append(MeasurePair("sm_high_pct", "SM ≤", "%", a.sm_high_pct, b.sm_high_pct))
    rows += [MeasurePair(f"share.{s}", SHARE_WORDS[s], "%", a.share_pct[s], b.share_pct[s]) for s in SHARES]
    rows += [
        MeasurePair(
            f"idle.{cause}", f"idle: {CAUSE_WORDS[cause]}", "%", a.idle_cause_pct[cause], b.idle_cause_pct[cause]
        )
        for cause in CAUSES
        if max(a.idle_cause_pct[cause], b.idle_cause_pct[cause]) >= LEAST_SHOWN
    ]
    rows += _time_rows(a, b)
    was, now = rows[0].before, rows[0].after
    change = None if not was or now is None else 100.0 * (now / was - 1.0)
    return TraceComparison(first, second, (ranks[0].path, ranks[1].path), tuple(rows), change)


def _step(m: Measures) -> float | None:
    return m.step_median_ms if m.named_steps else None


def _time_rows(a: Measures, b: Measures) -> list[MeasurePair]:
    """Each category's time in a step, and that of the kernels that changed most; nothing without steps in both."""
    if not (a.named_steps and b.named_steps):
        return []
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
        (row.label, number(row.before, 1), number(row.after, 1), _change(row), row.unit) for row in comparison.rows
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
