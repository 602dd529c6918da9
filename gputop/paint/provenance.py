"""Source, age and time of each value of one GPU, or why it is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gputop.diagnosis.sm_remedy import power_word
from gputop.model import quantity
from gputop.model.clean_text import terminal_safe
from gputop.model.derived import throttle_words
from gputop.model.durations import seconds
from gputop.model.metrics import GPU_METRICS, GPU_STATIC, Metric
from gputop.model.quantity import NOT_MEASURED, number
from gputop.model.sm import MEASURED, SM_SOURCES
from gputop.model.snapshot import GpuSample, Snapshot, value
from gputop.paint.cells import fit, shorten
from gputop.paint.gpu_charts import gib_words, in_words
from gputop.paint.line import Line, Row

VALUE_WIDTH = 14
NAME_WIDTH = 14


_WRITERS: Mapping[str, Callable[[float], str]] = {
    "pct": quantity.pct,
    "bytes": gib_words,
    "bytes/s": quantity.rate,
    "1/s": in_words("/s"),
    "J": lambda value: f"{value / 3.6e6:.1f} kWh",
    "C": in_words("°C"),
    "bool": lambda value: "yes" if value else "no",
    "flags": lambda value: ", ".join(throttle_words(int(value))) or "none",
    **{unit: in_words(unit) for unit in ("W", "MHz", "s")},
}


def shown_value(metric: Metric, value: float | None) -> str:
    """A value with its unit."""
    return NOT_MEASURED if value is None else _WRITERS.get(metric.unit, number)(value)


def provenance_rows(
    snapshot: Snapshot, gpu: GpuSample, mean_s: Mapping[str, float], width: int
) -> list[Row]:
    """One row a value, under a row of heads.

    ``mean_s`` has the seconds over which a value is a mean, by key.
    """
    late = max(snapshot.stale.values(), default=0.0)
    head = (
        Line()
        .to(2)
        .add("VALUE".ljust(NAME_WIDTH), "heading")
        .add("NOW".rjust(VALUE_WIDTH), "heading")
    )
    rows = [
        head.add("   AGE      ", "heading").add("FROM, OR WHY IT IS MISSING", "heading").row(width)
    ]
    for key, metric in GPU_METRICS.items():
        measured: float | None = value(gpu, key)
        line = Line().to(2).add(fit(metric.label, NAME_WIDTH), "text")
        shown = fit(shown_value(metric, measured).rjust(VALUE_WIDTH), VALUE_WIDTH)
        line.add(shown, "dim" if measured is None else "value")
        line.add("   ")
        if measured is None:
            line.add(" " * 9).add(shorten(_missing(metric, gpu), width - line.width - 1), "dim")
        else:
            line.add(f"{_age(metric, gpu, late):<9}", "dim")
            line.add(shorten(_source(metric, gpu, mean_s.get(key)), width - line.width - 1), "dim")
        rows.append(line.row(width))
    return rows


BOARD = (
    "pci_bus_id", "uuid", "serial", "persistence", "compute_mode", "driver", "cuda", "architecture", "sm_count",
)  # fmt: skip
"""Facts of a board that never change while it runs, in the order of the page."""


def board_rows(gpu: GpuSample, width: int) -> list[Row]:
    """One row a fact of the board: bus id, UUID, serial number, modes, versions."""
    rows: list[Row] = []
    for key in BOARD:
        metric = GPU_STATIC[key]
        fact = getattr(gpu.static, key)
        line = Line().to(2).add(fit(metric.label, NAME_WIDTH), "text")
        if fact is None:
            line.add(NOT_MEASURED, "dim")
        elif isinstance(fact, bool):
            line.add("on" if fact else "off", "value")
        else:
            line.add(shorten(terminal_safe(str(fact)), width - line.width - 1), "value")
        rows.append(line.row(width))
    return rows


def _age(metric: Metric, gpu: GpuSample, late_s: float) -> str:
    if metric.activity and gpu.sm_source in MEASURED:
        return "" if gpu.sm_age_s is None else seconds(gpu.sm_age_s + late_s)
    if metric.seldom:
        return f"0-{late_s + 5:.0f} s"
    return f"{late_s:.0f} s" if late_s else "fresh"


def _source(metric: Metric, gpu: GpuSample, mean_s: float | None) -> str:
    origin = metric.origin or ""
    mean = "" if mean_s is None else f", mean of {mean_s:.0f} s"
    if not metric.activity:
        return origin + mean
    if SM_SOURCES[gpu.sm_source].dcgm:
        origin = f"{gpu.sm_source}: {metric.dcgm or ''}"
    elif gpu.sm_source == "counters":
        origin = "hardware counters, held exclusively"
    if not mean and gpu.sm_window_s is not None:
        mean = f", mean of {seconds(gpu.sm_window_s)}"
    doubt = gpu.doubts.get(metric.key)
    return origin + mean + ("" if doubt is None else f", {doubt}")


def _missing(metric: Metric, gpu: GpuSample) -> str:
    key = metric.key
    reason = gpu.unavailable.get(key)
    if key == "xid" and reason is None and gpu.lost_reason is None:
        return "none seen while watching"
    if reason is None and metric.activity:
        reason = gpu.sm_reason
    reason = terminal_safe(reason or gpu.lost_reason or "this GPU or driver does not report it")
    if key == "sm_active_pct" and gpu.sm_high_pct is not None:
        words = power_word(gpu)
        power = f"; {words}" if words is not None else ""
        return (
            f"bound from UTIL: between {gpu.sm_low_pct or 0:.1f} and {gpu.sm_high_pct:.0f} "
            f"%{power}; {reason}"
        )
    return reason
