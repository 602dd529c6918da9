"""The pane of a machine with one or two GPUs: a tall gap chart with its axis, and the host's lanes on the same time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gputop.monitor import Frame
from gputop.paint import host, layout
from gputop.paint.chart import Column, bar, lane
from gputop.paint.feeders import busiest_share
from gputop.paint.kept import Kept, shown_of
from gputop.paint.line import Line, Row, Rows, Target
from gputop.paint.numbers import board, buses, counters, fields, memory, number_labels
from gputop.paint.pane_chart import LABEL_WIDTH, axis, chart_rows, chart_shows
from gputop.paint.panes import title, title_shows, title_widths
from gputop.paint.text import pct, rate
from gputop.paint.view import View, selected_gpu
from gputop.paint.words import believed, first_rows, is_red, spoken, words_for

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
    gpu = believed(frame.snapshot.gpus[position], d)
    chart_width = width - LABEL_WIDTH - 1 - AXIS_WIDTH
    charts = chart_rows(frame, view, gpu, d, chart_width, rows)
    labels = number_labels(gpu, view.glyphs, alarm=d.busy_not_working is not None, red=is_red(d))
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
        elif row == rows // 2:
            line.add(" 50", "dim")
        painted.append(line.row(width))
    painted.append(Line().to(LABEL_WIDTH).add_all(axis(view, chart_width)).row(width))
    return painted


def lanes_shows(frame: Frame, view: View, position: int, width: int) -> tuple[object, ...]:
    """Everything that ``lanes`` reads of a frame and a view, see ``Kept``."""
    columns = width - LABEL_WIDTH - 1 - AXIS_WIDTH
    names = (*(name for _, name, _ in LANES), "pcie_rx_bytes_per_s")
    uuid, history, column_s = frame.snapshot.gpus[position].static.uuid, frame.history, view.span_s / columns
    lines = [history.columns(uuid, name, column_s, columns) for name in names]
    return lines, shown_of(frame.diagnoses[position]), view.glyphs, view.span_s


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
        beside = "" if busiest is None else f" max {100.0 * busiest:.0f}"
        painted.append(_lane_row(label, lane(values, glyphs, style), _share(_mean(values[-window:])), width, beside))
    into = frame.history.columns(gpu.static.uuid, "pcie_rx_bytes_per_s", column_s, chart_width)
    most = max((value for value in into if value is not None), default=0.0)
    scaled: list[Column] = [None if value is None else value / most * 100 if most else 0.0 for value in into]
    text = rate(_mean(into[-window:]))
    painted.append(_lane_row(f"PCIe {glyphs.down}", lane(scaled, glyphs, "lane.bus"), text, width))
    return painted


def _lane_row(label: str, span: tuple[str, str], text: str, width: int, beside: str = "") -> Row:
    line = Line().add(f"  {label}", "dim").to(LABEL_WIDTH).add(*span)
    return line.add(" ").add(text, "value").add(beside, "evidence").row(width)


def _share(value: float | None) -> str:
    return pct(value) if value is None else f"{pct(value)} %"


def _mean(values: Sequence[Column]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def said(frame: Frame, view: View, position: int, width: int, rows: int) -> list[Row]:
    """Evidence, remedy, badges and notes over the full width, in at most ``rows`` rows."""
    gpu, d = frame.snapshot.gpus[position], frame.diagnoses[position]
    evidence, remedy, extra = words_for(gpu, d, view.glyphs, width - 4)
    told = spoken(d, view.glyphs, evidence, remedy, width - 4, rows) + extra
    lines = first_rows(told, rows, width - 4, view.glyphs)
    return [Line().to(2).add_all(spans).row(width) for spans in lines]


def numbers(frame: Frame, view: View, position: int, width: int) -> list[Row]:
    """Memory as a bar, counters, board and buses: two rows."""
    gpu, glyphs = believed(frame.snapshot.gpus[position], frame.diagnoses[position]), view.glyphs
    line = Line().to(2).add("MEM ", "dim").add_all(bar(gpu.mem_used_bytes, gpu.mem_total_bytes, 24, glyphs, "bar.mem"))
    line.add(f" {memory(gpu)}   ", "text")
    line.add_all(fields(counters(gpu), width - line.width - 1))
    rest = Line().to(2).add_all(fields(board(gpu, glyphs) + buses(gpu, glyphs), width - 3))
    return [line.row(width), rest.row(width)]


def add_big_panes(out: Rows, frame: Frame, view: View, width: int, kept: Kept) -> None:
    """One or two GPUs: tall charts with lanes, words, numbers, and the host on one line."""
    selected = selected_gpu(frame, view)
    gpus = frame.snapshot.gpus
    count = len(gpus)
    beneath = len(LANES) + 1
    # Titles and time axes, lanes, three rows of words, two of numbers, two of the host, the table's head.
    needed = count * 2 + beneath + 3 + 2 + 2 + 2
    room = out.left - needed - layout.LEAST_PROCESSES
    air = room - 9 * count >= 3
    rows = layout.big_chart(5 if count == 1 else 4, room - (3 if air else 0), count, out.height)
    empty = Line().row(width)
    for position in range(count):
        # The number of a chart's columns, and of a lane's, tells the width.
        drawn = (
            chart_shows(frame, view, position, width - LABEL_WIDTH - 1 - AXIS_WIDTH),
            title_shows(frame, view, position), title_widths(frame),
        )  # fmt: skip
        painted = kept.part(("chart", position), (drawn, rows), partial(chart, frame, view, position, width, rows))
        out.extend(painted, Target("gpu", gpus[position].static.uuid))
        if position == selected:
            shows = lanes_shows(frame, view, position, width)
            out.extend(kept.part(("lanes", position), shows, partial(lanes, frame, view, position, width)))
            if air:
                out.add(empty)
            out.extend(kept.part(("said", position), drawn, partial(said, frame, view, position, width, 3)))
            if air:
                out.add(empty)
            out.extend(kept.part(("numbers", position), drawn, partial(numbers, frame, view, position, width)))
    about = (host.shows(frame, view), width)
    out.add(kept.part(("load", 2), about, partial(host.load, frame, view, width)))
    out.add(kept.part("attribution", about, partial(host.attribution_rows, frame, view, width))[0])
    if air:
        out.add(empty)
