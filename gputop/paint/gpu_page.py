"""One GPU in full: every series on one time axis, the lanes of its host, its verdicts, and where each value is from."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from gputop.diagnosis.window import pcie_capacity
from gputop.model import quantity
from gputop.model.quantity import NOT_MEASURED, duration, terminal_safe
from gputop.model.snapshot import GpuSample
from gputop.monitor import STEP_SERIES, Frame
from gputop.paint import header, host_rows, panes
from gputop.paint.charts import Column, gap_chart, marks, round_top, with_cursor, with_marks
from gputop.paint.detail_page import (
    AXIS_WIDTH,
    LABEL_WIDTH,
    Chart,
    DetailsPainted,
    DetailsView,
    LazyRows,
    axis_row,
    bar_row,
    chart_block,
    chart_row,
    chart_width,
    heading,
    joined,
    key_parts,
    lane_block,
    ready,
    words_block,
    words_row,
)
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row, Span, clock_time, gib, pct, rate, shorten, whole
from gputop.paint.numbers import PROVENANCE_ROWS, Field, fields, number_labels, provenance_rows
from gputop.paint.panes import LANES
from gputop.paint.time_axis import TimeAxis, axis_for
from gputop.paint.verdict_history import VerdictSpan, list_rows, strip, verdict_at, verdict_spans
from gputop.paint.words import averaged, evidence_and_remedy, gpu_label, is_newest, is_red, words_for

# Its charts on one time axis: what is drawn, to which scale, and the values at a moment.
#
# Every series is read once a paint; the chart, the label beside it and the line of values show the same columns.

GROWTH_NEEDS_S = 600.0
"""The span that the rule for leaks looks back, see ``diagnosis.hardware_health``."""
MARK_SERIES = (
    ("T", "level.red", "slowed_heat_pct", "T heat"),
    ("B", "level.red", "slowed_brake_pct", "B brake"),
    ("P", "level.yellow", "slowed_cap_pct", "P power cap"),
)
"""Letter, style, series and legend of what slows a GPU down, the worst first."""


class ChartSeries(Struct, frozen=True):
    """Columns of history of one GPU, each read once; ``at`` gives the value at the cursor, or the newest one."""

    frame: Frame
    gpu: GpuSample
    axis: TimeAxis
    cursor: int | None
    _read: dict[str, list[Column]] = field(default_factory=dict)

    def columns(self, name: str) -> list[Column]:
        columns = self._read.get(name)
        if columns is None:
            history, axis = self.frame.history, self.axis
            columns = self._read[name] = history.columns(self.gpu.static.uuid, name, axis.width_s, axis.columns)
        return columns

    def at(self, name: str) -> Column:
        """The column's mean under the cursor; without a cursor what was measured last."""
        if self.cursor is not None:
            return self.columns(name)[self.cursor]
        if hasattr(self.gpu, name):
            value: Column = getattr(self.gpu, name)
            return value
        return next((value for value in reversed(self.columns(name)) if value is not None), None)


def charts_for(gpu: GpuSample, series: ChartSeries, glyphs: Glyphs) -> list[Chart]:
    """The charts that this GPU has something to draw in, in their order. Memory and temperature come last."""
    limit, clock, total = gpu.power_limit_w, gpu.sm_clock_max_mhz, gpu.mem_total_bytes
    slowdown = gpu.temp_slowdown_c
    charts = [
        Chart("tensor_active_pct", "TENSOR", "area.work", 100.0, "100 %", quantity.pct),
        Chart("dram_active_pct", "DRAM", "area.work", 100.0, "100 %", quantity.pct),
        Chart("power_w", "POWER", "area.board", *_scale(limit, "limit", series, "power_w", "W"), _unit("W")),
        Chart(
            "sm_clock_mhz", "CLOCK", "area.board", *_scale(clock, "max", series, "sm_clock_mhz", "MHz"), _unit("MHz")
        ),
    ]
    for label, key, down in (
        ("PCIe", "pcie", True),
        ("PCIe", "pcie", False),
        ("NVLink", "nvlink", True),
        ("NVLink", "nvlink", False),
    ):
        name = f"{key}_{'rx' if down else 'tx'}_bytes_per_s"
        peak = pcie_capacity(gpu) if key == "pcie" else gpu.static.nvlink_peak_bytes_per_s
        top = _traffic_top(series, key, peak)
        arrow = glyphs.down if down else glyphs.up
        charts.append(
            Chart(name, f"{label} {arrow}", "area.bus", top, quantity.rate(top) if top else "", quantity.rate)
        )
    charts.append(
        Chart("mem_used_bytes", "MEM", "area.mem", total, "" if total is None else f"{gib(total).strip()} GiB", _gib)
    )
    top = slowdown or 100.0
    words = f"{'slow ' if slowdown else ''}{top:.0f} {glyphs.degree}"
    charts.insert(0, Chart(STEP_SERIES, "STEP", "area.work", *_step_scale(series), _step))
    charts.append(Chart("temp_c", "TEMP", "area.heat", top, words, _unit(glyphs.degree)))
    return [chart for chart in charts if _has_any(series, chart.name)]


