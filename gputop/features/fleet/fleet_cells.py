"""Draw GPUs as small cells, red above green."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import floor
from typing import TypeVar

from gputop.features.fleet.fleet_frame import Gpu
from gputop.features.fleet.fleet_reading import FleetState
from gputop.features.fleet.gpu_state import ABSENT, LEVELS
from gputop.features.fleet.group_verdict import ORDER
from gputop.paint.charts import gap_chart
from gputop.paint.glyphs import Glyphs, level_glyph
from gputop.paint.line import Line, Span

T = TypeVar("T")
BESIDE = 8
"""GPUs of a usual host, for which the width of the cells is chosen."""


def cells_width(width: int) -> int:
    """The room for the cells of a row, on a screen of this width."""
    return BESIDE * (4 if width >= 130 else 3 if width >= 100 else 2)


def cell_spans(gpus: Sequence[Gpu], room: int, glyphs: Glyphs) -> list[Span]:
    """GPUs side by side in ``room`` cells; the worst if too many."""
    if len(gpus) > room:
        gpus = sorted(gpus, key=lambda gpu: _NEED.index(gpu.state))
    return _side_by_side(gpus, lambda gpu, wide: cell(gpu, wide, glyphs), room)


def counted_spans(counts: Mapping[FleetState, int], room: int) -> list[Span]:
    """GPUs by state alone, the worst first."""

    def level_of(state: FleetState, wide: int) -> list[Span]:
        if state in ABSENT and state != "lost":
            return [("·", "dim")]
        return [("×" if state == "lost" else level_glyph(LEVELS[state]), f"level.{LEVELS[state]}")]

    states = [state for state in _NEED for _ in range(min(room + 1, counts.get(state, 0)))]
    return _side_by_side(states, level_of, room)


def _side_by_side(of: Sequence[T], drawn: Callable[[T, int], list[Span]], room: int) -> list[Span]:
    """Draw each in so many columns; the first if too many."""
    fits = len(of) <= room
    cell_room = room // max(BESIDE, len(of)) if fits else 1
    line = Line()
    for at, one in enumerate(of if fits else of[: room - 1], 1):
        line.add_all(drawn(one, max(1, cell_room - 1))).to(at * cell_room)
    return list(line.add("…" * (not fits), "dim").row(room))


def cell(gpu: Gpu, wide: int, glyphs: Glyphs) -> list[Span]:
    """One GPU in so many columns and one row."""
    read = gpu.read
    if gpu.state == "lost":
        return [("×" * wide, "level.red")]
    if gpu.state in ABSENT:
        return [("·" * wide, "dim")]
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


_NEED: tuple[FleetState, ...] = (*(state for state in ORDER if state != "working"), "working")
