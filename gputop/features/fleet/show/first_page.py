"""Paint the first page below its hosts: the selected host, waste by job, stragglers, alerts. Pure.

What matters most comes first where the screen is low: the evidence and the remedy of the selected host, then waste by
job, then its last hour as charts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from gputop.features.fleet.fleet_reading import FiringAlert
from gputop.features.fleet.judge.fleet_frame import FleetFrame, GpuGroup, WastedHours
from gputop.features.fleet.show import finding_rows, fleet_host
from gputop.features.fleet.show.fleet_ticket import opening
from gputop.features.fleet.show.fleet_view import (
    Entry,
    FleetView,
    HostFindings,
    chosen_gpu,
    findings,
)
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
RULE_CELLS = 10
"""Cells of a rule besides its title and hints."""
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
    head = _host_rule(frame, view, selected, width)
    evidence = fleet_host.evidence(chosen_gpu(view, selected), width)
    left -= 1 + len(evidence)
    lists = _lists(frame, view, width, most=_most_listed(left))
    if len(lists) > left:
        return [head, *evidence] if left >= 0 else []
    left -= len(lists)
    charts: list[Row] = []
    if left >= LEAST_CHARTS:
        charts = fleet_host.charts(selected.gpus, view, width, min(left, MOST_CHARTS, _tall(room)))
    return [head, *charts, *evidence, *lists]


def _host_rule(frame: FleetFrame, view: FleetView, host: GpuGroup, width: int) -> Row:
    """The rule above a host, with as many hints as there is room for."""
    title = fleet_host.host_title(view, host)
    if width >= SIDE_BY_SIDE:
        title += "   last hour"
    hints = ["enter: all of it", "[ ]: GPU", "y: copy"]
    command = opening(frame.read.opens, host.name)
    # The command as one types it, not with all that gputop adds to it.
    if command:
        hints.append(f"ssh -t {terminal_safe(host.name)} gputop")
    while len(hints) > 1 and len(title) + len("   ".join(hints)) + RULE_CELLS > width:
        hints.pop()
    return fleet_host.rule(title, "   ".join(hints), width)


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
    found = findings(frame, view)
    if width < SIDE_BY_SIDE:
        late = f"s: {count(len(found.stragglers), 'straggler')}"
        right = f"{late}   A: {count(len(found.alerts), 'alert')}"
        return _waste(frame, view, found, width, most, right)
    half = width // 2
    lefts = _waste(frame, view, found, half - 1, most, "w: all")
    rights = _stragglers(frame, found, width - half, most)
    rows: list[Row] = []
    for left, right_row in zip_longest(lefts, rights, fillvalue=()):
        rows.append(Line().add_all(left).to(half).add_all(right_row).row(width))
    return rows


def _waste(
    frame: FleetFrame, view: FleetView, found: HostFindings, width: int, most: int, right: str
) -> list[Row]:
    wasted = [row for row in found.waste if row.state != "idle"]
    hours = sum(row.gpu_h for row in wasted)
    title = "waste by job, last hour"
    if wasted:
        title += f": {hours:,.0f} GPU-h"
    rows = [fleet_host.rule(title, right, width)]
    if not wasted:
        return [*rows, _dim(_why_no_waste(frame), width)]
    most_hours = max(row.gpu_h for row in wasted)
    shown = most if len(wasted) <= most else most - 1
    lines = [finding_rows.waste_line(row, most_hours, view, width) for row in wasted[:shown]]
    rows += [line.row(width) for line in lines]
    hidden = wasted[shown:]
    if hidden:
        # With the rows above it is the sum on top.
        rows.append(_rest(hidden, view, width))
    return rows


def _why_no_waste(frame: FleetFrame) -> str:
    """Words for an hour in which no job wasted anything, or that is not known."""
    if frame.read.hour.lost is not None:
        return finding_rows.NOTHING["waste"]
    return frame.read.hour.note or "the last hour is being read…"


def _rest(hidden: Sequence[WastedHours], view: FleetView, width: int) -> Row:
    """Count the hidden jobs and their hours."""
    line = Line().add(f" {len(hidden)} more", "dim")
    text = finding_rows.hours_text(sum(row.gpu_h for row in hidden), view)
    return line.to(width - len(text) - 1).add(text, "dim").row(width)


def _stragglers(frame: FleetFrame, found: HostFindings, width: int, most: int) -> list[Row]:
    """Stragglers, and the alerts that fire."""
    late = found.stragglers
    title = f"stragglers {len(late)}" if late else "stragglers"
    rows = [fleet_host.rule(title, "s: all   A: alerts", width)]
    rows += [finding_rows.straggler_line(one, width).row(width) for one in late[: most - 1]]
    if not late:
        words = "no GPU holds its job up"
        if frame.read.shares:
            words = "no alert fires for one: only alerts tell of jobs out of sight"
        rows.append(_dim(words, width))
    rows.append(_alerts(found.alerts, width))
    return rows


def _alerts(alerts: Sequence[FiringAlert], width: int) -> Row:
    """How many alerts fire, and the first of them."""
    if not alerts:
        return _dim("no alert fires", width)
    named = [f"{alert.name} {alert.host}".strip() for alert in alerts[:MOST_ALERTS]]
    if len(alerts) > MOST_ALERTS:
        named.append(f"and {len(alerts) - MOST_ALERTS} more")
    text = f"{count(len(alerts), 'alert')} firing: {' · '.join(named)}"
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