def _has_any(series: ChartSeries, name: str) -> bool:
    return getattr(series.gpu, name, None) is not None or any(value is not None for value in series.columns(name))


def _scale(limit: float | None, words: str, series: ChartSeries, name: str, unit: str) -> tuple[float | None, str]:
    """The top of a scale: the GPU's own limit where it is known, else round above the highest value."""
    if limit:
        return limit, f"{words} {limit:.0f}" + (" W" if unit == "W" else "")
    highest = max((value for value in series.columns(name) if value is not None), default=0.0)
    top = round_top(highest)
    return top, f"{top:.0f} {unit}".rstrip()


def _traffic_top(series: ChartSeries, key: str, peak: float | None) -> float | None:
    """One scale for both directions of a link, so that they compare; never above what the link can do."""
    both = series.columns(f"{key}_rx_bytes_per_s") + series.columns(f"{key}_tx_bytes_per_s")
    highest = max((value for value in both if value is not None), default=None)
    if highest is None:
        return None
    top = round_top(max(highest, 1e6))
    return top if peak is None or highest > peak else min(top, peak)


def _step_scale(series: ChartSeries) -> tuple[float, str]:
    top = round_top(max((value for value in series.columns(STEP_SERIES) if value is not None), default=0.0))
    return top, quantity.step_time(top)


def _step(value: float | None) -> str:
    return NOT_MEASURED if value is None else quantity.step_time(value)


