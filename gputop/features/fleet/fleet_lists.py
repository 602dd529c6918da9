"""Rows of stragglers, waste and alerts."""

from __future__ import annotations

from gputop.features.fleet.fleet_frame import FleetFrame, WastedHours
from gputop.features.fleet.fleet_reading import FiringAlert
from gputop.features.fleet.fleet_view import FleetView, position, rows_of
from gputop.features.fleet.gpu_state import LEVELS
from gputop.features.fleet.group_verdict import cause_words
from gputop.features.fleet.straggler import Straggler
from gputop.model.quantity import count, terminal_safe
from gputop.paint.charts import bar
from gputop.paint.glyphs import level_glyph
from gputop.paint.line import Line, Row, fit


def cost(frame: FleetFrame, view: FleetView, width: int) -> str:
    """Hours, and their cost with the user's price."""
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
    """Hours of a job with their cause."""
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
    """Straggler, its value beside the others', and its job."""
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
    """The reason why there is no last hour."""
    return frame.read.hour.note or "the last hour is being read…"


def no_straggler(frame: FleetFrame) -> str:
    """Words where no straggler was found."""
    return "no alert fires for one: only alerts tell of jobs out of sight" if frame.read.shares else NO_STRAGGLER


def nothing(frame: FleetFrame, view: FleetView) -> str:
    """Words of an empty panel."""
    if view.panel == "stragglers" and frame.read.shares:
        return no_straggler(frame)
    if view.panel == "waste" and frame.read.hour.lost is None:
        return not_read(frame)
    return NOTHING.get(view.panel, "no row passes the filter; esc takes it away")
