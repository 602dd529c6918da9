"""What the viewer of a fleet has chosen, and the rows that follow from it. Frozen; every key makes a new one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.fleet.frame import FleetFrame, Group, worst_first
from gputop.fleet.history import History
from gputop.paint.fleet_filter import passes
from gputop.paint.glyphs import COLOUR, Glyphs
from gputop.paint.process_filter import NO_FILTER, Filter

Panel = Literal["hosts", "jobs", "users", "stragglers", "waste", "alerts", "host"]
MOST_ORDERS = 16
"""Row lists kept for one frame; every letter typed into a filter makes another one."""
GROUPED: dict[Panel, str] = {"jobs": "job", "users": "user"}


class FleetView(Struct, frozen=True):
    """The state of the fleet's screen. ``cursor`` names a row; None is the first one.

    ``at`` is the moment that shows, None for the present. ``stale_s`` is how old the screen is, where that matters.
    """

    glyphs: Glyphs = COLOUR
    panel: Panel = "hosts"
    cursor: str | None = None
    first: int = 0
    sort: str = "worst"
    inverted: bool = False
    filter: Filter = NO_FILTER
    host: str | None = None
    history: History | None = None
    at: float | None = None
    paused: bool = False
    stale_s: float | None = None
    error: str | None = None
    message: str | None = None
    interval_s: float = 15.0
    price: float | None = None
    utc_offset_s: float = 0.0


def _descending(value: Callable[[Group], float | None]) -> Callable[[Group], tuple[bool, float, str]]:
    """The greatest first, what is not measured last."""
    return lambda group: ((number := value(group)) is None, -(number or 0.0), group.name)


SORTS: dict[str, Callable[[Group], tuple[object, ...]]] = {
    "worst": worst_first,
    "waste": _descending(lambda group: group.waste_gpu_h),
    "gap": _descending(lambda group: group.gap_pct),
    "sm": lambda group: (group.sm_active_pct is None, group.sm_active_pct or 0.0, group.name),
    "util": lambda group: (group.util_pct is None, group.util_pct or 0.0, group.name),
    "power": _descending(lambda group: group.power_w),
    "stragglers": lambda group: (-group.stragglers, *worst_first(group)),
    "name": lambda group: (group.name,),
}
"""Orders of the rows by name, the usual one first."""


def sorted_by(view: FleetView, name: str) -> FleetView:
    """The rows in that order; a second time in the reverse."""
    return replace(view, sort=name, inverted=view.sort == name and not view.inverted, first=0)


def groups(frame: FleetFrame, view: FleetView) -> Sequence[Group]:
    """The rows of the panel that shows hosts, jobs or users: filtered, in order."""
    by = GROUPED.get(view.panel, "host")
    wanted = (by, view.sort, str(view.inverted), view.filter.text)
    known = frame.orders.get(wanted)
    if known is None:
        found = frame.jobs if by == "job" else frame.users if by == "user" else frame.hosts
        passing = [group for group in found if passes(view.filter, group)] if view.filter else list(found)
        known = tuple(sorted(passing, key=SORTS[view.sort], reverse=view.inverted))
        if len(frame.orders) >= MOST_ORDERS:
            frame.orders.clear()
        frame.orders[wanted] = known
    return known


def rows_of(frame: FleetFrame, view: FleetView) -> list[str]:
    """The names of the panel's rows, as the cursor goes through them."""
    if view.panel == "stragglers":
        return [f"{one.host}\t{one.gpu}" for one in frame.stragglers]
    if view.panel == "waste":
        return [f"{row.job}\t{row.user}\t{row.cause}" for row in frame.waste]
    if view.panel == "alerts":
        return [str(number) for number in range(len(frame.alerts))]
    return [group.name for group in groups(frame, view)]


def position(rows: Sequence[str], view: FleetView) -> int:
    """The cursor's position among the rows; 0 where its row is gone."""
    return rows.index(view.cursor) if view.cursor in rows else 0


def moved(rows: Sequence[str], view: FleetView, step: int, page: int) -> FleetView:
    """The cursor moved by ``step`` rows, and the visible rows with it."""
    if not rows:
        return view
    at = max(0, min(len(rows) - 1, position(rows, view) + step))
    return seen(replace(view, cursor=rows[at]), at, page, len(rows))


def seen(view: FleetView, at: int, page: int, count: int) -> FleetView:
    """The view with the row at a position in sight."""
    first = min(view.first, at) if at < view.first else max(view.first, at - page + 1)
    return replace(view, first=max(0, min(first, max(0, count - page))))


def selected_host(frame: FleetFrame, view: FleetView) -> str | None:
    """The host that the cursor's row belongs to; None where it belongs to none."""
    if view.panel == "host":
        return view.host
    rows = rows_of(frame, view)
    if not rows:
        return None
    at = position(rows, view)
    if view.panel == "stragglers":
        return frame.stragglers[at].host
    if view.panel == "alerts":
        return frame.alerts[at].host or None
    return rows[at] if view.panel == "hosts" else None
