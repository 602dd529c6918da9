"""The viewer's choices, and the rows that follow. Frozen and pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet.fleet_frame import FleetFrame, GpuGroup, worst_first
from gputop.features.fleet.fleet_reading import History
from gputop.model.expression import Expression, Vocabulary, parse_expression
from gputop.paint.glyphs import COLOUR, Glyphs
from gputop.paint.keys import Key
from gputop.paint.process_columns import NO_FILTER

# The filter of a fleet's rows, in the language of the process table: ``user:ml util<50 state:starved job~8830``.

FLEET_VOCABULARY = Vocabulary(
    "filter",
    {
        "host": "text", "job": "text", "user": "text", "verdict": "text", "state": "text", "model": "text",
        "names": "text", "util_pct": "pct", "sm_active_pct": "pct", "gap_pct": "pct", "power_w": "W",
        "waste_gpu_h": "count", "gpus": "count", "stragglers": "count",
    },
    "try host, job, user, state, verdict, util, sm, gap, power or waste",
    {
        "util": "util_pct", "sm": "sm_active_pct", "gap": "gap_pct", "power": "power_w", "waste": "waste_gpu_h",
        "gpu": "gpus", "name": "host",
    },
    loose=frozenset(("verdict",)),
)  # fmt: skip
"""Of a host, a job or a user; numbers are means and sums as they are shown."""


@lru_cache(maxsize=64)
def parse(text: str) -> Expression:
    """Parse a filter. Raises ExpressionError."""
    return parse_expression(text, FLEET_VOCABULARY)


def passes(expression: Expression, group: GpuGroup) -> bool:
    """Whether a row passes."""
    return expression.holds(lambda term: term.holds_for(_field_value(term.field, group))) is True


_TEXTS: Mapping[str, Callable[[GpuGroup], Sequence[str]]] = {
    "host": lambda group: group.hosts or (group.name,),
    "job": lambda group: group.jobs,
    "user": lambda group: group.users,
    "verdict": lambda group: (group.verdict.text,),
    "state": lambda group: tuple(state for state, n in group.counts.items() if n),
    "model": lambda group: tuple({gpu.read.model for gpu in group.gpus}),
    "names": lambda group: tuple({gpu.read.names for gpu in group.gpus}),
}


def _field_value(field: str, group: GpuGroup) -> float | Sequence[str] | None:
    if field in _TEXTS:
        return _TEXTS[field](group)
    if field in FLEET_VOCABULARY.units:
        number: float | None = group.size if field == "gpus" else getattr(group, field)
        return number
    return [text for of in ("host", "job", "user", "verdict") for text in _TEXTS[of](group)]


Panel = Literal["hosts", "jobs", "users", "stragglers", "waste", "alerts", "host"]
GROUPED: dict[Panel, str] = {"jobs": "job", "users": "user"}


class FleetView(Struct, frozen=True):
    """The state of the fleet's screen.

    ``cursor`` names a row; None is the first one. ``at`` is the moment that shows, None for the present. ``stale_s`` is
    how old the screen is, where that matters.
    """

    glyphs: Glyphs = COLOUR
    panel: Panel = "hosts"
    cursor: str | None = None
    first: int = 0
    sort: str = "worst"
    inverted: bool = False
    filter: Expression = NO_FILTER
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


def _sort_key(field: str, sign: Literal[1, -1]) -> Callable[[GpuGroup], tuple[bool, float, str]]:
    """Sort by a field, the unmeasured last; ``sign`` -1 is descending."""
    return lambda group: ((number := getattr(group, field)) is None, sign * (number or 0.0), group.name)


SORTS: dict[str, Callable[[GpuGroup], tuple[object, ...]]] = {
    "worst": worst_first,
    "waste": _sort_key("waste_gpu_h", -1),
    "gap": _sort_key("gap_pct", -1),
    "sm": _sort_key("sm_active_pct", 1),
    "util": _sort_key("util_pct", 1),
    "power": _sort_key("power_w", -1),
    "stragglers": lambda group: (-group.stragglers, *worst_first(group)),
    "name": lambda group: (group.name,),
}
"""Orders of the rows by name, the usual one first."""


def sorted_by(view: FleetView, name: str) -> FleetView:
    """The rows in that order; a second time in the reverse."""
    return replace(view, sort=name, inverted=view.sort == name and not view.inverted, first=0)


def groups(frame: FleetFrame, view: FleetView) -> Sequence[GpuGroup]:
    """Rows of hosts, jobs or users: filtered and sorted."""
    by = GROUPED.get(view.panel, "host")
    order_key = (by, view.sort, str(view.inverted), view.filter.text)
    rows = frame.orders.get(order_key)
    if rows is None:
        all_groups = frame.jobs if by == "job" else frame.users if by == "user" else frame.hosts
        passing = [group for group in all_groups if passes(view.filter, group)] if view.filter else list(all_groups)
        rows = tuple(sorted(passing, key=SORTS[view.sort], reverse=view.inverted))
        frame.orders[order_key] = rows
    return rows


def rows_of(frame: FleetFrame, view: FleetView) -> list[str]:
    """Names of the panel's rows, in the cursor's order."""
    if view.panel == "stragglers":
        return [f"{straggler.host}\t{straggler.gpu}" for straggler in frame.stragglers]
    if view.panel == "waste":
        return [f"{row.job}\t{row.user}\t{row.cause}" for row in frame.waste]
    if view.panel == "alerts":
        return [str(number) for number in range(len(frame.read.alerts))]
    return [group.name for group in groups(frame, view)]


def position(rows: Sequence[str], view: FleetView) -> int:
    """The cursor's position among the rows; 0 where its row is gone."""
    return rows.index(view.cursor) if view.cursor in rows else 0


