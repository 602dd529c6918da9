"""A comparison in words, as JSON and as a document."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from gputop.diagnosis.thresholds import CLEAR_POINTS
from gputop.model.durations import length, per_second, step_time
from gputop.model.quantity import clamp_pct, kinds
from gputop.output.comparison import LEVELS, SCHEMA, Comparison, Difference, slower_pct
from gputop.output.document import Cell, Document, Items, LevelText, Table, Verdict, indented_json
from gputop.report.run_choice import run_words


def first_line(comparison: Comparison) -> str:
    """The result: ``slower: 76.8 → 116.9 ms a step (+52 %)``.

    Without steps it is the change of the lost GPU time.
    """
    steps = comparison.step_s
    if steps is None:
        return verdict_line(comparison)
    word = {"better": "faster", "worse": "slower"}.get(comparison.direction, "as fast")
    source = "" if comparison.earlier.steps else ", seen from outside"
    return f"{word}: {_two_times(*steps)} a step ({slower_pct(comparison):+.0f} %{source})"


def _two_times(was: float, now: float) -> str:
    """Two step times: ``76.8 → 116.9 ms``.

    One unit where both have the same, and as many digits as the shorter one has.
    """
    if was < 0.9995 and now < 0.9995:
        shorter = 1000.0 * min(was, now)
        digits = 2 if shorter < 9.995 else 1 if shorter < 99.95 else 0
        return f"{1000.0 * was:.{digits}f} → {1000.0 * now:.{digits}f} ms"
    return f"{step_time(was)} → {step_time(now)}"


def verdict_line(comparison: Comparison) -> str:
    """Change of the wasted GPU time, and of announced steps."""
    words = "Not comparable: there is no judged GPU time in one of them."
    if comparison.lost_pct is not None:
        was, now = comparison.lost_pct
        course = comparison.lost_direction
        before = f"{was:.0f} % before ({now - was:+.0f} points)"
        than = f"as before{_harder(comparison)}" if course == "same" else before
        words = f"{course.capitalize()}: {now:.0f} % of the judged GPU time was wasted, {than}."
    (steps,) = (d for d in comparison.differences if d.key == "steps_per_s")
    if steps.earlier is None or steps.later is None:
        return words
    change = 100.0 * (steps.later / steps.earlier - 1.0)
    return (
        f"{words} {per_second(steps.later)} steps/s, {per_second(steps.earlier)} before "
        f"({change:+.0f} %)."
    )


def _harder(comparison: Comparison) -> str:
    """Change of the work, where the shares of time are equal."""
    (work,) = (d for d in comparison.differences if d.key == "work_pct")
    if work.earlier is None or work.later is None or abs(work.later - work.earlier) < CLEAR_POINTS:
        return ""
    return f", but WORK went from {work.earlier:.0f} to {work.later:.0f} %"


def different_gpus(comparison: Comparison) -> str:
    """GPUs of both recordings if they differ; else empty.

    Figures of different GPUs are not a change of the job alone.
    """
    was, now = (
        kinds(sorted(gpu.name for gpu in report.gpus)) or "none"
        for report in (comparison.earlier, comparison.later)
    )
    return "" if was == now else f"different GPUs: {was} before, {now} after"


def run_lines(comparison: Comparison) -> list[str]:
    """The compared run of each recording; none without steps."""
    if not (comparison.earlier.steps and comparison.later.steps):
        return []
    sides = (("before", comparison.earlier), ("after", comparison.later))
    return [
        f"{side}: {report.steps[0].label}, {run_words(report.steps[0])}" for side, report in sides
    ]


def compare_data(comparison: Comparison) -> dict[str, Any]:
    """The comparison as a JSON object, schema 1."""
    return {
        "schema": SCHEMA,
        "differences": [
            {
                "key": d.key,
                "unit": d.unit,
                "before": d.earlier,
                "after": d.later,
                "change": d.change,
                "direction": d.direction,
            }
            for d in comparison.differences
        ],
        "lost_share": {
            "before": comparison.earlier.time.lost_share,
            "after": comparison.later.time.lost_share,
        },
        "gone": list(comparison.gone),
        "new": list(comparison.new),
        "verdict": verdict_line(comparison),
        "headline": first_line(comparison),
        "slower_pct": slower_pct(comparison),
        "step_s": dict(zip(("before", "after"), comparison.step_s or (None, None), strict=True)),
        "different_gpus": different_gpus(comparison) or None,
        "runs": {
            side: to_builtins(report.steps[0]) if report.steps else None
            for side, report in (("before", comparison.earlier), ("after", comparison.later))
        },
    }


def compare_json(comparison: Comparison) -> str:
    return indented_json(compare_data(comparison))


def compare_document(comparison: Comparison) -> Document:
    """The comparison with its result first."""
    before, after = comparison.earlier, comparison.later
    title, gpus = first_line(comparison), different_gpus(comparison)
    lead = (
        title,
        *([verdict_line(comparison)] if comparison.step_s is not None else []),
        *run_lines(comparison),
        *(
            f"{name}: {report.too_short}"
            for name, report in (("before", before), ("after", after))
            if report.too_short
        ),
        f"gputop: {length(before.duration_s)} before, {length(after.duration_s)} after; means over GPUs and time",
    )
    warning = (Verdict("yellow", gpus),) if gpus else ()
    rows = tuple(
        _row(d) for d in comparison.differences if not (d.earlier or 0.0) == (d.later or 0.0) == 0.0
    )
    came = (
        *(f"gone: {text}" for text in comparison.gone),
        *(f"new:  {text}" for text in comparison.new),
    )
    table = Table(("", "BEFORE", "AFTER", "CHANGE", ""), rows, "<>>><")
    return Document(title, (*warning, table, Items(came)), lead)


def _row(d: Difference) -> tuple[Cell, ...]:
    was, now = (clamp_pct(value) if d.unit == "%" else value for value in (d.earlier, d.later))
    change = "" if was is None or now is None else f"{now - was:+.{_decimals(d)}f}"
    word = LevelText(LEVELS[d.direction], d.direction) if d.direction in LEVELS else ""
    return (f"{d.label} {d.unit}".rstrip(), _cell(d, was), _cell(d, now), change, word)


def _cell(d: Difference, value: float | None) -> str:
    return "n/a" if value is None else f"{value:.{_decimals(d)}f}"


def _decimals(d: Difference) -> int:
    return 2 if d.unit == "1/s" else 1 if d.unit in ("s", "GiB") else 0