def _gib(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{gib(value).strip()} GiB"


def _unit(unit: str) -> Callable[[float | None], str]:
    return lambda value: NOT_MEASURED if value is None else f"{whole(value, 1)} {unit}"


def gap_block(
    series: ChartSeries, rows: int, width: int, glyphs: Glyphs, labels: list[list[Span]], *, alarm: bool
) -> LazyRows:
    """The gap chart with its numbers and its axis."""

    def paint() -> list[Row]:
        util, sm = series.columns("util_pct"), series.columns("sm_active_pct")
        measured = any(value is not None for value in sm)
        chart = gap_chart(util, sm, rows, glyphs, alarm=alarm, measured=measured)
        axis = series.axis
        marks_seen = series.frame.history.marks_within(series.gpu.static.uuid, axis.begin, axis.end)
        chart = with_marks(chart, [axis.column_of(t) for t, _ in marks_seen], glyphs)
        step = max(1, rows // len(labels))
        painted = []
        for row in range(rows):
            label = labels[row // step] if row % step == 0 and row // step < len(labels) else []
            after = {0: "100 %", rows // 2: "50", rows - 1: "0"}.get(row, "")
            painted.append(chart_row(label, chart[row], after, width, series.cursor, glyphs))
        return painted

    return LazyRows(rows, paint)


def quiet_links(charts: Sequence[Chart], series: ChartSeries) -> list[str]:
    """Names of the charts of links that carried nothing at all in this time, in either direction."""
    links = [chart.name for chart in charts if chart.name.endswith("_bytes_per_s")]
    return [name for name in links if not any(any(series.columns(n)) for n in links if n[:4] == name[:4])]


def quiet_block(chart: Chart, series: ChartSeries, width: int, glyphs: Glyphs) -> LazyRows:
    """A link without traffic in one row."""
    return words_block(chart.label.partition(" ")[0], "no traffic in this time", series, width, glyphs)


def throttle_block(series: ChartSeries, width: int, glyphs: Glyphs) -> LazyRows:
    """Letters under the clock wherever something held it down, with their legend when there are any."""

    def paint() -> list[Row]:
        columns = [(letter, style, series.columns(name)) for letter, style, name, _ in MARK_SERIES]
        legend = [entry[3] for entry, column in zip(MARK_SERIES, columns, strict=True) if any(column[2])]
        if not legend:
            unknown = all(value is None for value in columns[0][2])
            text = "clocks-event reasons are not measured" if unknown else "nothing limited the clocks in this time"
            return [words_row("slowed", text, "dim", series.axis.columns, width, series.cursor, glyphs)]
        spans = marks(columns, series.axis.columns)
        after = ", ".join(legend)[: AXIS_WIDTH - 1]
        return [chart_row([("  slowed", "dim")], spans, after, width, series.cursor, glyphs)]

    return LazyRows(1, paint)


def lane_blocks(series: ChartSeries, width: int, glyphs: Glyphs) -> list[LazyRows]:
    """What the host did, as under the chart of the main screen, with the value at the moment.

    Without loaders one row says so in place of their four.
    """
    fed = [spec for spec in LANES if spec[1].startswith("loader")]
    if any(value is not None for _, name, _ in fed for value in series.columns(name)):
        return [lane_block(series, spec, width, glyphs) for spec in LANES]
    text = "no dataloader workers are seen in this time"
    none = words_block("loaders", text, series, width, glyphs)
    return [
        none if spec is fed[0] else lane_block(series, spec, width, glyphs) for spec in LANES if spec not in fed[1:]
    ]


def memory_words(frame: Frame, position: int) -> Span:
    """Whether memory grows without an end, by the rule for leaks alone; (text, style)."""
    gpu, d = frame.snapshot.gpus[position], frame.diagnoses[position]
    leak = next((badge for badge in d.badges if badge.id == "memory_leak"), None)
    if leak is not None:
        return leak.evidence, f"level.{leak.level}"
    covered = frame.history.covered_s(gpu.static.uuid)
    if gpu.mem_used_bytes is None:
        return "memory is not measured", "dim"
    if covered < GROWTH_NEEDS_S - 30.0:
        return f"growth needs 10 min of data ({covered:.0f} s so far)", "dim"
    return "steady: not filling up", "dim"


def moment_fields(series: ChartSeries, glyphs: Glyphs) -> list[Field]:
    """All values at the cursor, or now, as fields, the most telling first; what is not known is left out."""
    util, sm = series.at("util_pct"), series.at("sm_active_pct")
    gap = None if util is None or sm is None else max(0.0, util - sm)
    parts: list[tuple[str, float | None, Callable[[float | None], str]]] = [
        ("UTIL", util, pct),
        ("SM", sm, pct),
        ("GAP", gap, pct),
        ("TENSOR", series.at("tensor_active_pct"), pct),
        ("DRAM", series.at("dram_active_pct"), pct),
        ("OCC", series.at("sm_occupancy_pct"), pct),
        ("", series.at("power_w"), lambda value: f"{whole(value, 3)} W"),
        ("", series.at("sm_clock_mhz"), lambda value: f"{whole(value, 4)} MHz"),
        ("", series.at("temp_c"), lambda value: f"{whole(value, 2)} {glyphs.degree}"),
        ("MEM", series.at("mem_used_bytes"), lambda value: f"{gib(value)} GiB"),
        (f"PCIe {glyphs.down}", series.at("pcie_rx_bytes_per_s"), rate),
        (glyphs.up, series.at("pcie_tx_bytes_per_s"), rate),
        (f"NVLink {glyphs.down}", series.at("nvlink_rx_bytes_per_s"), rate),
        (glyphs.up, series.at("nvlink_tx_bytes_per_s"), rate),
    ]
    fields = [(f"{name} {show(value)}".strip(), "text") for name, value, show in parts if value is not None]
    for label, name, _ in LANES:
        value = series.columns(name)[series.cursor] if series.cursor is not None else None
        if value is not None and name != "idle_pct":
            fields.append((f"{label} {pct(value)} %", "dim"))
    return fields


# The page.

SIZES = ((16, 4), (14, 3), (12, 3), (10, 3), (10, 2), (8, 2), (6, 2))
"""(rows of the gap chart, rows of every other chart), tried from roomy to tight; the tightest scrolls."""
MOST_VERDICTS = 20
ONE_LINE = 240
"""From this width on all values of a moment fit one row."""


def position_of(frame: Frame, uuid: str) -> int | None:
    """Where a GPU stands in the snapshot; None when it is gone."""
    return next((i for i, gpu in enumerate(frame.snapshot.gpus) if gpu.static.uuid == uuid), None)


def gpu_details(frame: Frame, state: DetailsView, uuid: str, width: int, height: int) -> DetailsPainted:
    """The screen in exactly ``height`` rows of ``width`` cells."""
    view = state.view
    axis = axis_for(frame.history.latest_t or frame.snapshot.t, view.span_s, chart_width(width))
    position = position_of(frame, uuid)
    if position is None:
        gone = Line().to(2).add(shorten("this GPU is no longer in the snapshot", width - 3), "level.yellow").row(width)
        rows, most_first, room = joined(
            [header.header(frame, view, width), gone], [], [bar_row(["esc back"], width)], state, width, height
        )
        return DetailsPainted(rows, most_first, room, axis)
    gpu, d = frame.snapshot.gpus[position], frame.diagnoses[position]
    cursor = None if state.cursor_t is None else axis.column_of(state.cursor_t)
    series = ChartSeries(frame, gpu, axis, cursor)
    listed = verdict_spans(frame, d)
    head = _head(frame, state, position, width, height)
    foot = _foot(series, state, listed, width, height)
    blocks = _blocks(series, state, position, listed, width, height - len(head) - len(foot) - 1)
    total, room = sum(block.rows for block in blocks), max(0, height - len(head) - len(foot) - 1)
    gpu_keys = ["[ ] GPU"] if len(frame.snapshot.gpus) > 1 else []
    keys = key_parts(state, duration(view.span_s), max(0, total - room), room, total, *gpu_keys)
    rows, most_first, room = joined(head, blocks, [*foot, bar_row(keys, width)], state, width, height)
    return DetailsPainted(rows, most_first, room, axis)


def _head(frame: Frame, state: DetailsView, position: int, width: int, height: int) -> list[Row]:
    gpu, d, glyphs = frame.snapshot.gpus[position], frame.diagnoses[position], state.view.glyphs
    rows = [header.header(frame, state.view, width), panes.title(frame, state.view, position, width)]
    words = 0 if height < 16 else 2 if height < 36 else 3
    evidence, remedy, extra = words_for(gpu, d, glyphs, width - 4)
    verdict_words = (
        (evidence_and_remedy(d, glyphs, evidence, remedy, width - 4, words) + extra)[:words] if words else []
    )
    return rows + [Line().to(2).add_all(spans).row(width) for spans in verdict_words]


def _foot(series: ChartSeries, state: DetailsView, listed: list[VerdictSpan], width: int, height: int) -> list[Row]:
    """The time axis, and the values at the cursor."""
    view = state.view
    rows = [axis_row(series.axis, view, width, series.cursor)]
    if series.cursor is None:
        return rows
    t = series.axis.middle(series.cursor)
    parts = moment_fields(series, view.glyphs)
    verdict = verdict_at(listed, t)
    if verdict is not None:
        parts.append((f"{view.glyphs.level(verdict.level)} {verdict.title}", f"level.{verdict.level}"))
    if not parts:
        parts = [("nothing was measured at this time", "dim")]
    remaining = parts
    for line in range(1 if height < 16 or width >= ONE_LINE else 2):
        start = (
            Line().to(2).add(f"at {clock_time(t, view.utc_offset_s)}", "key").add("  ") if line == 0 else Line().to(2)
        )
        shown = fields(remaining, width - start.width - 1, "  ")
        remaining = remaining[sum(text.strip() != "" for text, _ in shown) :]
        rows.append(start.add_all(shown).row(width))
    return rows


def _blocks(
    series: ChartSeries, state: DetailsView, position: int, listed: list[VerdictSpan], width: int, room: int
) -> list[LazyRows]:
    """Everything that scrolls, as tall as the room allows."""
    frame, view, glyphs = series.frame, state.view, state.view.glyphs
    gpu, d = series.gpu, frame.diagnoses[position]
    gpu_charts = charts_for(gpu, series, glyphs)
    lanes = lane_blocks(series, width, glyphs)
    quiet = quiet_links(gpu_charts, series)
    fixed = 2 + 1 + 1 + len(lanes) + len(quiet) // 2
    tall = len(gpu_charts) - len(quiet)
    gap_rows, other = next(
        (size for size in SIZES if size[0] + size[1] * tall + fixed <= room), (max(4, min(6, room // 2)), 2)
    )
    labels = number_labels(
        averaged(frame, position), glyphs, alarm=d.busy_not_working is not None, red=is_red(d), newest=is_newest(d)
    )
    if series.cursor is not None:
        at_cursor = replace(
            gpu, util_pct=series.at("util_pct"), sm_active_pct=series.at("sm_active_pct"), sm_high_pct=None
        )
        labels = number_labels(at_cursor, glyphs, alarm=d.busy_not_working is not None, red=is_red(d))
    blocks = [gap_block(series, gap_rows, width, glyphs, labels, alarm=d.busy_not_working is not None)]
    blocks.append(LazyRows(2, lambda: _strip_rows(series, listed, width, glyphs)))
    for chart in gpu_charts:
        if chart.name in quiet:
            if "_rx_" in chart.name:
                blocks.append(quiet_block(chart, series, width, glyphs))
            continue
        blocks.append(chart_block(chart, series, other, width, glyphs))
        if chart.name == "sm_clock_mhz":
            blocks.append(throttle_block(series, width, glyphs))
        if chart.name == "mem_used_bytes":
            blocks.append(ready([_memory_row(series, position, width, glyphs)]))
    blocks += lanes
    marks_seen = frame.history.marks_within(gpu.static.uuid, series.axis.begin, series.axis.end)
    if marks_seen:
        blocks.append(ready([_marks_row(series, state, marks_seen, width)]))
    blocks.append(ready([Line().row(width)]))
    blocks.append(ready([heading("verdicts, the newest first", width, glyphs)]))
    count = min(MOST_VERDICTS, len(listed))
    blocks.append(LazyRows(count, lambda: list_rows(listed, frame.snapshot.t, view, width, count)))
    blocks += host_rows.port_blocks(frame, width, glyphs)
    name = f"values of GPU {gpu_label(gpu)} and where they are from"
    if frame.snapshot.machine.is_simulated:
        name += ": simulated here, named as on a real GPU"
    blocks.append(ready([Line().row(width)]))
    blocks.append(ready([heading(shorten(name, width - 6), width, glyphs)]))
    blocks.append(LazyRows(PROVENANCE_ROWS, lambda: provenance_rows(frame.snapshot, gpu, width, glyphs)))
    return blocks


def _strip_rows(series: ChartSeries, listed: list[VerdictSpan], width: int, glyphs: Glyphs) -> list[Row]:
    colours, names = strip(listed, series.axis, glyphs)
    return [
        chart_row([("  verdict", "dim")], colours, "", width, series.cursor, glyphs),
        chart_row([], with_cursor(names, series.cursor, glyphs, over_text=False), "", width, None, glyphs),
    ]


def _memory_row(series: ChartSeries, position: int, width: int, glyphs: Glyphs) -> Row:
    text, style = memory_words(series.frame, position)
    return words_row("", terminal_safe(text), style, series.axis.columns, width, series.cursor, glyphs)


def _marks_row(series: ChartSeries, state: DetailsView, marks_seen: list[tuple[float, str]], width: int) -> Row:
    """The user's marks and changes of the source, each at its time, as far as the next one leaves room."""
    glyphs, axis = state.view.glyphs, series.axis
    text = ""
    places = [(axis.column_of(t), words) for t, words in marks_seen]
    for (at, words), following in zip(places, [place[0] for place in places[1:]] + [axis.columns], strict=True):
        if at < len(text):
            continue
        room = following - at - 1
        mark_text = terminal_safe(words)
        if room < len(mark_text) + 2 <= at - len(text):
            # Of a mark close to the next one, or to now, the words stand before it.
            text = text.ljust(at - len(mark_text) - 1) + f"{mark_text} {glyphs.sorted_up}"
            continue
        text = text.ljust(at) + shorten(f"{glyphs.sorted_up} {mark_text}", max(1, room), glyphs.more)[: max(1, room)]
    spans = with_cursor([(text[: axis.columns].ljust(axis.columns), "value")], series.cursor, glyphs, over_text=False)
    return Line().add("  marks", "dim").to(LABEL_WIDTH).add_all(spans).row(width)
