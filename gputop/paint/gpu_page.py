"""The page of one GPU.

Every series on one time axis, the lanes of its host, its verdicts, and the source of each value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from gputop.diagnosis.sample_facts import pcie_capacity
from gputop.diagnosis.sm_remedy import power_word
from gputop.model import quantity
from gputop.model.derived import throttle_words
from gputop.model.metrics import GPU_METRICS, Metric
from gputop.model.quantity import NOT_MEASURED, gib, number, seconds, terminal_safe
from gputop.model.sm import MEASURED, SM_SOURCES
from gputop.model.snapshot import GpuSample, Snapshot, value
from gputop.monitor import STEP_SERIES, Frame
from gputop.paint import header, panes
from gputop.paint.charts import gap_chart, marks, round_top, with_cursor, with_marks
from gputop.paint.detail_page import AXIS_WIDTH, LABEL_WIDTH, Chart, DetailPage, DetailsPainted, DetailsView
from gputop.paint.facts import FACTS, MOMENT
from gputop.paint.glyphs import level_glyph
from gputop.paint.line import Line, Row, fit, shorten, text_row
from gputop.paint.panes import LANES, ShownGpu
from gputop.paint.verdict_history import VerdictSpan, strip, verdict_at, verdict_spans
from gputop.paint.words import Field, gpu_label, number_labels

# Its charts: what is drawn, to which scale, and the values at a moment.

MARK_SERIES = (
    ("T", "level.red", "slowed_heat_pct", "T heat"),
    ("B", "level.red", "slowed_brake_pct", "B brake"),
    ("P", "level.yellow", "slowed_cap_pct", "P power cap"),
)
"""Letter, style, series and legend of what slows a GPU down, the worst first."""


def _charts(page: DetailPage, gpu: GpuSample) -> list[Chart]:
    """Return the charts that have values, in order.

    Memory and temperature come last.
    """
    slowdown = gpu.temp_slowdown_c
    power = gpu.power_limit_w or _round_top(page, "power_w")
    clock = gpu.sm_clock_max_mhz or _round_top(page, "sm_clock_mhz")
    charts = [
        Chart(STEP_SERIES, "STEP", "area.work", _round_top(page, STEP_SERIES), quantity.step_time),
        Chart("tensor_active_pct", "TENSOR", "area.work", 100.0, quantity.pct),
        Chart("dram_active_pct", "DRAM", "area.work", 100.0, quantity.pct),
        Chart("power_w", "POWER", "area.board", power, _in("W"), f"limit {power:.0f} W" if gpu.power_limit_w else ""),
        Chart(
            "sm_clock_mhz", "CLOCK", "area.board", clock, _in("MHz"), f"max {clock:.0f}" if gpu.sm_clock_max_mhz else ""
        ),
        *_link_charts(page, "PCIe", "pcie", pcie_capacity(gpu)),
        *_link_charts(page, "NVLink", "nvlink", gpu.static.nvlink_peak_bytes_per_s),
        Chart("mem_used_bytes", "MEM", "area.mem", gpu.mem_total_bytes or 0.0, _gib),
        Chart(
            "temp_c", "TEMP", "area.heat", slowdown or 100.0, _in("°C"),
            f"slow {slowdown:.0f} °C" if slowdown else "",
        ),
    ]  # fmt: skip
    return [chart for chart in charts if getattr(gpu, chart.name, None) is not None or page.measured(chart.name)]


def _round_top(page: DetailPage, name: str) -> float:
    return round_top(max(page.measured(name), default=0.0))


def _in(unit: str) -> Callable[[float], str]:
    return lambda value: f"{number(value)} {unit}"


def _gib(value: float) -> str:
    return f"{gib(value)} GiB"


def _link_charts(page: DetailPage, label: str, key: str, peak: float | None) -> list[Chart]:
    """Return charts of both directions of a link.

    They share one scale, at most the link's peak; a quiet link takes one row.
    """
    into, out = f"{key}_rx_bytes_per_s", f"{key}_tx_bytes_per_s"
    highest = max(page.measured(into) + page.measured(out), default=0.0)
    if not highest:
        return [Chart(into, label, "area.bus", 0.0, quantity.rate, text_instead="no traffic in this time")]
    top = round_top(max(highest, 1e6))
    if peak is not None and highest <= peak:
        top = min(top, peak)
    both = ((into, "↓"), (out, "↑"))
    return [Chart(name, f"{label} {arrow}", "area.bus", top, quantity.rate) for name, arrow in both]


def _add_gap_chart(page: DetailPage, g: ShownGpu, rows: int) -> None:
    """Add the gap chart with marks, numbers and axis.

    The numbers are those at the cursor, else the newest.
    """
    axis = page.axis
    labels = number_labels(g.mean, g.d)
    if page.cursor is not None:
        sm, util = page.column("sm_active_pct"), page.column("util_pct")
        at_cursor = replace(g.gpu, util_pct=util, sm_active_pct=sm, sm_high_pct=None)
        labels = number_labels(at_cursor, g.d, newest=False)
    measured = bool(page.measured("sm_active_pct"))
    chart = gap_chart(
        page.columns("util_pct"), page.columns("sm_active_pct"), rows, page.glyphs, alarm=g.alarm, measured=measured
    )
    marked = page.frame.history.marks_within(g.gpu.static.uuid, axis.begin, axis.end)
    chart = with_marks(chart, [axis.column_of(t) for t, _ in marked])
    step = max(1, rows // len(labels))
    after = {0: "100 %", rows // 2: "50", rows - 1: "0"}
    for row in range(rows):
        label = labels[row // step] if row % step == 0 and row // step < len(labels) else []
        page.add_chart_row(label, chart[row], after.get(row, ""))


def _add_throttling(page: DetailPage) -> None:
    """Add the letters of clock limits, with their legend."""
    columns = [(letter, style, page.columns(name)) for letter, style, name, _ in MARK_SERIES]
    legend = [entry[3] for entry, column in zip(MARK_SERIES, columns, strict=True) if any(column[2])]
    if legend:
        letters = marks(columns, page.axis.columns)
        page.add_chart_row([("  slowed", "dim")], letters, ", ".join(legend)[: AXIS_WIDTH - 1])
    elif page.measured(MARK_SERIES[0][2]):
        page.words("slowed", "nothing limited the clocks in this time")
    else:
        page.words("slowed", "clocks-event reasons are not measured")


def _lanes(page: DetailPage) -> list[tuple[str, str, str]]:
    """Return the host's lanes.

    They are the main screen's; without loaders the first of the loaders' lanes alone.
    """
    fed = [lane for lane in LANES if lane[1].startswith("loader")]
    seen = any(page.measured(name) for _, name, _ in fed)
    return [lane for lane in LANES if seen or lane not in fed[1:]]


def _add_lanes(page: DetailPage, lanes: Sequence[tuple[str, str, str]]) -> None:
    for label, name, style in lanes:
        if len(lanes) < len(LANES) and name.startswith("loader"):
            page.words("loaders", "no dataloader workers are seen in this time")
        else:
            page.lane(label, name, style)


def _moment(page: DetailPage, listed: list[VerdictSpan]) -> list[Field]:
    """Return all known values at the cursor as fields.

    The most telling come first.
    """
    util, sm = page.column("util_pct"), page.column("sm_active_pct")
    gap = None if util is None or sm is None else max(0.0, util - sm)
    parts = [(FACTS[key].text(value), "text") for key in MOMENT if (value := page.column(key)) is not None]
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


# The page.

SIZES = ((16, 4), (14, 3), (12, 3), (10, 3), (10, 2), (8, 2), (6, 2))
"""(rows of the gap chart, rows of every other chart), tried from roomy to tight; the tightest scrolls."""
ONE_LINE = 240
"""From this width on all values of a moment fit one row."""


def position_of(frame: Frame, uuid: str) -> int | None:
    """Return a GPU's position in the snapshot, or None."""
    return next((i for i, gpu in enumerate(frame.snapshot.gpus) if gpu.static.uuid == uuid), None)


