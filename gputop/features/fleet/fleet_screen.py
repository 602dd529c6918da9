"""The fleet's screen as rows of text: a pure function of a frame, a view and a size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from gputop.diagnosis.types import HOLDING_MEMORY, NOT_WORKING, NOT_WORKING_ALARM, STATE_WORDS
from gputop.features.fleet import fleet_host, fleet_rows
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_frame import FleetFrame
from gputop.features.fleet.fleet_reading import SIMULATED
from gputop.features.fleet.fleet_view import FLEET_KEYS, GROUPED, FleetView, Panel, groups, position, rows_of
from gputop.features.fleet.judge import ABSENT, UNUSED
from gputop.features.fleet.judge import WORDS as FLEET_WORDS
from gputop.model.quantity import clock_time, count, duration, terminal_safe
from gputop.paint.glyphs import Glyphs, level_glyph
from gputop.paint.header import hint_line
from gputop.paint.help_rows import entry_rows, key_rows, legend_rows, section_rows
from gputop.paint.keys import Key
from gputop.paint.line import Line, Row, Target, folded, for_terminal, shorten
from gputop.paint.view import Hint
from gputop.paint.words import product

# The first two rows of the fleet's screen: what it is, how old it is, and the counts that matter.

COUNTED = (
    ("working", "working", "green", 0),
    ("busy_not_working", NOT_WORKING_ALARM, "red", 0),
    ("starved", "starved", "yellow", 0),
    ("idle_allocated", HOLDING_MEMORY, "yellow", 2),
    ("allocated_unused", UNUSED, "yellow", 3),
    ("idle", "idle", "grey", 5),
    ("unmeasured", FLEET_WORDS["unmeasured"], "grey", 4),
)
"""State, how it is counted, its level, its rank (see ``SummaryPart``); in the order in which they stand."""


SHORT = {"working": "work", "busy_not_working": "BUSY"}
"""Words of the narrowest header."""


def _gpus(frame: FleetFrame) -> str:
    total, named = frame.total, {name: n for name, n in frame.models.items() if name}
    kinds = {product(name, None) for name in named}
    if frame.read.shares or len(kinds) != 1:
        return f"{total:,} GPUs"
    (kind,) = kinds
    are_all = sum(named.values()) == total
    return f"{total:,} × {kind}" if are_all else f"{total:,} GPUs, {kind}"


def bar(frame: FleetFrame, view: FleetView, width: int) -> Row:
    """The title: the engine, how large, what is measured, how old. That a fleet is simulated is never left out."""
    line = Line().add(" gputop fleet", "brand|bar")
    right = _right(frame, view, width)
    room = width - sum(len(text) for text, _ in right)
    measured, total = frame.measured, frame.total
    bare = total - sum(frame.counts.get(state, 0) for state in ABSENT) - measured
    parts = [
        (0, f"{len(frame.hosts):,} host{'s' * (len(frame.hosts) != 1)}", "value|bar"),
        (1, _gpus(frame), "value|bar"),
        (-1, "SIMULATED", "level.info|bar")
        if frame.read.source == SIMULATED
        else (4, shorten(terminal_safe(frame.read.source), 40), "dim|bar"),
        (2, f"SM measured on {measured:,}", "level.green|bar")
        if not frame.read.shares
        else (2, "sums of the rules, GPUs of the rows in sight", "dim|bar"),
    ]
    if bare and not frame.read.shares:
        parts.append((3, f"not exported on {bare:,}", "dim|bar"))
    if frame.read.names:
        parts.append((5, " + ".join(DIALECTS[name].id for name in frame.read.names if name in DIALECTS), "dim|bar"))
    while parts and line.width + sum(2 + len(text) for _, text, _ in parts) + 2 > room:
        parts.remove(max(parts))
    for _, text, style in parts:
        line.add("  ", "bar").add(text, style)
    return line.to(room, "bar").add_all(right).row(width)


def _right(frame: FleetFrame, view: FleetView, width: int) -> list[tuple[str, str]]:
    stale_s, age_s = view.stale_s or 0.0, frame.read.age_s
    parts = (
        (view.stale_s is not None, f"STALE {duration(stale_s)}  ", "level.red|bar"),
        (view.at is not None, "PAST  ", "level.yellow|bar"),
        (view.at is None and view.paused, "PAUSED  ", "level.yellow|bar"),
        (True, clock_time(frame.t, view.utc_offset_s) + "  ", "dim|bar"),
        (age_s is not None and width >= 70, f"data {duration((age_s or 0.0) + stale_s)} old  ", "dim|bar"),
        (width >= 120, f"every {view.interval_s:.0f} s  ", "dim|bar"),
        (width >= 100, "? help ", "dim|bar"),
    )
    return [(text, style) for is_shown, text, style in parts if is_shown]


def summary(frame: FleetFrame, view: FleetView, width: int) -> Row:
    """Counts of GPUs by state, hosts that are down, power, and the last hour; or a message."""
    line = Line().add(" ")
    if view.message:
        return line.add(shorten(terminal_safe(view.message), width - 2), "level.yellow").row(width)
    parts = _counts(frame)
    power, known, gpus = frame.power
    if power:
        text = f"{power / 1000:,.0f} kW" if power >= 10_000 else f"{power / 1000:.1f} kW"
        if known < gpus:
            text += f" of {known:,} GPUs"
        parts.append(SummaryPart(text, "text", 6))
    long, short, style = _hour(frame, view)
    parts.append(SummaryPart(short, style, 3))
    if _wide([part for part in parts if not part.rank]) > width:
        parts = [part._replace(text=part.short or part.text) for part in parts]
    room: list[SummaryPart] = []
    for part in sorted(parts, key=lambda part: part.rank):
        if not part.rank or _wide([*room, part]) <= width:
            room.append(part)
    parts = [part for part in parts if part in room]
    if parts[-1].text == short and _wide(parts) + len(long) - len(short) <= width:
        parts[-1] = SummaryPart(long, style, 3)
    for part in parts:
        line.add("   " if line.width > 1 else "").add(part.text, part.style)
    return line.row(width)


class SummaryPart(NamedTuple):
    """A count in the summary; rank 0 is always shown, the others by rank as far as there is room."""

    text: str
    style: str
    rank: int
    short: str = ""
    """The text where those that are always shown have no room otherwise."""


def _wide(parts: list[SummaryPart]) -> int:
    return 1 + sum(len(part.text) + 3 for part in parts) - 3


def _counts(frame: FleetFrame) -> list[SummaryPart]:
    parts: list[SummaryPart] = []
    for state, word, level, rank in COUNTED:
        if state == "idle":
            parts += _absent(frame)
        if n := frame.counts.get(state, 0):  # type: ignore[call-overload]
            mark = f"{level_glyph(level)} {n:,}"
            short = f"{mark} {SHORT[state]}" if state in SHORT else ""
            parts.append(SummaryPart(f"{mark} {word}", f"level.{level}", rank, short))
    return parts


def _absent(frame: FleetFrame) -> Iterator[SummaryPart]:
    """What was known and is not there now; it is never left out."""
    if lost := frame.counts.get("lost", 0):
        yield SummaryPart(f"× {lost:,} lost", "level.red", 0)
    kinds = Counter(down.kind for down in frame.read.down.values())
    for kind, style in (("late", "level.red"), ("down", "level.yellow")):
        if n := kinds[kind]:  # type: ignore[index]
            yield SummaryPart(f"× {count(n, 'host')} {kind}", style, 0, f"× {n:,} {kind}")
    if gone := len(frame.read.gone):
        yield SummaryPart(f"{count(gone, 'host')} gone", "dim", 2)


WHOLE_HOUR_S = 3400.0
"""From here on the hour that was read is a whole one, but for its bins' edges."""


