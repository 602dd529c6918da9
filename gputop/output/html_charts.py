"""The gap chart and the lane of verdicts under it, as SVG on one axis of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timezone
from itertools import groupby

from gputop.output.html import Markup, element
from gputop.report.lanes import LaneColumn

HEIGHT, LANE = 100, 12
GREEN, AMBER, RED, GREY = "var(--c-compute)", "#bf8f4a", "#a8201f", "var(--c-unknown)"

MARKS = 4
"""Intervals of equal length between the labels of the axis."""
WITH_SECONDS_S, DAY_S = 60.0, 86400.0

Columns = Sequence[LaneColumn | None]


def chart(columns: Columns, label: str) -> Markup:
    """Utilisation and SM activity over time; gaps stay empty."""
    areas = (
        _area(columns, lambda c: c.util_pct if c.sm_pct is None else None, GREY),
        _area(
            columns,
            lambda c: c.util_pct if c.sm_pct is not None and not c.is_flagged else None,
            AMBER,
        ),
        _area(
            columns, lambda c: c.util_pct if c.sm_pct is not None and c.is_flagged else None, RED
        ),
        _area(columns, lambda c: c.sm_pct, GREEN),
    )
    return _svg(columns, HEIGHT, areas, "height:90px;background:var(--track)", label)


def lane(columns: Columns) -> Markup:
    """Verdicts over the same time, with tooltips."""
    at, parts = 0, []
    for verdict, run in groupby(columns, lambda c: None if c is None else (c.role, c.title)):
        width = len(list(run))
        if verdict is not None:
            role, title = verdict
            rect = {"x": at, "y": 0, "width": width, "height": LANE, "fill": f"var(--c-{role})"}
            parts.append(element("rect", element("title", title), **rect))
        at += width
    style = "height:.5rem;margin-top:.2rem;border-radius:.2rem;background:var(--track)"
    return _svg(columns, LANE, parts, style, "verdicts over the same time")


def _svg(columns: Columns, height: int, parts: Iterable[Markup], style: str, label: str) -> Markup:
    """A drawing that fills the width."""
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {len(columns)} {height}",
        preserveAspectRatio="none",
        style=f"display:block;width:100%;{style}",
        role="img",
        aria_label=label,
    )


def clock(begin: float, end: float) -> Markup:
    """Evenly spaced times of day (UTC) below a chart."""
    span = end - begin
    form = "%H:%M:%S" if span < 4 * WITH_SECONDS_S else "%H:%M" if span < DAY_S else "%m-%d %H:%M"
    times = [
        datetime.fromtimestamp(begin + span * i / MARKS, timezone.utc) for i in range(MARKS + 1)
    ]
    labels = [element("span", f"{t:{form}}") for t in times]
    style = "display:flex;justify-content:space-between;color:var(--dim);font-size:.75rem"
    return element("div", *labels, style=style, aria_label="UTC")


def _area(columns: Columns, read: Callable[[LaneColumn], float | None], colour: str) -> Markup:
    """An area of columns; a column without a value is empty."""
    heights = [0 if c is None else round(min(100.0, max(0.0, read(c) or 0.0))) for c in columns]
    x, path = 0, ""
    for height, run in groupby(heights):
        width = len(list(run))
        if height:
            path += f"M{x} {HEIGHT}v-{height}h{width}v{height}z"
        x += width
    # gputop's own text, which may be longer than text from outside may be.
    return element("path", d=Markup(path), fill=colour)
