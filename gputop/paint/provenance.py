"""Where each value of one GPU comes from, over what time it is the mean, how old it is, or why it is missing."""

from __future__ import annotations

from gputop.model import quantity
from gputop.model.derived import power_word
from gputop.model.metric import Metric
from gputop.model.metrics import GPU_METRICS
from gputop.model.quantity import NOT_MEASURED, seconds
from gputop.model.sm import MEASURED, SM_SOURCES
from gputop.model.snapshot import GpuSample, Snapshot
from gputop.model.text import terminal_safe
from gputop.model.throttle import throttle_words
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import fit, gib, shorten, whole

PROVENANCE_ROWS = 1 + len(GPU_METRICS)
VALUE_WIDTH = 14
LABEL_WIDTH = 14
DEFINITION_AT, DEFINED_FROM = 88, 150
"""From this width on each value has its definition beside it."""


def shown_value(metric: Metric, value: float | None, glyphs: Glyphs) -> str:
    """A value with its unit."""
    if value is None:
        return NOT_MEASURED
    unit = metric.unit
    if unit == "pct":
        return quantity.pct(value)
    if unit == "bytes":
        return f"{gib(value).strip()} GiB"
    if unit == "bytes/s":
        return quantity.rate(value)
    if unit == "J":
        return f"{value / 3.6e6:.1f} kWh"
    if unit == "C":
        return f"{whole(value, 1)} {glyphs.degree}"
    if unit == "bool":
        return "yes" if value else "no"
    if unit == "flags":
        return ", ".join(throttle_words(int(value))) or "none"
    return f"{whole(value, 1)} {unit}" if unit in ("W", "MHz", "s") else whole(value, 1)


def provenance_rows(snapshot: Snapshot, gpu: GpuSample, width: int, glyphs: Glyphs) -> list[Row]:
    """One row a value, under a row of heads."""
    late = max(snapshot.stale.values(), default=0.0)
    head = Line().to(2).add("VALUE".ljust(LABEL_WIDTH), "heading").add("NOW".rjust(VALUE_WIDTH), "heading")
    rows = [head.add("   AGE      ", "heading").add("FROM, OR WHY IT IS MISSING", "heading").row(width)]
    for key, metric in GPU_METRICS.items():
        value: float | None = getattr(gpu, key)
        line = Line().to(2).add(fit(metric.label, LABEL_WIDTH, glyphs.more), "text")
        line.add(fit(shown_value(metric, value, glyphs).rjust(VALUE_WIDTH), VALUE_WIDTH, glyphs.more), _style(value))
        line.add("   ")
        if value is None:
            line.add(" " * 9).add(shorten(_missing(metric, gpu), width - line.width - 1, glyphs.more), "dim")
        else:
            line.add(f"{_age(metric, gpu, late):<9}", "dim")
            line.add(shorten(_source(metric, gpu), width - line.width - 1, glyphs.more), "dim")
        if width >= DEFINED_FROM and line.width < DEFINITION_AT - 1:
            line.to(DEFINITION_AT).add(shorten(metric.definition, width - line.width - 1, glyphs.more), "dim")
        rows.append(line.row(width))
    return rows


def _style(value: float | None) -> str:
    return "dim" if value is None else "value"


def comes_with_activity(metric: Metric) -> bool:
    """Whether a value comes with SM activity, from the same source."""
    return metric.origin is not None and metric.origin.startswith("GPM") and "," not in metric.origin


def _age(metric: Metric, gpu: GpuSample, late_s: float) -> str:
    if comes_with_activity(metric) and gpu.sm_source in MEASURED:
        return "" if gpu.sm_age_s is None else seconds(gpu.sm_age_s + late_s)
    if metric.seldom:
        return f"0-{late_s + 5:.0f} s"
    return f"{late_s:.0f} s" if late_s else "fresh"


def _source(metric: Metric, gpu: GpuSample) -> str:
    origin = metric.origin or ""
    if not comes_with_activity(metric):
        return origin
    if SM_SOURCES[gpu.sm_source].dcgm:
        origin = f"{gpu.sm_source}: {metric.dcgm or ''}"
    elif gpu.sm_source == "counters":
        origin = "hardware counters, held exclusively"
    window = "" if gpu.sm_window_s is None else f", mean of {seconds(gpu.sm_window_s)}"
    return origin + window


def _missing(metric: Metric, gpu: GpuSample) -> str:
    key = metric.key
    reason = gpu.unavailable.get(key)
    if key == "xid" and reason is None and gpu.lost_reason is None:
        return "none seen while watching"
    if reason is None and comes_with_activity(metric):
        reason = gpu.sm_reason
    reason = terminal_safe(reason or gpu.lost_reason or "this GPU or driver does not report it")
    if key == "sm_active_pct" and gpu.sm_high_pct is not None:
        words = power_word(gpu)
        beside = f"; {words}" if words is not None else ""
        return f"bound from UTIL: between {gpu.sm_low_pct or 0:.1f} and {gpu.sm_high_pct:.0f} %{beside}; {reason}"
    return reason
