"""The page of one GPU.

Every series on one time axis, the lanes of its host, its verdicts, and the source of each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gputop.model.clean_text import terminal_safe
from gputop.monitor import Frame
from gputop.paint import header, panes
from gputop.paint.cells import shorten
from gputop.paint.charts import with_cursor
from gputop.paint.detail_page import LABEL_WIDTH, DetailPage, DetailsPainted, DetailsView
from gputop.paint.gpu_charts import (
    add_gap_chart,
    add_lanes,
    add_throttling,
    gpu_charts,
    gpu_lanes,
    values_at,
)
from gputop.paint.gpu_fields import fields
from gputop.paint.line import Line, Row, text_row
from gputop.paint.panes import ShownGpu
from gputop.paint.provenance import board_rows, provenance_rows
from gputop.paint.verdict_history import VerdictSpan, strip, verdict_spans
from gputop.paint.words import gpu_label

SIZES = ((16, 4), (14, 3), (12, 3), (10, 3), (10, 2), (8, 2), (6, 2))
"""(rows of the gap chart, rows of every other chart), tried from roomy to tight; the tightest scrolls."""
ONE_LINE = 240
"""From this width on all values of a moment fit one row."""


def position_of(frame: Frame, uuid: str) -> int | None:
    """Return a GPU's position in the snapshot, or None."""
    return next((i for i, gpu in enumerate(frame.shown.gpus) if gpu.static.uuid == uuid), None)


def gpu_details(
    frame: Frame, state: DetailsView, uuid: str, width: int, height: int
) -> DetailsPainted:
    """The screen in exactly ``height`` rows of ``width`` cells."""
    position, gpus, view = position_of(frame, uuid), frame.shown.gpus, state.view
    gpu = None if position is None else gpus[position]
    page = DetailPage(
        frame, state, gpu, partial(frame.history.columns, uuid), frame.history.latest_t, width
    )
    head = [header.header(frame, view, width).row(width)]
    if position is None or gpu is None:
        gone = shorten("this GPU is no longer in the snapshot", width - 3)
        return page.painted([*head, text_row(gone, width, "level.yellow", 2)], [], height)
    g = ShownGpu(frame, view, position)
    head.append(panes.title(g, width))
    head += panes.evidence_rows(g, width, 0 if height < 16 else 2 if height < 36 else 3)
    if lost := panes.last_seen(g):
        head.append(Line().to(2).add_all(fields(lost, width - 3)).row(width))
    listed = verdict_spans(frame, g.d)
    foot = page.foot(lambda: values_at(page, listed), 1 if height < 16 or width >= ONE_LINE else 2)
    _add_charts(page, g, listed, height - len(head) - len(foot) - 1)
    name = f"values of GPU {gpu_label(gpu)} and where they are from"
    if frame.snapshot.machine.is_simulated:
        name += ": simulated here, named as on a real GPU"
    page.heading(name)
    page.rows += provenance_rows(frame.snapshot, gpu, frame.shown.mean_s[position], width)
    page.heading(f"the board of GPU {gpu_label(gpu)}")
    page.rows += board_rows(gpu, width)
    return page.painted(
        head, foot, height, *[("[ ] GPU", "right_square_bracket")] * (len(gpus) > 1)
    )


def _add_charts(page: DetailPage, g: ShownGpu, listed: list[VerdictSpan], room: int) -> None:
    """Add everything on the time axis, as tall as fits."""
    charts, lanes = gpu_charts(page, g.gpu), gpu_lanes(page)
    tall = sum(not chart.text_instead for chart in charts)
    fixed = 4 + len(lanes) + len(charts) - tall
    sizes = (size for size in SIZES if size[0] + size[1] * tall + fixed <= room)
    gap_rows, other = next(sizes, (max(4, min(6, room // 2)), 2))
    add_gap_chart(page, g, gap_rows)
    colours, names = strip(listed, page.axis, page.glyphs)
    page.add_chart_row([("  verdict", "dim")], colours)
    page.rows.append(
        Line()
        .to(LABEL_WIDTH)
        .add_all(with_cursor(names, page.cursor, over_text=False))
        .row(page.width)
    )
    for chart in charts:
        page.chart(chart, other)
        if chart.name == "sm_clock_mhz":
            add_throttling(page)
    add_lanes(page, lanes)
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
    for (at, words), following in zip(
        places, [place[0] for place in places[1:]] + [axis.columns], strict=True
    ):
        if at < len(text):
            continue
        room = following - at - 1
        mark_text = terminal_safe(words)
        if room < len(mark_text) + 2 <= at - len(text):
            # Of a mark close to the next one, or to now, the words stand before it.
            text = text.ljust(at - len(mark_text) - 1) + f"{mark_text} ▴"
            continue
        text = text.ljust(at) + shorten(f"▴ {mark_text}", max(1, room))[: max(1, room)]
    spans = with_cursor(
        [(text[: axis.columns].ljust(axis.columns), "value")], page.cursor, over_text=False
    )
    return Line().add("  marks", "dim").to(LABEL_WIDTH).add_all(spans).row(page.width)
