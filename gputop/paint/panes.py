"""One GPU as a pane.

A title with the verdict, the gap chart, the numbers, the evidence and the remedy. A pane is a title row and two or more
body rows; with one or two GPUs it has the host's lanes on the chart's time axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import ceil

from gputop.diagnosis.types import NOT_WORKING_ALARM, GpuDiagnosis
from gputop.diagnosis.verdict.gpu_owners import owner_words
from gputop.diagnosis.verdict.shown import counts_truly
from gputop.diagnosis.verdict.summary import (
    LEVEL_OF_ROLE,
    LOST_TITLE,
    GpuSummary,
    since_words,
    summarize,
)
from gputop.model.clean_text import terminal_safe
from gputop.model.durations import clock_time, duration
from gputop.model.history import MINUTE_S, MINUTES_KEPT, History
from gputop.model.quantity import NOT_MEASURED, number, rate
from gputop.model.snapshot import GpuSample
from gputop.monitor import Frame
from gputop.paint.cells import shorten
from gputop.paint.charts import Column, bar, gap_chart, lane, with_marks
from gputop.paint.facts import FACTS, LEAST_TRAFFIC, board, buses, busiest_bus, counters, engines
from gputop.paint.glyphs import level_glyph
from gputop.paint.gpu_fields import fields, memory, number_labels
from gputop.paint.line import Line, Row, Span
from gputop.paint.step_words import longest_that_fits, useful_forms
from gputop.paint.time_axis import TimeAxis, axis_for, axis_spans
from gputop.paint.view import View, selected_gpu
from gputop.paint.words import (
    Field,
    badge_rows,
    because,
    gpu_label,
    is_measured,
    model_name,
    verdict_lines,
)

LABEL_WIDTH = 12
"""Cells left of the chart."""
LEAST_TALL = 4
"""Rows from which numbers and words have several rows each."""
LEAST_WITH_AXIS = 6
"""A lower chart has its span in words at the left, and no row for an axis."""
LEAST_APART = 2
"""Cells between the verdict and a step's time where there is no room for three."""
LEAST_VERDICT = 10
"""The step's time is left out where the verdict would get fewer cells and say nothing."""
SHORTEST = 2
"""Rows of a pane in which evidence and remedy share one."""
LEAST_EVIDENCE = 0.6
"""In a row shared with the remedy at least this share of the evidence must stay readable."""


class ShownGpu:
    """One GPU of a frame as a view shows it.

    Its pane, its line and its page share it.
    """

    def __init__(self, frame: Frame, view: View, position: int) -> None:
        self.frame, self.view, self.position = frame, view, position
        self.gpu: GpuSample = frame.shown.gpus[position]
        self.d: GpuDiagnosis = frame.diagnoses[position]
        self.glyphs, self.told = view.glyphs, summarize(self.d)
        self.alarm, self.red = (
            self.d.busy_not_working is not None and self.told.role == "not_working",
            self.told.role in ("not_working", "waiting"),
        )

    @cached_property
    def selected(self) -> bool:
        """Whether this is the selected GPU."""
        return self.position == selected_gpu(self.frame, self.view)

    def axis(self, columns: int, step: int) -> TimeAxis:
        """Return the time axis of the view's span."""
        return axis_for(
            self.frame.history.latest_t or self.frame.snapshot.t, self.view.span_s, columns, step
        )

    def columns(self, series: str, axis: TimeAxis) -> list[Column]:
        """Return the columns of a series on a time axis."""
        ahead = axis.ahead or 0
        uuid, count = self.gpu.static.uuid, axis.columns - ahead
        return [*self.frame.history.columns(uuid, series, axis.width_s, count), *[None] * ahead]


STEPS = 8
"""A chart moves on by this part of its columns at once: at 160×48 the demo changes 39 cells a
second, 108 where each column moves all others, and 29 with steps of a quarter, which leave too much empty."""


