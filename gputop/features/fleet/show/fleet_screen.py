"""Paint the fleet's screen. Pure: frame, view and size in, rows out.

Two rows on top say how large and how old the fleet is and count its states; below is a list or the page of a host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from gputop.diagnosis.types import HOLDING_MEMORY, NOT_WORKING_ALARM
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import SIMULATED, FleetState
from gputop.features.fleet.judge.fleet_frame import FleetFrame, GpuGroup
from gputop.features.fleet.judge.gpu_state import ABSENT, UNUSED, WORDS
from gputop.features.fleet.show import finding_rows, first_page, fleet_host, group_rows
from gputop.features.fleet.show.fleet_totals import FleetTotals, totals
from gputop.features.fleet.show.fleet_view import (
    FLEET_KEYS,
    GROUPED,
    Entry,
    FleetView,
    Panel,
    entries,
    position,
)
from gputop.model.clean_text import terminal_safe
from gputop.model.durations import clock_time, duration
from gputop.model.quantity import count
from gputop.paint.cells import folded, shorten
from gputop.paint.glyphs import Glyphs, level_glyph
from gputop.paint.help_rows import entry_rows, key_rows, legend_rows, section_rows
from gputop.paint.hint_row import hint_line
from gputop.paint.keys import Key
from gputop.paint.line import Line, Row, Target, for_terminal
from gputop.paint.words import product

COUNTED = (
    ("working", "working", "green", 0),
    ("busy_not_working", NOT_WORKING_ALARM, "red", 0),
    ("starved", "starved", "yellow", 0),
    ("idle_allocated", HOLDING_MEMORY, "yellow", 2),
    ("allocated_unused", UNUSED, "yellow", 3),
    ("idle", "idle", "grey", 5),
    ("unmeasured", WORDS["unmeasured"], "grey", 4),
)
"""State, how it is counted, its level, its rank (see ``HeaderPart``); in the order in which they stand."""
SHORT = {"working": "work", "busy_not_working": "BUSY"}
"""Words of the narrowest header."""
WHOLE_HOUR_S = 3400.0
"""From here on the hour that was read is a whole one, but for its bins' edges."""


class HeaderPart(NamedTuple):
    """A part of the two top rows; rank 0 is always shown.

    ``gpus`` is how many GPUs it counts, so that the counts of a row can add up to all of them.
    """

    text: str
    style: str
    rank: int
    short: str = ""
    """The text where those that are always shown have no room otherwise."""
    gpus: int = 0
    tail: str = ""
    """Words after the text where there is room."""


def _width(parts: Sequence[HeaderPart], gap: int) -> int:
    return sum(len(part.text) + gap for part in parts) - gap


def _fitted(parts: Sequence[HeaderPart], room: int, gap: int) -> list[HeaderPart]:
    """Keep parts of rank 0, and others by rank while there is room."""
    kept: list[HeaderPart] = []
    for part in sorted(parts, key=lambda part: part.rank):
        if not part.rank or _width([*kept, part], gap) <= room:
            kept.append(part)
    return [part for part in parts if part in kept]


def _fitted_to_sum(parts: Sequence[HeaderPart], room: int, gap: int) -> list[HeaderPart]:
    """Keep parts that fit; GPUs of the others are counted together."""
    kept = _fitted(parts, room, gap)
    counted = sum(part.gpus for part in parts)
    hidden = counted - sum(part.gpus for part in kept)
    if not hidden:
        return kept
    for words in (" others", ""):
        longest = f"+{counted:,}{words}"
        kept = _fitted(parts, room - len(longest) - gap, gap)
        hidden = counted - sum(part.gpus for part in kept)
        last = max((place for place, part in enumerate(kept) if part.gpus), default=-1)
        kept.insert(last + 1, HeaderPart(f"+{hidden:,}{words}", "dim", 0, "", hidden))
        if _width(kept, gap) <= room:
            return kept
    return _fitted(parts, room, gap)


