"""One GPU as a pane: a title with the verdict, the gap chart, the numbers, the evidence and the remedy.

A pane is a title row and two or more body rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from gputop.diagnosis.telling import LEVEL_OF_ROLE, LOST_TITLE, owner_words, since_words, telling
from gputop.diagnosis.types import NOT_WORKING_ALARM, GpuDiagnosis
from gputop.model.quantity import NOT_MEASURED, duration, terminal_safe
from gputop.model.snapshot import GpuSample
from gputop.monitor import Frame
from gputop.paint import host_rows, layout
from gputop.paint.charts import LABEL_WIDTH, Column, axis, bar, chart_rows, chart_width, lane
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row, ScreenRows, Span, Target, clock_time, elapsed, pct, rate, shorten, whole
from gputop.paint.numbers import Field, board, buses, busiest_bus, counters, fields, memory, number_labels, watts
from gputop.paint.verdict_history import VerdictSpan, verdict_spans
from gputop.paint.view import View, selected_gpu
from gputop.paint.words import (
    averaged,
    because,
    busiest_share,
    emphasised,
    evidence_and_remedy,
    first_rows,
    gpu_label,
    is_newest,
    is_red,
    just_changed,
    longest_that_fits,
    model_name,
    useful_forms,
    words_for,
)

LAST_SEEN_S = 10.0
MOST_LOOKED_BACK_S = 600.0
"""How far before and after its loss the last values of a GPU are looked for; full rate is kept for ten minutes."""
LEAST_TALL = 4
"""Rows from which numbers and words have several rows each."""
LEAST_WITH_AXIS = 6
"""A lower chart has its span in words at the left, and no row for an axis."""
LEAST_APART = 2
"""Cells between the verdict and a step's time where there is no room for three."""
LEAST_VERDICT = 10
"""The step's time is left out where the verdict would get fewer cells and say nothing."""
LEAST_VERDICTS = 40
"""Cells from which the last verdicts are told beside the lanes."""
SHORTEST = 2
"""Rows of a pane in which evidence and remedy share one."""
LEAST_EVIDENCE = 0.6
"""In a row shared with the remedy at least this share of the evidence must stay readable."""


def title_widths(frame: Frame) -> tuple[int, int]:
    """The widths that the longest label and the longest model name of a frame's GPUs need in a title."""
    gpus = frame.snapshot.gpus
    return max(len(gpu_label(g)) for g in gpus), max(len(model_name(g.static.name)) for g in gpus)


def title(frame: Frame, view: View, position: int, width: int, widths: tuple[int, int] | None = None) -> Row:
    """The title row; red from edge to edge only while the GPU is busy and not working.

    It names whose process a GPU in trouble is. ``widths`` are those of ``title_widths``, for callers that paint many.
    """
    gpu, d, glyphs = frame.snapshot.gpus[position], frame.diagnoses[position], view.glyphs
    told = telling(d)
    alarm = d.busy_not_working is not None
    level = "alarm.title" if alarm else f"level.{LEVEL_OF_ROLE[told.role]}"
    ruler, text_style = ("alarm.title", "alarm.title") if alarm else ("rule", "text")
    labels, names = title_widths(frame) if widths is None else widths
    mark = " " if alarm else glyphs.rule
    line = Line()
    if view.focus == "gpus" and position == selected_gpu(frame, view):
        line.add(glyphs.here, "alarm.title" if alarm else "strong")
    else:
        line.add(mark, ruler)
    line.add(" ", ruler)
    line.add(f"{gpu_label(gpu):<{labels}}  {model_name(gpu.static.name):<{min(names, 20)}}", level)
    line.add("   ", ruler)
    figure = figure_words(d)
    room = width - len(figure) - 5
    forms = useful_forms(frame, gpu)
    # A step's time is shown only here, and a number is never cut; the verdict may be, since its words follow below.
    reserved = len(forms[-1]) + LEAST_APART if forms else 0
    verdict = _verdict(gpu, d, view, room - reserved - line.width if forms else None)
    line.add_all(emphasised(verdict, changed=just_changed(frame.snapshot, d)))
    badges = [(f"   {glyphs.level(badge.level)} {badge.title}", badge.level) for badge in told.beside]
    owner = owner_of(d, room - reserved - line.width - sum(len(text) for text, _ in badges) - len(OWNED))
    if owner:
        line.add(OWNED + owner, text_style)
    for words, badge_level in badges:
        if line.width + len(words) > room - reserved:
            break
        line.add(words, "alarm.title" if alarm else f"level.{badge_level}")
    apart = 3 if line.width + reserved < room else LEAST_APART
    steps = longest_that_fits(forms, room - line.width - apart)
    if steps:
        line.add(" " * apart + steps, text_style)
    if line.width <= room:
        line.add(" ", ruler)
        line.rule(width - len(figure) - 3, " " if alarm else glyphs.rule, ruler)
        line.add(f" {figure} " if figure else "", "alarm.title" if alarm else "dim").add(
            " " if alarm else glyphs.rule, ruler
        )
    elif alarm:
        line.to(width, "alarm.title")
    return line.row(width)


