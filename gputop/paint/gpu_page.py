"""One GPU in full: every series on one time axis, the lanes of its host, its verdicts, and where each value is from."""

from __future__ import annotations

from gputop.model.quantity import duration, terminal_safe
from gputop.monitor import Frame
from gputop.paint import gpu_charts as charts
from gputop.paint import header, host_rows, panes
from gputop.paint.charts import with_cursor
from gputop.paint.detail_page import (
    LABEL_WIDTH,
    DetailsPainted,
    DetailsView,
    LazyRows,
    axis_row,
    bar_row,
    chart_row,
    chart_width,
    heading,
    joined,
    key_parts,
    words_row,
)
from gputop.paint.glyphs import Glyphs
from gputop.paint.gpu_charts import ChartSeries
from gputop.paint.line import Line, Row, clock_time, pct, shorten
from gputop.paint.numbers import PROVENANCE_ROWS, fields, number_labels, provenance_rows
from gputop.paint.time_axis import axis_for
from gputop.paint.verdict_history import VerdictSpan, list_rows, standing, stretches, strip
from gputop.paint.words import averaged, gpu_label, is_newest, is_red, spoken, words_for

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
        rows, most, room = joined(
            [header.header(frame, view, width), gone], [], [bar_row(["esc back"], width)], state, width, height
        )
        return DetailsPainted(rows, most, room, axis)
    gpu, d = frame.snapshot.gpus[position], frame.diagnoses[position]
    cursor = None if state.cursor_t is None else axis.column_of(state.cursor_t)
    series = ChartSeries(frame, gpu, axis, cursor)
    listed = stretches(frame, d)
    head = _head(frame, state, position, width, height)
    foot = _foot(series, state, listed, width, height)
    blocks = _blocks(series, state, position, listed, width, height - len(head) - len(foot) - 1)
    total, room = sum(block.rows for block in blocks), max(0, height - len(head) - len(foot) - 1)
    more = ["[ ] GPU"] if len(frame.snapshot.gpus) > 1 else []
    keys = key_parts(state, duration(view.span_s), max(0, total - room), room, total, *more)
    rows, most, room = joined(head, blocks, [*foot, bar_row(keys, width)], state, width, height)
    return DetailsPainted(rows, most, room, axis)


def _head(frame: Frame, state: DetailsView, position: int, width: int, height: int) -> list[Row]:
    gpu, d, glyphs = frame.snapshot.gpus[position], frame.diagnoses[position], state.view.glyphs
    rows = [header.header(frame, state.view, width), panes.title(frame, state.view, position, width)]
    words = 0 if height < 16 else 2 if height < 36 else 3
    said, remedy, extra = words_for(gpu, d, glyphs, width - 4)
    told = (spoken(d, glyphs, said, remedy, width - 4, words) + extra)[:words] if words else []
    return rows + [Line().to(2).add_all(spans).row(width) for spans in told]


def _foot(series: ChartSeries, state: DetailsView, listed: list[VerdictSpan], width: int, height: int) -> list[Row]:
    """The time axis, and the values at the cursor."""
    view = state.view
    rows = [axis_row(series.axis, view, width, series.cursor)]
    if series.cursor is None:
        return rows
    t = series.axis.middle(series.cursor)
    parts = charts.moment_fields(series, view.glyphs)
    verdict = standing(listed, t)
    if verdict is not None:
        parts.append((f"{view.glyphs.level(verdict.level)} {verdict.title}", f"level.{verdict.level}"))
    if not parts:
        parts = [("nothing was measured at this time", "dim")]
    left = parts
    for line in range(1 if height < 16 or width >= ONE_LINE else 2):
        start = (
            Line().to(2).add(f"at {clock_time(t, view.utc_offset_s)}", "key").add("  ") if line == 0 else Line().to(2)
        )
        shown = fields(left, width - start.width - 1, "  ")
        left = left[sum(text.strip() != "" for text, _ in shown) :]
        rows.append(start.add_all(shown).row(width))
    return rows