def _hour(frame: FleetFrame, view: FleetView) -> tuple[str, str, str]:
    """What jobs lost in the last hour and, apart from it, what no job used: a long and a short form, and the style."""
    lost = frame.not_work_gpu_h
    if lost is None and frame.read.hour.note:
        return "last hour: no rules record it", "last hour: no rules", "dim"
    if lost is None:
        return "last hour: being read", "last hour: …", "dim"
    idle = frame.idle_gpu_h
    span = "last hour" if frame.read.hour.span_s > WHOLE_HOUR_S else f"last {duration(frame.read.hour.span_s)}"
    jobs = f"{lost - idle:,.0f}"
    long, short = f"{jobs} GPU-h lost by jobs, {idle:,.0f} idle", f"{jobs} + {idle:,.0f} idle GPU-h"
    if view.price is None:
        return f"{span}: {long}", f"{short}, {span}", "text"
    money = f"{lost * view.price:,.0f} at {view.price:g}"
    return f"{span}: {long}, {money} a GPU-hour", f"{short}, {span} = {money}/h", "text"


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
    """The list of the panel and, where there is room, what belongs to the selected row; what a click on each row means,
    and how many rows are a page."""
    names, is_grouped = rows_of(frame, view), view.panel in ("hosts", *GROUPED)
    below = _below(frame, view, width, room, len(names))
    title = TITLES[view.panel] if view.panel == "waste" else f"{TITLES[view.panel]} {len(names):,}"
    if view.filter and is_grouped:
        title += f", filter {shorten(terminal_safe(view.filter.text), 40)}"
    right = fleet_rows.cost(frame, view, width) if view.panel == "waste" else ""
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
        rows.append(fleet_rows.panel_head(view, width))
        targets.append(None)
    page = max(1, room - len(rows) - len(below))
    first = max(0, min(view.first, len(names) - page))
    nothing = f"  {fleet_rows.nothing(frame, view)}"
    shown = _shown(frame, view, width, first, page) or [_dim(nothing, width)]
    targets += [Target("row", name) for name in names[first : first + page]]
    return [*rows, *shown, *[Line().row(width)] * (page - len(shown)), *below], targets, page


