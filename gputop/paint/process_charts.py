"""Charts and lanes of the page of one process."""

from __future__ import annotations

from collections.abc import Callable

from gputop.model import quantity
from gputop.model.clean_text import terminal_safe
from gputop.model.quantity import number, size
from gputop.model.snapshot import ProcessSample
from gputop.paint.charts import round_top
from gputop.paint.detail_page import Chart, DetailPage
from gputop.paint.words import Field

LANES: tuple[tuple[str, str, str], ...] = (
    ("running", "run_pct", "lane.run"),
    ("queued", "wait_pct", "lane.wait"),
    ("disk", "in_disk_pct", "lane.disk"),
    ("network", "on_network_pct", "lane.disk"),
    ("asleep", "asleep_pct", "lane.idle"),
    ("main", "main_pct", "lane.main"),
)
"""Label, series of the process history, style."""


def _binary_top(highest: float) -> float:
    return round_top(max(highest, 1.0) / 2**30) * 2**30


def _bytes(value: float) -> str:
    return size(value)


CHARTS: tuple[tuple[str, str, str, Callable[[float], str], Callable[[float], float]], ...] = (
    ("cpu_pct", "CPU", "area.board", quantity.pct, lambda highest: max(100.0, round_top(highest))),
    ("gpu_time_pct", "GPU time", "area.work", quantity.pct, lambda _: 100.0),
    ("gpu_mem_bytes", "GPU mem", "area.mem", _bytes, _binary_top),
    ("rss_bytes", "host mem", "area.mem", _bytes, _binary_top),
    (
        "read_bytes_per_s",
        "read",
        "area.bus",
        quantity.rate,
        lambda highest: round_top(max(highest, 1e6)),
    ),
    (
        "write_bytes_per_s",
        "write",
        "area.bus",
        quantity.rate,
        lambda highest: round_top(max(highest, 1e6)),
    ),
)
"""Series of the process history, label, style, how a value is written, the top of the scale by the highest value."""


def process_charts(
    page: DetailPage, now: ProcessSample | None, device_memory: float | None
) -> list[Chart]:
    """Return a chart for each series with values or a reason.

    Quiet and missing ones take one row.
    """
    charts = []
    for name, label, style, show, top in CHARTS:
        measured = page.measured(name)
        if not measured and name.startswith("gpu_") and (now is None or now.role != "gpu"):
            continue
        text_instead = ""
        if not measured:
            reason = None if now is None else now.unavailable.get(name)
            text_instead = f"n/a: {terminal_safe(reason)}" if reason else "nothing was measured"
        elif name.endswith("_per_s") and not any(measured):
            text_instead = "nothing in this time"
        highest = top(max(measured, default=0.0))
        if name == "gpu_mem_bytes" and device_memory:
            highest = device_memory
        charts.append(Chart(name, label, style, highest, show, text_instead=text_instead))
    return charts


def values_at(page: DetailPage) -> list[Field]:
    """Return all known values at the cursor."""
    parts = [
        (f"{label} {show(value)}", "text")
        for name, label, _, show, _ in CHARTS
        if (value := page.column(name)) is not None
    ]
    lanes = [(label, page.column(name)) for label, name, _ in LANES if name != "asleep_pct"]
    return parts + [
        (f"{label} {number(value, 3)} %", "dim") for label, value in lanes if value is not None
    ]
