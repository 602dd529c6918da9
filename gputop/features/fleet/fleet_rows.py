"""Rows of hosts, jobs or users: their GPUs as cells, means, whose they are, what is wrong, what it wastes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache, partial
from math import floor
from typing import Literal, TypeVar

from msgspec import Struct

from gputop.diagnosis.types import NOT_WORKING
from gputop.features.fleet.fleet_frame import FleetFrame, Gpu, GpuGroup, WastedHours
from gputop.features.fleet.fleet_reading import FiringAlert, FleetState
from gputop.features.fleet.fleet_view import FleetView, groups, position, rows_of
from gputop.features.fleet.judge import ABSENT, LEVELS, ORDER, WORDS, Straggler, cause_words
from gputop.model.quantity import count, number, terminal_safe
from gputop.output.document import text_lines
from gputop.paint.charts import bar, gap_chart
from gputop.paint.glyphs import Glyphs, level_glyph
from gputop.paint.line import Line, Row, Span, fit
from gputop.paint.words import gap_style

# A fleet's GPUs as cells of two or three columns: red above green is visible even at that size.

T = TypeVar("T")
BESIDE = 8
"""GPUs of a usual host, for which the width of the cells is chosen."""


def cells_width(width: int) -> int:
    """The room for the cells of a row, on a screen of this width."""
    return BESIDE * (4 if width >= 130 else 3 if width >= 100 else 2)


def cell_spans(gpus: Sequence[Gpu], room: int, glyphs: Glyphs) -> list[Span]:
    """The GPUs side by side in exactly ``room`` cells: with a gap between them while they are few, the worst of them
    where they are too many."""
    if len(gpus) > room:
        gpus = sorted(gpus, key=lambda gpu: _NEED.index(gpu.state))
    return _beside(gpus, lambda gpu, wide: cell(gpu, wide, glyphs), room)


def counted_spans(counts: Mapping[FleetState, int], room: int) -> list[Span]:
    """GPUs of which only the states are known, the worst first: their levels, where a cell would show what they do."""

    def level_of(state: FleetState, wide: int) -> list[Span]:
        if state in ABSENT and state != "lost":
            return [("·", "dim")]
        return [("×" if state == "lost" else level_glyph(LEVELS[state]), f"level.{LEVELS[state]}")]

    states = [state for state in _NEED for _ in range(min(room + 1, counts.get(state, 0)))]
    return _beside(states, level_of, room)


def _beside(of: Sequence[T], drawn: Callable[[T, int], list[Span]], room: int) -> list[Span]:
    """Each as it is drawn in so many columns; the first of them where there are too many."""
    fits = len(of) <= room
    cell_room = room // max(BESIDE, len(of)) if fits else 1
    line = Line()
    for at, one in enumerate(of if fits else of[: room - 1], 1):
        line.add_all(drawn(one, max(1, cell_room - 1))).to(at * cell_room)
    return list(line.add("…" * (not fits), "dim").row(room))


def cell(gpu: Gpu, wide: int, glyphs: Glyphs) -> list[Span]:
    """One GPU in so many columns and one row."""
    read = gpu.read
    if gpu.state == "lost":
        return [("×" * wide, "level.red")]
    if gpu.state in ABSENT:
        return [("·" * wide, "dim")]
    if read.util_pct is None:
        return [("?" * wide, "dim")]
    # Halves of a percent are finer than eighths of a row, and a thousand GPUs then share few drawings.
    sm = None if read.sm_active_pct is None else floor(2.0 * read.sm_active_pct)
    return _drawn(floor(2.0 * read.util_pct), sm, wide, glyphs, gpu.state == "busy_not_working")


@lru_cache(maxsize=4096)
def _drawn(util: int, sm: int | None, wide: int, glyphs: Glyphs, alarm: bool) -> list[Span]:
    """A cell by its halves of a percent."""
    sms = [None if sm is None else sm / 2.0] * wide
    (row,) = gap_chart([util / 2.0] * wide, sms, 1, glyphs, alarm=alarm, measured=sm is not None)
    return row


_NEED: tuple[FleetState, ...] = (*(state for state in ORDER if state != "working"), "working")


NOT_KNOWN = "–"
WIDEST_VERDICT = 80


_OF_PANEL = {"jobs": "job", "users": "user"}
"""Panel -> the column that would repeat the name of its rows, and shows their hosts instead."""


def _number(group: GpuGroup, value: float | None, size: int, style: str) -> Span:
    return (NOT_KNOWN.rjust(size), "dim") if value is None or group.down else (number(value, size), style)


def _sm(group: GpuGroup, view: FleetView, size: int) -> Span:
    if group.sm_active_pct is None and group.down is None and group.size:
        return "n/a".rjust(size), "dim"
    # As on the node's screen, no figure of a GPU under a red verdict is green.
    red = group.verdict.level == "red"
    return _number(group, group.sm_active_pct, size, "strong" if red else "value.sm")


def _gap(group: GpuGroup, view: FleetView, size: int) -> Span:
    style = gap_style(group.gap_pct, alarm=group.verdict.state == "busy_not_working")
    return _number(group, group.gap_pct, size, style)


def _power(group: GpuGroup, view: FleetView, size: int) -> Span:
    if group.power_w is None or group.down:
        return NOT_KNOWN.rjust(size), "dim"
    return f"{group.power_w / 1000:{size}.1f}", "text"


def _owner(group: GpuGroup, view: FleetView, size: int, of: Literal["job", "user"]) -> Span:
    noun = "hosts" if _OF_PANEL.get(view.panel) == of else f"{of}s"
    names: tuple[str, ...] = getattr(group, noun)
    text = NOT_KNOWN if not names else names[0] if len(names) == 1 else f"{len(names)} {noun}"
    return fit(text, size), "text" if names else "dim"


def _verdict(group: GpuGroup, view: FleetView, size: int) -> Span:
    verdict = group.verdict
    glyph = "×" if group.down else "?" if verdict.state == "unmeasured" else level_glyph(verdict.level)
    text = verdict.text
    if len(text) > size - 2:
        # The colour does not tell the cause.
        text = text.replace(f" {NOT_WORKING}: ", ": ", 1)
    return f"{glyph} {fit(text, max(1, size - 2))}", f"level.{verdict.level}"


def _waste(group: GpuGroup, view: FleetView, size: int) -> Span:
    waste, idle = group.waste_gpu_h, group.idle_gpu_h
    if waste is None or idle is None:
        return "…".rjust(size), "dim"
    if waste >= 0.05:
        return f"{waste:,.1f}".rjust(size), "value" if waste >= 1.0 else "text"
    return (f"{idle:.1f} idle" if idle >= 0.05 else NOT_KNOWN).rjust(size), "dim"


class FleetColumn(Struct, frozen=True):
    """``least`` is the width of the screen from which the column is shown; ``sort`` what a click on its head sorts."""

    key: str
    head: str
    width: int
    least: int
    sort: str
    shown: Callable[[GpuGroup, FleetView, int], Span]
    right: bool = False


COLUMNS = (
    FleetColumn("util", "UTIL", 5, 50, "util",
                lambda group, view, size: _number(group, group.util_pct, size, "strong"), True),
    FleetColumn("sm", "SM", 4, 0, "sm", _sm, True),
    FleetColumn("gap", "GAP", 4, 70, "gap", _gap, True),
    FleetColumn("power", "kW", 5, 110, "power", _power, True),
    FleetColumn("job", "JOB", 15, 100, "name", partial(_owner, of="job")),
    FleetColumn("user", "USER", 9, 120, "name", partial(_owner, of="user")),
    FleetColumn("verdict", "VERDICT", 0, 0, "worst", _verdict),
    FleetColumn("waste", "WASTE 1 h", 9, 76, "waste", _waste, True),
)  # fmt: skip
"""From left to right, after the name and the cells. The verdict takes what the others leave."""


def columns(width: int) -> list[tuple[FleetColumn, int]]:
    """The columns that a screen of this width has room for, and their widths."""
    shown = [column for column in COLUMNS if width >= column.least]
    used = 1 + name_width(width) + 1 + cells_width(width) + sum(column.width + 1 for column in shown if column.width)
    # One cell before it, and one at the right edge as on every screen. The eye cannot follow a wider row.
    rest = min(WIDEST_VERDICT, max(8, width - used - 2))
    return [(column, column.width or rest) for column in shown]


def name_width(width: int) -> int:
    """The room of a row's name."""
    return 10 if width < 100 else 12 if width < 160 else 18


