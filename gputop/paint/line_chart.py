"""Area charts of one series on a fixed scale, lanes of marks, and the cursor laid over them.

Heights are counted in eighths of a cell. A column without a value stays blank; nothing is drawn as 0 that is not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10

from gputop.paint.chart import Column
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Span

CURSOR_STYLE = "strong"


def area(values: Sequence[Column], rows: int, glyphs: Glyphs, style: str, top: float | None) -> list[list[Span]]:
    """``rows`` rows of spans, top row first, of values from 0 to ``top``.

    An eighth stays free above the highest value, so that charts do not run together. Where ``top`` is unknown nothing
    can be drawn to scale: blank.
    """
    most = rows * 8 - 1
    heights = [None if v is None or not top else _height(v / top, most) for v in values]
    drawn: list[list[Span]] = []
    for row in range(rows):
        floor_eighths = (rows - 1 - row) * 8
        text = "".join(" " if h is None else glyphs.lower[max(0, min(8, h - floor_eighths))] for h in heights)
        drawn.append([(text, style)])
    return drawn


def _height(share: float, most: int) -> int:
    """A share of the scale in eighths; anything above half a percent is at least one."""
    return min(most, max(round(share * most), 1 if share >= 0.005 else 0))


def round_top(most: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that is not below ``most``: a scale that seldom changes."""
    if most <= 0.0:
        return 1.0
    power = 10.0 ** floor(log10(most))
    return next((step * power for step in (1.0, 2.0, 5.0) if step * power >= most), 10.0 * power)


def marks(series: Sequence[tuple[str, str, Sequence[Column]]], count: int) -> list[Span]:
    """One row of letters: for each column the first of (letter, style, shares in percent) that is above zero."""
    spans: list[Span] = []
    for column in range(count):
        letter, style = next(
            ((letter, style) for letter, style, values in series if (values[column] or 0.0) > 0.0), (" ", "text")
        )
        if spans and spans[-1][1] == style:
            spans[-1] = (spans[-1][0] + letter, style)
        else:
            spans.append((letter, style))
    return spans


def with_cursor(spans: Sequence[Span], column: int | None, glyphs: Glyphs, *, over_text: bool = True) -> list[Span]:
    """The row with a hair line through the cursor's column. Every character of the row is one cell wide.

    A character and not a background: a full block hides its background, and a plain terminal has none. Without
    ``over_text`` it is drawn on a blank cell only, so that words stay whole.
    """
    if column is None:
        return list(spans)
    marked: list[Span] = []
    begin = 0
    for text, style in spans:
        at = column - begin
        if 0 <= at < len(text) and (over_text or text[at] == " "):
            marked += [(text[:at], style), (glyphs.mark, CURSOR_STYLE), (text[at + 1 :], style)]
        else:
            marked.append((text, style))
        begin += len(text)
    return [span for span in marked if span[0]]
