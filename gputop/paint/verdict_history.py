"""Verdicts, findings and alerts over time."""

from __future__ import annotations

from msgspec import Struct

from gputop.diagnosis.types import Finding, Flag, GpuDiagnosis, Level, full_title
from gputop.diagnosis.verdict.catalogue import lost_roles, titles
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE, role_of
from gputop.model.clean_text import terminal_safe
from gputop.monitor import Frame
from gputop.paint.cells import shorten
from gputop.paint.glyphs import LOWER, Glyphs, level_glyph
from gputop.paint.line import Span
from gputop.paint.time_axis import TimeAxis

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
        (f.t, f.id, f.busy_not_working): f
        for f in frame.findings
        if f.kind == "verdict" and f.gpu == d.index
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


def strip(
    listed: list[VerdictSpan], axis: TimeAxis, glyphs: Glyphs
) -> tuple[list[Span], list[Span]]:
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