def head(view: FleetView, width: int, word: str) -> Line:
    """The heads of the columns, a click on which sorts by it; the one that is sorted by has its arrow."""
    arrow = "▴" if view.inverted else "▾"
    name = f"{word}{arrow * (view.sort == 'name')}"[: name_width(width)].ljust(name_width(width))
    room = cells_width(width)
    numbers = "".join(str(i).ljust(room // 8) for i in range(8)) if view.panel == "hosts" else "GPUs".ljust(room)
    line = Line().add(" ", "text", "name").add(name, "heading", "name").add(" ", "text", "name")
    line.add(numbers[:room], "heading", "worst")
    for column, size in columns(width):
        text = "HOSTS" if column.key == _OF_PANEL.get(view.panel) else column.head
        text += arrow * (column.sort == view.sort and column.sort != "name")
        text = text.rjust(size) if column.right else text.ljust(size)
        line.add(" ", "text", column.sort).add(text, "heading", column.sort)
    return line


def row(group: GpuGroup, view: FleetView, width: int, *, selected: bool) -> Row:
    """One host, job or user."""
    room = cells_width(width)
    style = (
        "strong" if group.verdict.level == "red"
        else "dim" if group.verdict.state in ("idle", "down", "unmeasured")
        else "value"
    )  # fmt: skip
    name = group.title or ("no job" if view.panel == "jobs" else "nobody known")
    line = Line().add(" ").add(fit(name, name_width(width)), style).add(" ")
    line.add_all(cell_spans(group.gpus, room, view.glyphs) if group.gpus else counted_spans(group.counts, room))
    for column, size in columns(width):
        line.add(" ").add_all([column.shown(group, view, size)])
    return line.row(width, "select" if selected else None)


# Stragglers, waste and alerts as rows: whole panels, or the first of them below the hosts.


def cost(frame: FleetFrame, view: FleetView, width: int) -> str:
    """All hours, with the user's price what they cost and at which price; if there is room, what no job had, apart."""
    lost = frame.not_work_gpu_h
    if lost is None:
        return ""
    idle = frame.idle_gpu_h
    money = "" if view.price is None else f" = {lost * view.price:,.0f} at {view.price:g} a GPU-hour"
    hours = f"{lost - idle:,.0f} GPU-h by jobs, {idle:,.0f} idle" if width >= 100 or not money else f"{lost:,.0f} GPU-h"
    return f"{hours}{money}"


def panel_head(view: FleetView, width: int) -> Row:
    """The heads of the columns of waste, stragglers or alerts."""
    line = Line().add(" ")
    if view.panel == "waste":
        wide = width >= 90
        line.add(f"{'JOB':<{19 if wide else 14}}{'USER':<{11 if wide else 8}}WHY, GPUs", "heading")
        money = "" if view.price is None else f"  {'COST':>9}"
        hours = f"{'GPU-HOURS':>13}{money}"
        return line.to(max(line.width + 1, width - len(hours) - 1)).add(hours, "heading").row(width)
    if view.panel == "stragglers":
        line.add(f"{'GPU':<21}{'WHAT IT DOES':<40}", "heading")
        return (line.add("  JOB, USER, GPUs", "heading") if width >= 76 else line).row(width)
    return line.add(f"  {'ALERT':<28} {'SEVERITY':<9} {'HOST':<16} WHAT IT IS ABOUT", "heading").row(width)


def waste_line(row: WastedHours, most_hours: float, view: FleetView, width: int) -> Line:
    """A job's hours: whose, why, how many."""
    job = row.job or ("nobody's" if row.state == "idle" else "no job known")
    wide, red = width >= 90, LEVELS[row.state] == "red"
    style = "value.alarm" if red else "level.yellow" if LEVELS[row.state] == "yellow" else "dim"
    line = Line().add(" ").add(fit(job, 18 if wide else 13), "value").add(" ")
    line.add(fit(row.user or "–", 10 if wide else 7), "text").add(" ")
    money = "" if view.price is None else f"  {row.gpu_h * view.price:>9,.0f}"
    hours = f"{row.gpu_h:,.1f} GPU-h".rjust(13) + money
    drawn = 24 if width >= 110 else 10 if width >= 60 else 0
    room = max(12, width - line.width - len(hours) - 2 - (drawn + 1 if drawn else 0))
    # A job that has ended has none any more.
    gpus = f", {count(row.gpus, 'GPU')}" if row.gpus else ""
    line.add(fit(f"{cause_words(row.cause)}{gpus}", room), style).add(" ")
    if drawn:
        # Hours outside of any job are not a job's waste, so they get no bar for comparison.
        most_hours = 0.0 if row.state == "idle" else most_hours
        line.add_all(bar(row.gpu_h, most_hours, drawn, view.glyphs, "bar.alarm" if red else "bar.run"))
    return line.add(hours, "value")


def straggler_line(straggler: Straggler, width: int) -> Line:
    """Which GPU, what it does, what the others do, whose job."""
    doing = f"{'starves: ' * (straggler.kind == 'starved')}{straggler.words}"
    line = Line().add(" ").add(fit(straggler.where, 20), "level.yellow").add(" ")
    line.add(fit(doing, 40 if width >= 76 else max(10, width - 23)), "text")
    if width >= 76:
        whose, room = f"  {terminal_safe(straggler.job)} {terminal_safe(straggler.user)}", width - line.width - 1
        of_size = f"{whose}  {count(straggler.gpus, 'GPU')}"
        line.add(fit(of_size if len(of_size) <= room else whose, room), "dim")
    return line


def alert_line(alert: FiringAlert, width: int) -> Line:
    """An alert's name and what it is about."""
    labels = " ".join(f"{name}={value}" for name, value in alert.labels.items())
    level = "red" if alert.severity in ("critical", "page", "error") else "yellow"
    line = Line().add(f" {level_glyph(level)} ", f"level.{level}")
    line.add(fit(alert.name, 28), f"level.{level}").add(" ").add(fit(alert.severity or "–", 9), "dim")
    line.add(" ").add(fit(alert.host or "–", 16), "value").add(" ")
    return line.add(fit(labels, max(1, width - line.width)), "text")


def panel_rows(frame: FleetFrame, view: FleetView, width: int) -> list[Row]:
    """All rows of the panel of stragglers, waste or alerts; its cursor is drawn."""
    at = position(rows_of(frame, view), view)
    most_hours = max((row.gpu_h for row in frame.waste if row.state != "idle"), default=1.0)
    lines = {
        "stragglers": lambda: [straggler_line(late, width) for late in frame.stragglers],
        "waste": lambda: [waste_line(row, most_hours, view, width) for row in frame.waste],
        "alerts": lambda: [alert_line(alert, width) for alert in frame.read.alerts],
    }[view.panel]()
    return [line.row(width, "select" if i == at else None) for i, line in enumerate(lines)]


NO_STRAGGLER = "no GPU holds its job up"
NOTHING = {
    "stragglers": f"{NO_STRAGGLER}: in every job that is known, all do about the same",
    "waste": "nothing was lost in the last hour",
    "alerts": "no alert fires; `gputop fleet deploy` writes rules for Prometheus",
}


def not_read(frame: FleetFrame) -> str:
    """Why there is no last hour."""
    return frame.read.hour.note or "the last hour is being read…"


def no_straggler(frame: FleetFrame) -> str:
    """That none was found, and where it was looked for."""
    return "no alert fires for one: only alerts tell of jobs out of sight" if frame.read.shares else NO_STRAGGLER


def nothing(frame: FleetFrame, view: FleetView) -> str:
    """What an empty panel says."""
    if view.panel == "stragglers" and frame.read.shares:
        return no_straggler(frame)
    if view.panel == "waste" and frame.read.hour.lost is None:
        return not_read(frame)
    return NOTHING.get(view.panel, "no row passes the filter; esc takes it away")


# The same rows as text for a ticket.


def ticket_text(frame: FleetFrame, view: FleetView) -> str:
    """What somebody who was not there needs: where, when, what, whose, the evidence, the remedy."""
    lines = _lines(frame, view)
    moment = datetime.fromtimestamp(frame.t, timezone.utc)
    lines.insert(1, f"at {moment:%Y-%m-%d %H:%M:%S} UTC, from {frame.read.source}; means over 5 minutes")
    return text_lines(lines)


def _lines(frame: FleetFrame, view: FleetView) -> list[str]:
    at = position(rows_of(frame, view), view)
    if view.panel == "host":
        group = frame.host(view.host)
        return ["nothing is selected"] if group is None else _group_lines(frame, group)
    if not rows_of(frame, view):
        return ["nothing is selected"]
    if view.panel == "stragglers":
        late = frame.stragglers[at]
        return [f"{late.where} holds up {late.job} ({late.kind}): {late.words}, {count(late.gpus, 'GPU')}"]
    if view.panel == "waste":
        row = frame.waste[at]
        owner = " ".join(part for part in (row.job, row.user) if part) or "nobody's job"
        cause = f"{cause_words(row.cause)}, {count(row.gpus, 'GPU')}"
        return [f"{owner}: {row.gpu_h:.1f} GPU-hours of the last hour were no work: {cause}"]
    if view.panel == "alerts":
        alert = frame.read.alerts[at]
        return [f"alert {alert.name} fires: " + " ".join(f"{name}={value}" for name, value in alert.labels.items())]
    return _group_lines(frame, groups(frame, view)[at])


def _group_lines(frame: FleetFrame, group: GpuGroup) -> list[str]:
    owners = ", ".join((*group.jobs, *group.users)) or "no job known"
    lines = [f"{group.title or 'no job'}: {group.verdict.text}", f"whose: {owners}"]
    for gpu in group.gpus[:16]:
        read = gpu.read
        lines.append(
            f"{read.host} GPU {read.gpu}: {WORDS[gpu.state]} (by {gpu.by}); util {number(read.util_pct)}, "
            f"SM {number(read.sm_active_pct)} ({read.names or 'n/a'}); {read.uuid}"
        )
    if len(group.gpus) > 16:
        lines.append(f"and {len(group.gpus) - 16} more GPUs")
    if group.remedy:
        lines.append(f"what helps: {group.remedy}")
    if (command := frame.ssh(group.name)) is not None and len(group.hosts) == 1 and group.hosts[0] == group.name:
        lines.append(f"look: {command}")
    return lines
