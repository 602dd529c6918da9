"""The first two rows of the fleet's screen: what it is, how old it is, and the counts that matter."""

from __future__ import annotations

from typing import NamedTuple

from gputop.diagnosis.types import HOLDING_MEMORY, NOT_WORKING_ALARM
from gputop.fleet.frame import FleetFrame
from gputop.fleet.judge import WORDS
from gputop.fleet.names import DIALECTS
from gputop.fleet.reading import SIMULATED
from gputop.model.quantity import count, duration
from gputop.model.text import terminal_safe
from gputop.paint.fleet_view import FleetView
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import clock_time, shorten
from gputop.paint.words import product

COUNTED = (
    ("working", "working", "green", 0),
    ("busy_not_working", NOT_WORKING_ALARM, "red", 0),
    ("starved", "starved", "red", 0),
    ("idle_allocated", HOLDING_MEMORY, "yellow", 2),
    ("idle", "idle", "grey", 5),
    ("unmeasured", WORDS["unmeasured"], "grey", 4),
)
"""State, how it is counted, its level, its rank (see ``Part``); in the order in which they stand."""


def number(value: int) -> str:
    """A count with a comma between thousands."""
    return f"{value:,}"


def _gpus(frame: FleetFrame, glyphs: Glyphs) -> str:
    total = frame.total
    named = [(name, n) for name, n in frame.models.items() if name]
    if len(named) == 1 and named[0][1] == total:
        return f"{number(total)} {glyphs.times} {product(named[0][0], None)}"
    kinds = len({product(name, None) for name, _ in named})
    return f"{number(total)} GPUs" if kinds != 1 else f"{number(total)} GPUs, {product(named[0][0], None)}"


def bar(frame: FleetFrame, view: FleetView, width: int) -> Row:
    """The title: the engine, how large, what is measured, how old. That a fleet is simulated is never left out."""
    line = Line().add(" gputop fleet", "brand|bar")
    right = _right(frame, view, width)
    room = width - sum(len(text) for text, _ in right)
    measured, total = frame.measured, frame.total
    bare = total - frame.counts.get("down", 0) - measured
    parts = [
        (0, f"{number(len(frame.hosts))} host{'s' * (len(frame.hosts) != 1)}", "value|bar"),
        (1, _gpus(frame, view.glyphs), "value|bar"),
        (-1, "SIMULATED", "level.info|bar")
        if frame.read.source == SIMULATED
        else (4, shorten(terminal_safe(frame.read.source), 40), "dim|bar"),
        (2, f"SM measured on {number(measured)}", "level.green|bar"),
    ]
    if bare:
        parts.append((3, f"not exported on {number(bare)}", "dim|bar"))
    if frame.read.names:
        parts.append((5, " + ".join(DIALECTS[name].id for name in frame.read.names if name in DIALECTS), "dim|bar"))
    while parts and line.width + sum(2 + len(text) for _, text, _ in parts) + 2 > room:
        parts.remove(max(parts))
    for _, text, style in parts:
        line.add("  ", "bar").add(text, style)
    return line.to(width - sum(len(text) for text, _ in right), "bar").add_all(right).row(width)


def _right(frame: FleetFrame, view: FleetView, width: int) -> list[tuple[str, str]]:
    parts: list[tuple[str, str]] = []
    if view.stale_s is not None:
        parts.append((f"STALE {duration(view.stale_s)}  ", "level.red|bar"))
    if view.at is not None:
        parts.append(("PAST  ", "level.yellow|bar"))
    elif view.paused:
        parts.append(("PAUSED  ", "level.yellow|bar"))
    parts.append((clock_time(frame.t, view.utc_offset_s) + "  ", "dim|bar"))
    if frame.read.age_s is not None and width >= 70:
        parts.append((f"data {frame.read.age_s:.0f} s old  ", "dim|bar"))
    if width >= 120:
        parts.append((f"every {view.interval_s:.0f} s  ", "dim|bar"))
    if width >= 100:
        parts.append(("? help ", "dim|bar"))
    return parts


def summary(frame: FleetFrame, view: FleetView, width: int) -> Row:
    """Counts of GPUs by state, hosts that are down, power, and the last hour; or a message."""
    line = Line().add(" ")
    if view.message:
        return line.add(shorten(terminal_safe(view.message), width - 2), "level.yellow").row(width)
    parts = _counts(frame, view.glyphs)
    if power := frame.power_w:
        text = f"{power / 1000:,.0f} kW" if power >= 10_000 else f"{power / 1000:.1f} kW"
        parts.append(Part(text, "text", 6))
    long, short, style = _hour(frame, view)
    parts.append(Part(short, style, 3))
    room: list[Part] = []
    for part in sorted(parts, key=lambda part: part.rank):
        if not part.rank or _wide([*room, part]) <= width:
            room.append(part)
    parts = [part for part in parts if part in room]
    if parts[-1].text == short and _wide(parts) + len(long) - len(short) <= width:
        parts[-1] = Part(long, style, 3)
    for part in parts:
        line.add("   " if line.width > 1 else "").add(part.text, part.style)
    return line.row(width)


class Part(NamedTuple):
    """A count in the summary; rank 0 is always shown, the others by rank as far as there is room."""

    text: str
    style: str
    rank: int


def _wide(parts: list[Part]) -> int:
    return 1 + sum(len(part.text) + 3 for part in parts) - 3


def _counts(frame: FleetFrame, glyphs: Glyphs) -> list[Part]:
    parts = []
    for state, word, level, rank in COUNTED:
        if state == "idle" and (down := len(frame.read.down)):
            parts.append(Part(f"{glyphs.times} {count(down, 'host')} down", "level.yellow", 1))
        if n := frame.counts.get(state, 0):  # type: ignore[call-overload]
            parts.append(Part(f"{glyphs.level(level)} {number(n)} {word}", f"level.{level}", rank))
    return parts


def _hour(frame: FleetFrame, view: FleetView) -> tuple[str, str, str]:
    """How much of the last hour was not work, in a long and a short form, and the style."""
    lost = frame.not_work_gpu_h
    if lost is None:
        return "last hour: being read", "last hour: …", "dim"
    total = frame.total
    money = "" if view.price is None else f", {lost * view.price:,.0f} at {view.price:g} a GPU-hour"
    long = f"last hour: {lost:,.0f} of {number(total)} GPUs' time was not work{money}"
    cost = "" if view.price is None else f" = {lost * view.price:,.0f} at {view.price:g}/h"
    return long, f"{lost:,.0f} GPU-h lost in 1 h{cost}", "text"
