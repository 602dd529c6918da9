"""Parts shared by the pages of a GPU and a process.

They have one time axis, the rows on it, and a cursor that reads a moment. Head and foot stay; the rows between them
scroll. Columns begin at multiples of their width in Unix time, like ``History.columns`` do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.durations import clock_time, duration
from gputop.model.quantity import NOT_MEASURED, number
from gputop.model.snapshot import GpuSample, ProcessSample
from gputop.monitor import Frame
from gputop.paint.cells import shorten
from gputop.paint.charts import Column, area, lane, with_cursor
from gputop.paint.glyphs import keys_shown
from gputop.paint.gpu_fields import fields
from gputop.paint.line import Line, Row, Span, Target, for_terminal, heading, text_row
from gputop.paint.time_axis import TimeAxis, axis_for, axis_spans, stepped
from gputop.paint.view import View, zoomed
from gputop.paint.words import Field

LABEL_WIDTH = 12
AXIS_WIDTH = 12
LEAST_CHART = 8
FAR_COLUMNS = 10


class DetailsView(Struct, frozen=True):
    """State of a detail screen.

    ``first`` is the first row shown of the scrolled part; ``cursor_t`` is Unix time.
    """

    view: View
    first: int = 0
    cursor_t: float | None = None


class DetailsPainted(Struct, frozen=True):
    """A painted detail page.

    It has the rows in exactly the asked size, how far the middle can scroll, how many of its rows show, the time
    axis, and the target of a click on the last row.
    """

    rows: list[Row]
    most_first: int
    room: int
    axis: TimeAxis
    last_row: Target


def chart_width(width: int) -> int:
    """Columns of every chart at a screen's width."""
    return max(LEAST_CHART, width - LABEL_WIDTH - 1 - AXIS_WIDTH)


def after_key(state: DetailsView, key_id: str, painted: DetailsPainted) -> DetailsView:
    """Return the state after a key.

    Pure: everything that a key does to a detail screen is here.
    """
    scrolls = {"up": -1, "down": 1, "page_up": -painted.room, "page_down": painted.room}
    if key_id in scrolls:
        first = min(state.first, painted.most_first) + scrolls[key_id]
        return replace(state, first=max(0, min(painted.most_first, first)))
    if key_id in ("longer", "shorter"):
        return replace(state, view=zoomed(state.view, 1 if key_id == "longer" else -1))
    axis, far = painted.axis, min(FAR_COLUMNS, painted.axis.columns - 1)
    steps = {"left": -1, "right": 1, "far_left": -far, "far_right": far, "oldest": -axis.columns}
    return replace(
        state, cursor_t=stepped(axis, state.cursor_t, steps[key_id]) if key_id in steps else None
    )


class Chart(Struct, frozen=True):
    """One area chart of a page.

    Series, label, style, the top of its scale, the writer of a value, and words for the top. ``text_instead`` takes its
    place, in one row.
    """

    name: str
    label: str
    style: str
    top: float
    show: Callable[[float], str]
    top_label: str = ""
    text_instead: str = ""


