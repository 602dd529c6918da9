"""Changes of verdicts and badges, the newest first, with the alerts above them."""

from __future__ import annotations

from gputop.diagnosis.types import Finding, full_title
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE
from gputop.model.alert_board import AlertBoard, AlertRow
from gputop.model.clean_text import terminal_safe, wrapped
from gputop.model.durations import clock_time, duration
from gputop.model.quantity import which_gpus
from gputop.monitor import Frame
from gputop.paint.cells import fit, shorten
from gputop.paint.glyphs import level_glyph
from gputop.paint.line import Line, Row
from gputop.paint.words import wrapped_lines

STICKY_WORDS = "stays until acknowledged (a)"


def finding_blocks(frame: Frame, width: int, offset: float) -> list[tuple[Finding, list[Row]]]:
    """Return each finding with its rows, the newest first.

    ``offset`` is the viewer's distance from UTC in seconds.
    """
    now = frame.snapshot.t
    return [(finding, _rows(finding, now, width, offset)) for finding in reversed(frame.findings)]


def _rows(finding: Finding, now: float, width: int, offset: float) -> list[Row]:
    level = LEVEL_OF_ROLE[finding.role]
    line = (
        Line()
        .add(f" {clock_time(finding.t, offset)}", "text")
        .add(f"  GPU {finding.gpu:<3}", "text")
    )
    words = full_title(terminal_safe(finding.text), finding.busy_not_working, alarm=True)
    lasted = duration(
        max(0.0, (now if finding.ended is None else finding.ended) - finding.t), whole=True
    )
    # The time that it stood is never cut: on a narrow screen the words before it are.
    lasted_text = f"   for {lasted}{' until now' if finding.ended is None else ''}"
    line.add(
        f"{level_glyph(level)} {shorten(words, width - line.width - len(lasted_text) - 2)}",
        f"level.{level}",
    ).add(lasted_text, "dim")
    if finding.sticky:
        line.add(f"   {STICKY_WORDS}", "level.yellow")
    rows = [line.row(width)]
    indent = 20 if width >= 80 else 4
    for glyph, text, style in (("↳", finding.evidence, "text"), ("→", finding.remedy, "remedy")):
        lines = wrapped_lines(glyph, text, width - indent - 2, style)
        rows += [Line().to(indent).add_all(spans).row(width) for spans in lines]
    return rows


NAME_WIDTH = 20


def alert_title(board: AlertBoard, width: int) -> Row:
    """How many there are, and whether this gputop fires them."""
    line = Line().add(f" alerts {len(board.rows)}", "title")
    why = board.why_not or "fired by this gputop"
    return line.add(f"   {fit(terminal_safe(why), max(1, width - line.width - 4))}", "dim").row(
        width
    )


def alert_rows(alert: AlertRow, now: float, width: int, offset: float) -> list[Row]:
    """Return one alert as rows.

    ``now`` is Unix time, ``offset`` the viewer's distance from UTC in seconds.
    """
    glyph, state, style = _state(alert, now)
    line = (
        Line().add(f" {glyph} ", style).add(fit(alert.name, NAME_WIDTH).ljust(NAME_WIDTH), "text")
    )
    line.add(f"  {state}", style)
    if alert.silent_until is not None:
        line.add(f"   silent until {clock_time(alert.silent_until, offset)}", "dim")
    rows = [line.row(width)]
    indent = 5 + NAME_WIDTH if width >= 80 else 4
    last = (
        ""
        if alert.last is None
        else "{} {}: {}".format(clock_time(alert.last[0], offset), *alert.last[1:])
    )
    failed = "level.yellow" if alert.has_failed else "text"
    for lead, text, body in (("when", alert.when, "dim"), ("last", last, failed)):
        for i, piece in enumerate(wrapped(terminal_safe(text), max(10, width - indent - 7))):
            rows.append(
                Line()
                .to(indent)
                .add(f"{lead}  " if i == 0 else "      ", "dim")
                .add(piece, body)
                .row(width)
            )
    return rows


def _state(alert: AlertRow, now: float) -> tuple[str, str, str]:
    """A glyph, words and a style for where the condition holds."""
    active = [(gpu, since) for gpu, since, is_active in alert.holding if is_active]
    if active:
        lasted = duration(max(0.0, now - min(since for _, since in active)), whole=True)
        return (
            level_glyph("red"),
            f"holds on {which_gpus(gpu for gpu, _ in active)} for {lasted}",
            "level.red",
        )
    if alert.holding:
        lasted = duration(max(0.0, now - min(since for _, since, _ in alert.holding)), whole=True)
        on = which_gpus(gpu for gpu, _, _ in alert.holding)
        return (
            level_glyph("yellow"),
            f"on {on} for {lasted} of {duration(alert.for_s)}",
            "level.yellow",
        )
    return " ", "not now", "dim"
