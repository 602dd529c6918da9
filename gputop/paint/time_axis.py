"""The time axis of a page, and its labels."""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from gputop.model.durations import clock_time, duration
from gputop.paint.line import Span

TICK_STEPS_S = (10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600)
LEAST_TICK_CELLS = 17
"""Labels closer together than this read as one."""
CURSOR = "^"


class TimeAxis(Struct, frozen=True):
    """A time axis of ``columns`` columns of ``width_s`` seconds.

    The newest is number ``last`` since the Unix epoch.
    """

    last: int
    width_s: float
    columns: int
    ahead: int | None = None
    """Columns whose time has not come, of an axis that moves on by several at once; None where it moves by one."""

    @property
    def begin(self) -> float:
        """Unix time at which the oldest column begins."""
        return (self.last - self.columns + 1) * self.width_s

    @property
    def end(self) -> float:
        """Unix time at which the newest column ends."""
        return (self.last + 1) * self.width_s

    def middle(self, column: int) -> float:
        """Unix time in the middle of a column, 0 the oldest."""
        return self.begin + (column + 0.5) * self.width_s

    def column_of(self, t: float) -> int:
        """The column that a time lies in, or the nearest one."""
        # A sample that lies on a column's first instant belongs to the column before it.
        return max(
            0, min(self.columns - 1, ceil(t / self.width_s) - 1 - (self.last - self.columns + 1))
        )


def axis_for(latest_t: float, span_s: float, count: int, step: int = 1) -> TimeAxis:
    """Return an axis of ``count`` columns with the last ``span_s`` seconds.

    It moves on by ``step`` columns at once, and in between fills up.
    """
    width_s = span_s / (count - step + 1)
    # A sample that lies on a column's first instant belongs to the column before it.
    last = ceil(latest_t / width_s) - 1
    ahead = -(last + 1) % step
    return TimeAxis(last + ahead, width_s, count, None if step == 1 else ahead)


def stepped(axis: TimeAxis, cursor_t: float | None, columns: int) -> float | None:
    """Move the cursor by ``columns`` to the right.

    A negative number moves it left; beyond the right end it is None, the newest moment.
    """
    at = axis.columns - 1 if cursor_t is None else axis.column_of(cursor_t)
    to = max(0, at + columns)
    return axis.middle(to) if to < axis.columns else None


def axis_spans(axis: TimeAxis, utc_offset_s: float, cursor: int | None) -> list[Span]:
    """Return the labels under the charts.

    They are the span, clock times, now, and the cursor's own time in its place.
    """
    cells = [" "] * axis.columns
    if axis.ahead is None:
        _put(cells, 0, f"-{duration(round(axis.width_s * axis.columns))}")
        _put(cells, axis.columns - 3, "now")
    step = next((s for s in TICK_STEPS_S if s / axis.width_s >= LEAST_TICK_CELLS), TICK_STEPS_S[-1])
    tick = ceil((axis.begin + utc_offset_s) / step) * step - utc_offset_s
    while tick < axis.end:
        text = clock_time(tick, utc_offset_s)
        text = text if step < 60 else text[:5]
        _put(cells, axis.column_of(tick) - len(text) // 2, text)
        tick += step
    labels = "".join(cells)
    if cursor is None:
        return [(labels, "dim")]
    text = clock_time(axis.middle(cursor), utc_offset_s)
    at, text = (
        (cursor, CURSOR + text)
        if cursor + len(text) < axis.columns
        else (cursor - len(text), text + CURSOR)
    )
    if at < 0:
        at, text = cursor, CURSOR
    # A label that the cursor's time would cut in two is dropped whole.
    before, after = labels[:at], labels[at + len(text) :]
    if before[-1:].strip():
        whole_labels = before.rstrip().rpartition(" ")[0]
        before = whole_labels + " " * (at - len(whole_labels))
    if after[:1].strip():
        word = after.partition(" ")[0]
        after = " " * len(word) + after[len(word) :]
    return [(before, "dim"), (text, "key"), (after, "dim")]


def _put(cells: list[str], at: int, text: str) -> None:
    """Write a label if two free cells surround it."""
    end = at + len(text)
    if at < 0 or end > len(cells) or any(cell != " " for cell in cells[max(0, at - 2) : end + 2]):
        return
    cells[at:end] = text
