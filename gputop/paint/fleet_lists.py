"""Stragglers, waste and alerts as rows: whole panels, or the first of them below the hosts."""

from __future__ import annotations

from gputop.fleet.frame import FleetFrame, Waste
from gputop.fleet.judge import LEVELS
from gputop.fleet.stragglers import Straggler
from gputop.fleet.verdict import cause_words, step_times
from gputop.model.quantity import count
from gputop.model.text import terminal_safe
from gputop.paint.chart import bar
from gputop.paint.fleet_view import FleetView, position, rows_of
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row
from gputop.paint.text import fit


def _hours(row: Waste, view: FleetView) -> str:
    """GPU-hours, and at the user's price what they cost."""
    money = "" if view.price is None else f"  {row.gpu_h * view.price:>9,.0f}"
    return f"{row.gpu_h:,.1f} GPU-h".rjust(13) + money


def cost(frame: FleetFrame, view: FleetView) -> str:
    """All hours, and with the user's price what they cost and at which price that is."""
    lost = frame.not_work_gpu_h
    if lost is None:
        return ""
    money = "" if view.price is None else f" = {lost * view.price:,.0f} at {view.price:g} a GPU-hour"
    return f"{lost:,.0f} GPU-h{money}"


def waste_row(row: Waste, most: float, view: FleetView, width: int, *, selected: bool = False) -> Row:
    """A job's hours: whose, why, how many."""
    glyphs = view.glyphs
    job = row.job or ("nobody's" if row.state == "idle" else "no job known")
    wide, red = width >= 90, LEVELS[row.state] == "red"
    style = "value.alarm" if red else "level.yellow" if row.state == "idle_allocated" else "dim"
    line = Line().add(" ").add(fit(job, 18 if wide else 13, glyphs.more), "value").add(" ")
    line.add(fit(row.user or "–", 10 if wide else 7, glyphs.more), "text").add(" ")
    hours = _hours(row, view)
    drawn = 24 if width >= 110 else 10 if width >= 60 else 0
    room = max(12, width - line.width - len(hours) - 2 - (drawn + 1 if drawn else 0))
    line.add(fit(f"{cause_words(row.cause)}, {count(row.gpus, 'GPU')}", room, glyphs.more), style).add(" ")
    if drawn:
        # Hours outside of any job are not a job's waste, so they get no bar for comparison.
        most = 0.0 if row.state == "idle" else most
        line.add_all(bar(row.gpu_h, most, drawn, glyphs, "bar.alarm" if red else "bar.run"))
    return line.add(hours, "value").row(width, "select" if selected else None)


def straggler_row(one: Straggler, view: FleetView, width: int, *, selected: bool = False) -> Row:
    """Which GPU, what it does, what the others do, whose job."""
    its, others = step_times(one)
    what = {
        "step": f"steps of {its}, the others' take {others}",
        "own_step": f"own step {its}, the others' {others}",
        "sm": f"SM {one.value:.0f}, the others wait at {one.median:.0f}",
        "power": f"{one.value:.0f} W, the others wait at {one.median:.0f} W",
        "util": f"starves: util {one.value:.0f}, the others are at {one.median:.0f}",
    }[one.by]
    glyphs = view.glyphs
    line = Line().add(" ").add(fit(f"{one.host} GPU {one.gpu}", 20, glyphs.more), "level.yellow").add(" ")
    line.add(fit(what, 40 if width >= 76 else max(10, width - 23), glyphs.more), "text")
    if width >= 76:
        whose, size = f" {terminal_safe(one.job)} {terminal_safe(one.user)}", f"  {count(one.gpus, 'GPU')}"
        room = width - line.width - 1
        line.add(fit(whose + size if len(whose + size) <= room else whose, room, glyphs.more), "dim")
    return line.row(width, "select" if selected else None)


def alert_row(frame: FleetFrame, at: int, view: FleetView, width: int, *, selected: bool = False) -> Row:
    """An alert's name and what it is about."""
    one = frame.alerts[at]
    labels = " ".join(f"{name}={value}" for name, value in one.labels.items())
    level = "red" if one.severity in ("critical", "page", "error") else "yellow"
    line = Line().add(f" {view.glyphs.level(level)} ", f"level.{level}")
    line.add(fit(one.name, 28, view.glyphs.more), f"level.{level}").add(" ")
    line.add(fit(one.severity or "–", 9, view.glyphs.more), "dim").add(" ")
    line.add(fit(one.host or "–", 16, view.glyphs.more), "value").add(" ")
    return line.add(fit(labels, max(1, width - line.width), view.glyphs.more), "text").row(
        width, "select" if selected else None
    )


def panel_rows(frame: FleetFrame, view: FleetView, width: int) -> list[Row]:
    """All rows of the panel of stragglers, waste or alerts; its cursor is drawn."""
    selected = _cursor(frame, view)
    if view.panel == "stragglers":
        return [straggler_row(one, view, width, selected=i == selected) for i, one in enumerate(frame.stragglers)]
    if view.panel == "waste":
        most = max((row.gpu_h for row in frame.waste if row.state != "idle"), default=1.0)
        return [waste_row(row, most, view, width, selected=i == selected) for i, row in enumerate(frame.waste)]
    return [alert_row(frame, i, view, width, selected=i == selected) for i in range(len(frame.alerts))]


def _cursor(frame: FleetFrame, view: FleetView) -> int:
    return position(rows_of(frame, view), view)


NOTHING = {
    "stragglers": "no GPU holds its job up: in every job that is known, all do about the same",
    "waste": "nothing was lost in the last hour",
    "alerts": "no alert fires; `gputop fleet deploy` writes rules for Prometheus",
}
NOT_READ = "the last hour is being read"


def nothing(frame: FleetFrame, view: FleetView, glyphs: Glyphs) -> str:
    """What an empty panel says."""
    if view.panel == "waste" and frame.read.lost is None:
        return f"{NOT_READ}{glyphs.more}"
    return NOTHING.get(view.panel, "no row passes the filter; esc takes it away")
