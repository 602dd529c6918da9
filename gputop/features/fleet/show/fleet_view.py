"""The viewer's choices, and the rows that follow. Frozen and pure.

``COLUMNS`` is the one table of what a host, job or user is shown, sorted and filtered by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet.fleet_reading import FiringAlert, History
from gputop.features.fleet.judge.fleet_frame import (
    FleetFrame,
    GpuGroup,
    WastedHours,
    group_of_gpu,
    worst_first,
)
from gputop.features.fleet.judge.straggler import Straggler
from gputop.model.expression import Expression, Vocabulary, parse_expression
from gputop.model.metrics import Unit
from gputop.paint.glyphs import COLOUR, Glyphs
from gputop.paint.keys import Key, section
from gputop.paint.process_filter import NO_FILTER


class FleetColumn(Struct, frozen=True):
    """A column of hosts, jobs or users.

    It is shown from a screen of ``min_width`` cells on. ``field`` is the filter's name, and of numbers that of
    ``GpuGroup``. ``descends`` is the order of a sort; a click on the head sorts by ``sort``.
    """

    key: str
    field: str
    unit: Unit
    head: str
    width: int
    min_width: int
    sort: str
    descends: bool = False


COLUMNS = (
    FleetColumn("util", "util_pct", "pct", "UTIL", 5, 50, "util"),
    FleetColumn("sm", "sm_active_pct", "pct", "SM", 4, 0, "sm"),
    FleetColumn("gap", "gap_pct", "pct", "GAP", 4, 70, "gap", True),
    FleetColumn("power", "power_w", "W", "kW", 5, 110, "power", True),
    FleetColumn("job", "job", "text", "JOB", 15, 100, "name"),
    FleetColumn("user", "user", "text", "USER", 9, 120, "name"),
    FleetColumn("verdict", "verdict", "text", "VERDICT", 0, 0, "worst"),
    FleetColumn("waste", "waste_gpu_h", "count", "WASTE 1 h", 9, 76, "waste", True),
)
"""From left to right, after the name and the cells. The verdict takes what the others leave."""
NUMBERS = tuple(column for column in COLUMNS if column.unit != "text")
FLEET_VOCABULARY = Vocabulary(
    "filter",
    {
        **dict.fromkeys(("host", "state", "model", "names"), "text"), **dict.fromkeys(("gpus", "stragglers"), "count"),
        **{column.field: column.unit for column in COLUMNS},
    },
    "try host, job, user, state, verdict, util, sm, gap, power or waste",
    {**{column.key: column.field for column in NUMBERS}, "gpu": "gpus", "name": "host"},
    loose=frozenset(("verdict",)),
)  # fmt: skip
"""Of a host, a job or a user, in the language of the process table: ``user:ml util<50 state:starved job~8830``."""


@lru_cache(maxsize=64)
def parse(text: str) -> Expression:
    """Parse a filter. Raises ExpressionError."""
    return parse_expression(text, FLEET_VOCABULARY)


def passes(expression: Expression, group: GpuGroup) -> bool:
    """Whether a row passes."""
    return expression.is_met(lambda term: term.holds_for(_field_value(term.field, group))) is True


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


class GpuOfHost(NamedTuple):
    """A GPU of a host, by its number."""

    host: str
    number: str


Panel = Literal["hosts", "jobs", "users", "stragglers", "waste", "alerts", "host"]
GROUPED: dict[Panel, str] = {"jobs": "job", "users": "user"}
Entry = GpuGroup | Straggler | WastedHours | FiringAlert
"""A row of a panel."""


class FleetView(Struct, frozen=True):
    """The state of the fleet's screen.

    ``cursor`` is the key of a row; None is the first one. ``past_t`` is the moment that shows, None for the present.
    ``stale_s`` is how old the screen is, where that matters.
    """

    glyphs: Glyphs = COLOUR
    panel: Panel = "hosts"
    cursor: str | None = None
    first: int = 0
    sort: str = "worst"
    inverted: bool = False
    filter: Expression = NO_FILTER
    host: str | None = None
    gpu: GpuOfHost | None = None
    """The GPU that is looked at alone; None: its whole host."""
    history: History | None = None
    past_t: float | None = None
    paused: bool = False
    stale_s: float | None = None
    error: str | None = None
    message: str | None = None
    interval_s: float = 15.0
    price: float | None = None
    utc_offset_s: float = 0.0


def _sort_key(column: FleetColumn) -> Callable[[GpuGroup], tuple[bool, float, str]]:
    """Sort by a column, the unmeasured last."""
    sign = -1 if column.descends else 1
    return lambda group: (
        (number := getattr(group, column.field)) is None,
        sign * (number or 0.0),
        group.name,
    )


SORTS: dict[str, Callable[[GpuGroup], tuple[object, ...]]] = {
    "worst": worst_first,
    **{column.key: _sort_key(column) for column in NUMBERS},
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
        passing = (group for group in all_groups if not view.filter or passes(view.filter, group))
        rows = frame.orders[order_key] = tuple(
            sorted(passing, key=SORTS[view.sort], reverse=view.inverted)
        )
    return rows


def entries(frame: FleetFrame, view: FleetView) -> Sequence[Entry]:
    """The rows of a panel."""
    lists: dict[str, Sequence[Entry]] = {
        "stragglers": frame.stragglers, "waste": frame.waste, "alerts": frame.read.alerts,
    }  # fmt: skip
    return lists[view.panel] if view.panel in lists else groups(frame, view)


def rows_of(frame: FleetFrame, view: FleetView) -> list[str]:
    """Keys of the panel's rows, in the cursor's order."""
    return [entry.key for entry in entries(frame, view)]


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
    return tuple(rows_of(frame, view)[view.first : view.first + page])


def selected(frame: FleetFrame, view: FleetView) -> Entry | None:
    """The entry of the cursor's row, or the host on screen; None if there is none."""
    if view.panel == "host":
        return frame.host(view.host)
    rows = entries(frame, view)
    return rows[position([entry.key for entry in rows], view)] if rows else None