def _title_row(frame: FleetFrame, view: FleetView, width: int) -> Row:
    """Engine, size, coverage and age; "SIMULATED" is the last to be left out."""
    line, read = Line().add(" gputop fleet", "brand|bar"), frame.read
    stale_s, age_s = view.stale_s or 0.0, read.age_s
    rights = (
        (view.stale_s is not None, f"STALE {duration(stale_s)}  ", "level.red|bar"),
        (view.past_t is not None, "PAST  ", "level.yellow|bar"),
        (view.past_t is None and view.paused, "PAUSED  ", "level.yellow|bar"),
        (True, clock_time(frame.t, view.utc_offset_s) + "  ", "dim|bar"),
        (
            age_s is not None and width >= 70,
            f"data {duration((age_s or 0.0) + stale_s)} old  ",
            "dim|bar",
        ),
        (width >= 120, f"every {view.interval_s:.0f} s  ", "dim|bar"),
        (width >= 100, "? help ", "dim|bar"),
    )
    right = [(text, style) for is_shown, text, style in rights if is_shown]
    room = width - sum(len(text) for text, _ in right)
    bare = frame.total - sum(frame.counts.get(state, 0) for state in ABSENT) - frame.measured
    hosts = f"{len(frame.hosts):,} host{'s' * (len(frame.hosts) != 1)}"
    parts = [HeaderPart(hosts, "value|bar", 2), HeaderPart(_gpus(frame), "value|bar", 3)]
    if read.source == SIMULATED:
        parts.append(HeaderPart("SIMULATED", "level.info|bar", 1))
    else:
        parts.append(HeaderPart(shorten(terminal_safe(read.source), 40), "dim|bar", 6))
    if read.shares:
        parts.append(HeaderPart("sums of the rules, GPUs of the rows in sight", "dim|bar", 4))
    else:
        parts.append(HeaderPart(f"SM measured on {frame.measured:,}", "level.green|bar", 4))
        parts += [HeaderPart(f"not exported on {bare:,}", "dim|bar", 5)] * bool(bare)
    if names := " + ".join(name for name in read.names if name in DIALECTS):
        parts.append(HeaderPart(names, "dim|bar", 7))
    for part in _fitted(parts, room - line.width - 4, 2):
        line.add("  ", "bar").add(part.text, part.style)
    return line.to(room, "bar").add_all(right).row(width)


def _gpus(frame: FleetFrame) -> str:
    total, named = frame.total, {name: n for name, n in frame.models.items() if name}
    kinds = {product(name, None) for name in named}
    if frame.read.shares or len(kinds) != 1:
        return f"{total:,} GPUs"
    (kind,) = kinds
    return f"{total:,} × {kind}" if sum(named.values()) == total else f"{total:,} GPUs, {kind}"


def summary(frame: FleetFrame, view: FleetView, width: int) -> Row:
    """The row of counts, absent hosts, power and last hour; or a message."""
    line = Line().add(" ")
    if view.message:
        return line.add(shorten(terminal_safe(view.message), width - 2), "level.yellow").row(width)
    sums = totals(frame, view)
    parts = _counts(sums)
    if sums.power_w:
        power_kw = sums.power_w / 1000
        text = f"{power_kw:,.0f} kW" if power_kw >= 10.0 else f"{power_kw:.1f} kW"
        if sums.power_gpus < sums.present:
            text += f" of {sums.power_gpus:,} GPUs"
        parts.append(HeaderPart(text, "text", 6))
    long, short, style = _hour(frame, sums, view)
    parts.append(HeaderPart(short, style, 1))
    if _width([part for part in parts if not part.rank], 3) + 1 > width:
        parts = [part._replace(text=part.short or part.text) for part in parts]
    parts = _fitted_to_sum(parts, width - 1, 3)
    tailed = [part._replace(text=part.text + part.tail) for part in parts]
    if _width(tailed, 3) < width:
        parts = tailed
    if parts and parts[-1].text == short and _width(parts, 3) + 1 + len(long) - len(short) <= width:
        parts[-1] = HeaderPart(long, style, 1)
    for part in parts:
        line.add("   " if line.width > 1 else "").add(part.text, part.style)
    return line.row(width)


def _counts(sums: FleetTotals) -> list[HeaderPart]:
    """GPUs by state.

    Lost GPUs and hosts without values stand before the idle ones, and are never left out.
    """
    parts: list[HeaderPart] = []
    for state, word, level, rank in COUNTED:
        if state == "idle":
            parts += _absent(sums)
        if n := sums.counts.get(state, 0):  # type: ignore[call-overload]
            mark = f"{level_glyph(level)} {n:,}"
            short = f"{mark} {SHORT[state]}" if state in SHORT else ""
            parts.append(HeaderPart(f"{mark} {word}", f"level.{level}", rank, short, n))
    return parts


