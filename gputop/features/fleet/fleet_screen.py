"""Paint the fleet's screen. Pure: frame, view and size in, rows out."""

from __future__ import annotations

from msgspec import Struct

from gputop.features.fleet import fleet_host, fleet_lists, fleet_rows
from gputop.features.fleet.fleet_frame import FleetFrame
from gputop.features.fleet.fleet_header import bar, summary
from gputop.features.fleet.fleet_view import FLEET_KEYS, GROUPED, FleetView, Panel, groups, position, rows_of
from gputop.model.quantity import terminal_safe
from gputop.paint.header import hint_line
from gputop.paint.line import Line, Row, Target, folded, for_terminal, shorten
from gputop.paint.view import Hint

TITLES = {
    "hosts": "hosts", "jobs": "jobs", "users": "users", "stragglers": "stragglers",
    "waste": "waste by job and cause, last hour", "alerts": "alerts that fire",
}  # fmt: skip
_LISTS = (("jobs", "jobs"), ("stragglers", "stragglers"), ("waste", "waste"), ("alerts", "alerts"))
_HOST, _BACK, _FILTER = ("open", "host"), ("release", "back"), ("filter", "filter")
_HINTS: dict[Panel, tuple[tuple[str, str], ...]] = {
    "hosts": (_HOST, *_LISTS, _FILTER),
    "jobs": (("open", "its hosts"), _BACK, ("jobs", "users"), *_LISTS[1:], _FILTER),
    "users": (("open", "its hosts"), _BACK, ("jobs", "by host"), *_LISTS[1:], _FILTER),
    "stragglers": (_HOST, _BACK, _LISTS[0], *_LISTS[2:]),
    "waste": (_BACK, *_LISTS[:2], _LISTS[3]),
    "alerts": (_HOST, _BACK, *_LISTS[:3]),
    "host": (_BACK, *_LISTS),
}
"""The keys that the last row names beside help and those that do something anywhere: those that do something there."""


def _hint(panel: Panel) -> Hint:
    shown = {key.id: key.shown.split("  ")[0] for key in FLEET_KEYS}
    anywhere = (("pause", "pause"), ("jump", "time"), ("copy", "copy"), ("quit", "quit"))
    return tuple((shown[key_id], words, key_id) for key_id, words in (("help", "help"), *_HINTS[panel], *anywhere))


LEAST_ROWS, TALL_CHARTS, LEAST_FOR_CHARTS, LEAST_FOR_LISTS = 8, 8, 40, 30
"""Rows that the list keeps; rows of the charts below it; heights of the screen from which charts and lists show."""


class FleetPainted(Struct, frozen=True):
    """A painted screen. ``page`` is how many rows of the list are shown."""

    rows: list[Row]
    targets: list[Target | None]
    page: int


def fleet_screen(frame: FleetFrame, view: FleetView, width: int, height: int) -> FleetPainted:
    """Exactly ``height`` rows of ``width`` cells."""
    width, height = max(20, width), max(4, height)
    top = [bar(frame, view, width), summary(frame, view, width)]
    keys = hint_line(_hint(view.panel), width)
    foot = [*(_problems(frame, view, width) if height >= 12 else []), keys.row(width, "bar")]
    room = height - len(top) - len(foot)
    if view.panel == "host":
        group, page = frame.host(view.host), room
        gone = f"  {terminal_safe(view.host or '')} is not in the fleet any more; esc goes back"
        body = [_dim(gone, width)] if group is None else fleet_host.host_page(frame, group, view, width, room)
        targets: list[Target | None] = [None] * len(body)
    else:
        body, targets, page = _listed(frame, view, width, room)
    if view.stale_s is not None:
        body = [*map(fleet_host.greyed, body)]
    body = body[:room]
    rows = [*top, *body, *[Line().row(width)] * (room - len(body)), *foot]
    targets = [*([None, None, *targets] + [None] * height)[: height - 1], keys.target()]
    return FleetPainted(for_terminal(rows, view.glyphs, width), targets, page)


def _dim(text: str, width: int) -> Row:
    return Line().add(text, "dim").row(width)