def selected_host(frame: FleetFrame, view: FleetView) -> str | None:
    """The host of the cursor's row; None if it has none."""
    if view.panel == "host":
        return view.host
    entry = selected(frame, view)
    if isinstance(entry, GpuGroup):
        return entry.name if view.panel == "hosts" else None
    return None if entry is None or isinstance(entry, WastedHours) else entry.host or None


def chosen_gpu(view: FleetView, group: GpuGroup) -> GpuGroup:
    """The GPU of this host that is looked at alone; else the host."""
    if view.gpu is None or view.gpu.host != group.name:
        return group
    chosen = [gpu for gpu in group.gpus if gpu.read.gpu == view.gpu.number]
    return group_of_gpu(group, chosen[0]) if chosen else group


def next_gpu(view: FleetView, group: GpuGroup, step: int) -> FleetView:
    """Look at the next GPU of the host, and after its last one at the whole host."""
    numbers = [gpu.read.gpu for gpu in group.gpus]
    # The whole host stands before its first GPU.
    place = 0
    if view.gpu is not None and view.gpu.host == group.name and view.gpu.number in numbers:
        place = numbers.index(view.gpu.number) + 1
    place = (place + step) % (len(numbers) + 1)
    gpu = GpuOfHost(group.name, numbers[place - 1]) if place else None
    return replace(view, gpu=gpu)


class HostFindings(Struct, frozen=True):
    """Waste, stragglers and alerts of the hosts that pass the filter."""

    waste: Sequence[WastedHours]
    stragglers: Sequence[Straggler]
    alerts: Sequence[FiringAlert]


def findings(frame: FleetFrame, view: FleetView) -> HostFindings:
    """Findings of the hosts that are listed; of the whole fleet without a filter."""
    if not view.filter:
        return HostFindings(frame.waste, frame.stragglers, frame.read.alerts)
    hosts = frozenset(group.name for group in groups(frame, view))
    return HostFindings(
        frame.waste_of(hosts),
        [late for late in frame.stragglers if late.host in hosts],
        [alert for alert in frame.read.alerts if alert.host in hosts],
    )


FLEET_KEYS = (
    *section(
        "everywhere",
        Key("quit", "q,Q,f10", "quit"),
        Key("interrupt", "ctrl+c", "quit, from any screen"),
        Key("help", "question_mark,h,f1", "this help"),
        Key("palette", "ctrl+p,colon", "every command by name"),
        Key("release", "escape", "back to the hosts; clear the filter"),
        Key("screenshot", "f8", "save a picture of the screen to this directory"),
        Key("theme", "T", "the next theme of colours"),
        Key("suspend", "ctrl+z", "suspend to the shell"),
    ),
    *section(
        "what is shown",
        Key("open", "enter", "details of the host; the hosts of a job or user"),
        Key("jobs", "u", "by job; again by user; again by host"),
        Key("stragglers", "s", "the GPUs that slow their jobs down"),
        Key("waste", "w", "GPU-hours of the last hour that were not work, by job, user and cause"),
        Key("alerts", "A", "the alerts firing in Prometheus"),
        Key("previous_gpu", "left_square_bracket", "the GPU before, of the selected host"),
        Key(
            "next_gpu", "right_square_bracket", "the next GPU of the selected host; then all of it"
        ),
        Key("copy", "y", "copy the host or GPU for a ticket: verdict, values, remedy"),
    ),
    *section(
        "rows",
        Key("up", "up,k", "up"),
        Key("down", "down,j", "down"),
        Key("page_up", "pageup", "a page up"),
        Key("page_down", "pagedown", "a page down"),
        Key("first", "home,g", "first row"),
        Key("last", "end,G", "last row"),
        Key("sort", "o,f6", "sort by the next column; a click on a column's head sorts by it"),
        Key("invert", "I", "reverse the order"),
        Key("filter", "f,f4,slash", "filter: user:ml util<50 state:starved job~8830 !host~node-0"),
    ),
    *section(
        "time",
        Key("pause", "p", "pause; return to the present"),
        Key("back", "left", "a minute back"),
        Key("on", "right", "a minute on"),
        Key("jump", "J", "jump to a time: 12:03, -10m, an ISO date"),
    ),
)
"""The keys of the fleet's screen, from which its bindings and its help are made."""
