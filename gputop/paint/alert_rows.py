"""The alerts above the findings: where each condition holds, and the result of its last firing."""

from __future__ import annotations

from gputop.model.alert_board import AlertBoard, AlertRow
from gputop.model.quantity import duration, terminal_safe, which_gpus, wrapped
from gputop.paint.glyphs import Glyphs
from gputop.paint.line import Line, Row, clock_time, fit

NAME_WIDTH = 20


def alert_title(board: AlertBoard, glyphs: Glyphs, width: int) -> Row:
    """How many there are, and whether this gputop fires them."""
    line = Line().add(f" alerts {len(board.rows)}", "title")
    why = board.why_not or "fired by this gputop"
    return line.add(f"   {fit(terminal_safe(why), max(1, width - line.width - 4), glyphs.more)}", "dim").row(width)


def alert_rows(alert: AlertRow, now: float, glyphs: Glyphs, width: int, offset: float) -> list[Row]:
    """One alert; ``now`` is Unix time, ``offset`` the viewer's distance from UTC in seconds."""
    glyph, state, style = _state(alert, now, glyphs)
    line = Line().add(f" {glyph} ", style).add(fit(alert.name, NAME_WIDTH, glyphs.more).ljust(NAME_WIDTH), "text")
    line.add(f"  {state}", style)
    if alert.is_silenced:
        line.add("   silenced (s)", "level.yellow")
    elif alert.silent_until is not None:
        line.add(f"   silent until {clock_time(alert.silent_until, offset)}", "dim")
    rows = [line.row(width)]
    indent = 5 + NAME_WIDTH if width >= 80 else 4
    for lead, text, body in (("when", _when(alert), "dim"), ("last", _last(alert, offset), _failed(alert))):
        for i, piece in enumerate(wrapped(terminal_safe(text), max(10, width - indent - 7))):
            rows.append(Line().to(indent).add(f"{lead}  " if i == 0 else "      ", "dim").add(piece, body).row(width))
    return rows


def _when(alert: AlertRow) -> str:
    """The condition, and its scope where that is more than one GPU."""
    if alert.per == "gpu":
        return alert.when
    return f"{alert.when}, on {alert.gpus} of a {alert.per}'s GPUs"


def _state(alert: AlertRow, now: float, glyphs: Glyphs) -> tuple[str, str, str]:
    """A glyph, words and a style for where the condition holds."""
    active = [(gpu, since) for gpu, since, is_active in alert.holds if is_active]
    if active:
        held = duration(max(0.0, now - min(since for _, since in active)))
        return glyphs.level("red"), f"holds on {which_gpus(gpu for gpu, _ in active)} for {held}", "level.red"
    if alert.holds:
        held = duration(max(0.0, now - min(since for _, since, _ in alert.holds)))
        on = which_gpus(gpu for gpu, _, _ in alert.holds)
        return glyphs.level("yellow"), f"on {on} for {held} of {duration(alert.for_s)}", "level.yellow"
    return " ", "not now", "dim"


def _last(alert: AlertRow, offset: float) -> str:
    if alert.last is None:
        return ""
    t, where, words = alert.last
    return f"{clock_time(t, offset)} {where}: {words}"


def _failed(alert: AlertRow) -> str:
    return "level.yellow" if alert.has_failed else "text"