OWNED, LEAST_OWNER = " · ", 8
"""What stands before the owner of a GPU; with fewer cells than these its name would say nothing."""


def owner_of(d: GpuDiagnosis, room: int) -> str:
    """Whose process a GPU that is in trouble is, cut to ``room`` cells; empty for others, and where it is not known."""
    told = telling(d)
    if told.owner is None or told.role not in ("not_working", "waiting") or room < LEAST_OWNER:
        return ""
    return shorten(terminal_safe(owner_words(told.owner)), room)


def trouble_since(d: GpuDiagnosis, view: View) -> str:
    """Since when a GPU is in trouble, and how much of that it lost; empty for others."""
    return since_words(telling(d), view.utc_offset_s) if is_red(d) else ""


def _verdict(gpu: GpuSample, d: GpuDiagnosis, view: View, room: int | None) -> list[Span]:
    """The verdict of a title, abbreviated to ``room`` cells as far as it stays readable."""
    glyphs, told = view.glyphs, telling(d)
    level = LEVEL_OF_ROLE[told.role]
    if gpu.lost_reason is not None:
        since = "" if gpu.lost_since is None else f" since {clock_time(gpu.lost_since, view.utc_offset_s)}"
        return [(f"{glyphs.red} {LOST_TITLE}{since}", "level.red")]
    if d.busy_not_working is None:
        text, style = f"{glyphs.level(level)} {told.words}", f"level.{level}"
        if room is None or len(text) <= room or room < LEAST_VERDICT:
            return [(text, style)]
        short = f"{glyphs.level(level)} {d.short}"
        return [(short if len(short) <= room else shorten(text, room), style)]
    text = f"{glyphs.red} {NOT_WORKING_ALARM}"
    room_left = None if room is None else room - len(text)
    for apart, words in ((2, d.title), (LEAST_APART, d.short)):
        if room_left is None or apart + len(words) <= room_left:
            return [(f"{text}{' ' * apart}{words}", "alarm.title")]
    return [(text, "alarm.title")]


def figure_words(d: GpuDiagnosis) -> str:
    """The number of the verdict with its word, in one form at every size; nothing before there is a verdict."""
    number = telling(d).number
    if number is None:
        return ""
    return f"{number.measure} {NOT_MEASURED:>5}" if number.value is None else f"{number.measure} {number.value:3.0f} %"


def body(frame: Frame, view: View, position: int, width: int, rows: int, columns: int | None = None) -> list[Row]:
    """The rows under the title: labels, gap chart of ``columns`` and text side by side; ``rows`` is at least 2."""
    d, glyphs = frame.diagnoses[position], view.glyphs
    gpu = averaged(frame, position)
    columns = chart_width(width) if columns is None else columns
    info_column = LABEL_WIDTH + columns + 3
    info_width = width - info_column - 1
    has_axis = rows >= LEAST_WITH_AXIS
    charts = chart_rows(frame, view, gpu, d, columns, rows - 1 if has_axis else rows)
    if has_axis:
        charts.append(list(axis(view, columns)))
    labels = number_labels(gpu, glyphs, rows, alarm=d.busy_not_working is not None, red=is_red(d), newest=is_newest(d))
    if rows >= LEAST_TALL:
        texts = _tall_info(frame, view, position, gpu, info_width, rows)
    else:
        texts = _short_info(frame, gpu, d, glyphs, info_width, rows)
    painted = []
    for row in range(rows):
        line = Line()
        if row < len(labels):
            line.add_all(labels[row])
        elif row == rows - 1 and not has_axis:
            line.add(f"  -{duration(view.span_s)}", "dim")
        line.to(LABEL_WIDTH).lay(charts[row], columns).to(info_column)
        if row < len(texts):
            line.add_all(texts[row])
        painted.append(line.row(width))
    return painted


