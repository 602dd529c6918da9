"""The layout of one line for each GPU.

It is used on small terminals, and for GPUs beyond the room of panes.
"""

from __future__ import annotations

from gputop.diagnosis.types import NOT_WORKING_ALARM
from gputop.diagnosis.verdict.shown import is_newest
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE, LOST_TITLE
from gputop.model.clean_text import terminal_safe
from gputop.model.durations import duration
from gputop.model.quantity import GIB, number
from gputop.paint.cells import shorten
from gputop.paint.charts import bar
from gputop.paint.glyphs import level_glyph
from gputop.paint.gpu_fields import sm_text
from gputop.paint.line import Line, Row, Span
from gputop.paint.panes import OWNED, ShownGpu, figure_words, gap_rows, owner_of, trouble_since
from gputop.paint.step_words import step_words
from gputop.paint.words import gpu_label

LEAST_FIGURE_WIDTH = 100
"""On a narrower screen the verdict's words need the room of its number."""
LEAST_NUMBERS_WIDTH = 76
"""On a narrower screen memory, power and temperature have no room."""
LEAST_BAR_WIDTH, BAR_CELLS = 120, 6
"""On a wider screen memory has a bar beside its number, of so many cells."""
LEAST_STEP_ROOM = 12
"""Columns that a step's time has beside the owner, who is cut before: ``412 ms/step``."""


def list_header(width: int, chart_width: int, label_width: int, span_s: float) -> Row:
    """Return the list's column heads.

    Above the charts is the span that they cover.
    """
    line = Line().add(" GPU", "heading")
    back = f"-{duration(span_s)}"
    at = max(label_width + 3, line.width + 1)
    if label_width + 2 + chart_width >= at + len(back):
        line.to(at).add(back, "dim")
    if chart_width >= len(back) + 8:
        line.to(label_width + 2 + chart_width - 3).add("now", "dim")
    line.to(label_width + 2 + chart_width).add(" UTIL   SM", "heading")
    if width >= LEAST_BAR_WIDTH:
        line.add(" " * (BAR_CELLS + 2))
    line.add("  MEM GiB    W  °C" if width >= LEAST_NUMBERS_WIDTH else "", "heading")
    return line.add("  verdict", "heading").row(width)


def list_row(g: ShownGpu, width: int, chart_width: int, label_width: int, *, selected: bool) -> Row:
    """Return one GPU as a line.

    Mini chart, UTIL, SM, memory, power, temperature, verdict.
    """
    d, gpu, newest = g.d, g.gpu, is_newest(g.d)
    sm, sm_style = sm_text(gpu, d, newest=newest)
    line = Line().add(f" {gpu_label(gpu):<{label_width}} ", "strong" if selected else "text")
    if chart_width:
        line.add_all(gap_rows(g, g.axis(chart_width, 1), 1)[0])
    line.add(f"  {number(gpu.util_pct, 3)}", "strong" if g.red and not newest else "dim").add(
        f"  {sm:>3}", sm_style
    )
    if width >= LEAST_NUMBERS_WIDTH:
        total = "" if gpu.mem_total_bytes is None else f"/{gpu.mem_total_bytes / GIB:.0f}"
        used = number(None if gpu.mem_used_bytes is None else gpu.mem_used_bytes / GIB)
        if width >= LEAST_BAR_WIDTH:
            line.add("  ").add_all(
                bar(gpu.mem_used_bytes, gpu.mem_total_bytes, BAR_CELLS, g.glyphs, "bar.used")
            )
        line.add(
            f"  {f'{used}{total}':>7} {number(gpu.power_w, 4)} {number(gpu.temp_c, 3)}", "text"
        )
    figure = figure_words(g.told) if width >= LEAST_FIGURE_WIDTH else ""
    room = width - line.width - 2
    # The cause is worth more than the number.
    if g.alarm and len(f"■ {NOT_WORKING_ALARM}: {g.d.short}") > room - len(figure) - 3:
        figure = ""
    room -= len(figure) + 3 if figure else 0
    line.add("  ").add_all(_list_verdict(g, room))
    if figure:
        line.to(width - len(figure) - 2).add(figure, "strong" if g.alarm else "dim")
    return line.row(width, "alarm.row" if g.alarm else "select" if selected else None)


def _list_verdict(g: ShownGpu, room: int) -> list[Span]:
    told = g.told
    if g.gpu.lost_reason is not None:
        return [(shorten(f"■ {LOST_TITLE}: {terminal_safe(g.gpu.lost_reason)}", room), "level.red")]
    if g.alarm:
        alarm = f"■ {NOT_WORKING_ALARM}"
        long = f"{alarm}: {g.d.short}"
        return [(long if len(long) <= room else alarm[:room], "strong")]
    level = LEVEL_OF_ROLE[told.role]
    text = told.words if len(told.words) + 2 <= room else g.d.short
    spans: list[Span] = [(f"{level_glyph(level)} {shorten(text, room - 2)}", f"level.{level}")]
    used = len(spans[0][0])
    for badge in told.other_badges:
        words = f"  {level_glyph(badge.level)} {badge.title}"
        if used + len(words) <= room:
            spans.append((words, f"level.{badge.level}"))
            used += len(words)
    return spans


def list_title(g: ShownGpu, room: int, width: int) -> Line:
    """Return the title above the selected GPU's words.

    It names the owner and since when; ``room`` of the GPUs have rows.
    """
    frame, gpu = g.frame, g.gpu
    count = len(frame.shown.gpus)
    others = f" {room} of {count} GPUs, " if room < count else ""
    since = trouble_since(g)
    end = width - (len(since) + 3 if since else 1)
    line = Line().add("─", "rule").add(f" GPU {gpu_label(gpu)} ", "title")
    least = step_words(frame, gpu, LEAST_STEP_ROOM)
    keys = len("[ ] ") if others else 0
    owner = owner_of(
        g.told,
        end - line.width - len(OWNED) - len(others) - keys - (len(least) + 4 if least else 0),
    )
    line.add(f"{OWNED.lstrip()}{owner} " if owner else "", "text").add(others, "dim")
    if others:
        line.add("[", "title.key", "previous_gpu").add(" ", "dim").add(
            "]", "title.key", "next_gpu"
        ).add(" ", "dim")
    steps = step_words(frame, gpu, end - line.width - 2)
    line.add(f" {steps} " if steps else "", "text")
    if since and line.width < end:
        line.rule(end).add(f" {since} ", "dim")
    return line.rule(width)
