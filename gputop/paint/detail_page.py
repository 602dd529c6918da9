"""What the detail screens share: their state, blocks of rows that scroll, and the rows that stay.

The head and the foot stay; the blocks between them scroll. Only the blocks that are on the screen are painted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.quantity import NOT_MEASURED
from gputop.paint.charts import Column, area, lane, with_cursor
from gputop.paint.glyphs import Glyphs, ascii_only
from gputop.paint.line import Line, Row, Span, pct, shorten
from gputop.paint.time_axis import TimeAxis, axis_spans, stepped
from gputop.paint.view import View, zoomed

LABEL_WIDTH = 12
AXIS_WIDTH = 12
LEAST_CHART = 8
FAR_COLUMNS = 10


class DetailsView(Struct, frozen=True):
    """State of a detail screen. ``first`` is the first row shown of what scrolls; ``cursor_t`` is Unix time."""

    view: View
    first: int = 0
    cursor_t: float | None = None


class DetailsPainted(Struct, frozen=True):
    """Rows in exactly the asked size, how far the middle can scroll, how many of its rows show, and the time axis."""

    rows: list[Row]
    most_first: int
    room: int
    axis: TimeAxis


class LazyRows(Struct, frozen=True):
    """``rows`` rows of the part that scrolls, painted when they become visible."""

    rows: int
    paint: Callable[[], list[Row]]


def chart_width(width: int) -> int:
    """Columns of every chart at a screen's width."""
    return max(LEAST_CHART, width - LABEL_WIDTH - 1 - AXIS_WIDTH)


def after_key(state: DetailsView, key_id: str, painted: DetailsPainted) -> DetailsView:
    """The state after a key. Pure: everything that a key does to a detail screen is here."""
    scrolls = {"up": -1, "down": 1, "page_up": -painted.room, "page_down": painted.room}
    if key_id in scrolls:
        first = min(state.first, painted.most_first) + scrolls[key_id]
        return replace(state, first=max(0, min(painted.most_first, first)))
    if key_id in ("longer", "shorter"):
        return replace(state, view=zoomed(state.view, 1 if key_id == "longer" else -1))
    axis, far = painted.axis, min(FAR_COLUMNS, painted.axis.columns - 1)
    steps = {"left": -1, "right": 1, "far_left": -far, "far_right": far, "oldest": -axis.columns}
    if key_id in steps:
        return replace(state, cursor_t=stepped(axis, state.cursor_t, steps[key_id]))
    if key_id == "newest":
        return replace(state, cursor_t=None)
    return state


def joined(
    head: Sequence[Row], blocks: Sequence[LazyRows], foot: Sequence[Row], state: DetailsView, width: int, height: int
) -> tuple[list[Row], int, int]:
    """Head, the part of the blocks that is scrolled to, and foot in exactly ``height`` rows; how far it can scroll."""
    head, foot = head[:height], foot[: max(0, height - len(head))]
    room = height - len(head) - len(foot)
    most_first = max(0, sum(block.rows for block in blocks) - room)
    first = min(state.first, most_first)
    shown: list[Row] = []
    begin = 0
    for block in blocks:
        if begin + block.rows > first and len(shown) < room:
            rows = block.paint()[: block.rows]
            shown += rows[max(0, first - begin) :]
        begin += block.rows
    shown = shown[:room] + [Line().row(width)] * (room - len(shown))
    rows = [*head, *shown, *foot]
    if state.view.glyphs.name == "ascii":
        rows = [Line().add_all([(ascii_only(text), style) for text, style in row]).row(width) for row in rows]
    return rows, most_first, room


def chart_row(
    label: Sequence[Span], chart: Sequence[Span], after: str, width: int, cursor: int | None, glyphs: Glyphs
) -> Row:
    """Label, chart and axis side by side; the label keeps to its width."""
    line = Line().add_all(list(label)).to(LABEL_WIDTH)
    line.add_all(with_cursor(chart, cursor, glyphs))
    return line.add(" ").add(after, "dim").row(width)


def words_row(label: str, text: str, style: str, columns: int, width: int, cursor: int | None, glyphs: Glyphs) -> Row:
    """Words in place of a chart; the cursor shows where they leave room."""
    padded = shorten(text, columns, glyphs.more).ljust(columns)
    spans = with_cursor([(padded, style)], cursor, glyphs, over_text=False)
    return Line().add(f"  {label}", "dim").to(LABEL_WIDTH).add_all(spans).row(width)


