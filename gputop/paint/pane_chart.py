"""The gap chart of one GPU over the view's span, with its marks and its axis: what panes of every size share."""

from __future__ import annotations

import math

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.quantity import duration
from gputop.model.snapshot import GpuSample
from gputop.monitor import Frame
from gputop.paint.chart import gap_chart, with_marks
from gputop.paint.kept import shown_of
from gputop.paint.line import Line, Row, Span
from gputop.paint.view import View
from gputop.paint.words import counts_truly, is_measured

LABEL_WIDTH = 12
"""Cells left of the chart."""


def chart_shows(frame: Frame, view: View, position: int, columns: int) -> tuple[object, ...]:
    """All of a GPU's sample and diagnosis, and what a chart of so many columns reads, see ``Kept``."""
    gpu = frame.snapshot.gpus[position]
    about = (gpu, shown_of(frame.diagnoses[position]), view.glyphs, view.span_s)
    if not columns:
        return about
    history, uuid, column_s = frame.history, gpu.static.uuid, view.span_s / columns
    return (
        *about,
        history.columns(uuid, "util_pct", column_s, columns), history.columns(uuid, "sm_active_pct", column_s, columns),
        mark_columns(frame, uuid, column_s, columns),
    )  # fmt: skip


def chart_width(width: int) -> int:
    """Columns of the chart in a pane of some width."""
    return max(12, round((width - LABEL_WIDTH) * (0.415 if width >= 120 else 0.37)))


def axis(view: View, columns: int) -> Row:
    """The time axis under a chart that ends now."""
    line = Line().add(f"-{duration(view.span_s)}", "dim")
    half = f"-{duration(view.span_s / 2)}"
    middle = columns // 2 - len(half) // 2
    if middle > line.width and middle + len(half) + 4 < columns:
        line.to(middle).add(half, "dim")
    return line.to(columns - 3).add("now", "dim").row(columns)


def chart_rows(
    frame: Frame, view: View, gpu: GpuSample, d: GpuDiagnosis, chart_width: int, rows: int
) -> list[list[Span]]:
    """The gap chart of one GPU over the view's time span."""
    column_s = view.span_s / chart_width
    history, uuid = frame.history, gpu.static.uuid
    util = history.columns(uuid, "util_pct", column_s, chart_width)
    sm = history.columns(uuid, "sm_active_pct", column_s, chart_width)
    measured = counts_truly(d) and (is_measured(gpu) or any(value is not None for value in sm))
    drawn = gap_chart(util, sm, rows, view.glyphs, alarm=d.busy_not_working is not None, measured=measured)
    return with_marks(drawn, mark_columns(frame, uuid, column_s, chart_width), view.glyphs)


def mark_columns(frame: Frame, uuid: str, column_s: float, chart_width: int) -> list[int]:
    """The columns of a chart that ends now at which something was marked."""
    last = math.ceil(frame.snapshot.t / column_s) - 1
    begin = (last - chart_width + 1) * column_s
    seen = frame.history.marks_within(uuid, begin, frame.snapshot.t)
    return [math.floor(t / column_s) - (last - chart_width + 1) for t, _ in seen]
