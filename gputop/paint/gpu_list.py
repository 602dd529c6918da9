"""The one-line-a-GPU layout, for small terminals and for GPUs beyond what panes have room for."""

from __future__ import annotations

from gputop.diagnosis.telling import LEVEL_OF_ROLE, LOST_TITLE, telling
from gputop.diagnosis.types import NOT_WORKING_ALARM, GpuDiagnosis
from gputop.model.quantity import GIB, duration, terminal_safe
from gputop.model.snapshot import GpuSample
from gputop.monitor import Frame
from gputop.paint import host_rows, layout, panes
from gputop.paint.charts import chart_rows
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row, ScreenRows, Span, Target, pct, shorten, whole, words_target
from gputop.paint.numbers import sm_text, watts
from gputop.paint.panes import OWNED, figure_words, owner_of, trouble_since
from gputop.paint.view import View, selected_gpu
from gputop.paint.words import (
    averaged,
    emphasised,
    evidence_and_remedy,
    first_rows,
    gpu_label,
    is_newest,
    is_red,
    just_changed,
    step_words,
    words_for,
)

LEAST_FIGURE_WIDTH = 100
"""On a narrower screen the verdict's words need the room of its number."""
LEAST_CHART_WIDTH, LEAST_CHART_ROWS = 60, 3
"""With fewer rows the selected GPU of the list gets no chart of its own."""


def list_header(width: int, chart_width: int, label_width: int, span_s: float) -> Row:
    """Column heads of the one-line-a-GPU layout; above the charts stands how far back they go."""
    line = Line().add(" GPU", "heading")
    back = f"-{duration(span_s)}"
    at = max(label_width + 3, line.width + 1)
    if label_width + 2 + chart_width >= at + len(back):
        line.to(at).add(back, "dim")
    if chart_width >= len(back) + 8:
        line.to(label_width + 2 + chart_width - 3).add("now", "dim")
    line.to(label_width + 2 + chart_width)
    line.add(" UTIL   SM", "heading")
    if width >= 76:
        line.add("  MEM GiB    W  °C", "heading")
    return line.add("  verdict", "heading").row(width)


def list_row(
    frame: Frame, view: View, position: int, width: int, chart_width: int, label_width: int, *, selected: bool
) -> Row:
    """One GPU on one line: mini chart, UTIL, SM, memory, power, temperature, verdict."""
    d, glyphs = frame.diagnoses[position], view.glyphs
    gpu, newest = averaged(frame, position), is_newest(d)
    alarm = d.busy_not_working is not None
    changed = just_changed(frame.snapshot, d)
    sm, sm_style = sm_text(gpu, glyphs, red=is_red(d), newest=newest)
    line = Line().add(f" {gpu_label(gpu):<{label_width}} ", "strong" if selected else "text")
    if chart_width:
        line.add_all(chart_rows(frame, view, gpu, d, chart_width, 1)[0])
    line.add(f"  {pct(gpu.util_pct)}", "strong" if is_red(d) and not newest else "dim").add(f"  {sm:>3}", sm_style)
    if width >= 76:
        total = "" if gpu.mem_total_bytes is None else f"/{gpu.mem_total_bytes / 2**30:.0f}"
        line.add(
            f"  {f'{whole(_gib(gpu.mem_used_bytes), 1)}{total}':>7} {watts(gpu.power_w, 4)} {whole(gpu.temp_c, 3)}",
            "text",
        )
    figure = figure_words(d) if width >= LEAST_FIGURE_WIDTH else ""
    room = width - line.width - 2 - (len(figure) + 3 if figure else 0)
    line.add("  ").add_all(emphasised(_list_verdict(gpu, d, glyphs, room, alarm=alarm), changed=changed))
    if figure:
        line.to(width - len(figure) - 2).add(figure, "strong" if alarm else "dim")
    return line.row(width, "alarm.row" if alarm else "select" if selected else None)


def _gib(size: float | None) -> float | None:
    return None if size is None else size / GIB