def _absent(sums: FleetTotals) -> list[HeaderPart]:
    """Lost GPUs, and hosts without values with their GPUs."""
    parts: list[HeaderPart] = []
    if lost := sums.counts.get("lost", 0):
        parts.append(HeaderPart(f"× {lost:,} lost", "level.red", 0, "", lost))
    kinds: tuple[tuple[FleetState, str], ...] = (("late", "level.red"), ("down", "level.yellow"))
    for kind, style in kinds:
        hosts, gpus = sums.absent_hosts.get(kind, 0), sums.counts.get(kind, 0)
        if hosts:
            text = f"× {count(hosts, 'host')} {kind}"
            tail = f" ({count(gpus, 'GPU')})" if gpus else ""
            parts.append(HeaderPart(text, style, 0, f"× {hosts:,} {kind}", gpus, tail))
    if sums.gone_hosts:
        parts.append(HeaderPart(f"{count(sums.gone_hosts, 'host')} gone", "dim", 2))
    return parts


def _hour(frame: FleetFrame, sums: FleetTotals, view: FleetView) -> tuple[str, str, str]:
    """Words for the last hour, long and short, and their style."""
    hour = frame.read.hour
    if sums.waste_gpu_h is None:
        return (
            ("last hour: not known", "last hour: n/a", "dim")
            if hour.note
            else ("last hour: being read", "last hour: …", "dim")
        )
    idle, lost = sums.idle_gpu_h, sums.waste_gpu_h + sums.idle_gpu_h
    span = "last hour" if hour.span_s > WHOLE_HOUR_S else f"last {duration(hour.span_s)}"
    jobs = f"{sums.waste_gpu_h:,.0f}"
    long, short = (
        f"{span}: {jobs} GPU-h wasted by jobs, {idle:,.0f} idle",
        f"{jobs} + {idle:,.0f} idle GPU-h, {span}",
    )
    if view.price is None:
        return long, short, "text"
    money = f"{lost * view.price:,.0f} at {view.price:g}"
    return f"{long}, {money} a GPU-hour", f"{short} = {money}/h", "text"


HELP = (
    (
        "UTIL, SM, GAP",
        "means over 5 minutes and over the GPUs of the row; GAP is UTIL - SM: busy without SM activity",
    ),
    (
        "WASTE 1 h",
        "GPU-hours of the last hour that somebody's job did not use; 'idle' beside it is what nobody used",
    ),
    ("n/a", "no exporter gives it: dcgm-exporter leaves SM activity out unless its CSV names it"),
    (
        "last hour",
        "as the rules recorded it, else judged minute by minute; nodes with gputop count their own seconds",
    ),
    (
        "states",
        "judged over 5 minutes; docs/fleet.md has the rules, `gputop fleet queries` the same as PromQL",
    ),
)


def help_rows(glyphs: Glyphs, width: int, keys: Sequence[Key]) -> list[Row]:
    """All rows of the help at a width."""
    rows = [
        Line().add(" gputop fleet: how to read it, and its keys", "title").row(width),
        Line().row(width),
    ]
    rows += [*legend_rows(glyphs, width), Line().row(width), *key_rows(keys, width, glyphs)]
    return [
        *rows,
        *section_rows("numbers", width),
        *(row for word, text in HELP for row in entry_rows(word, text, width, indent=20)),
    ]


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
_ANYWHERE = (("pause", "pause"), ("jump", "time"), ("quit", "quit"))
_TOP = 2


class FleetPainted(Struct, frozen=True):
    """A painted screen. ``page`` is how many rows of the list are shown."""

    rows: list[Row]
    targets: list[Target | None]
    page: int


