"""The fleet's screen as rows of text: a pure function of a frame, a view and a size."""

from __future__ import annotations

from msgspec import Struct

from gputop.fleet.frame import FleetFrame, Group
from gputop.model.text import terminal_safe
from gputop.paint import fleet_host, fleet_lists, fleet_rows
from gputop.paint.fleet_header import bar, number, summary
from gputop.paint.fleet_keys import FLEET_KEYS
from gputop.paint.fleet_view import GROUPED, FleetView, groups, position, rows_of
from gputop.paint.glyphs import ascii_only
from gputop.paint.line import Line, Row, Target
from gputop.paint.text import folded, shorten

TITLES = {
    "hosts": "hosts", "jobs": "jobs", "users": "users", "stragglers": "stragglers",
    "waste": "waste by job and cause, last hour", "alerts": "alerts that fire",
}  # fmt: skip
HINTS = (
    ("help", "help"), ("open", "host"), ("jobs", "jobs"), ("stragglers", "stragglers"), ("waste", "waste"),
    ("alerts", "alerts"), ("filter", "filter"), ("pause", "pause"), ("jump", "time"), ("copy", "copy"),
    ("quit", "quit"),
)  # fmt: skip
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
    rows: list[Row] = [bar(frame, view, width), summary(frame, view, width)]
    targets: list[Target | None] = [None, None]
    problems = _problems(frame, view, width) if height >= 12 else []
    foot = [*problems, hint_row(width)]
    room = height - len(rows) - len(foot)
    if view.panel == "host":
        group = next((host for host in frame.hosts if host.name == view.host), None)
        body = _gone(view, width) if group is None else fleet_host.host_page(frame, group, view, width, room)
        rows, targets, page = rows + body, targets + [None] * len(body), room
    else:
        page = _listed(frame, view, width, room, rows, targets)
    if view.stale_s is not None:
        rows[2:] = map(fleet_host.greyed, rows[2:])
    rows = rows[: height - len(foot)]
    rows += [Line().row(width)] * (height - len(foot) - len(rows)) + foot
    targets = [*(targets + [None] * height)[: height - 1], hint_target(width)]
    if view.glyphs.name == "ascii":
        rows = [Line().add_all([(ascii_only(text), style) for text, style in row]).row(width) for row in rows]
    return FleetPainted(rows, targets, page)


def _listed(
    frame: FleetFrame, view: FleetView, width: int, room: int, rows: list[Row], targets: list[Target | None]
) -> int:
    """The list of the panel and, where there is room, what belongs to the selected row; how many rows are a page."""
    names = rows_of(frame, view)
    below = _below(frame, view, width, room, len(names))
    title = TITLES[view.panel] if view.panel == "waste" else f"{TITLES[view.panel]} {number(len(names))}"
    if view.filter and view.panel in ("hosts", *GROUPED):
        title += f", filter {shorten(terminal_safe(view.filter.text), 40)}"
    right = fleet_lists.cost(frame, view) if view.panel == "waste" else ""
    rows.append(
        fleet_host.rule(title, f"by {view.sort}" if view.panel in ("hosts", *GROUPED) else right, width, view.glyphs)
    )
    targets.append(None)
    free = room - 1 - len(below)
    if view.panel in ("hosts", *GROUPED):
        rows.append(fleet_rows.head(view, width, TITLES[view.panel][:-1].upper()))
        targets.append(fleet_rows.head_target(width))
        free -= 1
    page = max(1, free)
    first = max(0, min(view.first, len(names) - page))
    shown = _shown(frame, view, width, first, page)
    rows += shown
    targets += [Target("row", name) for name in names[first : first + len(shown)]]
    if not names:
        rows.append(Line().add(f"  {fleet_lists.nothing(frame, view, view.glyphs)}", "dim").row(width))
        targets.append(None)
    fill = page - max(1, len(shown))
    rows += [Line().row(width)] * fill
    targets += [None] * fill
    rows += below
    targets += [None] * len(below)
    return page


def _shown(frame: FleetFrame, view: FleetView, width: int, first: int, page: int) -> list[Row]:
    if view.panel not in ("hosts", *GROUPED):
        return fleet_lists.panel_rows(frame, view, width)[first : first + page]
    found = groups(frame, view)
    at = position([group.name for group in found], view)
    return [
        fleet_rows.row(group, view, width, selected=first + i == at)
        for i, group in enumerate(found[first : first + page])
    ]