def gpu_details(frame: Frame, state: DetailsView, uuid: str, width: int, height: int) -> DetailsPainted:
    """The screen in exactly ``height`` rows of ``width`` cells."""
    position, gpus, view = position_of(frame, uuid), frame.snapshot.gpus, state.view
    gpu = None if position is None else gpus[position]
    page = DetailPage(frame, state, gpu, partial(frame.history.columns, uuid), frame.history.latest_t, width)
    head = [header.header(frame, view, width).row(width)]
    if position is None or gpu is None:
        gone = shorten("this GPU is no longer in the snapshot", width - 3)
        return page.painted([*head, text_row(gone, width, "level.yellow", 2)], [], height)
    g = ShownGpu(frame, view, position)
    head.append(panes.title(g, width))
    head += panes.evidence_rows(g, width, 0 if height < 16 else 2 if height < 36 else 3)
    listed = verdict_spans(frame, g.d)
    foot = page.foot(lambda: _moment(page, listed), 1 if height < 16 or width >= ONE_LINE else 2)
    _add_charts(page, g, listed, height - len(head) - len(foot) - 1)
    name = f"values of GPU {gpu_label(gpu)} and where they are from"
    if frame.snapshot.machine.is_simulated:
        name += ": simulated here, named as on a real GPU"
    page.heading(name)
    page.rows += provenance_rows(frame.snapshot, gpu, width)
    return page.painted(head, foot, height, *[("[ ] GPU", "right_square_bracket")] * (len(gpus) > 1))