# The blocks of both pages, of whatever series.


class ChartedSeries(Protocol):
    """Columns of a page's charts by name, on one time axis."""

    @property
    def axis(self) -> TimeAxis: ...
    @property
    def cursor(self) -> int | None: ...
    def columns(self, name: str) -> list[Column]: ...
    def at(self, name: str) -> Column: ...


class Chart(Struct, frozen=True):
    """One area chart: series, label, style, the top of its scale with its label, and how a value is written."""

    name: str
    label: str
    style: str
    top: float | None
    top_label: str
    show: Callable[[float | None], str]


def ready(rows: list[Row]) -> LazyRows:
    """Rows that are painted already."""
    return LazyRows(len(rows), lambda: rows)


def words_block(label: str, text: str, series: ChartedSeries, width: int, glyphs: Glyphs) -> LazyRows:
    """A row of words in place of a chart."""
    return LazyRows(1, lambda: [words_row(label, text, "dim", series.axis.columns, width, series.cursor, glyphs)])


def chart_block(chart: Chart, series: ChartedSeries, rows: int, width: int, glyphs: Glyphs) -> LazyRows:
    """One area chart: its name and value at the left, its scale at the right."""

    def paint() -> list[Row]:
        drawn = area(series.columns(chart.name), rows, glyphs, chart.style, chart.top)
        value = f"  {chart.show(series.at(chart.name))}"[: LABEL_WIDTH - 1]
        labels: dict[int, list[Span]] = {0: [(f"  {chart.label}", "dim")], 1: [(value, "value")]}
        after = {rows - 1: "0", 0: chart.top_label[: AXIS_WIDTH - 1]}
        return [
            chart_row(labels.get(row, []), drawn[row], after.get(row, ""), width, series.cursor, glyphs)
            for row in range(rows)
        ]

    return LazyRows(rows, paint)


def lane_block(series: ChartedSeries, spec: tuple[str, str, str], width: int, glyphs: Glyphs) -> LazyRows:
    """A lane (label, series, style) with its value at the moment."""
    label, name, style = spec

    def paint() -> list[Row]:
        values = series.columns(name)
        # A column that has just begun may be empty; the newest known one stands for now.
        newest = next((value for value in reversed(values[-3:]) if value is not None), None)
        shown = newest if series.cursor is None else values[series.cursor]
        after = NOT_MEASURED if shown is None else f"{pct(shown)} %"
        return [chart_row([(f"  {label}", "dim")], [lane(values, glyphs, style)], after, width, series.cursor, glyphs)]

    return LazyRows(1, paint)


def axis_row(axis: TimeAxis, view: View, width: int, cursor: int | None) -> Row:
    """The time axis under the charts."""
    return Line().to(LABEL_WIDTH).add_all(axis_spans(axis, view.utc_offset_s, cursor)).row(width)


def heading(text: str, width: int, glyphs: Glyphs) -> Row:
    """A rule with a name on it."""
    return (
        Line().add(f"{glyphs.rule} ", "rule").add(text, "heading").add(" ", "rule").rule(width, glyphs.rule).row(width)
    )


def bar_row(parts: Sequence[str], width: int) -> Row:
    """The last row: keys, as many as fit."""
    line = Line()
    for part in parts:
        if line.width + 2 + len(part) > width and line.width:
            break
        line.add(" " if not line.width else "   ", "dim").add(shorten(part, width - 2), "dim")
    return line.row(width, "bar")


def key_parts(state: DetailsView, span: str, most_first: int, room: int, total: int, *extra_keys: str) -> list[str]:
    """What the keys do here, for ``bar_row``."""
    glyphs = state.view.glyphs
    first = min(state.first, most_first)
    arrows = ("left/right", "up/down") if glyphs.name == "ascii" else ("← →", "↑↓")
    scroll = f"{arrows[1]} {first + 1}-{min(total, first + room)} of {total}"
    cursor = f"{arrows[0]} read a moment" if state.cursor_t is None else f"{arrows[0]} moment  End now"
    return ["esc back", scroll, f"+ - {span}", cursor, *extra_keys]