def _listed(frame: FleetFrame, view: FleetView, width: int, room: int) -> tuple[list[Row], list[Target | None], int]:
    """Rows of the list and below it, click targets, and rows per page."""
    names, is_grouped = rows_of(frame, view), view.panel in ("hosts", *GROUPED)
    below = _below(frame, view, width, room, len(names))
    title = TITLES[view.panel] if view.panel == "waste" else f"{TITLES[view.panel]} {len(names):,}"
    if view.filter and is_grouped:
        title += f", filter {shorten(terminal_safe(view.filter.text), 40)}"
    right = fleet_lists.cost(frame, view, width) if view.panel == "waste" else ""
    if is_grouped:
        order = "worst state first, then waste" if view.sort == "worst" else f"by {view.sort}"
        right = f"{order}, reversed" if view.inverted else order
    rows: list[Row] = [fleet_host.rule(title, right, width)]
    targets: list[Target | None] = [None]
    if is_grouped:
        head = fleet_rows.head(view, width, TITLES[view.panel][:-1].upper())
        rows.append(head.row(width))
        targets.append(head.target("head"))
    elif names:
        rows.append(fleet_lists.panel_head(view, width))
        targets.append(None)
    page = max(1, room - len(rows) - len(below))
    first = max(0, min(view.first, len(names) - page))
    nothing = f"  {fleet_lists.nothing(frame, view)}"
    shown = _shown(frame, view, width, first, page) or [_dim(nothing, width)]
    targets += [Target("row", name) for name in names[first : first + page]]
    return [*rows, *shown, *[Line().row(width)] * (page - len(shown)), *below], targets, page


def _shown(frame: FleetFrame, view: FleetView, width: int, first: int, page: int) -> list[Row]:
    if view.panel not in ("hosts", *GROUPED):
        return fleet_lists.panel_rows(frame, view, width)[first : first + page]
    at, shown = position(rows_of(frame, view), view), groups(frame, view)[first : first + page]
    return [fleet_rows.row(group, view, width, selected=i == at) for i, group in enumerate(shown, first)]


def _below(frame: FleetFrame, view: FleetView, width: int, room: int, listed: int) -> list[Row]:
    """The selected host's hour, waste and stragglers, if there is room."""
    if view.panel != "hosts" or width < 80:
        return []
    rows: list[Row] = []
    hosts = groups(frame, view)
    group = hosts[position([host.name for host in hosts], view)] if hosts else None
    if room >= LEAST_FOR_CHARTS - 4 and group is not None and group.gpus:
        title = f"{fleet_host.title_of(group)}   last hour"
        rows.append(fleet_host.rule(title, "enter: all of it   c: copy the ssh command", width))
        rows += fleet_host.charts(group, view, width, TALL_CHARTS)
        rows += fleet_host.evidence(group, width)
    if room >= LEAST_FOR_LISTS - 4:
        rows += _lists(frame, view, width, 6 if room >= LEAST_FOR_CHARTS - 4 else 4)
    return rows if room - 2 - len(rows) >= min(LEAST_ROWS, listed) else []


def _lists(frame: FleetFrame, view: FleetView, width: int, count: int) -> list[Row]:
    """Waste and stragglers, side by side where the screen is wide."""
    wasted = [row for row in frame.waste if row.state != "idle"][:count]
    most_hours = max((row.gpu_h for row in wasted), default=1.0)
    if width < 130 and not wasted:
        return []
    half = width // 2 if width >= 130 else width + 1
    words = "w: all" if width >= 130 else "w: all   s: stragglers"
    lefts = [fleet_host.rule("waste by job, last hour", words, half - 1)]
    lefts += [fleet_lists.waste_line(row, most_hours, view, half - 1).row(half - 1) for row in wasted]
    if width < 130:
        return lefts
    if frame.read.hour.lost is None:
        lefts.append(_dim(f"  {shorten(fleet_lists.not_read(frame), half - 3)}", half - 1))
    size = width - half
    alerts = f"A: alerts {len(frame.read.alerts)}" if frame.read.alerts else "no alerts"
    title = f"stragglers {len(frame.stragglers)}" if frame.stragglers else "stragglers"
    rights = [fleet_host.rule(title, f"s: all   {alerts}", size)]
    rights += [fleet_lists.straggler_line(straggler, size).row(size) for straggler in frame.stragglers[:count]]
    if not frame.stragglers:
        rights.append(_dim(f"  {fleet_lists.no_straggler(frame)}", size))
    lefts += [Line().row(half - 1)] * (count + 1 - len(lefts))
    rights += [Line().row(size)] * (count + 1 - len(rights))
    return [Line().add_all(left).to(half).add_all(right).row(width) for left, right in zip(lefts, rights, strict=True)]


def _problems(frame: FleetFrame, view: FleetView, width: int) -> list[Row]:
    """Rows of problems with the engine or the exporters."""
    problems = [view.error] if view.error else []
    problems += [text for text in frame.problems if text not in (*problems, frame.read.hour.note)]
    return [
        Line().add(f" {shorten(terminal_safe(text), width - 2)}", "level.yellow").row(width) for text in problems[:2]
    ]


def waiting_screen(text: str, width: int, height: int) -> list[Row]:
    """The screen before the first answer."""
    rows = [Line().add(" gputop fleet", "brand|bar").row(width, "bar"), Line().row(width)]
    rows += [Line().add(f"  {line}", "text").row(width) for line in folded(text, width - 4)]
    rows.append(Line().add("  trying again and again; q quits", "dim").row(width))
    return (rows + [Line().row(width)] * height)[:height]
