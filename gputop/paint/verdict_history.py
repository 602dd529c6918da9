"""Verdicts, findings and alerts over time."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.catalogue import lost_roles, titles
from gputop.diagnosis.summary import LEVEL_OF_ROLE, role_of
from gputop.diagnosis.types import Finding, Flag, GpuDiagnosis, Level, full_title
from gputop.model.alert_board import AlertBoard, AlertRow
from gputop.model.quantity import clock_time, duration, terminal_safe, which_gpus, wrapped
from gputop.monitor import Frame
from gputop.paint.detail_page import TimeAxis
from gputop.paint.glyphs import LOWER, Glyphs, level_glyph
from gputop.paint.line import Line, Row, Span, fit, shorten
from gputop.paint.words import wrapped_lines

# The verdicts of one GPU as a strip under the charts.

LEAST_NAME = 6


class VerdictSpan(Struct, frozen=True):
    """A verdict's span in Unix time.

    ``end`` is None for the current one.
    """

    begin: float
    end: float | None
    level: Level
    title: str


def verdict_spans(frame: Frame, d: GpuDiagnosis) -> list[VerdictSpan]:
    """Return every verdict of one GPU since the monitor began, oldest first."""
    findings: dict[tuple[float, str, Flag | None], Finding] = {
        (f.t, f.id, f.busy_not_working): f for f in frame.findings if f.kind == "verdict" and f.gpu == d.index
    }
    listed: list[VerdictSpan] = []
    changes = tuple(d.timeline)
    for change, following in zip(changes, (*changes[1:], None), strict=True):
        t, verdict, flag = change
        finding = findings.get(change)
        if following is None:
            role, title = role_of(d), d.plain_title or d.title
        elif finding is not None:
            role, title = finding.role, finding.text
        else:
            # Of more than the last 500 changes no finding is kept.
            role, title = lost_roles().get(verdict, "unknown"), titles().get(verdict, verdict)
        end = None if following is None else following[0]
        title = full_title(terminal_safe(title), flag, alarm=True)
        listed.append(VerdictSpan(t, end, LEVEL_OF_ROLE[role], title))
    return listed


def strip(listed: list[VerdictSpan], axis: TimeAxis, glyphs: Glyphs) -> tuple[list[Span], list[Span]]:
    """Return verdicts as two rows on the time axis.

    Each column in the level of its verdict, and names where they have room. Without colour each level is its own
    glyph.
    """
    colours: list[Span] = []
    names: list[Span] = []
    for span, columns in _runs(listed, axis):
        if span is None:
            colours.append((" " * columns, "text"))
            names.append((" " * columns, "text"))
            continue
        glyph = LOWER[4] if glyphs.solid else level_glyph(span.level)
        colours.append((glyph * columns, f"level.{span.level}"))
        name = shorten(span.title, columns - 1) if columns > LEAST_NAME else ""
        names.append((f"{name:<{columns}}", f"level.{span.level}"))
    return colours, names


def _runs(listed: list[VerdictSpan], axis: TimeAxis) -> list[tuple[VerdictSpan | None, int]]:
    """Return (verdict, columns), oldest first. A column has the verdict of its middle."""
    runs: list[tuple[VerdictSpan | None, int]] = []
    at = -1
    for column in range(axis.columns):
        t = min(axis.middle(column), axis.end)
        while at + 1 < len(listed) and listed[at + 1].begin <= t:
            at += 1
        span = listed[at] if at >= 0 else None
        if runs and runs[-1][0] is span:
            runs[-1] = (span, runs[-1][1] + 1)
        else:
            runs.append((span, 1))
    return runs


def verdict_at(listed: list[VerdictSpan], t: float) -> VerdictSpan | None:
    """The verdict that stood at a time."""
    return next((span for span in reversed(listed) if span.begin <= t), None)


# Every change of a verdict or a badge, the newest first: when, where, what, why, and what to do.

STICKY_WORDS = "stays until acknowledged (a)"


def finding_blocks(frame: Frame, width: int, offset: float) -> list[tuple[Finding, list[Row]]]:
    """Return each finding with its rows, the newest first.

    ``offset`` is the viewer's distance from UTC in seconds.
    """
    now = frame.snapshot.t
    return [(finding, _rows(finding, now, width, offset)) for finding in reversed(frame.findings)]


def _rows(finding: Finding, now: float, width: int, offset: float) -> list[Row]:
    level = LEVEL_OF_ROLE[finding.role]
    line = Line().add(f" {clock_time(finding.t, offset)}", "text").add(f"  GPU {finding.gpu:<3}", "text")
    words = full_title(terminal_safe(finding.text), finding.busy_not_working, alarm=True)
    lasted = duration(max(0.0, (now if finding.ended is None else finding.ended) - finding.t), whole=True)
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


# The alerts above the findings: where each condition holds, and the result of its last firing.

NAME_WIDTH = 20


def alert_title(board: AlertBoard, width: int) -> Row:
    """How many there are, and whether this gputop fires them."""
    line = Line().add(f" alerts {len(board.rows)}", "title")
    why = board.why_not or "fired by this gputop"
    return line.add(f"   {fit(terminal_safe(why), max(1, width - line.width - 4))}", "dim").row(width)


def alert_rows(alert: AlertRow, now: float, width: int, offset: float) -> list[Row]:
    """Return one alert as rows.

    ``now`` is Unix time, ``offset`` the viewer's distance from UTC in seconds.
    """
    glyph, state, style = _state(alert, now)
    line = Line().add(f" {glyph} ", style).add(fit(alert.name, NAME_WIDTH).ljust(NAME_WIDTH), "text")
    line.add(f"  {state}", style)
    if alert.silent_until is not None:
        line.add(f"   silent until {clock_time(alert.silent_until, offset)}", "dim")
    rows = [line.row(width)]
    indent = 5 + NAME_WIDTH if width >= 80 else 4
    last = "" if alert.last is None else "{} {}: {}".format(clock_time(alert.last[0], offset), *alert.last[1:])
    failed = "level.yellow" if alert.has_failed else "text"
    for lead, text, body in (("when", alert.when, "dim"), ("last", last, failed)):
        for i, piece in enumerate(wrapped(terminal_safe(text), max(10, width - indent - 7))):
            rows.append(Line().to(indent).add(f"{lead}  " if i == 0 else "      ", "dim").add(piece, body).row(width))
    return rows


def _state(alert: AlertRow, now: float) -> tuple[str, str, str]:
    """A glyph, words and a style for where the condition holds."""
    active = [(gpu, since) for gpu, since, is_active in alert.holding if is_active]
    if active:
        lasted = duration(max(0.0, now - min(since for _, since in active)), whole=True)
        return level_glyph("red"), f"holds on {which_gpus(gpu for gpu, _ in active)} for {lasted}", "level.red"
    if alert.holding:
        lasted = duration(max(0.0, now - min(since for _, since, _ in alert.holding)), whole=True)
        on = which_gpus(gpu for gpu, _, _ in alert.holding)
        return level_glyph("yellow"), f"on {on} for {lasted} of {duration(alert.for_s)}", "level.yellow"
    return " ", "not now", "dim"
