"""Every number, from the metric catalogue."""

from __future__ import annotations

from collections.abc import Mapping

from gputop.model import metrics, throttle
from gputop.model.metric import Metric
from gputop.output.reference.page import Page, Section

HEAD = ("key", "what it is", "unit", "shown as", "from", "DCGM field")
TABLES: tuple[tuple[str, Mapping[str, Metric]], ...] = (
    ("What a GPU is", metrics.GPU_STATIC),
    ("What a GPU does", metrics.GPU_METRICS),
    ("Where SM activity comes from", metrics.SM_PROVENANCE),
    ("A GPU that cannot be read", metrics.GPU_STATE),
    ("The host", metrics.HOST_METRICS),
    ("A process", metrics.PROCESS_METRICS),
    ("What a process is", metrics.PROCESS_STATIC),
)


def metrics_page() -> Page:
    sections = [Section(title, (), HEAD, tuple(map(_row, table.values()))) for title, table in TABLES]
    bits = tuple((f"0x{bit:X}", word) for bit, word in throttle.WORDS.items())
    return Page(
        "Metrics",
        (
            "The keys are those of JSON, CSV, recordings and the process table's columns. A value that was not "
            "measured is null in JSON, empty in CSV and n/a on the screen, with the reason; it is never 0 and never "
            "another value under its name.",
        ),
        (*sections, Section("Bits of `throttle_reasons`", (), ("bit", "reason"), bits)),
    )


def _row(metric: Metric) -> tuple[str, ...]:
    dcgm = f"`{metric.dcgm}`" if metric.dcgm else ""
    return f"`{metric.key}`", metric.definition, metric.unit, metric.label, metric.origin or "", dcgm
