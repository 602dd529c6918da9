"""Two traces side by side: what a change did to a step, over the GPU to look at first in each."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gputop.model.text import terminal_safe
from gputop.output.html.blocks import facts, table
from gputop.output.html.document import document
from gputop.output.html.markup import element
from gputop.output.trace_data import gpu_data
from gputop.output.trace_text import CAUSE_WORDS, LEAST_SHOWN, SHARE_WORDS, worst
from gputop.paint.text import shorten
from gputop.traces.gaps import CAUSES
from gputop.traces.ranks import TraceReport
from gputop.traces.report import SHARES, GpuReport, Measures

SCHEMA = 1
_KERNELS = 8


class Row(Struct, frozen=True):
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
    """The GPUs that are compared, and every measure that differs or matters."""

    before: GpuReport
    after: GpuReport
    names: tuple[str, str]
    rows: tuple[Row, ...]


def compare_traces(before: TraceReport, after: TraceReport) -> TraceComparison:
    """Compare the worst GPU of each. A step's time where both have steps, else shares only."""
    ranks = worst(before), worst(after)
    first, second = (max(rank.gpus, key=lambda gpu: gpu.measures.share_pct["idle"]) for rank in ranks)
    a, b = first.measures, second.measures
    rows = [
        Row("step_ms.median", "step, median", "ms", _step(a), _step(b)),
        Row("util", "UTIL", "%", a.util_pct, b.util_pct),
    ]
    if a.sm_active_pct is not None and b.sm_active_pct is not None:
        rows.append(Row("sm_active_pct", "SM", "%", a.sm_active_pct, b.sm_active_pct))
    else:
        rows.append(Row("sm_high_pct", "SM ≤", "%", a.sm_high_pct, b.sm_high_pct))
    rows += [Row(f"share.{s}", SHARE_WORDS[s], "%", a.share_pct[s], b.share_pct[s]) for s in SHARES]
    rows += [
        Row(f"idle.{cause}", f"idle: {CAUSE_WORDS[cause]}", "%", a.idle_cause_pct[cause], b.idle_cause_pct[cause])
        for cause in CAUSES
        if max(a.idle_cause_pct[cause], b.idle_cause_pct[cause]) >= LEAST_SHOWN
    ]
    rows += _kernel_rows(a, b)
    return TraceComparison(first, second, (ranks[0].path, ranks[1].path), tuple(rows))


def _step(m: Measures) -> float | None:
    return m.step_median_ms if m.named_steps else None


def _kernel_rows(a: Measures, b: Measures) -> list[Row]:
    """Kernels by how much their time in a step changed; nothing without steps in both."""
    if not (a.named_steps and b.named_steps):
        return []
    times = [{row.name: row.share_pct / 100.0 * m.window_ms / m.steps for row in m.kernels} for m in (a, b)]
    names = sorted({*times[0], *times[1]}, key=lambda name: -abs(times[1].get(name, 0.0) - times[0].get(name, 0.0)))
    return [
        Row(f"kernel.{name}", name, "ms", times[0].get(name, 0.0), times[1].get(name, 0.0)) for name in names[:_KERNELS]
    ]


def comparison_text(comparison: TraceComparison) -> str:
    """For a terminal."""
    head = [f"before  {comparison.names[0]}", f"        {comparison.before.said.headline}"]
    head += [f"after   {comparison.names[1]}", f"        {comparison.after.said.headline}", ""]
    lines = [f"{'':<36}{'before':>10}{'after':>10}{'change':>10}"]
    lines += [
        f"{shorten(row.label, 34):<36}{_number(row.before)}{_number(row.after)}{_change(row)} {row.unit}"
        for row in comparison.rows
    ]
    return "".join(terminal_safe(line).rstrip() + "\n" for line in [*head, *lines])


def _number(value: float | None) -> str:
    return f"{'n/a' if value is None else f'{value:.1f}':>10}"


def _change(row: Row) -> str:
    return f"{'n/a' if row.change is None else f'{row.change:+.1f}'.replace('-', '−'):>10}"


def comparison_data(comparison: TraceComparison) -> dict[str, Any]:
    """As a JSON object."""
    return {
        "schema": SCHEMA,
        "kind": "trace_comparison",
        "files": list(comparison.names),
        "before": gpu_data(comparison.before),
        "after": gpu_data(comparison.after),
        "differences": [
            {"key": row.key, "unit": row.unit, "before": row.before, "after": row.after, "change": row.change}
            for row in comparison.rows
        ],
    }


def comparison_html(comparison: TraceComparison) -> str:
    """As a page."""
    rows = [
        (row.label, _number(row.before), _number(row.after), f"{_change(row)} {row.unit}") for row in comparison.rows
    ]
    said = [
        element("p", element("b", f"{when}: "), gpu.said.headline, class_=gpu.said.level)
        for when, gpu in (("before", comparison.before), ("after", comparison.after))
    ]
    step = comparison.rows[0]
    figures = facts(
        [("step before", f"{_number(step.before)} ms", ""), ("step after", f"{_number(step.after)} ms", "")]
    )
    return document(
        "gputop trace: before and after",
        element("h1", "Before and after"),
        *(element("p", element("code", name)) for name in comparison.names),
        *said,
        figures,
        table(("", "before", "after", "change"), rows, "tnnn"),
    )