def _tall_info(frame: Frame, view: View, position: int, gpu: GpuSample, width: int, rows: int) -> list[list[Span]]:
    d, glyphs = frame.diagnoses[position], view.glyphs
    mem: list[Span] = [("MEM  ", "dim")]
    mem += bar(gpu.mem_used_bytes, gpu.mem_total_bytes, 12 if width >= 60 else 8, glyphs, "bar.mem")
    mem += [(f" {memory(gpu)}", "text")]
    since = trouble_since(d, view)
    if since and sum(len(text) for text, _ in mem) + 3 + len(since) <= width:
        mem.append((f"   {since}", "text"))
    metrics: list[list[Span]] = [mem, fields(counters(gpu) + board(gpu, glyphs) + buses(gpu, glyphs), width)]
    if gpu.lost_reason is not None:
        metrics = [fields(last_seen(frame, gpu, glyphs), width, "  ")]
    evidence, remedy, extra = words_for(gpu, d, glyphs, width)
    # The words matter more than the second row of numbers; the first one always stays.
    metric_rows = metrics[: max(1, rows - len(evidence) - len(remedy))]
    return first_rows(
        metric_rows + evidence_and_remedy(d, glyphs, evidence, remedy, width, rows - len(metric_rows)) + extra,
        rows,
        width,
        glyphs,
    )


def last_seen(frame: Frame, gpu: GpuSample, glyphs: Glyphs) -> list[Field]:
    """What a lost GPU last showed, marked as past; values from too long ago are left out."""
    ago = LAST_SEEN_S if gpu.lost_since is None else frame.snapshot.t - gpu.lost_since + LAST_SEEN_S
    last_fields: list[Field] = []
    for name, form, unit in (
        ("util_pct", "UTIL {:.0f}", 1.0),
        ("sm_active_pct", "SM {:.0f}", 1.0),
        ("mem_used_bytes", "{:.1f} GiB", 2.0**30),
        ("power_w", "{:.0f} W", 1.0),
        ("temp_c", f"{{:.0f}} {glyphs.degree}", 1.0),
    ):
        samples = frame.history.recent(gpu.static.uuid, name, min(ago, MOST_LOOKED_BACK_S))
        last = next((value for _, value in reversed(samples) if value is not None), None)
        if last is not None:
            last_fields.append((form.format(last / unit), "dim"))
    return [("before it was lost:", "dim"), *last_fields] if last_fields else []


def _short_info(
    frame: Frame, gpu: GpuSample, d: GpuDiagnosis, glyphs: Glyphs, width: int, rows: int
) -> list[list[Span]]:
    numbers: list[Field] = [
        *counters(gpu),
        (memory(gpu), "text"),
        (f"{watts(gpu.power_w)} W", "text"),
        (f"{whole(gpu.temp_c, 2)} {glyphs.degree}", "text"),
        *busiest_bus(gpu, glyphs),
    ]
    told = telling(d)
    if not is_red(d):
        # On a GPU on which nothing is wrong nothing stands out.
        numbers = [(text, "dim") for text, _ in numbers]
    if gpu.lost_reason is not None:
        numbers = last_seen(frame, gpu, glyphs)
    evidence, style = because(d, gpu)
    second: list[Span] = []
    helps = told.remedy_short and is_red(d)
    if evidence:
        lead = "" if style == "dim" else f"{glyphs.because} "
        if rows > SHORTEST and helps:
            third: list[Span] = [(f"{glyphs.remedy} {told.remedy_short}"[:width], "remedy")]
            return [fields(numbers, width, "  "), [(lead + shorten(evidence, width - len(lead)), style)], third]
        tail = f" {glyphs.remedy} {told.remedy_short}" if helps else ""
        if (width - len(lead) - len(tail)) < LEAST_EVIDENCE * len(evidence):
            tail = ""
        second = [(lead + shorten(evidence, width - len(lead) - len(tail)), style), (tail, "remedy")]
    return [fields(numbers, width, "  "), second]


