"""Paint the first page below its hosts: the selected host, waste by job, stragglers, alerts. Pure.

What matters most comes first where the screen is low: the evidence and the remedy of the selected host, then waste by
job, then its last hour as charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from gputop.features.fleet.fleet_reading import FiringAlert
from gputop.features.fleet.judge.fleet_frame import FleetFrame, GpuGroup
from gputop.features.fleet.show import finding_rows, fleet_host
from gputop.features.fleet.show.fleet_view import Entry, FleetView
from gputop.model.clean_text import terminal_safe
from gputop.model.quantity import count
from gputop.paint.cells import shorten
from gputop.paint.line import Line, Row

LEAST_WIDTH, LEAST_ROOM = 70, 17
"""Cells and rows below the header from which there is a lower half: a terminal of 80x24 has it."""
LEAST_HOSTS = 7
"""Rows that the hosts keep."""
LEAST_CHARTS, MOST_CHARTS = 4, 16
"""Rows of the charts of a host: two lines of them, of two rows and of eight."""
SIDE_BY_SIDE = 120
"""Cells from which waste and stragglers stand beside each other."""
MOST_ALERTS = 3
"""Alerts that are named."""


def lower_half(
    frame: FleetFrame, view: FleetView, width: int, room: int, selected: Entry | None
) -> list[Row]:
    """Rows below ``room - len(rows)`` rows of hosts with their heads; none without room."""
    if view.panel != "hosts" or width < LEAST_WIDTH or room < LEAST_ROOM:
        return []
    if not isinstance(selected, GpuGroup):
        return []
    hosts = min(len(frame.hosts), max(LEAST_HOSTS, room // 2 - 3))
    left = room - 2 - hosts - 1
    about = [fleet_host.rule(fleet_host.title_of(selected), "enter: all of it", width)]
    about += fleet_host.evidence(selected, width)
    left -= len(about)
    lists = _lists(frame, view, width, most=_most_listed(left))
    if len(lists) > left:
        return about if left >= 0 else []
    left -= len(lists)
    charts: list[Row] = []
    if left >= LEAST_CHARTS:
        charts = fleet_host.charts(selected.gpus, view, width, min(left, MOST_CHARTS, _tall(room)))
    return [*about[:1], *charts, *about[1:], *lists]


def _tall(room: int) -> int:
    """Rows of charts on a screen of this height: as many as leave the hosts half of it."""
    return max(LEAST_CHARTS, room // 5)


def _most_listed(left: int) -> int:
    """Rows of the lists below, without their rule."""
    if left >= 14:
        return 6
    return 4 if left >= 10 else 3


def _lists(frame: FleetFrame, view: FleetView, width: int, most: int) -> list[Row]:
    """Waste by job and stragglers, side by side where the screen is wide."""
    if width < SIDE_BY_SIDE:
        late = f"s: {count(len(frame.stragglers), 'straggler')}"
        right = f"{late}   A: {count(len(frame.read.alerts), 'alert')}"
        return _waste(frame, view, width, most, right)
    half = width // 2
    lefts = _waste(frame, view, half - 1, most, "w: all")
    rights = _stragglers(frame, width - half, most)
    pairs = zip_longest(lefts, rights, fillvalue=())
    return [Line().add_all(left).to(half).add_all(right).row(width) for left, right in pairs]


def _waste(frame: FleetFrame, view: FleetView, width: int, most: int, right: str) -> list[Row]:
    wasted = [row for row in frame.waste if row.state != "idle"]
    hours = sum(row.gpu_h for row in wasted)
    title = "waste by job, last hour" + (f": {hours:,.0f} GPU-h" if wasted else "")
    rows = [fleet_host.rule(title, right, width)]
    if not wasted:
        words = frame.read.hour.note or "the last hour is being read…"
        if frame.read.hour.lost is not None:
            words = finding_rows.NOTHING["waste"]
        return [*rows, _dim(words, width)]
    shown = most if len(wasted) <= most else most - 1
    rows += [
        finding_rows.waste_line(row, frame.most_wasted_gpu_h, view, width).row(width)
        for row in wasted[:shown]
    ]
    hidden = wasted[shown:]
    if hidden:
        # With the rows above it is the sum on top.
        rows.append(_rest(len(hidden), sum(row.gpu_h for row in hidden), width))
    return rows


def _rest(jobs: int, hours: float, width: int) -> Row:
    line = Line().add(f" {jobs} more", "dim")
    text = f"{hours:,.1f} GPU-h"
    return line.to(width - len(text) - 1).add(text, "dim").row(width)


def _stragglers(frame: FleetFrame, width: int, most: int) -> list[Row]:
    """Stragglers, and the alerts that fire."""
    late = frame.stragglers
    rows = [fleet_host.rule(f"stragglers {len(late) or ''}".rstrip(), "s: all   A: alerts", width)]
    rows += [finding_rows.straggler_line(one, width).row(width) for one in late[: most - 1]]
    if not late:
        words = "no GPU holds its job up"
        if frame.read.shares:
            words = "no alert fires for one: only alerts tell of jobs out of sight"
        rows.append(_dim(words, width))
    rows.append(_alerts(frame.read.alerts, width))
    return rows


def _alerts(alerts: Sequence[FiringAlert], width: int) -> Row:
    """How many alerts fire, and the first of them."""
    if not alerts:
        return _dim("no alert fires", width)
    named = [f"{alert.name} {alert.host}".strip() for alert in alerts[:MOST_ALERTS]]
    more = f" · and {len(alerts) - MOST_ALERTS} more" if len(alerts) > MOST_ALERTS else ""
    text = f"{count(len(alerts), 'alert')} firing: {' · '.join(named)}{more}"
    return Line().add(f" {shorten(terminal_safe(text), width - 2)}", "level.yellow").row(width)


def _dim(text: str, width: int) -> Row:
    return Line().add(f" {shorten(terminal_safe(text), width - 2)}", "dim").row(width)


def _is_working(entry: Entry) -> bool:
    """Whether this is a host all of whose GPUs work."""
    if not isinstance(entry, GpuGroup):
        return False
    return entry.verdict.state == "working" and not entry.verdict.straggles


def more_hosts(hidden: Sequence[Entry], width: int) -> Row:
    """The row below a part of the hosts: how many more there are, and in what state."""
    working = sum(_is_working(entry) for entry in hidden)
    text = f"… {count(len(hidden), 'more host')}"
    if working:
        text += f", {'all' if working == len(hidden) else f'{working:,}'} of them working"
    return _dim(text, width)
