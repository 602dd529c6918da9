"""Rows of hosts, jobs or users: GPUs as small cells, red above green, and the columns of ``fleet_view.COLUMNS``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import floor

from gputop.diagnosis.types import NOT_WORKING
from gputop.features.fleet.fleet_reading import FleetState
from gputop.features.fleet.judge.fleet_frame import GpuGroup
from gputop.features.fleet.judge.gpu_state import ABSENT, LEVELS, Gpu
from gputop.features.fleet.judge.group_verdict import ORDER
from gputop.features.fleet.show.fleet_view import COLUMNS, GROUPED, FleetColumn, FleetView
from gputop.model.quantity import number
from gputop.paint.cells import fit
from gputop.paint.charts import gap_chart
from gputop.paint.glyphs import Glyphs, level_glyph
from gputop.paint.gpu_fields import gap_style
from gputop.paint.line import Line, Row, Span

NOT_KNOWN = "–"
WIDEST_VERDICT = 80
BESIDE = 8
"""GPUs of a usual host, for which the width of the cells is chosen."""
_NEED: tuple[FleetState, ...] = (*(state for state in ORDER if state != "working"), "working")


def cells_width(width: int) -> int:
    """The room for the cells of a row, on a screen of this width."""
    return BESIDE * (4 if width >= 130 else 3 if width >= 100 else 2)


def cell_spans(gpus: Sequence[Gpu], room: int, glyphs: Glyphs) -> list[Span]:
    """GPUs side by side in ``room`` cells; the worst if too many."""
    if len(gpus) > room:
        gpus = sorted(gpus, key=_need)
    return _side_by_side(len(gpus), lambda at, wide: _cell(gpus[at], wide, glyphs), room)


def _need(gpu: Gpu) -> tuple[bool, int]:
    """Sort key: a GPU that is red first, then by state."""
    return gpu.level != "red", _NEED.index(gpu.state)


def counted_spans(counts: Mapping[FleetState, int], room: int) -> list[Span]:
    """GPUs by state alone, the worst first."""

    def level_of(at: int, wide: int) -> list[Span]:
        state = states[at]
        if state in ABSENT and state != "lost":
            return [("·", "dim")]
        return [("×" if state == "lost" else level_glyph(LEVELS[state]), f"level.{LEVELS[state]}")]

    states = [state for state in _NEED for _ in range(min(room + 1, counts.get(state, 0)))]
    return _side_by_side(len(states), level_of, room)


def _side_by_side(size: int, drawn: Callable[[int, int], list[Span]], room: int) -> list[Span]:
    """Draw each position in so many columns; the first if too many."""
    fits = size <= room
    cell_room = room // max(BESIDE, size) if fits else 1
    line = Line()
    for at in range(size if fits else room - 1):
        line.add_all(drawn(at, max(1, cell_room - 1))).to((at + 1) * cell_room)
    return list(line.add("…" * (not fits), "dim").row(room))


def _cell(gpu: Gpu, wide: int, glyphs: Glyphs) -> list[Span]:
    """One GPU in so many columns and one row."""
    read = gpu.read
    if gpu.state == "lost":
        return [("×" * wide, "level.red")]
    if gpu.state in ABSENT or read.util_pct is None:
        return [(("·" if gpu.state in ABSENT else "?") * wide, "dim")]
    # Halves of a percent are finer than eighths of a row, and a thousand GPUs then share few drawings.
    sm = None if read.sm_active_pct is None else floor(2.0 * read.sm_active_pct)
    return _drawn(floor(2.0 * read.util_pct), sm, wide, glyphs, gpu.level == "red")


@lru_cache(maxsize=4096)
def _drawn(util: int, sm: int | None, wide: int, glyphs: Glyphs, alarm: bool) -> list[Span]:
    """A cell by its halves of a percent."""
    sms = [None if sm is None else sm / 2.0] * wide
    (row,) = gap_chart([util / 2.0] * wide, sms, 1, glyphs, alarm=alarm, measured=sm is not None)
    return row


def _shown(column: FleetColumn, group: GpuGroup, view: FleetView, size: int) -> Span:
    """A column of one row."""
    if column.unit == "text":
        return (
            _verdict(group, size)
            if column.key == "verdict"
            else _owner(group, view, size, column.key)
        )
    if column.key == "waste":
        return _waste(group, size)
    value: float | None = getattr(group, column.field)
    if column.key == "sm" and value is None and group.down is None and group.size:
        return "n/a".rjust(size), "dim"
    if value is None or group.down:
        return NOT_KNOWN.rjust(size), "dim"
    if column.key == "power":
        return f"{value / 1000:{size}.1f}", "text"
    # As on the node's screen, no figure of a GPU under a red verdict is green.
    style = "strong"
    if column.key == "sm":
        style = sm_style(value, group.verdict.state, alarm=group.verdict.level == "red")
    if column.key == "gap":
        style = gap_style(value, alarm=group.verdict.state == "busy_not_working")
    return number(value, size), style


UNUSED_STATES: tuple[FleetState, ...] = ("idle", "idle_allocated", "allocated_unused")
LEAST_WORK_PCT = 0.5
"""SM activity below it is shown as 0."""


def sm_style(sm_pct: float | None, state: FleetState, *, alarm: bool) -> str:
    """The style of SM activity: green where the chip works, so not for an idle one."""
    if sm_pct is None:
        return "dim"
    if alarm:
        return "strong"
    is_idle = state in UNUSED_STATES or sm_pct < LEAST_WORK_PCT
    return "dim" if is_idle else "value.sm"


def _owner(group: GpuGroup, view: FleetView, size: int, of: str) -> Span:
    """The job or user; the hosts where that would repeat the name of a row."""
    noun = "hosts" if GROUPED.get(view.panel) == of else f"{of}s"
    names: tuple[str, ...] = getattr(group, noun)
    text = NOT_KNOWN if not names else names[0] if len(names) == 1 else f"{len(names)} {noun}"
    return fit(text, size), "text" if names else "dim"


def _verdict(group: GpuGroup, size: int) -> Span:
    verdict = group.verdict
    glyph = (
        "×" if group.down else "?" if verdict.state == "unmeasured" else level_glyph(verdict.level)
    )
    text = verdict.text
    if len(text) > size - 2:
        # The colour does not tell the cause.
        text = text.replace(f" {NOT_WORKING}: ", ": ", 1)
    return f"{glyph} {fit(text, max(1, size - 2))}", f"level.{verdict.level}"


def _waste(group: GpuGroup, size: int) -> Span:
    waste, idle = group.waste_gpu_h, group.idle_gpu_h
    if waste is None or idle is None:
        return "…".rjust(size), "dim"
    if waste >= 0.05:
        return f"{waste:,.1f}".rjust(size), "value" if waste >= 1.0 else "text"
    return (f"{idle:.1f} idle" if idle >= 0.05 else NOT_KNOWN).rjust(size), "dim"


def columns(width: int) -> list[tuple[FleetColumn, int]]:
    """The columns that a screen of this width has room for, and their widths."""
    shown = [column for column in COLUMNS if width >= column.min_width]
    used = (
        1
        + name_width(width)
        + 1
        + cells_width(width)
        + sum(column.width + 1 for column in shown if column.width)
    )
    # One cell before it, and one at the right edge as on every screen. The eye cannot follow a wider row.
    rest = min(WIDEST_VERDICT, max(8, width - used - 2))
    return [(column, column.width or rest) for column in shown]


def name_width(width: int) -> int:
    """The room of a row's name."""
    return 10 if width < 100 else 12 if width < 160 else 18


