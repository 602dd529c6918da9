"""A fleet's GPUs as cells of two or three columns: red above green is visible even at that size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import floor

from gputop.fleet.frame import Gpu
from gputop.fleet.judge import LEVELS
from gputop.paint.chart import gap_chart
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Span

BESIDE = 8
"""GPUs of a usual host, for which the width of the cells is chosen."""


def cells_width(width: int) -> int:
    """The room for the cells of a row, on a screen of this width."""
    return BESIDE * (4 if width >= 130 else 3 if width >= 100 else 2)


def cell_spans(gpus: Sequence[Gpu], room: int, glyphs: Glyphs) -> list[Span]:
    """The GPUs side by side in exactly ``room`` cells: with a gap between them while they are few, the worst of them
    where they are too many."""
    line = Line()
    if gpus:
        each = room // max(BESIDE, len(gpus)) if len(gpus) <= room else 1
        shown = list(gpus) if len(gpus) <= room else sorted(gpus, key=_need)[: room - 1]
        for gpu in shown:
            wide = max(1, each - 1)
            line.add_all(cell(gpu, wide, glyphs)).add(" " * (each - wide))
        if len(shown) < len(gpus):
            line.add(glyphs.more, "dim")
    return list(line.row(room))


def cell(gpu: Gpu, wide: int, glyphs: Glyphs) -> list[Span]:
    """One GPU in so many columns and one row."""
    read = gpu.read
    if gpu.state == "down":
        return [(glyphs.dot * wide, "dim")]
    if read.util_pct is None:
        return [("?" * wide, "dim")]
    # Halves of a percent are finer than eighths of a row, and a thousand GPUs then share few drawings.
    sm = None if read.sm_active_pct is None else floor(2.0 * read.sm_active_pct)
    return _drawn(floor(2.0 * read.util_pct), sm, wide, glyphs, gpu.state == "busy_not_working")


@lru_cache(maxsize=4096)
def _drawn(util: int, sm: int | None, wide: int, glyphs: Glyphs, alarm: bool) -> list[Span]:
    """A cell by its halves of a percent."""
    sms = [None if sm is None else sm / 2.0] * wide
    (row,) = gap_chart([util / 2.0] * wide, sms, 1, glyphs, alarm=alarm, measured=sm is not None)
    return row


_NEED = ("busy_not_working", "starved", "idle_allocated", "unmeasured", "idle", "down", "working")


def _need(gpu: Gpu) -> int:
    return _NEED.index(gpu.state)


def state_style(gpu: Gpu) -> str:
    """The style of a GPU's level."""
    return f"level.{LEVELS[gpu.state]}"