class DetailPage:
    """A page while it is painted.

    Rows are added one by one; ``painted`` puts head and foot around them. ``sample`` is the newest one, None after
    the end; ``read`` gives columns of history by series, their width in seconds and their number. Each
    series is read once, so that chart, label and line of values show the same.
    """

    def __init__(
        self,
        frame: Frame,
        state: DetailsView,
        sample: GpuSample | ProcessSample | None,
        read: Callable[[str, float, int], list[Column]],
        latest_t: float | None,
        width: int,
    ) -> None:
        self.frame, self.view, self.glyphs, self.width = frame, state.view, state.view.glyphs, width
        self.sample = sample
        axis = self.axis = axis_for(
            latest_t or frame.snapshot.t, self.view.span_s, chart_width(width)
        )
        self.cursor = None if state.cursor_t is None else axis.column_of(state.cursor_t)
        self.columns = cache(lambda name: read(name, axis.width_s, axis.columns))
        self.rows: list[Row] = []
        self._first = state.first

    def column(self, name: str) -> Column:
        """Return the mean under the cursor, else the newest value."""
        if self.cursor is not None:
            return self.columns(name)[self.cursor]
        if self.sample is None or hasattr(self.sample, name):
            value: Column = getattr(self.sample, name, None)
            return value
        return next((value for value in reversed(self.columns(name)) if value is not None), None)

    def measured(self, name: str) -> list[float]:
        """Return the known values of a series in this time."""
        return [value for value in self.columns(name) if value is not None]

    # -- rows that scroll -------------------------------------------------------------------------------------------

    def text(self, text: str, style: str = "dim") -> None:
        """One line of words."""
        self.rows.append(text_row(shorten(text, self.width - 3), self.width, style, 2))

    def heading(self, text: str, *, apart: bool = True) -> None:
        """A rule with a name on it, below an empty row."""
        if apart:
            self.rows.append(Line().row(self.width))
        self.rows.append(heading(shorten(text, self.width - 6), self.width))

    def add_chart_row(self, label: Sequence[Span], chart: Sequence[Span], after: str = "") -> None:
        """Add a label, a chart and its axis side by side.

        The label keeps to its width.
        """
        line = Line().add_all(list(label)).to(LABEL_WIDTH)
        line.add_all(with_cursor(chart, self.cursor))
        self.rows.append(line.add(" ").add(after, "dim").row(self.width))

    def words(self, label: str, text: str, style: str = "dim") -> None:
        """Add words in place of a chart.

        The cursor shows in the room that they leave.
        """
        padded = shorten(text, self.axis.columns).ljust(self.axis.columns)
        spans = with_cursor([(padded, style)], self.cursor, over_text=False)
        self.rows.append(
            Line().add(f"  {label}", "dim").to(LABEL_WIDTH).add_all(spans).row(self.width)
        )

    def chart(self, chart: Chart, rows: int) -> None:
        """Add one area chart with its name, value and scale."""
        if chart.text_instead:
            self.words(chart.label, chart.text_instead)
            return
        drawn = area(self.columns(chart.name), rows, chart.style, chart.top)
        value = self.column(chart.name)
        shown = f"  {NOT_MEASURED if value is None else chart.show(value)}"[: LABEL_WIDTH - 1]
        labels: dict[int, list[Span]] = {0: [(f"  {chart.label}", "dim")], 1: [(shown, "value")]}
        after = {rows - 1: "0", 0: (chart.top_label or chart.show(chart.top))[: AXIS_WIDTH - 1]}
        for row in range(rows):
            self.add_chart_row(labels.get(row, []), drawn[row], after.get(row, ""))

    def lane(self, label: str, name: str, style: str) -> None:
        """A row of heights with its value at the moment."""
        values = self.columns(name)
        # A column that has just begun may be empty; the newest known one stands for now.
        newest = next((value for value in reversed(values[-3:]) if value is not None), None)
        shown = newest if self.cursor is None else values[self.cursor]
        after = NOT_MEASURED if shown is None else f"{number(shown, 3)} %"
        self.add_chart_row([(f"  {label}", "dim")], [lane(values, style)], after)

    # -- rows that stay ---------------------------------------------------------------------------------------------

    def foot(self, moment: Callable[[], list[Field]], most: int) -> list[Row]:
        """Return the time axis and the values at a moment."""
        view, width = self.view, self.width
        rows = [
            Line()
            .to(LABEL_WIDTH)
            .add_all(axis_spans(self.axis, view.utc_offset_s, self.cursor))
            .row(width)
        ]
        if self.cursor is None:
            return rows
        clock = clock_time(self.axis.middle(self.cursor), view.utc_offset_s)
        remaining = moment() or [("nothing was measured at this time", "dim")]
        for row in range(most):
            line = Line().to(2) if row else Line().to(2).add(f"at {clock}", "key").add("  ")
            shown = fields(remaining, width - line.width - 1, "  ")
            remaining = remaining[sum(text.strip() != "" for text, _ in shown) :]
            rows.append(line.add_all(shown).row(width))
        return rows

    def painted(
        self, head: list[Row], foot: list[Row], height: int, *more_keys: tuple[str, str]
    ) -> DetailsPainted:
        """Return head, scrolled rows, foot and keys in ``height`` rows."""
        width, total = self.width, len(self.rows)
        room = max(0, height - len(head) - len(foot) - 1)
        most_first = max(0, total - room)
        first = min(self._first, most_first)
        shown = self.rows[first : first + room]
        shown += [Line().row(width)] * (room - len(shown))
        keys = self._keys(first, room, more_keys)
        foot = [*foot, keys.row(width, "bar")][: max(0, height - len(head))]
        rows = for_terminal([*head[:height], *shown, *foot], self.glyphs, width)
        return DetailsPainted(rows, most_first, room, self.axis, keys.target())

    def _keys(self, first: int, room: int, more_keys: Sequence[tuple[str, str]]) -> Line:
        """Return as many of the page's keys as fit."""
        across, along = (keys_shown(keys, self.glyphs) for keys in ("← →", "↑↓"))
        total = len(self.rows)
        parts: list[tuple[str, str | None]] = [("esc back", "escape")]
        if total:
            cursor = (
                f"{across} read a moment" if self.cursor is None else f"{across} moment  End now"
            )
            scroll = f"{along} {first + 1}-{min(total, first + room)} of {total}"
            span = f"+ - {duration(self.view.span_s)}"
            parts += [(scroll, None), (span, "plus"), (cursor, "left"), *more_keys]
        line = Line()
        for text, key in parts:
            if line.width and line.width + 2 + len(text) > self.width:
                break
            line.add("   " if line.width else " ", "dim").add(
                shorten(text, self.width - 2), "dim", key
            )
        return line
