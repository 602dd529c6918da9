"""Compares a trace with another one."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gputop.diagnosis.thresholds import SAME_STEP_PCT
from gputop.features.traces.host_causes import CAUSES
from gputop.features.traces.kernel_names import CATEGORIES
from gputop.features.traces.kernels import CATEGORY_WORDS
from gputop.features.traces.trace_data import gpu_data
from gputop.features.traces.trace_document import LEAST_SHOWN, SHARE_WORDS
from gputop.features.traces.trace_ranks import TraceReport
from gputop.features.traces.trace_report import (
    CAUSE_WORDS,
    SHARES,
    Measures,
    RankReport,
    TraceGpuReport,
)
from gputop.features.traces.trace_tables import ms
from gputop.model.quantity import NOT_MEASURED, number
from gputop.output.document import Document, Table, Verdict

TRACE_COMPARE_SCHEMA = 1
_KERNELS = 8


class MeasurePair(Struct, frozen=True):
    """One measure of both traces; None where it is unknown."""

    key: str
    label: str
    unit: str
    first: float | None
    second: float | None

    @property
    def change(self) -> float | None:
        """Second minus first."""
        return None if self.first is None or self.second is None else self.second - self.first


class TraceComparison(Struct, frozen=True):
    """The GPUs that are compared, and every measure that differs or matters.

    ``change_pct`` is by how much a step takes longer (negative: shorter); None unless both have steps. ``gpu`` is the
    rank and GPU compared, of ``pairs`` that are in both.
    """

    first: TraceGpuReport
    second: TraceGpuReport
    names: tuple[str, str]
    rows: tuple[MeasurePair, ...]
    change_pct: float | None
    gpu: str
    pairs: int

    @property
    def headline(self) -> str:
        """Slower or faster, by how much; or why that cannot be said."""
        step = self.rows[0]
        if self.change_pct is None or step.first is None or step.second is None:
            who = "both have" if step.first is None and step.second is None else "one has"
            return (
                f"cannot be judged: only steps can be compared, and {who} none (profiler.step(), "
                "or --step NAME)"
            )
        word = "slower" if self.change_pct > 0 else "faster"
        word = "about the same" if abs(self.change_pct) < SAME_STEP_PCT else word
        return (
            f"{word}: {ms(step.first)} → {ms(step.second)} ms a step "
            f"({_signed(self.change_pct, 0)} %)"
        )

    @property
    def gpus(self) -> str | None:
        """Names of the two GPUs if they differ.

        That may be all of the difference.
        """
        names = [gpu.measures.name or "unknown" for gpu in (self.first, self.second)]
        return f"different GPUs: {names[0]} → {names[1]}" if names[0] != names[1] else None


def compare_traces(before: TraceReport, after: TraceReport) -> TraceComparison:
    """Compare the same GPU of the same rank.

    Of several it is the one that changed most.

    A step's time is compared where both have steps, else shares only.
    """
    pairs = _pairs(before, after)
    first, second = max(pairs, key=lambda pair: _change(*(gpu.measures for _, gpu in pair)))
    names = (first[0].path, second[0].path)
    where = tuple(_gpu_words(rank, gpu.measures.index) for rank, gpu in (first, second))
    return _compared(
        first[1],
        second[1],
        names,
        where[0] if where[0] == where[1] else " → ".join(where),
        len(pairs),
    )


_RankGpu = tuple[RankReport, TraceGpuReport]


def _pairs(before: TraceReport, after: TraceReport) -> list[tuple[_RankGpu, _RankGpu]]:
    """GPUs that are in both, by rank and number.

    Without any, all in the order of the files.
    """
    rows = [
        [(rank, gpu) for rank in report.ranks for gpu in rank.gpus] for report in (before, after)
    ]
    by_key = [{(rank.rank, gpu.measures.index): (rank, gpu) for rank, gpu in side} for side in rows]
    same = [(by_key[0][key], by_key[1][key]) for key in by_key[0] if key in by_key[1]]
    return same or list(zip(*rows, strict=False))


def _change(a: Measures, b: Measures) -> float:
    """How much two GPUs differ: by the length of a step, else by UTIL."""
    if a.named_steps and b.named_steps and a.step_median_ms > 0:
        return 1000.0 + abs(b.step_median_ms / a.step_median_ms - 1.0)
    return abs(b.util_pct - a.util_pct)


def _gpu_words(rank: RankReport, index: int) -> str:
    return f"GPU {index}" if rank.rank is None else f"rank {rank.rank}, GPU {index}"


def _compared(
    first: TraceGpuReport, second: TraceGpuReport, names: tuple[str, str], gpu: str, pairs: int
) -> TraceComparison:
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
    rows += [
        MeasurePair(f"share.{s}", SHARE_WORDS[s], "%", a.share_pct[s], b.share_pct[s])
        for s in SHARES
    ]
    causes = {cause: (a.idle_cause_pct[cause], b.idle_cause_pct[cause]) for cause in CAUSES}
    rows += [
        MeasurePair(f"idle.{cause}", f"idle: {CAUSE_WORDS[cause]}", "%", *shares)
        for cause, shares in causes.items()
        if max(shares) >= LEAST_SHOWN
    ]
    rows += _time_rows(a, b) if a.named_steps and b.named_steps else []
    change = None if not was or now is None else 100.0 * (now / was - 1.0)
    return TraceComparison(first, second, names, tuple(rows), change, gpu, pairs)


def _time_rows(a: Measures, b: Measures) -> list[MeasurePair]:
    """Each category's time in a step, and the most changed kernels'."""
    categories = [
        {row.category: _step_ms(m, row.share_pct) for row in m.categories} for m in (a, b)
    ]
    kernels = [{row.name: _step_ms(m, row.share_pct) for row in m.kernels} for m in (a, b)]
    changed = sorted(
        {*kernels[0], *kernels[1]},
        key=lambda name: -abs(kernels[1].get(name, 0) - kernels[0].get(name, 0)),
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
    """The comparison as a document, the result first."""
    of_several = f", which changed most of {comparison.pairs}" if comparison.pairs > 1 else ""
    gpus = [
        f"compared: {comparison.gpu}{of_several}",
        *([comparison.gpus] if comparison.gpus else []),
    ]
    both = zip(
        ("before", "after"), comparison.names, (comparison.first, comparison.second), strict=True
    )
    verdicts = [
        Verdict(gpu.verdict.level, f"{when}: {gpu.verdict.headline}", name)
        for when, name, gpu in both
    ]
    rows = tuple(
        (
            row.label,
            number(row.first, decimals=1),
            number(row.second, decimals=1),
            _signed(row.change, 1),
            row.unit,
        )
        for row in comparison.rows
    )
    table = Table(("", "before", "after", "change", ""), rows, "~>>><")
    return Document(comparison.headline, (*verdicts, table), (comparison.headline, *gpus))


def _signed(change: float | None, decimals: int) -> str:
    return NOT_MEASURED if change is None else f"{change:+.{decimals}f}".replace("-", "−")


def comparison_data(comparison: TraceComparison) -> dict[str, Any]:
    """As a JSON object."""
    return {
        "schema": TRACE_COMPARE_SCHEMA,
        "kind": "trace_comparison",
        "files": list(comparison.names),
        "change_pct": None if comparison.change_pct is None else round(comparison.change_pct, 3),
        "headline": comparison.headline,
        "gpu": comparison.gpu,
        "different_gpus": comparison.gpus is not None,
        "before": gpu_data(comparison.first),
        "after": gpu_data(comparison.second),
        "differences": [
            {
                "key": row.key,
                "unit": row.unit,
                "before": row.first,
                "after": row.second,
                "change": row.change,
            }
            for row in comparison.rows
        ],
    }
