"""The gap chart and the lane of verdicts under it, as SVG on one axis of time. No script; values on pointing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from itertools import groupby

from gputop.output.html.markup import Markup, element
from gputop.report.lanes import LaneColumn

HEIGHT, LANE = 100, 12
GREEN, AMBER, RED, GREY = "var(--c-compute)", "#bf8f4a", "#a8201f", "var(--c-unknown)"
LEVELS = {"green": GREEN, "grey-green": GREEN, "info": "var(--info)", "yellow": "#e0883a", "red": RED, "grey": GREY}
"""The lane's colour of each level."""

MARKS = 4
"""Stretches of equal length between the labels of the axis."""
WITH_SECONDS_S, DAY_S = 60.0, 86400.0

Columns = Sequence[LaneColumn | None]


def chart(columns: Columns, label: str) -> Markup:
    """Utilisation in the gap's colour, SM activity over it; what was not recorded stays empty."""
    areas = [
        _area(columns, lambda c: c.util_pct if c.sm_pct is None else None, GREY),
        _area(columns, lambda c: c.util_pct if c.sm_pct is not None and not c.is_flagged else None, AMBER),
        _area(columns, lambda c: c.util_pct if c.sm_pct is not None and c.is_flagged else None, RED),
        _area(columns, lambda c: c.sm_pct, GREEN),
    ]
    return element(
        "svg",
        *areas,
        viewBox=f"0 0 {len(columns)} {HEIGHT}",
        preserveAspectRatio="none",
        style="display:block;width:100%;height:3.6rem;background:var(--track)",
        role="img",
        aria_label=label,
    )


def lane(columns: Columns) -> Markup:
    """The verdict over the same time; a tooltip names each stretch."""
    at, parts = 0, []
    for told, run in groupby(columns, lambda c: None if c is None else (c.level, c.title)):
        width = len(list(run))
        if told is not None:
            level, title = told
            colour = LEVELS.get(level, GREY)
            parts.append(element("rect", element("title", title), x=at, y=0, width=width, height=LANE, fill=colour))
        at += width
    return element(
        "svg",
        *parts,
        viewBox=f"0 0 {len(columns)} {LANE}",
        preserveAspectRatio="none",
        style="display:block;width:100%;height:.5rem;margin-top:.2rem;border-radius:.2rem;background:var(--track)",
        role="img",
        aria_label="verdicts over the same time",
    )


def clock(begin: float, end: float) -> Markup:
    """Times of day (UTC) under the charts, on their axis: both ends, and evenly spaced ones between."""
    span = end - begin
    form = "%H:%M:%S" if span < 4 * WITH_SECONDS_S else "%H:%M" if span < DAY_S else "%m-%d %H:%M"
    times = [datetime.fromtimestamp(begin + span * i / MARKS, timezone.utc) for i in range(MARKS + 1)]
    labels = [element("span", f"{t:{form}}") for t in times]
    style = "display:flex;justify-content:space-between;color:var(--dim);font-size:.75rem"
    return element("div", *labels, style=style, aria_label="UTC")


def _area(columns: Columns, read: Callable[[LaneColumn], float | None], colour: str) -> Markup:
    """Columns from the floor up to their value; one without a value is no column."""
    heights = [0 if c is None else round(min(100.0, max(0.0, read(c) or 0.0))) for c in columns]
    x, path = 0, ""
    for height, run in groupby(heights):
        width = len(list(run))
        if height:
            path += f"M{x} {HEIGHT}v-{height}h{width}v{height}z"
        x += width
    # gputop's own text, which may be longer than text from outside may be.
    return element("path", d=Markup(path), fill=colour)