# The pane of a machine with one or two GPUs: a tall gap chart with its axis, and the host's lanes on the same time.

AXIS_WIDTH = 13
LANES: tuple[tuple[str, str, str], ...] = (
    ("GPU idle", "idle_pct", "lane.idle"),
    ("loaders", "loader_run_pct", "lane.run"),
    ("queued", "loader_wait_pct", "lane.wait"),
    ("disk", "loader_disk_pct", "lane.disk"),
    ("network", "loader_network_pct", "lane.disk"),
    ("main", "main_pct", "lane.main"),
)
"""Label, series of the diagnosis, style of each lane under the chart."""


def chart(frame: Frame, view: View, position: int, width: int, rows: int) -> list[Row]:
    """Title, the gap chart with its axis, and the time line below: ``rows`` + 2 rows."""
    d = frame.diagnoses[position]
    gpu = averaged(frame, position)
    chart_width = width - LABEL_WIDTH - 1 - AXIS_WIDTH
    charts = chart_rows(frame, view, gpu, d, chart_width, rows)
    labels = number_labels(gpu, view.glyphs, alarm=d.busy_not_working is not None, red=is_red(d), newest=is_newest(d))
    step = max(1, rows // len(labels)) if rows >= len(labels) else 1
    painted = [title(frame, view, position, width)]
    for row in range(rows):
        line = Line()
        if row % step == 0 and row // step < len(labels):
            line.add_all(labels[row // step])
        line.to(LABEL_WIDTH).add_all(charts[row])
        if row == 0:
            line.add(" 100", "dim")
        elif row == rows - 1:
            line.add(" 0", "dim")
        elif row == rows // 2 and (rows > 5 or rows % 2):
            # Of four rows none is in the middle.
            line.add(" 50", "dim")
        painted.append(line.row(width))
    painted.append(Line().to(LABEL_WIDTH).add_all(axis(view, chart_width)).row(width))
    return painted


def lanes(frame: Frame, view: View, position: int, width: int) -> list[Row]:
    """What the host did, on the chart's time axis; the number at the right is the mean over the diagnosis window.

    Where the busiest feeder stands out from the mean, its share is added: ``25 % max 100``.
    """
    gpu, d, glyphs = frame.snapshot.gpus[position], frame.diagnoses[position], view.glyphs
    chart_width = width - LABEL_WIDTH - 1 - AXIS_WIDTH
    column_s = view.span_s / chart_width
    window = max(1, round(d.window_s / column_s)) if d.window_s else 1
    painted = []
    for label, series, style in LANES:
        values = frame.history.columns(gpu.static.uuid, series, column_s, chart_width)
        busiest = busiest_share(d, series)
        busiest_text = "" if busiest is None else f" max {100.0 * busiest:.0f}"
        mean = _mean(values[-window:])
        if series == "idle_pct" and d.means is not None and d.means.util_pct is not None:
            # The title says the same number.
            mean = 100.0 - d.means.util_pct
        painted.append(_lane_row(label, lane(values, glyphs, style), _share(mean), width, busiest_text))
    into = frame.history.columns(gpu.static.uuid, "pcie_rx_bytes_per_s", column_s, chart_width)
    highest = max((value for value in into if value is not None), default=0.0)
    scaled: list[Column] = [None if value is None else value / highest * 100 if highest else 0.0 for value in into]
    text = rate(_mean(into[-window:]))
    painted.append(_lane_row(f"PCIe {glyphs.down}", lane(scaled, glyphs, "lane.bus"), text, width))
    return painted


def verdicts(frame: Frame, view: View, position: int, width: int, rows: int) -> list[Row]:
    """A head and the newest verdicts in at most ``rows`` rows: since when, for how long, and which."""
    # A few more than there are rows: neighbours that read the same share one.
    listed = verdict_spans(frame, frame.diagnoses[position], 2 * rows)
    now = frame.snapshot.t
    if width < LEAST_VERDICTS or len(listed) < 2:
        return []
    rows_of_verdicts = [Line().add("verdicts, the newest first", "dim").row(width)]
    for begin, end, words in _merged_spans(listed)[: rows - 1]:
        line = Line().add(f"{clock_time(begin, view.utc_offset_s)} {elapsed((end or now) - begin)}  ", "dim")
        line.add(shorten(words, width - line.width, view.glyphs.more), "dim" if end else "text")
        rows_of_verdicts.append(line.row(width))
    return rows_of_verdicts


def _merged_spans(listed: Sequence[VerdictSpan]) -> list[tuple[float, float | None, str]]:
    """(begin, end, title) of each verdict, the newest first; neighbours that read the same are one."""
    apart: list[tuple[float, float | None, str]] = []
    for span in reversed(listed):
        if apart and apart[-1][2] == span.title:
            apart[-1] = (span.begin, apart[-1][1], span.title)
        else:
            apart.append((span.begin, span.end, span.title))
    return apart


def _lane_row(label: str, span: tuple[str, str], text: str, width: int, busiest_text: str = "") -> Row:
    line = Line().add(f"  {label}", "dim").to(LABEL_WIDTH).add(*span)
    return line.add(" ").add(text, "value").add(busiest_text, "evidence").row(width)


def _share(value: float | None) -> str:
    return f"{NOT_MEASURED:>5}" if value is None else f"{pct(value)} %"


def _mean(values: Sequence[Column]) -> float | None:
    measured = [value for value in values if value is not None]
    return sum(measured) / len(measured) if measured else None


def evidence_rows(frame: Frame, view: View, position: int, width: int, rows: int) -> list[Row]:
    """Evidence, remedy, badges and notes over the full width, in at most ``rows`` rows."""
    gpu, d = frame.snapshot.gpus[position], frame.diagnoses[position]
    evidence, remedy, extra = words_for(gpu, d, view.glyphs, width - 4)
    words_rows = evidence_and_remedy(d, view.glyphs, evidence, remedy, width - 4, rows) + extra
    lines = first_rows(words_rows, rows, width - 4, view.glyphs)
    return [Line().to(2).add_all(spans).row(width) for spans in lines]


def numbers(frame: Frame, view: View, position: int, width: int) -> list[Row]:
    """Memory as a bar, counters, board and buses: two rows."""
    gpu, glyphs = averaged(frame, position), view.glyphs
    line = Line().to(2).add("MEM ", "dim").add_all(bar(gpu.mem_used_bytes, gpu.mem_total_bytes, 24, glyphs, "bar.mem"))
    line.add(f" {memory(gpu)}   ", "text")
    line.add_all(fields(counters(gpu), width - line.width - 1))
    since = trouble_since(frame.diagnoses[position], view)
    rest = fields(board(gpu, glyphs) + buses(gpu, glyphs) + ([(since, "text")] if since else []), width - 3)
    return [line.row(width), Line().to(2).add_all(rest).row(width)]


def add_big_panes(out: ScreenRows, frame: Frame, view: View, width: int) -> None:
    """One or two GPUs: tall charts with lanes, words, numbers, and the host on one line."""
    selected = selected_gpu(frame, view)
    gpus = frame.snapshot.gpus
    count = len(gpus)
    beneath = len(LANES) + 1
    host = [host_rows.load(frame, view, width), *host_rows.attribution_rows(frame, view, width)[:1]]
    # Titles and time axes, lanes, three rows of words, two of numbers, the host, the table's head.
    needed = count * 2 + beneath + 3 + 2 + len(host) + 2
    room = out.left - needed - layout.LEAST_PROCESSES
    air = room - 9 * count >= 3
    rows = layout.big_chart(5 if count == 1 else 4, room - (3 if air else 0), count, out.height)
    empty = Line().row(width)
    for position in range(count):
        out.extend(chart(frame, view, position, width, rows), Target("gpu", gpus[position].static.uuid))
        if position == selected:
            out.extend(lanes(frame, view, position, width))
            if air:
                out.add(empty)
            out.extend(evidence_rows(frame, view, position, width, 3))
            if air:
                out.add(empty)
            out.extend(numbers(frame, view, position, width))
    out.extend(host)
    if air:
        out.add(empty)