def fleet_screen(frame: FleetFrame, view: FleetView, width: int, height: int) -> FleetPainted:
    """Exactly ``height`` rows of ``width`` cells."""
    width, height = max(20, width), max(4, height)
    shown = {key.id: key.shown.split("  ")[0] for key in FLEET_KEYS}
    hints = (("help", "help"), *_HINTS[view.panel], *_ANYWHERE)
    keys = hint_line(tuple((shown[key_id], words, key_id) for key_id, words in hints), width)
    foot = [*(_problems(frame, view, width) if height >= 12 else []), keys.row(width, "bar")]
    room = height - _TOP - len(foot)
    if view.panel == "host":
        group, page = frame.host(view.host), room
        gone = f"  {terminal_safe(view.host or '')} is not in the fleet any more; esc goes back"
        body = (
            [_dim(gone, width)] if group is None else fleet_host.host_page(group, view, width, room)
        )
        targets: list[Target | None] = []
    else:
        body, targets, page = _listed(frame, view, width, room)
    if view.stale_s is not None:
        body = [*map(fleet_host.greyed, body)]
    blank: list[Row] = [Line().row(width)] * room
    top = [_title_row(frame, view, width), summary(frame, view, width)]
    rows = [*top, *[*body, *blank][:room], *foot]
    targets = [*([None] * _TOP + targets + [None] * height)[: height - 1], keys.target()]
    return FleetPainted(for_terminal(rows, view.glyphs, width), targets, page)


def _dim(text: str, width: int) -> Row:
    return Line().add(text, "dim").row(width)


def _listed(
    frame: FleetFrame, view: FleetView, width: int, room: int
) -> tuple[list[Row], list[Target | None], int]:
    """Rows of the list, click targets, and rows per page."""
    listed, is_grouped = entries(frame, view), view.panel in ("hosts", *GROUPED)
    at = position([entry.key for entry in listed], view)
    title = TITLES[view.panel] + f" {len(listed):,}" * (view.panel != "waste")
    right = finding_rows.cost(frame, view, width) if view.panel == "waste" else ""
    head, target = finding_rows.panel_head(view, width) if listed else None, None
    if is_grouped:
        title += f" of {_all_rows(frame, view):,}" if view.filter else ""
        title += f", filter {shorten(terminal_safe(view.filter.text), 40)}" if view.filter else ""
        right = "worst state first, then waste" if view.sort == "worst" else f"by {view.sort}"
        right += ", reversed" * view.inverted
        line = group_rows.head(view, width, TITLES[view.panel][:-1].upper())
        head, target = line.row(width), line.target("head")
    rows = [fleet_host.rule(title, right, width), *([] if head is None else [head])]
    below = first_page.lower_half(frame, view, width, room, listed[at] if listed else None)
    page = max(1, room - len(rows) - len(below))
    is_cut = bool(below) and len(listed) > page
    page -= is_cut
    first = max(0, min(view.first, len(listed) - page))
    part = listed[first : first + page]
    shown = [
        _entry_row(frame, entry, view, width, selected=i == at)
        for i, entry in enumerate(part, first)
    ]
    shown = shown or [_dim(f"  {finding_rows.nothing(frame, view)}", width)]
    targets = [
        None,
        *([] if head is None else [target]),
        *(Target("row", entry.key) for entry in part),
    ]
    rows += shown
    if is_cut:
        hidden = (*listed[:first], *listed[first + page :])
        rows.append(first_page.more_hosts(hidden, width))
    return [*rows, *below], targets, page


def _all_rows(frame: FleetFrame, view: FleetView) -> int:
    """How many hosts, jobs or users there are without the filter."""
    by = GROUPED.get(view.panel)
    return len(frame.jobs if by == "job" else frame.users if by == "user" else frame.hosts)


def _entry_row(
    frame: FleetFrame, entry: Entry, view: FleetView, width: int, *, selected: bool
) -> Row:
    if isinstance(entry, GpuGroup):
        return group_rows.row(entry, view, width, selected=selected)
    line = finding_rows.entry_line(entry, frame.most_wasted_gpu_h, view, width)
    return line.row(width, "select" if selected else None)


def _problems(frame: FleetFrame, view: FleetView, width: int) -> list[Row]:
    """Rows of problems with the engine or the exporters."""
    problems = [view.error] if view.error else []
    problems += [text for text in frame.problems if text not in (*problems, frame.read.hour.note)]
    return [
        Line().add(f" {shorten(terminal_safe(text), width - 2)}", "level.yellow").row(width)
        for text in problems[:2]
    ]


def waiting_screen(text: str, width: int, height: int) -> list[Row]:
    """The screen before the first answer."""
    rows = [Line().add(" gputop fleet", "brand|bar").row(width, "bar"), Line().row(width)]
    rows += [Line().add(f"  {line}", "text").row(width) for line in folded(text, width - 4)]
    rows.append(_dim("  trying again and again; q quits", width))
    return (rows + [Line().row(width)] * height)[:height]