def _add_charts(page: DetailPage, g: ShownGpu, listed: list[VerdictSpan], room: int) -> None:
    """Add everything on the time axis, as tall as fits."""
    charts, lanes = _charts(page, g.gpu), _lanes(page)
    tall = sum(not chart.text_instead for chart in charts)
    fixed = 4 + len(lanes) + len(charts) - tall
    sizes = (size for size in SIZES if size[0] + size[1] * tall + fixed <= room)
    gap_rows, other = next(sizes, (max(4, min(6, room // 2)), 2))
    _add_gap_chart(page, g, gap_rows)
    colours, names = strip(listed, page.axis, page.glyphs)
    page.add_chart_row([("  verdict", "dim")], colours)
    page.rows.append(Line().to(LABEL_WIDTH).add_all(with_cursor(names, page.cursor, over_text=False)).row(page.width))
    for chart in charts:
        page.chart(chart, other)
        if chart.name == "sm_clock_mhz":
            _add_throttling(page)
    _add_lanes(page, lanes)
    marked = page.frame.history.marks_within(g.gpu.static.uuid, page.axis.begin, page.axis.end)
    if marked:
        page.rows.append(_marks_row(page, marked))


def _marks_row(page: DetailPage, marked: Sequence[tuple[float, str]]) -> Row:
    """Return the marks of the user and of source changes.

    Each begins at its time and is as long as the next one allows.
    """
    axis = page.axis
    text = ""
    places = [(axis.column_of(t), words) for t, words in marked]
    for (at, words), following in zip(places, [place[0] for place in places[1:]] + [axis.columns], strict=True):
        if at < len(text):
            continue
        room = following - at - 1
        mark_text = terminal_safe(words)
        if room < len(mark_text) + 2 <= at - len(text):
            # Of a mark close to the next one, or to now, the words stand before it.
            text = text.ljust(at - len(mark_text) - 1) + f"{mark_text} ▴"
            continue
        text = text.ljust(at) + shorten(f"▴ {mark_text}", max(1, room))[: max(1, room)]
    spans = with_cursor([(text[: axis.columns].ljust(axis.columns), "value")], page.cursor, over_text=False)
    return Line().add("  marks", "dim").to(LABEL_WIDTH).add_all(spans).row(page.width)


# Where each value of one GPU comes from, over what time it is the mean, how old it is, or why it is missing.

VALUE_WIDTH = 14
NAME_WIDTH = 14


_WRITERS: Mapping[str, Callable[[float], str]] = {
    "pct": quantity.pct,
    "bytes": _gib,
    "bytes/s": quantity.rate,
    "J": lambda value: f"{value / 3.6e6:.1f} kWh",
    "C": _in("°C"),
    "bool": lambda value: "yes" if value else "no",
    "flags": lambda value: ", ".join(throttle_words(int(value))) or "none",
    **{unit: _in(unit) for unit in ("W", "MHz", "s")},
}


def shown_value(metric: Metric, value: float | None) -> str:
    """A value with its unit."""
    return NOT_MEASURED if value is None else _WRITERS.get(metric.unit, number)(value)


def provenance_rows(snapshot: Snapshot, gpu: GpuSample, width: int) -> list[Row]:
    """One row a value, under a row of heads."""
    late = max(snapshot.stale.values(), default=0.0)
    head = Line().to(2).add("VALUE".ljust(NAME_WIDTH), "heading").add("NOW".rjust(VALUE_WIDTH), "heading")
    rows = [head.add("   AGE      ", "heading").add("FROM, OR WHY IT IS MISSING", "heading").row(width)]
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
            line.add(shorten(_source(metric, gpu), width - line.width - 1), "dim")
        rows.append(line.row(width))
    return rows


def _age(metric: Metric, gpu: GpuSample, late_s: float) -> str:
    if metric.activity and gpu.sm_source in MEASURED:
        return "" if gpu.sm_age_s is None else seconds(gpu.sm_age_s + late_s)
    if metric.seldom:
        return f"0-{late_s + 5:.0f} s"
    return f"{late_s:.0f} s" if late_s else "fresh"


def _source(metric: Metric, gpu: GpuSample) -> str:
    origin = metric.origin or ""
    if not metric.activity:
        return origin
    if SM_SOURCES[gpu.sm_source].dcgm:
        origin = f"{gpu.sm_source}: {metric.dcgm or ''}"
    elif gpu.sm_source == "counters":
        origin = "hardware counters, held exclusively"
    window = "" if gpu.sm_window_s is None else f", mean of {seconds(gpu.sm_window_s)}"
    doubt = gpu.doubts.get(metric.key)
    return origin + window + ("" if doubt is None else f", {doubt}")


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
        return f"bound from UTIL: between {gpu.sm_low_pct or 0:.1f} and {gpu.sm_high_pct:.0f} %{power}; {reason}"
    return reason
