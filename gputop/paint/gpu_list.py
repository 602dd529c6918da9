"""The one-line-a-GPU layout, for small terminals and for GPUs beyond what panes have room for."""

from __future__ import annotations

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.quantity import duration
from gputop.model.snapshot import GpuSample
from gputop.model.text import terminal_safe
from gputop.monitor import Frame
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row, Span
from gputop.paint.numbers import sm_text
from gputop.paint.panes import chart_rows, figure_words
from gputop.paint.text import pct, shorten, whole
from gputop.paint.view import View
from gputop.paint.words import gpu_label, is_red

LEAST_FIGURE_WIDTH = 100
"""On a narrower screen the verdict's words need the room of its number."""


def list_header(width: int, chart_width: int, label_width: int, span_s: float) -> Row:
    """Column heads of the one-line-a-GPU layout; above the charts stands how far back they go."""
    line = Line().add("GPU", "heading")
    back = f"-{duration(span_s)}"
    if chart_width > len(back):
        line.to(label_width + 3).add(back, "dim")
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
    gpu, d, glyphs = frame.snapshot.gpus[position], frame.diagnoses[position], view.glyphs
    alarm = d.busy_not_working is not None
    sm, sm_style = sm_text(gpu, glyphs, red=is_red(d))
    line = Line().add(f" {gpu_label(gpu):<{label_width}} ", "strong" if selected else "text")
    if chart_width:
        line.add_all(chart_rows(frame, view, gpu, d, chart_width, 1)[0])
    line.add(f"  {pct(gpu.util_pct)}", "strong").add(f"  {sm:>3}", sm_style)
    if width >= 76:
        total = "n/a" if gpu.mem_total_bytes is None else f"{gpu.mem_total_bytes / 2**30:.0f}"
        used = "n/a" if gpu.mem_used_bytes is None else f"{gpu.mem_used_bytes / 2**30:.0f}"
        line.add(f"  {f'{used}/{total}':>7} {whole(gpu.power_w, 4)} {whole(gpu.temp_c, 3)}", "text")
    figure = figure_words(d) if width >= LEAST_FIGURE_WIDTH else ""
    room = width - line.width - 2 - (len(figure) + 3 if figure else 0)
    line.add("  ").add_all(_list_verdict(gpu, d, glyphs, room, alarm=alarm))
    if figure:
        line.to(width - len(figure) - 2).add(figure, "strong" if alarm else "dim")
    return line.row(width, "alarm.row" if alarm else "select" if selected else None)


def _list_verdict(gpu: GpuSample, d: GpuDiagnosis, glyphs: Glyphs, room: int, *, alarm: bool) -> list[Span]:
    if gpu.lost_reason is not None:
        return [(shorten(f"{glyphs.red} LOST: {terminal_safe(gpu.lost_reason)}", room), "level.red")]
    if alarm:
        long = f"{glyphs.red} BUSY, NOT WORKING: {d.short}"
        return [(long if len(long) <= room else f"{glyphs.red} BUSY, NOT WORKING"[:room], "strong")]
    glyph = glyphs.level(d.level)
    text = d.title if len(d.title) + 2 <= room else d.short
    spans: list[Span] = [(f"{glyph} {shorten(text, room - 2)}", f"level.{d.level}")]
    used = len(spans[0][0])
    for badge in d.badges:
        words = f"  {glyphs.level(badge.level)} {badge.title}"
        if used + len(words) <= room:
            spans.append((words, f"level.{badge.level}"))
            used += len(words)
    return spans