def pane_axis(g: ShownGpu, columns: int) -> TimeAxis:
    """Return the time axis of a pane, which moves on in steps."""
    return g.axis(columns, max(1, columns // STEPS))


def gap_rows(g: ShownGpu, axis: TimeAxis, rows: int) -> list[list[Span]]:
    """Return the gap chart on a time axis.

    A line goes through it wherever something was marked.
    """
    util, sm = g.columns("util_pct", axis), g.columns("sm_active_pct", axis)
    measured = counts_truly(g.d) and (is_measured(g.gpu) or any(value is not None for value in sm))
    drawn = gap_chart(util, sm, rows, g.glyphs, alarm=g.alarm, measured=measured)
    marked = g.frame.history.marks_within(g.gpu.static.uuid, axis.begin, g.frame.snapshot.t)
    return with_marks(drawn, [axis.column_of(t) for t, _ in marked])


def title_widths(frame: Frame) -> tuple[int, int]:
    """Return the widths of the longest label and model."""
    gpus = frame.shown.gpus
    return max(len(gpu_label(g)) for g in gpus), max(len(model_name(g.static.name)) for g in gpus)


def title(g: ShownGpu, width: int, widths: tuple[int, int] | None = None) -> Row:
    """Return the title row.

    It is red from edge to edge only while the GPU is busy and not working. It names the owner of a GPU in trouble.
    Callers that paint many pass the ``widths`` from ``title_widths``.
    """
    alarm = g.alarm
    level = "alarm.title" if alarm else f"level.{LEVEL_OF_ROLE[g.told.role]}"
    ruler, text_style = ("alarm.title", "alarm.title") if alarm else ("rule", "text")
    labels, names = widths or title_widths(g.frame)
    mark = " " if alarm else "─"
    line = Line()
    line.add(f"{mark} ", ruler)
    line.add(
        f"{gpu_label(g.gpu):<{labels}}  {model_name(g.gpu.static.name):<{min(names, 20)}}", level
    )
    line.add("   ", ruler)
    figure = figure_words(g.told)
    room = width - len(figure) - 5
    forms = useful_forms(g.frame, g.gpu)
    # A step's time is shown only here, and a number is never cut; the verdict may be, since its words follow below.
    reserved = len(forms[-1]) + LEAST_APART if forms else 0
    verdict = _verdict(g, room - reserved - line.width if forms else None)
    line.add_all(verdict)
    badges = [
        (f"   {level_glyph(badge.level)} {badge.title}", badge.level)
        for badge in g.told.other_badges
    ]
    owner = owner_of(
        g.told, room - reserved - line.width - sum(len(text) for text, _ in badges) - len(OWNED)
    )
    line.add(OWNED + owner if owner else "", text_style)
    for words, badge_level in badges:
        if line.width + len(words) > room - reserved:
            break
        line.add(words, "alarm.title" if alarm else f"level.{badge_level}")
    apart = 3 if line.width + reserved < room else LEAST_APART
    if steps := longest_that_fits(forms, room - line.width - apart):
        line.add(" " * apart + steps, text_style)
    if line.width <= room:
        line.add(" ", ruler).rule(width - len(figure) - 3, mark, ruler)
        line.add(f" {figure} " if figure else "", "alarm.title" if alarm else "dim").add(
            mark, ruler
        )
    elif alarm:
        line.to(width, "alarm.title")
    return line.row(width)


OWNED, LEAST_OWNER = " · ", 8
"""What stands before the owner of a GPU; with fewer cells than these its name would say nothing."""


def owner_of(told: GpuSummary, room: int) -> str:
    """Return the owner of a GPU in trouble.

    Cut to ``room`` cells; empty for others, and where it is not known.
    """
    if told.owner is None or told.role not in ("not_working", "waiting") or room < LEAST_OWNER:
        return ""
    return shorten(terminal_safe(owner_words(told.owner)), room)


def trouble_since(g: ShownGpu) -> str:
    """Return since when a GPU is in trouble.

    With the time wasted since then; empty for others.
    """
    return since_words(g.told, g.view.utc_offset_s, whole=True) if g.red else ""


def _verdict(g: ShownGpu, room: int | None) -> list[Span]:
    """Return a title's verdict in at most ``room`` cells.

    It is abbreviated as far as it stays readable.
    """
    gpu, d = g.gpu, g.d
    level = LEVEL_OF_ROLE[g.told.role]
    if gpu.lost_reason is not None:
        since = (
            ""
            if gpu.lost_since is None
            else f" since {clock_time(gpu.lost_since, g.view.utc_offset_s)}"
        )
        return [(f"■ {LOST_TITLE}{since}", "level.red")]
    if not g.alarm:
        text, style = f"{level_glyph(level)} {g.told.words}", f"level.{level}"
        if room is None or len(text) <= room or room < LEAST_VERDICT:
            return [(text, style)]
        short = f"{level_glyph(level)} {d.short}"
        return [(short if len(short) <= room else shorten(text, room), style)]
    text = f"■ {NOT_WORKING_ALARM}"
    forms = (f"{text}  {words}" for words in (d.title, d.short))
    return [
        (next((form for form in forms if room is None or len(form) <= room), text), "alarm.title")
    ]


def figure_words(told: GpuSummary) -> str:
    """Return the verdict's number with its word.

    In one form at every size; empty before there is a verdict.
    """
    number = told.number
    if number is None:
        return ""
    return (
        f"{number.measure} {NOT_MEASURED:>5}"
        if number.value is None
        else f"{number.measure} {number.value:3.0f} %"
    )


def pane(g: ShownGpu, width: int, rows: int, widths: tuple[int, int] | None = None) -> list[Row]:
    """Return a pane with its words beside the chart.

    Title, and below it labels, gap chart and text side by side: ``rows`` rows, at least 3.
    """
    painted, rows = [title(g, width, widths)], rows - 1
    columns = max(12, round((width - LABEL_WIDTH) * 0.415))
    info_column = LABEL_WIDTH + columns + 3
    info_width = width - info_column - 1
    has_axis = rows >= LEAST_WITH_AXIS
    axis = pane_axis(g, columns)
    charts = gap_rows(g, axis, rows - 1 if has_axis else rows)
    if has_axis:
        charts.append(axis_spans(axis, g.view.utc_offset_s, None))
    labels = number_labels(g.gpu, g.d, rows)
    texts = (_tall_info if rows >= LEAST_TALL else _short_info)(g, info_width, rows)
    for row in range(rows):
        line = Line()
        if row < len(labels):
            line.add_all(labels[row])
        elif row == rows - 1 and not has_axis:
            line.add(f"  -{duration(g.view.span_s)}", "dim")
        line.to(LABEL_WIDTH).add_all(charts[row]).to(info_column)
        if row < len(texts):
            line.add_all(texts[row])
        painted.append(line.row(width))
    return painted


def facts(g: ShownGpu) -> list[Field]:
    """Return counters, board and buses, the most telling first.

    Of a lost GPU the last values.
    """
    if g.gpu.lost_reason is not None:
        return last_seen(g)
    return counters(g.gpu) + board(g.gpu) + buses(g.gpu)


LAST_SEEN = ("util_pct", "power_w", "temp_c", "sm_active_pct", "mem_used_bytes")
"""What is told of a GPU before it was lost."""
LAST_SEEN_S, MOST_LOOKED_BACK_S = 10.0, 600.0
"""How long before its loss the last values of a GPU may be; and how far back history has each second."""


def last_seen(g: ShownGpu) -> list[Field]:
    """Return a lost GPU's last values, marked as past.

    Values from long before its loss are left out.
    """
    gpu = g.gpu
    if gpu.lost_reason is None:
        return []
    ago_s = LAST_SEEN_S
    if gpu.lost_since is not None:
        ago_s += g.frame.snapshot.t - gpu.lost_since
    values: list[Field] = []
    for key in LAST_SEEN:
        value = _last_value(g.frame.history, gpu.static.uuid, key, ago_s)
        if value is not None:
            values.append((FACTS[key].text(value), "dim"))
    return [("before it was lost:", "dim"), *values] if values else []


def _last_value(history: History, uuid: str, key: str, ago_s: float) -> float | None:
    """Return the last value of a series that is not older than ``ago_s`` seconds; later its minute's mean."""
    if ago_s <= MOST_LOOKED_BACK_S:
        values = [value for _, value in history.recent(uuid, key, ago_s)]
    else:
        values = history.columns(uuid, key, MINUTE_S, min(MINUTES_KEPT, ceil(ago_s / MINUTE_S)))
    return next((value for value in reversed(values) if value is not None), None)


def memory_spans(g: ShownGpu, width: int, bar_width: int) -> list[Span]:
    """Return memory as a bar and in figures.

    Since when the GPU is in trouble follows where that has room.
    """
    gpu = g.gpu
    spans: list[Span] = [("MEM  ", "dim")]
    spans += bar(gpu.mem_used_bytes, gpu.mem_total_bytes, bar_width, g.glyphs, "bar.used")
    spans.append((f" {memory(gpu)}", "text"))
    since = trouble_since(g)
    if since and sum(len(text) for text, _ in spans) + 3 + len(since) <= width:
        spans.append((f"   {since}", "text"))
    return spans


def _tall_info(g: ShownGpu, width: int, rows: int) -> list[list[Span]]:
    metrics = [fields(facts(g), width)]
    if g.gpu.lost_reason is None:
        metrics.insert(0, memory_spans(g, width, 12 if width >= 60 else 8))
        if g.selected:
            metrics.append(engines(g.gpu, width))
    return verdict_lines(g.gpu, g.d, width, rows, metrics)


def _short_info(g: ShownGpu, width: int, rows: int) -> list[list[Span]]:
    gpu = g.gpu
    numbers: list[Field] = [
        *counters(gpu),
        (memory(gpu), "text"),
        (FACTS["power_w"].text(gpu.power_w), "text"),
        (FACTS["temp_c"].text(gpu.temp_c), "text"),
        *busiest_bus(gpu),
    ]
    if gpu.lost_reason is not None:
        numbers = last_seen(g)
    if not g.red:
        # On a GPU on which nothing is wrong nothing stands out.
        numbers = [(text, "dim") for text, _ in numbers]
    first = fields(numbers, width, "  ")
    evidence, style = because(g.d, gpu)
    if not evidence:
        return [first]
    lead = "" if style == "dim" else "↳ "
    helps = f"→ {g.told.remedy_short}" if g.told.remedy_short and g.red else ""
    if rows > SHORTEST and helps:
        bound = f" · {g.told.worth.words()}" if g.told.worth.words() else ""
        helps = f"{helps}{bound}" if len(helps) + len(bound) <= width else helps[:width]
        return [first, [(lead + shorten(evidence, width - len(lead)), style)], [(helps, "remedy")]]
    tail = f" {helps}" if helps else ""
    if (width - len(lead) - len(tail)) < LEAST_EVIDENCE * len(evidence):
        tail = ""
    return [
        first,
        [(lead + shorten(evidence, width - len(lead) - len(tail)), style), (tail, "remedy")],
    ]


AXIS_WIDTH, SCALE_WIDTH = 13, 5
"""Cells right of a chart: with the numbers of the lanes below it, and for its scale alone."""
LANES: tuple[tuple[str, str, str], ...] = (
    ("GPU idle", "idle_pct", "lane.idle"),
    ("loaders", "loader_run_pct", "lane.run"),
    ("queued", "loader_wait_pct", "lane.wait"),
    ("disk", "loader_disk_pct", "lane.disk"),
    ("network", "loader_network_pct", "lane.disk"),
    ("main", "main_pct", "lane.main"),
)
"""Label, series of the diagnosis, style of each lane under the chart."""


LEAST_BUS_TOP = 2.0 * LEAST_TRAFFIC
"""Bytes a second at the top of the lane of a bus at least: what is written as 0 GB/s is no full bar."""


def chart(
    g: ShownGpu, width: int, rows: int, *, titled: bool = True, axis_width: int = AXIS_WIDTH
) -> list[Row]:
    """Return title, gap chart and time line.

    They take ``rows`` + 2 rows.
    """
    axis = pane_axis(g, width - LABEL_WIDTH - 1 - axis_width)
    charts = gap_rows(g, axis, rows)
    labels = number_labels(g.gpu, g.d)
    step = max(1, rows // len(labels)) if rows >= len(labels) else 1
    # Of four rows none is in the middle.
    scale = {rows // 2: " 50" if rows > 5 or rows % 2 else "", rows - 1: " 0", 0: " 100"}
    painted = [title(g, width)] if titled else []
    for row in range(rows):
        line = Line()
        if row % step == 0 and row // step < len(labels):
            line.add_all(labels[row // step])
        line.to(LABEL_WIDTH).add_all(charts[row])
        painted.append(line.add(scale.get(row, ""), "dim").row(width))
    painted.append(
        Line().to(LABEL_WIDTH).add_all(axis_spans(axis, g.view.utc_offset_s, None)).row(width)
    )
    return painted


def lanes(g: ShownGpu, width: int) -> list[Row]:
    """Return the host's activity on the chart's time axis.

    The number at the right is the mean over the diagnosis window.
    """
    d = g.d
    axis = pane_axis(g, width - LABEL_WIDTH - 1 - AXIS_WIDTH)
    window = (axis.ahead or 0) + (max(1, round(d.window_s / axis.width_s)) if d.window_s else 1)
    painted = []
    for label, series, style in LANES:
        values = g.columns(series, axis)
        mean = _mean(values[-window:])
        if series == "idle_pct" and d.means is not None and d.means.util_pct is not None:
            # The title says the same number.
            mean = 100.0 - d.means.util_pct
        share = f"{NOT_MEASURED:>5}" if mean is None else f"{number(mean, 3)} %"
        painted.append(_lane_row(label, lane(values, style), share, width))
    into = g.columns("pcie_rx_bytes_per_s", axis)
    highest = max((value for value in into if value is not None), default=0.0)
    top = max(highest, LEAST_BUS_TOP)
    scaled: list[Column] = [None if value is None else value / top * 100 for value in into]
    drawn = lane(scaled, "lane.bus")
    painted.append(_lane_row("PCIe ↓", drawn, rate(_mean(into[-window:]), 9), width))
    return painted


def _lane_row(label: str, span: Span, text: str, width: int) -> Row:
    line = Line().add(f"  {label}", "dim").to(LABEL_WIDTH).add(*span)
    return line.add(" ").add(text, "value").row(width)


def _mean(values: Sequence[Column]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def evidence_rows(g: ShownGpu, width: int, rows: int) -> list[Row]:
    """Return evidence, remedy, badges and notes.

    Over the full width, in at most ``rows`` rows.
    """
    lines = verdict_lines(g.gpu, g.d, width - 4, rows)
    return [Line().to(2).add_all(spans).row(width) for spans in lines]


def numbers(g: ShownGpu, width: int) -> Row:
    """Return memory and the facts that fit, in one row."""
    line = Line().to(2)
    if g.gpu.lost_reason is None:
        line.add_all(memory_spans(g, 0, 12)).add("   ")
    since = trouble_since(g)
    listed = [*facts(g), *([(since, "text")] if since else [])]
    return line.add_all(fields(listed, width - line.width - 1)).row(width)


LEAST_WORDY, LEAST_WITH_LANES = 11, 18
"""Rows from which a pane with its words below the chart has four rows of them; and the host's lanes."""
LEAST_CHART = 3
"""Rows that a pane's chart keeps, whatever there is to say about badges."""


def _words_rows(g: ShownGpu, rows: int) -> int:
    """Return the rows of words below a pane's chart.

    Fixed for a verdict, so that a chart does not move when a number of its evidence changes.
    """
    if not g.told.remedy:
        return 2
    return 3 if rows < LEAST_WORDY else 4


def _has_engines(g: ShownGpu, rows: int) -> bool:
    return g.selected and rows >= LEAST_WORDY and g.gpu.lost_reason is None


def rows_below(g: ShownGpu, rows: int) -> int:
    """Return the rows of engines and words below the chart of a pane with ``rows`` rows."""
    return _words_rows(g, rows) + _has_engines(g, rows)


def full_pane(
    g: ShownGpu,
    width: int,
    rows: int,
    widths: tuple[int, int] | None = None,
    least_below: int = 0,
) -> list[Row]:
    """Return a pane with its chart over the whole width.

    Below it the host's lanes where there is room, numbers and words: ``rows`` rows. ``least_below`` is the most that
    ``rows_below`` says of the panes beside it, so that their charts are equally high.
    """
    has_lanes = rows >= LEAST_WITH_LANES
    beside = lanes(g, width) if has_lanes else []
    has_engines = _has_engines(g, rows)
    more = [Line().to(2).add_all(engines(g.gpu, width - 3)).row(width)] if has_engines else []
    words = max(_words_rows(g, rows), least_below - len(more))
    room = rows - 3 - len(beside) - len(more)
    # Without a remedy of its own a verdict leaves the second of its rows to a badge.
    to_say = words + badge_rows(g.told, width - 4) - (0 if g.told.remedy else 1)
    words = max(words, min(to_say, room - LEAST_CHART))
    spoken = evidence_rows(g, width, words)
    chart_rows = room - words
    drawn = chart(
        g, width, chart_rows, titled=False, axis_width=AXIS_WIDTH if has_lanes else SCALE_WIDTH
    )
    empty = [Line().row(width)] * (words - len(spoken))
    return [title(g, width, widths), *drawn, *beside, numbers(g, width), *more, *spoken, *empty]
