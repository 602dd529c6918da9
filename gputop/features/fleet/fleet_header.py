"""The first two rows of the screen: size and age, counts and last hour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from gputop.diagnosis.types import HOLDING_MEMORY, NOT_WORKING_ALARM
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_frame import FleetFrame
from gputop.features.fleet.fleet_reading import SIMULATED
from gputop.features.fleet.fleet_view import FleetView
from gputop.features.fleet.gpu_state import ABSENT, UNUSED
from gputop.features.fleet.gpu_state import WORDS as FLEET_WORDS
from gputop.model.quantity import clock_time, count, duration, terminal_safe
from gputop.paint.glyphs import level_glyph
from gputop.paint.line import Line, Row, shorten
from gputop.paint.words import product

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
    """The title row: engine, size, coverage and age.

    "SIMULATED" is never left out.
    """
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
    """The row of counts, absent hosts, power and last hour; or a message."""
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
    """A count of the summary; rank 0 is always shown."""

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
    """Lost GPUs and hosts without values; never left out."""
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
    """Words for the last hour, long and short, and their style."""
    lost = frame.not_work_gpu_h
    if lost is None and frame.read.hour.note:
        return "last hour: not known", "last hour: n/a", "dim"
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