def moved(rows: Sequence[str], view: FleetView, step: int, page: int) -> FleetView:
    """The cursor moved by ``step`` rows, and the visible rows with it."""
    if not rows:
        return view
    at = max(0, min(len(rows) - 1, position(rows, view) + step))
    first = min(at, max(view.first, at - page + 1))
    return replace(view, cursor=rows[at], first=max(0, min(first, len(rows) - page)))


def drawn_hosts(frame: FleetFrame | None, view: FleetView, page: int) -> tuple[str, ...]:
    """Hosts whose GPUs are drawn."""
    if frame is None:
        return ()
    if view.panel == "host":
        return (view.host,) if view.host else ()
    rows = rows_of(frame, view)
    return tuple(rows[view.first : view.first + page])


def selected_host(frame: FleetFrame, view: FleetView) -> str | None:
    """The host of the cursor's row; None if it has none."""
    if view.panel == "host":
        return view.host
    rows = rows_of(frame, view)
    if not rows:
        return None
    at = position(rows, view)
    if view.panel == "stragglers":
        return frame.stragglers[at].host
    if view.panel == "alerts":
        return frame.read.alerts[at].host or None
    return rows[at] if view.panel == "hosts" else None


# The keys of the fleet's screen, once: its bindings and its help are both made of this table.

FLEET_KEYS: tuple[Key, ...] = (
    Key("quit", "q,Q,f10", "quit", "everywhere"),
    Key("interrupt", "ctrl+c", "quit, from any screen", "everywhere"),
    Key("help", "question_mark,h,f1", "this help", "everywhere"),
    Key("palette", "ctrl+p,colon", "every command by name", "everywhere"),
    Key("release", "escape", "back to the hosts; clear the filter", "everywhere"),
    Key("copy", "y", "copy the row as text for a ticket", "everywhere"),
    Key("copy_ssh", "c", "copy the command that opens gputop on the host", "everywhere"),
    Key("screenshot", "f8", "save a picture of the screen to this directory", "everywhere"),
    Key("theme", "T", "choose a theme with a live preview; Esc cancels", "everywhere"),
    Key("suspend", "ctrl+z", "suspend to the shell", "everywhere"),
    Key("open", "enter", "details of the host; the hosts of a job or user", "what is shown"),
    Key("jobs", "u", "by job; again by user; again by host", "what is shown"),
    Key("stragglers", "s", "the GPUs that slow their jobs down", "what is shown"),
    Key("waste", "w", "GPU-hours of the last hour that were not work, by job, user and cause", "what is shown"),
    Key("alerts", "A", "the alerts firing in Prometheus", "what is shown"),
    Key("up", "up,k", "up", "rows"),
    Key("down", "down,j", "down", "rows"),
    Key("page_up", "pageup", "a page up", "rows"),
    Key("page_down", "pagedown", "a page down", "rows"),
    Key("first", "home,g", "first row", "rows"),
    Key("last", "end,G", "last row", "rows"),
    Key("sort", "o,f6", "sort by the next column; a click on a column's head sorts by it", "rows"),
    Key("invert", "I", "reverse the order", "rows"),
    Key("filter", "f,f4,slash", "filter: user:ml util<50 state:starved job~8830 !host~node-0", "rows"),
    Key("pause", "p", "pause; return to the present", "time"),
    Key("back", "left", "a minute back", "time"),
    Key("on", "right", "a minute on", "time"),
    Key("jump", "J", "jump to a time: 12:03, -10m, an ISO date", "time"),
)  # fmt: skip
