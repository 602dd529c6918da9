"""The charts and lanes of one process on the time axis of its screen."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field

from gputop.model import quantity
from gputop.model.quantity import NOT_MEASURED, terminal_safe
from gputop.model.snapshot import ProcessSample
from gputop.monitor import Frame
from gputop.paint.charts import Column, area, lane, round_top
from gputop.paint.detail_page import AXIS_WIDTH, LABEL_WIDTH, LazyRows, chart_row, words_row
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Row, Span, pct, size
from gputop.paint.numbers import Field
from gputop.paint.time_axis import TimeAxis
from gputop.paint.view import ProcessKey

LANES: tuple[tuple[str, str, str], ...] = (
    ("running", "run_pct", "lane.run"),
    ("queued", "wait_pct", "lane.wait"),
    ("disk", "in_disk_pct", "lane.disk"),
    ("network", "on_network_pct", "lane.disk"),
    ("asleep", "asleep_pct", "lane.idle"),
    ("main", "main_pct", "lane.main"),
)
"""Label, series of the process history, style."""


class ProcessSeries(Struct, frozen=True):
    """Columns of one process's history, each read once; ``now`` is its newest sample, None when it has ended."""

    frame: Frame
    key: ProcessKey
    now: ProcessSample | None
    axis: TimeAxis
    cursor: int | None
    _read: dict[str, list[Column]] = field(default_factory=dict)

    def columns(self, name: str) -> list[Column]:
        columns = self._read.get(name)
        if columns is None:
            history, axis = self.frame.process_history, self.axis
            columns = self._read[name] = history.columns(self.key, name, axis.width_s, axis.columns)
        return columns

    def at(self, name: str) -> Column:
        """The column's mean under the cursor; without a cursor what was measured last."""
        if self.cursor is not None:
            return self.columns(name)[self.cursor]
        value: Column = getattr(self.now, name, None)
        return value


class _Chart(Struct, frozen=True):
    name: str
    label: str
    style: str
    top: Callable[[float], float]
    show: Callable[[float | None], str]


def _cores(most: float) -> float:
    return max(100.0, round_top(most))


def _share(_: float) -> float:
    return 100.0


def _binary(most: float) -> float:
    return round_top(max(most, 1.0) / 2**30) * 2**30


def _traffic(most: float) -> float:
    return round_top(max(most, 1e6))


def _bytes(value: float | None) -> str:
    return NOT_MEASURED if value is None else size(value).strip()


CHARTS = (
    _Chart("cpu_pct", "CPU", "area.board", _cores, quantity.pct),
    _Chart("gpu_time_pct", "GPU time", "area.work", _share, quantity.pct),
    _Chart("gpu_mem_bytes", "GPU mem", "area.mem", _binary, _bytes),
    _Chart("rss_bytes", "host mem", "area.mem", _binary, _bytes),
    _Chart("read_bytes_per_s", "read", "area.bus", _traffic, quantity.rate),
    _Chart("write_bytes_per_s", "write", "area.bus", _traffic, quantity.rate),
)


def chart_blocks(series: ProcessSeries, rows: int, width: int, glyphs: Glyphs) -> list[LazyRows]:
    """A chart for each series that has values or a reason; quiet and missing ones take one row."""
    blocks = []
    for chart in CHARTS:
        values = series.columns(chart.name)
        known = [value for value in values if value is not None]
        if not known:
            if chart.name.startswith("gpu_") and (series.now is None or series.now.role != "gpu"):
                continue
            reason = None if series.now is None else series.now.unavailable.get(chart.name)
            words = f"n/a: {terminal_safe(reason)}" if reason else "nothing was measured"
            blocks.append(_words(chart.label, words, series, width, glyphs))
        elif chart.name.endswith("_per_s") and not any(known):
            blocks.append(_words(chart.label, "nothing in this time", series, width, glyphs))
        else:
            top = _device_memory(series) if chart.name == "gpu_mem_bytes" else None
            blocks.append(_area(chart, values, top or chart.top(max(known)), series, rows, width, glyphs))
    return blocks


def _device_memory(series: ProcessSeries) -> float | None:
    """The total memory of the process's GPU, bytes."""
    return next((g.mem_total_bytes for g in series.frame.snapshot.gpus if g.static.index == series.key[2]), None)


def _area(
    chart: _Chart, values: list[Column], top: float, series: ProcessSeries, rows: int, width: int, glyphs: Glyphs
) -> LazyRows:
    def paint() -> list[Row]:
        drawn = area(values, rows, glyphs, chart.style, top)
        text = f"  {chart.show(series.at(chart.name))}"[: LABEL_WIDTH - 1]
        labels: list[list[Span]] = [[(f"  {chart.label}", "dim")], [(text, "value")]]
        after = {0: chart.show(top)[: AXIS_WIDTH - 1], rows - 1: "0"}
        return [
            chart_row(labels[row] if row < 2 else [], drawn[row], after.get(row, ""), width, series.cursor, glyphs)
            for row in range(rows)
        ]

    return LazyRows(rows, paint)


def lane_blocks(series: ProcessSeries, width: int, glyphs: Glyphs) -> list[LazyRows]:
    """Where its time went: on a core, queued for one, in disk wait, on the network, asleep; and its main thread."""
    return [_lane(series, spec, width, glyphs) for spec in LANES if any(v is not None for v in series.columns(spec[1]))]


def _lane(series: ProcessSeries, spec: tuple[str, str, str], width: int, glyphs: Glyphs) -> LazyRows:
    label, name, style = spec

    def paint() -> list[Row]:
        values = series.columns(name)
        newest = next((value for value in reversed(values[-3:]) if value is not None), None)
        shown = newest if series.cursor is None else values[series.cursor]
        drawn = [lane(values, glyphs, style)]
        after = NOT_MEASURED if shown is None else f"{pct(shown)} %"
        return [chart_row([(f"  {label}", "dim")], drawn, after, width, series.cursor, glyphs)]

    return LazyRows(1, paint)


def _words(label: str, text: str, series: ProcessSeries, width: int, glyphs: Glyphs) -> LazyRows:
    return LazyRows(1, lambda: [words_row(label, text, "dim", series.axis.columns, width, series.cursor, glyphs)])


def moment_fields(series: ProcessSeries) -> list[Field]:
    """All values at the cursor; what is not known is left out."""
    parts = [
        (f"{chart.label} {chart.show(value)}", "text")
        for chart in CHARTS
        if (value := series.at(chart.name)) is not None
    ]
    lanes = [(label, series.at(name)) for label, name, _ in LANES if name != "asleep_pct"]
    return parts + [(f"{label} {pct(value)} %", "dim") for label, value in lanes if value is not None]