def _blocks(
    series: ChartSeries, state: DetailsView, position: int, listed: list[VerdictSpan], width: int, room: int
) -> list[LazyRows]:
    """Everything that scrolls, as tall as the room allows."""
    frame, view, glyphs = series.frame, state.view, state.view.glyphs
    gpu, d = series.gpu, frame.diagnoses[position]
    found = charts.charts_for(gpu, series, glyphs)
    lanes = charts.lane_blocks(series, width, glyphs)
    quiet = charts.quiet_links(found, series)
    fixed = 2 + 1 + 1 + len(lanes) + len(quiet) // 2
    tall = len(found) - len(quiet)
    gap_rows, other = next(
        (size for size in SIZES if size[0] + size[1] * tall + fixed <= room), (max(4, min(6, room // 2)), 2)
    )
    labels = number_labels(
        averaged(gpu, d), glyphs, alarm=d.busy_not_working is not None, red=is_red(d), newest=is_newest(d)
    )
    if series.cursor is not None:
        labels = _labels_at(series, alarm=d.busy_not_working is not None, red=is_red(d))
    blocks = [charts.gap_block(series, gap_rows, width, glyphs, labels, alarm=d.busy_not_working is not None)]
    blocks.append(LazyRows(2, lambda: _strip_rows(series, listed, width, glyphs)))
    for chart in found:
        if chart.name in quiet:
            if "_rx_" in chart.name:
                blocks.append(charts.quiet_block(chart, series, width, glyphs))
            continue
        blocks.append(charts.chart_block(chart, series, other, width, glyphs))
        if chart.name == "sm_clock_mhz":
            blocks.append(charts.throttle_block(series, width, glyphs))
        if chart.name == "mem_used_bytes":
            blocks.append(LazyRows(1, lambda: [_memory_row(series, position, width, glyphs)]))
    blocks += lanes
    seen = frame.history.marks_within(gpu.static.uuid, series.axis.begin, series.axis.end)
    if seen:
        blocks.append(LazyRows(1, lambda: [_marks_row(series, state, seen, width)]))
    blocks.append(LazyRows(1, lambda: [Line().row(width)]))
    blocks.append(LazyRows(1, lambda: [heading("verdicts, the newest first", width, glyphs)]))
    count = min(MOST_VERDICTS, len(listed))
    blocks.append(LazyRows(count, lambda: list_rows(listed, frame.snapshot.t, view, width, count)))
    blocks += host_rows.port_blocks(frame, width, glyphs)
    name = f"values of GPU {gpu_label(gpu)} and where they are from"
    if frame.snapshot.machine.is_simulated:
        name += ": simulated here, named as on a real GPU"
    blocks.append(LazyRows(1, lambda: [Line().row(width)]))
    blocks.append(LazyRows(1, lambda: [heading(shorten(name, width - 6), width, glyphs)]))
    blocks.append(LazyRows(PROVENANCE_ROWS, lambda: provenance_rows(frame.snapshot, gpu, width, glyphs)))
    return blocks


def _labels_at(series: ChartSeries, *, alarm: bool, red: bool) -> list[list[tuple[str, str]]]:
    """UTIL, SM and GAP at the cursor."""
    util, sm = series.at("util_pct"), series.at("sm_active_pct")
    gap = None if util is None or sm is None else max(0.0, util - sm)
    return [
        [("  UTIL ", "dim"), (pct(util, 4), "strong")],
        [("  SM   ", "dim"), (pct(sm, 4), "strong" if red else "value.sm")],
        [("  GAP  ", "dim"), (pct(gap, 4), "value.alarm" if alarm else "value.gap")],
    ]


def _strip_rows(series: ChartSeries, listed: list[VerdictSpan], width: int, glyphs: Glyphs) -> list[Row]:
    colours, names = strip(listed, series.axis, glyphs)
    return [
        chart_row([("  verdict", "dim")], colours, "", width, series.cursor, glyphs),
        chart_row([], with_cursor(names, series.cursor, glyphs, over_text=False), "", width, None, glyphs),
    ]


def _memory_row(series: ChartSeries, position: int, width: int, glyphs: Glyphs) -> Row:
    text, style = charts.memory_words(series.frame, position)
    return words_row("", terminal_safe(text), style, series.axis.columns, width, series.cursor, glyphs)


def _marks_row(series: ChartSeries, state: DetailsView, seen: list[tuple[float, str]], width: int) -> Row:
    """The user's marks and changes of the source, each at its time, as far as the next one leaves room."""
    glyphs, axis = state.view.glyphs, series.axis
    text = ""
    places = [(axis.column_of(t), words) for t, words in seen]
    for (at, words), following in zip(places, [place[0] for place in places[1:]] + [axis.columns], strict=True):
        if at < len(text):
            continue
        room = following - at - 1
        told = terminal_safe(words)
        if room < len(told) + 2 <= at - len(text):
            # Of a mark close to the next one, or to now, the words stand before it.
            text = text.ljust(at - len(told) - 1) + f"{told} {glyphs.sorted_up}"
            continue
        text = text.ljust(at) + shorten(f"{glyphs.sorted_up} {told}", max(1, room), glyphs.more)[: max(1, room)]
    spans = with_cursor([(text[: axis.columns].ljust(axis.columns), "value")], series.cursor, glyphs, over_text=False)
    return Line().add("  marks", "dim").to(LABEL_WIDTH).add_all(spans).row(width)
