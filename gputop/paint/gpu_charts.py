"""Charts of the page of one GPU: series, scales, and the values at a moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from gputop.diagnosis.window.sample_facts import pcie_capacity
from gputop.model import durations, quantity
from gputop.model.quantity import gib, number
from gputop.model.snapshot import GpuSample
from gputop.monitor import STEP_SERIES
from gputop.paint.charts import gap_chart, marks, round_top, with_marks
from gputop.paint.detail_page import AXIS_WIDTH, Chart, DetailPage
from gputop.paint.facts import FACTS, MOMENT
from gputop.paint.glyphs import level_glyph
from gputop.paint.gpu_fields import number_labels
from gputop.paint.panes import LANES, ShownGpu
from gputop.paint.verdict_history import VerdictSpan, verdict_at
from gputop.paint.words import Field

MARK_SERIES = (
    ("T", "level.red", "slowed_heat_pct", "T heat"),
    ("B", "level.red", "slowed_brake_pct", "B brake"),
    ("P", "level.yellow", "slowed_cap_pct", "P power cap"),
)
"""Letter, style, series and legend of what slows a GPU down, the worst first."""


def gpu_charts(page: DetailPage, gpu: GpuSample) -> list[Chart]:
    """Return the charts that have values, in order.

    Memory and temperature come last.
    """
    slowdown = gpu.temp_slowdown_c
    power = gpu.power_limit_w or _round_top(page, "power_w")
    clock = gpu.sm_clock_max_mhz or _round_top(page, "sm_clock_mhz")
    charts = [
        Chart(STEP_SERIES, "STEP", "area.work", _round_top(page, STEP_SERIES), durations.step_time),
        Chart("tensor_active_pct", "TENSOR", "area.work", 100.0, quantity.pct),
        Chart("dram_active_pct", "DRAM", "area.work", 100.0, quantity.pct),
        Chart(
            "power_w", "POWER", "area.board", power, in_words("W"),
            f"limit {power:.0f} W" if gpu.power_limit_w else "",
        ),
        Chart(
            "sm_clock_mhz", "CLOCK", "area.board", clock, in_words("MHz"),
            f"max {clock:.0f}" if gpu.sm_clock_max_mhz else "",
        ),
        *_link_charts(page, "PCIe", "pcie", pcie_capacity(gpu)),
        *_link_charts(page, "NVLink", "nvlink", gpu.static.nvlink_peak_bytes_per_s),
        Chart("mem_used_bytes", "MEM", "area.mem", gpu.mem_total_bytes or 0.0, gib_words),
        Chart(
            "temp_c", "TEMP", "area.heat", slowdown or 100.0, in_words("°C"),
            f"slow {slowdown:.0f} °C" if slowdown else "",
        ),
    ]  # fmt: skip
    return [
        chart
        for chart in charts
        if getattr(gpu, chart.name, None) is not None or page.measured(chart.name)
    ]


def _round_top(page: DetailPage, name: str) -> float:
    return round_top(max(page.measured(name), default=0.0))


def in_words(unit: str) -> Callable[[float], str]:
    """Return a writer of numbers with this unit."""
    return lambda value: f"{number(value)} {unit}"


def gib_words(value: float) -> str:
    """Return bytes in GiB."""
    return f"{gib(value)} GiB"


def _link_charts(page: DetailPage, label: str, key: str, peak: float | None) -> list[Chart]:
    """Return charts of both directions of a link.

    They share one scale, at most the link's peak; a quiet link takes one row.
    """
    into, out = f"{key}_rx_bytes_per_s", f"{key}_tx_bytes_per_s"
    highest = max(page.measured(into) + page.measured(out), default=0.0)
    if not highest:
        return [
            Chart(
                into, label, "area.bus", 0.0, quantity.rate, text_instead="no traffic in this time"
            )
        ]
    top = round_top(max(highest, 1e6))
    if peak is not None and highest <= peak:
        top = min(top, peak)
    both = ((into, "↓"), (out, "↑"))
    return [Chart(name, f"{label} {arrow}", "area.bus", top, quantity.rate) for name, arrow in both]


def add_gap_chart(page: DetailPage, g: ShownGpu, rows: int) -> None:
    """Add the gap chart with marks, numbers and axis.

    The numbers are those at the cursor, else the newest.
    """
    axis = page.axis
    labels = number_labels(g.gpu, g.d)
    if page.cursor is not None:
        sm, util = page.column("sm_active_pct"), page.column("util_pct")
        at_cursor = replace(g.gpu, util_pct=util, sm_active_pct=sm, sm_high_pct=None)
        labels = number_labels(at_cursor, g.d, newest=False)
    measured = bool(page.measured("sm_active_pct"))
    chart = gap_chart(
        page.columns("util_pct"),
        page.columns("sm_active_pct"),
        rows,
        page.glyphs,
        alarm=g.alarm,
        measured=measured,
    )
    marked = page.frame.history.marks_within(g.gpu.static.uuid, axis.begin, axis.end)
    chart = with_marks(chart, [axis.column_of(t) for t, _ in marked])
    step = max(1, rows // len(labels))
    after = {0: "100 %", rows // 2: "50", rows - 1: "0"}
    for row in range(rows):
        label = labels[row // step] if row % step == 0 and row // step < len(labels) else []
        page.add_chart_row(label, chart[row], after.get(row, ""))


def add_throttling(page: DetailPage) -> None:
    """Add the letters of clock limits, with their legend."""
    columns = [(letter, style, page.columns(name)) for letter, style, name, _ in MARK_SERIES]
    legend = [
        entry[3] for entry, column in zip(MARK_SERIES, columns, strict=True) if any(column[2])
    ]
    if legend:
        letters = marks(columns, page.axis.columns)
        page.add_chart_row([("  slowed", "dim")], letters, ", ".join(legend)[: AXIS_WIDTH - 1])
    elif page.measured(MARK_SERIES[0][2]):
        page.words("slowed", "nothing limited the clocks in this time")
    else:
        page.words("slowed", "clocks-event reasons are not measured")


def gpu_lanes(page: DetailPage) -> list[tuple[str, str, str]]:
    """Return the host's lanes.

    They are the main screen's; without loaders the first of the loaders' lanes alone.
    """
    fed = [lane for lane in LANES if lane[1].startswith("loader")]
    seen = any(page.measured(name) for _, name, _ in fed)
    return [lane for lane in LANES if seen or lane not in fed[1:]]


def add_lanes(page: DetailPage, lanes: Sequence[tuple[str, str, str]]) -> None:
    """Add the lanes of the host."""
    for label, name, style in lanes:
        if len(lanes) < len(LANES) and name.startswith("loader"):
            page.words("loaders", "no dataloader workers are seen in this time")
        else:
            page.lane(label, name, style)


def values_at(page: DetailPage, listed: list[VerdictSpan]) -> list[Field]:
    """Return all known values at the cursor as fields.

    The most telling come first.
    """
    util, sm = page.column("util_pct"), page.column("sm_active_pct")
    gap = None if util is None or sm is None else max(0.0, util - sm)
    parts = [
        (FACTS[key].text(value), "text")
        for key in MOMENT
        if (value := page.column(key)) is not None
    ]
    if gap is not None:
        parts.insert(2, (f"GAP {number(gap, 3)}", "text"))
    parts += [
        (f"{label} {number(value, 3)} %", "dim")
        for label, name, _ in LANES
        if name != "idle_pct" and (value := page.column(name)) is not None
    ]
    verdict = None if page.cursor is None else verdict_at(listed, page.axis.middle(page.cursor))
    if verdict is not None:
        parts.append((f"{level_glyph(verdict.level)} {verdict.title}", f"level.{verdict.level}"))
    return parts
