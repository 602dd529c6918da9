"""Stragglers, waste and alerts as rows."""

from __future__ import annotations

from gputop.features.fleet.fleet_reading import FiringAlert
from gputop.features.fleet.judge.fleet_frame import FleetFrame, WastedHours
from gputop.features.fleet.judge.gpu_state import LEVELS
from gputop.features.fleet.judge.group_verdict import cause_words
from gputop.features.fleet.judge.straggler import Straggler
from gputop.features.fleet.show.fleet_view import Entry, FleetView
from gputop.model.clean_text import terminal_safe
from gputop.model.quantity import count
from gputop.paint.cells import fit
from gputop.paint.charts import bar
from gputop.paint.glyphs import level_glyph
from gputop.paint.line import Line, Row

NOTHING = {
    "stragglers": "no GPU holds its job up: in every job that is known, all do about the same",
    "waste": "nothing was wasted in the last hour",
    "alerts": "no alert fires; `gputop fleet deploy` writes rules for Prometheus",
}


WORD_STYLES = {"red": "value.alarm", "yellow": "level.yellow"}
BAR_STYLES = {"red": "bar.alarm", "yellow": "bar.wait"}
"""A bar has the colour of the words before it."""


def cost(frame: FleetFrame, view: FleetView, width: int) -> str:
    """Hours, and their cost with the user's price."""
    lost, idle = frame.not_work_gpu_h, frame.idle_gpu_h
    if lost is None:
        return ""
    money = (
        "" if view.price is None else f" = {lost * view.price:,.0f} at {view.price:g} a GPU-hour"
    )
    hours = (
        f"{lost - idle:,.0f} GPU-h by jobs, {idle:,.0f} idle"
        if width >= 100 or not money
        else f"{lost:,.0f} GPU-h"
    )
    return f"{hours}{money}"


def panel_head(view: FleetView, width: int) -> Row:
    """The heads of the columns of waste, stragglers or alerts."""
    line = Line().add(" ")
    if view.panel == "waste":
        wide = width >= 90
        line.add(f"{'JOB':<{19 if wide else 14}}{'USER':<{11 if wide else 8}}WHY, GPUs", "heading")
        hours = f"{'GPU-HOURS':>13}" + ("" if view.price is None else f"  {'COST':>9}")
        line.to(max(line.width + 1, width - len(hours) - 1)).add(hours, "heading")
    elif view.panel == "stragglers":
        line.add(f"{'GPU':<21}{'WHAT IT DOES':<40}", "heading").add(
            "  JOB, USER, GPUs" * (width >= 76), "heading"
        )
    else:
        line.add(f"  {'ALERT':<28} {'SEVERITY':<9} {'HOST':<16} WHAT IT IS ABOUT", "heading")
    return line.row(width)


def hours_text(gpu_h: float, view: FleetView) -> str:
    """GPU-hours, and with the user's price what they cost, in columns."""
    hours = f"{gpu_h:,.1f} GPU-h".rjust(13)
    if view.price is None:
        return hours
    return f"{hours}  {gpu_h * view.price:>9,.0f}"


def _bar_width(width: int) -> int:
    """Cells of a bar on a row of this width."""
    if width >= 110:
        return 24
    return 10 if width >= 60 else 0


def _owner_of_waste(row: WastedHours) -> str:
    if row.job:
        return row.job
    return "nobody's" if row.state == "idle" else "no job known"


def waste_line(row: WastedHours, most_hours: float, view: FleetView, width: int) -> Line:
    """Hours of a job with their cause."""
    is_wide, level = width >= 90, LEVELS[row.state]
    style = WORD_STYLES.get(level, "dim")
    line = Line().add(" ").add(fit(_owner_of_waste(row), 18 if is_wide else 13), "value").add(" ")
    line.add(fit(row.user or "–", 10 if is_wide else 7), "text").add(" ")
    hours = hours_text(row.gpu_h, view)
    bar_cells = _bar_width(width)
    room = width - line.width - len(hours) - 2
    if bar_cells:
        room -= bar_cells + 1
    # A job that has ended has no GPU any more.
    gpus = f", {count(row.gpus, 'GPU')}" if row.gpus else ""
    line.add(fit(f"{cause_words(row.cause)}{gpus}", max(12, room)), style).add(" ")
    if bar_cells:
        # Hours outside of any job are not a job's waste, so they get no bar for comparison.
        scale = 0.0 if row.state == "idle" else most_hours
        bar_style = BAR_STYLES.get(level, "bar.used")
        line.add_all(bar(row.gpu_h, scale, bar_cells, view.glyphs, bar_style))
    return line.to(width - len(hours) - 1).add(hours, "value")


def straggler_line(straggler: Straggler, width: int) -> Line:
    """Straggler, its value beside the others', and its job."""
    doing = f"{'starves: ' * (straggler.kind == 'starved')}{straggler.words}"
    line = Line().add(" ").add(fit(straggler.where, 20), "level.yellow").add(" ")
    line.add(fit(doing, 40 if width >= 76 else max(10, width - 23)), "text")
    if width >= 76:
        whose, room = (
            f"  {terminal_safe(straggler.job)} {terminal_safe(straggler.user)}",
            width - line.width - 1,
        )
        sized = f"{whose}  {count(straggler.gpus, 'GPU')}"
        line.add(fit(sized if len(sized) <= room else whose, room), "dim")
    return line


def alert_line(alert: FiringAlert, width: int) -> Line:
    """An alert's name and what it is about."""
    level = "red" if alert.severity in ("critical", "page", "error") else "yellow"
    line = Line().add(f" {level_glyph(level)} ", f"level.{level}")
    line.add(fit(alert.name, 28), f"level.{level}").add(" ").add(
        fit(alert.severity or "–", 9), "dim"
    )
    line.add(" ").add(fit(alert.host or "–", 16), "value").add(" ")
    return line.add(fit(alert.about, max(1, width - line.width)), "text")


def entry_line(entry: Entry, most_hours: float, view: FleetView, width: int) -> Line:
    """A straggler, hours or an alert as a row."""
    if isinstance(entry, WastedHours):
        return waste_line(entry, most_hours, view, width)
    if isinstance(entry, Straggler):
        return straggler_line(entry, width)
    assert isinstance(entry, FiringAlert)
    return alert_line(entry, width)


def nothing(frame: FleetFrame, view: FleetView) -> str:
    """Words of an empty panel."""
    if view.panel == "stragglers" and frame.read.shares:
        return "no alert fires for one: only alerts tell of jobs out of sight"
    if view.panel == "waste" and frame.read.hour.lost is None:
        return frame.read.hour.note or "the last hour is being read…"
    return NOTHING.get(view.panel, "no row passes the filter; esc takes it away")