def _shown(frame: FleetFrame, view: FleetView, width: int, first: int, page: int) -> list[Row]:
    if view.panel not in ("hosts", *GROUPED):
        return fleet_rows.panel_rows(frame, view, width)[first : first + page]
    at, shown = position(rows_of(frame, view), view), groups(frame, view)[first : first + page]
    return [fleet_rows.row(group, view, width, selected=i == at) for i, group in enumerate(shown, first)]


def _below(frame: FleetFrame, view: FleetView, width: int, room: int, listed: int) -> list[Row]:
    """The selected host's hour, waste and stragglers, as far as the list can spare the rows."""
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
    lefts += [fleet_rows.waste_line(row, most_hours, view, half - 1).row(half - 1) for row in wasted]
    if width < 130:
        return lefts
    if frame.read.hour.lost is None:
        lefts.append(_dim(f"  {shorten(fleet_rows.not_read(frame), half - 3)}", half - 1))
    size = width - half
    alerts = f"A: alerts {len(frame.read.alerts)}" if frame.read.alerts else "no alerts"
    title = f"stragglers {len(frame.stragglers)}" if frame.stragglers else "stragglers"
    rights = [fleet_host.rule(title, f"s: all   {alerts}", size)]
    rights += [fleet_rows.straggler_line(straggler, size).row(size) for straggler in frame.stragglers[:count]]
    if not frame.stragglers:
        rights.append(_dim(f"  {fleet_rows.no_straggler(frame)}", size))
    lefts += [Line().row(half - 1)] * (count + 1 - len(lefts))
    rights += [Line().row(size)] * (count + 1 - len(rights))
    return [Line().add_all(left).to(half).add_all(right).row(width) for left, right in zip(lefts, rights, strict=True)]


def _problems(frame: FleetFrame, view: FleetView, width: int) -> list[Row]:
    """What is wrong with the engine or the exporters, each in one row."""
    problems = [view.error] if view.error else []
    problems += [text for text in frame.problems if text not in (*problems, frame.read.hour.note)]
    return [
        Line().add(f" {shorten(terminal_safe(text), width - 2)}", "level.yellow").row(width) for text in problems[:2]
    ]


def waiting_screen(text: str, width: int, height: int) -> list[Row]:
    """What is shown before the first answer."""
    rows = [Line().add(" gputop fleet", "brand|bar").row(width, "bar"), Line().row(width)]
    rows += [Line().add(f"  {line}", "text").row(width) for line in folded(text, width - 4)]
    rows.append(Line().add("  trying again and again; q quits", "dim").row(width))
    return (rows + [Line().row(width)] * height)[:height]


# The help of the fleet's screen: how to read it, its keys, its states. Nothing typed twice.

WORDS = (
    ("UTIL, SM, GAP", "means over 5 minutes and over the GPUs of the row; GAP is UTIL - SM: busy without SM activity"),
    ("WASTE 1 h", "GPU-hours of the last hour that somebody's job did not use; 'idle' beside it is what nobody used"),
    ("n/a", "no exporter gives it: dcgm-exporter leaves SM activity out unless its CSV names it"),
    ("last hour", "in bins of 5 minutes, each judged as the present is; nodes with gputop count their own seconds"),
)
STATES = (
    ("down", "the engine's `up` was 0 in two scrapes in a row, or nothing new came; the last values stay, grey"),
    ("gputop", "where `gputop export` runs, its own state holds, and its verdict names the cause"),
    ("idle", "95 % of the time UTIL was below 5; 'idle, holding memory' from 1 GiB on"),
    (NOT_WORKING, "UTIL of 80 or more with SM below 30, or UTIL of 50 or more with SM below 0.3 of it"),
    ("starved", "UTIL of at most 80 on a GPU with a job or 1 GiB of memory held"),
    (STATE_WORDS["unmeasured"], "busy, but no SM activity is exported: neither work nor waste"),
    ("working", "all others"),
)
"""The rules in the order in which they are checked; the first that holds over 5 minutes is the state."""
STRAGGLERS = (
    ("slow, by step", "the job's ranks announce their steps, and one's take more than 1.1 times the others' median; "
                      "without what each waited for others, where all of them say so"),
    ("slow", "all GPUs of a job at UTIL of 80 or more, and one does more than the median of the others, by 15 points "
             "and by three deviations: the others wait for it"),
    ("starved", "one GPU's UTIL is more than 15 points below its job's median, all others at 80 or more"),
)  # fmt: skip


def help_rows(glyphs: Glyphs, width: int, keys: Sequence[Key]) -> list[Row]:
    """All rows of the help at a width."""
    rows = [Line().add(" gputop fleet: how to read it, and its keys", "title").row(width), Line().row(width)]
    rows += [*legend_rows(glyphs, width), Line().row(width), *key_rows(keys, width, glyphs)]
    names = [(dialect.id, dialect.words) for dialect in DIALECTS.values()]
    tables = (
        ("numbers", WORDS),
        ("states, in the order in which they are checked", STATES),
        ("stragglers, within one job", STRAGGLERS),
        ("exporters that gputop understands", names),
    )
    for title, table in tables:
        rows += section_rows(title, width)
        for word, text in table:
            rows += entry_rows(word, text, width, indent=20)
        rows.append(Line().row(width))
    return rows