def _below(frame: FleetFrame, view: FleetView, width: int, room: int, listed: int) -> list[Row]:
    """The selected host's hour, waste and stragglers, as far as the list can spare the rows."""
    if view.panel != "hosts" or width < 80:
        return []
    rows: list[Row] = []
    group = _selected(frame, view)
    if room >= LEAST_FOR_CHARTS - 4 and group is not None and group.gpus:
        title = f"{fleet_host.title_of(group)}   last hour"
        rows.append(fleet_host.rule(title, "enter: all of it   c: copy the ssh command", width, view.glyphs))
        rows += fleet_host.charts(group, view, width, TALL_CHARTS)
        rows += fleet_host.evidence(group, view.glyphs, width)
    if room >= LEAST_FOR_LISTS - 4:
        rows += _lists(frame, view, width, 6 if room >= LEAST_FOR_CHARTS - 4 else 4)
    return rows if room - 2 - len(rows) >= min(LEAST_ROWS, listed) else []


def _selected(frame: FleetFrame, view: FleetView) -> Group | None:
    found = groups(frame, view)
    return found[position([group.name for group in found], view)] if found else None


def _lists(frame: FleetFrame, view: FleetView, width: int, count: int) -> list[Row]:
    """Waste and stragglers, side by side where the screen is wide."""
    wasted = [row for row in frame.waste if row.state != "idle"][:count]
    most = max((row.gpu_h for row in wasted), default=1.0)
    if width < 130:
        if not wasted:
            return []
        head = fleet_host.rule("waste by job, last hour", "w: all   s: stragglers", width, view.glyphs)
        return [head, *(fleet_lists.waste_row(row, most, view, width) for row in wasted)]
    half = width // 2
    left = [fleet_host.rule("waste by job, last hour", "w: all", half - 1, view.glyphs)]
    left += [fleet_lists.waste_row(row, most, view, half - 1) for row in wasted]
    if frame.read.lost is None:
        left.append(Line().add(f"  {fleet_lists.NOT_READ}{view.glyphs.more}", "dim").row(half - 1))
    alerts = f"A: alerts {len(frame.alerts)}" if frame.alerts else "no alerts"
    size = width - half
    title = f"stragglers {len(frame.stragglers)}" if frame.stragglers else "stragglers"
    right = [fleet_host.rule(title, f"s: all   {alerts}", size, view.glyphs)]
    right += [fleet_lists.straggler_row(one, view, size) for one in frame.stragglers[:count]]
    if not frame.stragglers:
        right.append(Line().add("  no GPU holds its job up", "dim").row(size))
    blank = [Line().row(half - 1)] * (count + 1)
    lefts, rights = (left + blank)[: count + 1], (right + [Line().row(size)] * count)[: count + 1]
    return [Line().add_all(a).to(half).add_all(b).row(width) for a, b in zip(lefts, rights, strict=True)]


def _problems(frame: FleetFrame, view: FleetView, width: int) -> list[Row]:
    """What is wrong with the engine or the exporters, each in one row."""
    found = [view.error] if view.error else []
    found += [problem for problem in frame.problems if problem not in found]
    return [Line().add(f" {shorten(terminal_safe(text), width - 2)}", "level.yellow").row(width) for text in found[:2]]


def _gone(view: FleetView, width: int) -> list[Row]:
    return [
        Line().add(f"  {terminal_safe(view.host or '')} is not in the fleet any more; esc goes back", "dim").row(width)
    ]


def _hints(width: int) -> list[tuple[str, str, str]]:
    shown = {key.id: key.shown.split("  ")[0] for key in FLEET_KEYS}
    kept, used = [], 0
    for key_id, words in HINTS:
        need = (3 if used else 1) + len(shown[key_id]) + 1 + len(words)
        if used + need < width:
            kept.append((shown[key_id], words, key_id))
            used += need
    return kept


def hint_row(width: int) -> Row:
    """The last row: the keys that lead to the rest."""
    line = Line()
    for shown, words, _ in _hints(width):
        line.add("   " if line.width else " ", "text").add(shown, "key").add(f" {words}", "text")
    return line.row(width, "bar")


def hint_target(width: int) -> Target:
    """What a click on the last row means."""
    ends: list[tuple[int, object]] = []
    end = 0
    for shown, words, key_id in _hints(width):
        end += (3 if end else 1) + len(shown) + 1 + len(words)
        ends.append((end, key_id))
    return Target("key", None, (*ends, (width, None)))


def waiting_screen(text: str, width: int, height: int) -> list[Row]:
    """What is shown before the first answer."""
    rows = [Line().add(" gputop fleet", "brand|bar").row(width, "bar"), Line().row(width)]
    rows += [Line().add(f"  {line}", "text").row(width) for line in folded(text, width - 4)]
    rows.append(Line().add("  trying again and again; q quits", "dim").row(width))
    return (rows + [Line().row(width)] * height)[:height]