def head(view: FleetView, width: int, word: str) -> Line:
    """The columns' heads; a click sorts, the sorted one has an arrow."""
    arrow = "▴" if view.inverted else "▾"
    name = f"{word}{arrow * (view.sort == 'name')}"[: name_width(width)].ljust(name_width(width))
    room = cells_width(width)
    numbers = (
        "".join(str(i).ljust(room // 8) for i in range(8))
        if view.panel == "hosts"
        else "GPUs".ljust(room)
    )
    line = Line().add(" ", "text", "name").add(name, "heading", "name").add(" ", "text", "name")
    line.add(numbers[:room], "heading", "worst")
    for column, size in columns(width):
        text = "HOSTS" if column.key == GROUPED.get(view.panel) else column.head
        text += arrow * (column.sort == view.sort and column.sort != "name")
        text = text.ljust(size) if column.unit == "text" else text.rjust(size)
        line.add(" ", "text", column.sort).add(text, "heading", column.sort)
    return line


def row(group: GpuGroup, view: FleetView, width: int, *, selected: bool) -> Row:
    """One host, job or user."""
    room, state = cells_width(width), group.verdict.state
    style = "dim" if state in ("idle", "down", "unmeasured") else "value"
    name = group.title or ("no job" if view.panel == "jobs" else "nobody known")
    line = (
        Line()
        .add(" ")
        .add(fit(name, name_width(width)), "strong" if group.verdict.level == "red" else style)
    )
    line.add(" ")
    line.add_all(
        cell_spans(group.gpus, room, view.glyphs)
        if group.gpus
        else counted_spans(group.counts, room)
    )
    for column, size in columns(width):
        line.add(" ").add_all([_shown(column, group, view, size)])
    return line.row(width, "select" if selected else None)
