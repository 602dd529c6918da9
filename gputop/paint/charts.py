"""Charts from numbers to spans: the gap chart, lanes and bars.

The gap chart is a stacked area on one axis of 0–100: SM activity from the floor up, from there to utilisation the gap.
Heights are counted in eighths of a cell. A column without a value stays blank; nothing is drawn as 0 that is not 0.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from math import log10
from operator import itemgetter

from gputop.paint.glyphs import LEFT, LOWER, Glyphs
from gputop.paint.line import Line, Span

Column = float | None


UNKNOWN = -1
"""The height of a value that is not known."""


@lru_cache(maxsize=4096)
def _eighths(value: Column, full_scale: float, most: int) -> int:
    """Return a value's height in eighths of a cell.

    ``most`` is full scale; anything above half a percent is at least one. Remembered: most columns stay on screen
    for a minute and longer.
    """
    if value is None:
        return UNKNOWN
    return min(most, round(value * most / full_scale) or int(value >= 0.005 * full_scale))


def _cell(
    sm: int, util: int, glyphs: Glyphs, gap_style: str, sm_on_gap: str, *, alone: bool
) -> Span:
    """Return one cell of the gap chart.

    ``sm`` and ``util`` are the heights inside this cell, 0–8, sm ≤ util. ``alone`` is the only row of its chart.
    """
    if not glyphs.solid:
        # One cell shows one of the two. A thin floor of SM tells little work from none, so it is preferred to the gap.
        # In a chart of one row the larger of the two says what the GPU does, and an eighth stays free above it.
        if sm > 0 and not (alone and util - sm > sm):
            is_full = sm >= 4 and (not alone or glyphs.name == "ascii")
            return "█" if is_full else LOWER[sm], "gap.sm"
        return (glyphs.gap, gap_style) if util >= 4 else (" ", "text")
    if sm >= 8:
        return "█", "gap.sm"
    if sm == 0:
        return (LOWER[util], gap_style) if util else (" ", "text")
    if util == sm or (alone and util - sm <= sm and gap_style != "gap.alarm"):
        # Of a chart of one row that shows work, the ground stays free: filled, it would run into the row above. What is
        # busy and does not work shows its gap all the same.
        return LOWER[sm], "gap.sm"
    # Three colours do not fit a cell: the gap fills it to the top when it is nearer to full than to its floor.
    if util - sm >= 8 - util:
        return LOWER[sm], sm_on_gap
    return LOWER[sm], "gap.sm"


def gap_chart(
    util: Sequence[Column],
    sm: Sequence[Column],
    rows: int,
    glyphs: Glyphs,
    *,
    alarm: bool,
    measured: bool,
) -> list[list[Span]]:
    """The signature chart: ``rows`` rows of spans, top row first.

    ``util`` and ``sm`` are columns of equal number. Where ``measured`` is False the SM columns are not used and the
    utilisation alone is drawn in the neutral hatch.
    """
    # A chart of one row leaves an eighth free, so that it does not run into the one above.
    top = rows * 8 if rows > 1 else 7
    highs = tuple([_eighths(value, 100.0, top) for value in util])
    lows = (
        tuple([_eighths(value, 100.0, top) for value in sm])
        if measured
        else (UNKNOWN,) * len(highs)
    )
    return [list(row) for row in _drawn(lows, highs, rows, glyphs, alarm=alarm)]


@lru_cache(maxsize=64)
def _drawn(
    lows: tuple[int, ...], highs: tuple[int, ...], rows: int, glyphs: Glyphs, *, alarm: bool
) -> list[tuple[Span, ...]]:
    """The chart from heights of SM activity and of utilisation.

    Remembered: most values change by less than an eighth of a cell from one second to the next.
    """
    columns = [
        _column(low, high, rows, glyphs, alarm=alarm) for low, high in zip(lows, highs, strict=True)
    ]
    return (
        [runs(cells) for cells in zip(*columns, strict=True)] if columns else [(("", ""),)] * rows
    )


def runs(cells: Iterable[Span]) -> tuple[Span, ...]:
    """Neighbours of one style as one span."""
    return tuple(
        ("".join(map(itemgetter(0), run)), style) for style, run in groupby(cells, itemgetter(1))
    )


@lru_cache(maxsize=4096)
def _column(low: int, high: int, rows: int, glyphs: Glyphs, *, alarm: bool) -> list[Span]:
    """One column of the gap chart, top cell first."""
    if low == UNKNOWN == high:
        return [(" ", "text")] * rows
    gap_style, sm_on_gap = (
        ("gap.alarm", "gap.sm_on_alarm") if alarm else ("gap.gap", "gap.sm_on_gap")
    )
    cells: list[Span] = []
    for floor in range((rows - 1) * 8, -1, -8):
        sm, util = min(8, max(0, low - floor)), min(8, max(0, max(low, high) - floor))
        if low == UNKNOWN:
            cells.append(("▒" if util >= 4 else " ", "gap.unknown"))
        else:
            cells.append(_cell(sm, util, glyphs, gap_style, sm_on_gap, alone=rows == 1))
    if low == 0 and high <= 0:
        # A line on the floor: measured, and nothing ran.
        cells[-1] = ("▁", "rule") if glyphs.solid else ("·", "dim")
    return cells


def with_marks(rows: list[list[Span]], columns: Sequence[int]) -> list[list[Span]]:
    """Draw a line down the columns of marks."""
    marked_columns = sorted(set(columns))
    if not marked_columns:
        return rows
    marked: list[list[Span]] = []
    for spans in rows:
        line = Line()
        for text, style in spans:
            # A chart's glyphs take a cell each.
            begin, done = line.width, 0
            for column in marked_columns[
                bisect_left(marked_columns, begin) : bisect_left(marked_columns, begin + len(text))
            ]:
                line.add(text[done : column - begin], style).add("│", "key")
                done = column - begin + 1
            line.add(text[done:], style)
        marked.append(list(line.spans))
    return marked


def lane(values: Sequence[Column], style: str) -> Span:
    """Draw values of 0–100 as one row of heights.

    An eighth stays free, so that full lanes do not run together.
    """
    return area(values, 1, style, 100.0)[0][0]


def bar(
    value: float | None, full_scale: float | None, width: int, glyphs: Glyphs, style: str
) -> list[Span]:
    """Draw a horizontal bar; blank where a value is unknown."""
    if value is None or not full_scale:
        return [(" " * width, "text")]
    whole, rest = divmod(
        max(0, min(width * 8, round(value / full_scale * width * 8) or value > 0)), 8
    )
    text = LEFT[8] * whole + (LEFT[rest] if rest else "")
    return [
        *([(text, style)] if text else []),
        (glyphs.track * (width - len(text)), f"{style}.track"),
    ]


CURSOR_STYLE = "strong"


def area(values: Sequence[Column], rows: int, style: str, top: float | None) -> list[list[Span]]:
    """Draw values from 0 to ``top`` as ``rows`` rows of spans.

    The top row is the first. An eighth stays free above the highest value, so that charts do not run together.
    Where ``top`` is unknown nothing can be drawn to scale: blank.
    """
    most = rows * 8 - 1
    heights = [
        _eighths(value, top, most) if value is not None and top else UNKNOWN for value in values
    ]
    drawn: list[list[Span]] = []
    for floor in range((rows - 1) * 8, -1, -8):
        # What is not known finds the last one.
        cell_of = [LOWER[max(0, min(8, height - floor))] for height in range(most + 1)] + [LOWER[0]]
        drawn.append([("".join([cell_of[height] for height in heights]), style)])
    return drawn


def round_top(highest: float) -> float:
    """Round a scale's top up to 1, 2 or 5 × 10ⁿ.

    Such a scale seldom changes.
    """
    if highest <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(log10(highest))
    return next((step * power for step in (1.0, 2.0, 5.0) if step * power >= highest), 10.0 * power)


def marks(series: Sequence[tuple[str, str, Sequence[Column]]], count: int) -> list[Span]:
    """Draw one row of letters, one for each column.

    A column has the first of (letter, style, shares in percent) that is above zero.
    """
    cells = (
        next(
            ((letter, style) for letter, style, values in series if (values[column] or 0.0) > 0.0),
            (" ", "text"),
        )
        for column in range(count)
    )
    return list(runs(cells))


def with_cursor(spans: Sequence[Span], column: int | None, *, over_text: bool = True) -> list[Span]:
    """Draw the cursor's hair line through a row.

    Every character of the row is one cell wide. A character and not a background: a full block hides its
    background, and a plain terminal has none. Without ``over_text`` it is drawn on a blank cell only, so that words
    stay whole.
    """
    if column is None:
        return list(spans)
    marked: list[Span] = []
    begin = 0
    for text, style in spans:
        at = column - begin
        if 0 <= at < len(text) and (over_text or text[at] == " "):
            marked += [(text[:at], style), ("│", CURSOR_STYLE), (text[at + 1 :], style)]
        else:
            marked.append((text, style))
        begin += len(text)
    return [span for span in marked if span[0]]
