"""Rows of hosts, jobs or users: cells, means, owners, verdict and waste."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from msgspec import Struct

from gputop.diagnosis.types import NOT_WORKING
from gputop.features.fleet.fleet_cells import cell_spans, cells_width, counted_spans
from gputop.features.fleet.fleet_frame import GpuGroup
from gputop.features.fleet.fleet_view import FleetView
from gputop.model.quantity import number
from gputop.paint.glyphs import level_glyph
from gputop.paint.line import Line, Row, Span, fit
from gputop.paint.words import gap_style

NOT_KNOWN = "–"
WIDEST_VERDICT = 80
_OF_PANEL = {"jobs": "job", "users": "user"}
"""Panel -> the column that would repeat the name of its rows, and shows their hosts instead."""


def _number(group: GpuGroup, value: float | None, size: int, style: str) -> Span:
    return (NOT_KNOWN.rjust(size), "dim") if value is None or group.down else (number(value, size), style)


def _sm(group: GpuGroup, view: FleetView, size: int) -> Span:
    if group.sm_active_pct is None and group.down is None and group.size:
        return "n/a".rjust(size), "dim"
    # As on the node's screen, no figure of a GPU under a red verdict is green.
    red = group.verdict.level == "red"
    return _number(group, group.sm_active_pct, size, "strong" if red else "value.sm")


def _gap(group: GpuGroup, view: FleetView, size: int) -> Span:
    style = gap_style(group.gap_pct, alarm=group.verdict.state == "busy_not_working")
    return _number(group, group.gap_pct, size, style)


def _power(group: GpuGroup, view: FleetView, size: int) -> Span:
    if group.power_w is None or group.down:
        return NOT_KNOWN.rjust(size), "dim"
    return f"{group.power_w / 1000:{size}.1f}", "text"


def _owner(group: GpuGroup, view: FleetView, size: int, of: Literal["job", "user"]) -> Span:
    noun = "hosts" if _OF_PANEL.get(view.panel) == of else f"{of}s"
    names: tuple[str, ...] = getattr(group, noun)
    text = NOT_KNOWN if not names else names[0] if len(names) == 1 else f"{len(names)} {noun}"
    return fit(text, size), "text" if names else "dim"


def _verdict(group: GpuGroup, view: FleetView, size: int) -> Span:
    verdict = group.verdict
    glyph = "×" if group.down else "?" if verdict.state == "unmeasured" else level_glyph(verdict.level)
    text = verdict.text
    if len(text) > size - 2:
        # The colour does not tell the cause.
        text = text.replace(f" {NOT_WORKING}: ", ": ", 1)
    return f"{glyph} {fit(text, max(1, size - 2))}", f"level.{verdict.level}"


def _waste(group: GpuGroup, view: FleetView, size: int) -> Span:
    waste, idle = group.waste_gpu_h, group.idle_gpu_h
    if waste is None or idle is None:
        return "…".rjust(size), "dim"
    if waste >= 0.05:
        return f"{waste:,.1f}".rjust(size), "value" if waste >= 1.0 else "text"
    return (f"{idle:.1f} idle" if idle >= 0.05 else NOT_KNOWN).rjust(size), "dim"


class FleetColumn(Struct, frozen=True):
    """A column, shown from a screen of ``min_width`` cells on.

    A click on its head sorts by ``sort``.
    """

    key: str
    head: str
    width: int
    min_width: int
    sort: str
    shown: Callable[[GpuGroup, FleetView, int], Span]
    right: bool = False


COLUMNS = (
    FleetColumn("util", "UTIL", 5, 50, "util",
                lambda group, view, size: _number(group, group.util_pct, size, "strong"), True),
    FleetColumn("sm", "SM", 4, 0, "sm", _sm, True),
    FleetColumn("gap", "GAP", 4, 70, "gap", _gap, True),
    FleetColumn("power", "kW", 5, 110, "power", _power, True),
    FleetColumn("job", "JOB", 15, 100, "name", partial(_owner, of="job")),
    FleetColumn("user", "USER", 9, 120, "name", partial(_owner, of="user")),
    FleetColumn("verdict", "VERDICT", 0, 0, "worst", _verdict),
    FleetColumn("waste", "WASTE 1 h", 9, 76, "waste", _waste, True),
)  # fmt: skip
"""From left to right, after the name and the cells. The verdict takes what the others leave."""


def columns(width: int) -> list[tuple[FleetColumn, int]]:
    """The columns that a screen of this width has room for, and their widths."""
    shown = [column for column in COLUMNS if width >= column.min_width]
    used = 1 + name_width(width) + 1 + cells_width(width) + sum(column.width + 1 for column in shown if column.width)
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
    numbers = "".join(str(i).ljust(room // 8) for i in range(8)) if view.panel == "hosts" else "GPUs".ljust(room)
    line = Line().add(" ", "text", "name").add(name, "heading", "name").add(" ", "text", "name")
    line.add(numbers[:room], "heading", "worst")
    for column, size in columns(width):
        text = "HOSTS" if column.key == _OF_PANEL.get(view.panel) else column.head
        text += arrow * (column.sort == view.sort and column.sort != "name")
        text = text.rjust(size) if column.right else text.ljust(size)
        line.add(" ", "text", column.sort).add(text, "heading", column.sort)
    return line


def row(group: GpuGroup, view: FleetView, width: int, *, selected: bool) -> Row:
    """One host, job or user."""
    room = cells_width(width)
    style = (
        "strong" if group.verdict.level == "red"
        else "dim" if group.verdict.state in ("idle", "down", "unmeasured")
        else "value"
    )  # fmt: skip
    name = group.title or ("no job" if view.panel == "jobs" else "nobody known")
    line = Line().add(" ").add(fit(name, name_width(width)), style).add(" ")
    line.add_all(cell_spans(group.gpus, room, view.glyphs) if group.gpus else counted_spans(group.counts, room))
    for column, size in columns(width):
        line.add(" ").add_all([column.shown(group, view, size)])
    return line.row(width, "select" if selected else None)
