"""Rows of hosts, jobs or users: their GPUs as cells, means, whose they are, what is wrong, what it wastes."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from gputop.diagnosis.types import NOT_WORKING
from gputop.fleet.frame import Group
from gputop.paint.fleet_cells import cell_spans, cells_width
from gputop.paint.fleet_view import FleetView
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row, Span, Target
from gputop.paint.text import fit, pct

NOT_KNOWN = "–"
WIDEST_VERDICT = 80


class Column(Struct, frozen=True):
    """``least`` is the width of the screen from which the column is shown; ``sort`` what a click on its head sorts."""

    key: str
    head: str
    width: int
    least: int
    sort: str
    right: bool = False


COLUMNS = (
    Column("util", "UTIL", 5, 50, "util", True),
    Column("sm", "SM", 4, 0, "sm", True),
    Column("gap", "GAP", 4, 70, "gap", True),
    Column("power", "kW", 5, 110, "power", True),
    Column("job", "JOB", 15, 100, "name"),
    Column("user", "USER", 9, 120, "name"),
    Column("verdict", "VERDICT", 0, 0, "worst"),
    Column("waste", "WASTE 1 h", 9, 76, "waste", True),
)
"""From left to right, after the name and the cells. The verdict takes what the others leave."""
HOSTS = "HOSTS"
_OF_PANEL = {"jobs": "job", "users": "user"}
"""Panel -> the column that would repeat the name of its rows, and shows their hosts instead."""


def columns(width: int) -> list[Column]:
    """The columns that a screen of this width has room for."""
    return [column for column in COLUMNS if width >= column.least]


def name_width(width: int) -> int:
    """The room of a row's name."""
    return 10 if width < 100 else 12 if width < 160 else 18


def _verdict_width(width: int) -> int:
    used = 1 + name_width(width) + 1 + cells_width(width) + sum(c.width + 1 for c in columns(width) if c.width)
    # One cell before it, and one at the right edge as on every screen. The eye cannot follow a wider row.
    return min(WIDEST_VERDICT, max(8, width - used - 2))


def head(view: FleetView, width: int, word: str) -> Row:
    """The heads of the columns; the one that is sorted by has its arrow."""
    arrow = view.glyphs.sorted_up if view.inverted else view.glyphs.sorted
    mark = arrow if view.sort == "name" else ""
    line = Line().add(" ").add(f"{word}{mark}"[: name_width(width)].ljust(name_width(width)), "heading").add(" ")
    room = cells_width(width)
    each = room // 8
    numbers = "".join(str(i).ljust(each) for i in range(8)) if view.panel == "hosts" else "GPUs".ljust(room)
    line.add(numbers[:room], "heading")
    for column in columns(width):
        text = (HOSTS if column.key == _OF_PANEL.get(view.panel) else column.head) + (
            arrow if column.sort == view.sort and column.sort != "name" else ""
        )
        size = column.width or _verdict_width(width)
        line.add(" ").add(text.rjust(size) if column.right else text.ljust(size), "heading")
    return line.row(width)


def head_target(width: int) -> Target:
    """What a click on a head sorts by."""
    at = 1 + name_width(width) + 1
    ends: list[tuple[int, object]] = [(at, "name"), (at + cells_width(width), "worst")]
    at += cells_width(width)
    for column in columns(width):
        at += 1 + (column.width or _verdict_width(width))
        ends.append((at, column.sort))
    return Target("head", None, (*ends, (width, None)))


def row(group: Group, view: FleetView, width: int, *, selected: bool) -> Row:
    """One host, job or user."""
    glyphs, red = view.glyphs, group.verdict.level == "red"
    dim = group.verdict.state in ("idle", "down", "unmeasured")
    name = group.name or ("no job" if view.panel == "jobs" else "nobody known")
    line = (
        Line().add(" ").add(fit(name, name_width(width), glyphs.more), "strong" if red else "dim" if dim else "value")
    )
    line.add(" ").add_all(cell_spans(group.gpus, cells_width(width), glyphs))
    for column in columns(width):
        size = column.width or _verdict_width(width)
        line.add(" ").add_all(_FIELDS[column.key](group, view, size))
    return line.row(width, "select" if selected else None)


def _number(value: float | None, size: int, style: str) -> list[Span]:
    return [(pct(value, size) if value is not None else NOT_KNOWN.rjust(size), style if value is not None else "dim")]


def _util(group: Group, view: FleetView, size: int) -> list[Span]:
    return _number(None if group.down else group.util_pct, size, "strong")


def _sm(group: Group, view: FleetView, size: int) -> list[Span]:
    if group.sm_active_pct is None and group.down is None and group.gpus:
        return [("n/a".rjust(size), "dim")]
    # As on the node's screen, no figure of a GPU under a red verdict is green.
    red = group.verdict.level == "red"
    return _number(None if group.down else group.sm_active_pct, size, "strong" if red else "value.sm")


def _gap(group: Group, view: FleetView, size: int) -> list[Span]:
    gap = None if group.down else group.gap_pct
    alarm = group.verdict.state == "busy_not_working"
    return _number(gap, size, "value.alarm" if alarm else "value.gap" if gap is not None and gap >= 10 else "dim")


def _power(group: Group, view: FleetView, size: int) -> list[Span]:
    if group.power_w is None or group.down:
        return [(NOT_KNOWN.rjust(size), "dim")]
    return [(f"{group.power_w / 1000:{size}.1f}", "text")]


def _several(names: tuple[str, ...], noun: str, size: int, glyphs: Glyphs) -> list[Span]:
    text = NOT_KNOWN if not names else names[0] if len(names) == 1 else f"{len(names)} {noun}"
    return [(fit(text, size, glyphs.more), "text" if names else "dim")]


def _job(group: Group, view: FleetView, size: int) -> list[Span]:
    if view.panel == "jobs":
        return _several(group.hosts, "hosts", size, view.glyphs)
    return _several(group.jobs, "jobs", size, view.glyphs)


def _user(group: Group, view: FleetView, size: int) -> list[Span]:
    if view.panel == "users":
        return _several(group.hosts, "hosts", size, view.glyphs)
    return _several(group.users, "users", size, view.glyphs)


def _verdict(group: Group, view: FleetView, size: int) -> list[Span]:
    verdict, glyphs = group.verdict, view.glyphs
    glyph = glyphs.times if group.down else "?" if verdict.state == "unmeasured" else glyphs.level(verdict.level)
    style, text = f"level.{verdict.level}", verdict.text
    if len(text) > size - 2:
        # The colour does not tell the cause.
        text = text.replace(f" {NOT_WORKING}: ", ": ", 1)
    return [(f"{glyph} ", style), (fit(text, max(1, size - 2), glyphs.more), style)]


def _waste(group: Group, view: FleetView, size: int) -> list[Span]:
    waste, idle = group.waste_gpu_h, group.idle_gpu_h
    if waste is None or idle is None:
        return [(view.glyphs.more.rjust(size), "dim")]
    if waste < 0.05 and idle >= 0.05:
        return [(f"{idle:.1f} idle".rjust(size), "dim")]
    if waste < 0.05:
        return [(NOT_KNOWN.rjust(size), "dim")]
    return [(f"{waste:,.1f}".rjust(size), "value" if waste >= 1.0 else "text")]


_FIELDS: dict[str, Callable[[Group, FleetView, int], list[Span]]] = {
    "util": _util, "sm": _sm, "gap": _gap, "power": _power, "job": _job, "user": _user, "verdict": _verdict,
    "waste": _waste,
}  # fmt: skip