def _list_verdict(gpu: GpuSample, d: GpuDiagnosis, glyphs: Glyphs, room: int, *, alarm: bool) -> list[Span]:
    told = telling(d)
    if gpu.lost_reason is not None:
        return [(shorten(f"{glyphs.red} {LOST_TITLE}: {terminal_safe(gpu.lost_reason)}", room), "level.red")]
    if alarm:
        long = f"{glyphs.red} {NOT_WORKING_ALARM}: {d.short}"
        return [(long if len(long) <= room else f"{glyphs.red} {NOT_WORKING_ALARM}"[:room], "strong")]
    level = LEVEL_OF_ROLE[told.role]
    text = told.words if len(told.words) + 2 <= room else d.short
    spans: list[Span] = [(f"{glyphs.level(level)} {shorten(text, room - 2)}", f"level.{level}")]
    used = len(spans[0][0])
    for badge in told.beside:
        words = f"  {glyphs.level(badge.level)} {badge.title}"
        if used + len(words) <= room:
            spans.append((words, f"level.{badge.level}"))
            used += len(words)
    return spans


LEAST_STEP_ROOM = 12
"""Columns that a step's time has beside the owner, who is cut before: ``412 ms/step``."""


def add_list(out: ScreenRows, frame: Frame, view: View, width: int) -> None:
    """One line a GPU, then the words of the selected one, and the host on one line where there is room."""
    gpus, selected = frame.snapshot.gpus, selected_gpu(frame, view)
    chart = 0 if width < 60 else 11 if width < 100 else width // 4
    labels = max(len(gpu_label(gpu)) for gpu in gpus)
    if out.left > len(gpus) + 2 or out.left > 8:
        out.add(list_header(width, chart, labels, view.span_s))
    room = layout.listed(len(gpus), out.left)
    first = max(0, min(selected - room // 2, len(gpus) - room))
    for position in range(first, first + room):
        row = list_row(frame, view, position, width, chart, labels, selected=position == selected)
        out.add(row, Target("gpu", gpus[position].static.uuid))
    d = frame.diagnoses[selected]
    evidence, remedy, extra = words_for(gpus[selected], d, view.glyphs, width - 2)
    # Left below the chart: four rows of words, the host, the table's two heads; the chart has a title and a time line.
    rows_below = out.left - 9
    rows = (
        layout.few_listed_chart(rows_below)
        if len(gpus) <= 2
        else layout.grown(0, rows_below, layout.kept_processes(out.left, len(gpus)))
    )
    has_chart = width >= LEAST_CHART_WIDTH and rows >= LEAST_CHART_ROWS and view.density == "standard"
    if has_chart or out.left >= 8:
        named = _section(frame, view, selected, room, width)
        out.add(named, words_target(named, (("[", "previous_gpu"), ("]", "next_gpu"))))
    if has_chart:
        # The row above says the verdict.
        chart_of_selected = panes.chart(frame, view, selected, width, rows)[1:]
        out.extend(chart_of_selected, Target("gpu", gpus[selected].static.uuid))
    words = max(1, min(4, out.left - 6)) if out.left >= 8 else min(2, out.left)
    words_rows = evidence_and_remedy(d, view.glyphs, evidence, remedy, width - 2, words) + extra
    for spans in first_rows(words_rows, words, width - 2, view.glyphs):
        out.add(Line().add(" ").add_all(spans).row(width))
    if out.left >= 6:
        out.add(host_rows.load(frame, view, width, indent=1))


def _section(frame: Frame, view: View, selected: int, room: int, width: int) -> Row:
    """The title over the words of the selected GPU: whose it is, since when; how many of the GPUs have rows."""
    gpu, d, rule = frame.snapshot.gpus[selected], frame.diagnoses[selected], view.glyphs.rule
    count = len(frame.snapshot.gpus)
    others = f" {room} of {count} GPUs, [ ] " if room < count else ""
    since = trouble_since(d, view)
    end = width - (len(since) + 3 if since else 1)
    line = Line().add(rule, "rule").add(f" GPU {gpu_label(gpu)} ", "title")
    least = step_words(frame, gpu, LEAST_STEP_ROOM)
    owner = owner_of(d, end - line.width - len(OWNED) - len(others) - (len(least) + 4 if least else 0))
    line.add(f"{OWNED.lstrip()}{owner} " if owner else "", "text").add(others, "dim")
    steps = step_words(frame, gpu, end - line.width - 2)
    line.add(f" {steps} " if steps else "", "text")
    if since and line.width < end:
        line.rule(end, rule).add(f" {since} ", "dim")
    return line.rule(width, rule).row(width)
