"""Every change of a verdict or a badge, the newest first: when, where, what, why, and what to do."""

from __future__ import annotations

from gputop.diagnosis.types import Finding, full_title
from gputop.model.quantity import duration
from gputop.model.text import terminal_safe, wrapped
from gputop.monitor import Frame
from gputop.paint.glyphs import Glyphs, ascii_only
from gputop.paint.line import Line, Row
from gputop.paint.text import clock_time

STICKY_WORDS = "stays until acknowledged (a)"


def finding_blocks(frame: Frame, glyphs: Glyphs, width: int, offset: float) -> list[tuple[Finding, list[Row]]]:
    """Each finding with its rows, the newest first. ``offset`` is the viewer's distance from UTC in seconds."""
    blocks = []
    for finding in reversed(frame.findings):
        rows = _rows(finding, frame.snapshot.t, glyphs, width, offset)
        if glyphs.name == "ascii":
            rows = [Line().add_all([(ascii_only(text), style) for text, style in row]).row(width) for row in rows]
        blocks.append((finding, rows))
    return blocks


def _rows(finding: Finding, now: float, glyphs: Glyphs, width: int, offset: float) -> list[Row]:
    style = "level.red" if finding.busy_not_working else f"level.{finding.level}"
    glyph = glyphs.red if finding.busy_not_working else glyphs.level(finding.level)
    line = Line().add(f" {clock_time(finding.t, offset)}", "text").add(f"  GPU {finding.gpu:<3}", "text")
    words = full_title(terminal_safe(finding.text), finding.busy_not_working, alarm=True)
    line.add(f"{glyph} {words}", style)
    if finding.ended is None:
        line.add(f"   for {duration(max(0.0, now - finding.t))} until now", "dim")
    else:
        line.add(f"   {duration(max(0.0, finding.ended - finding.t))}", "dim")
    if finding.sticky:
        line.add(f"   {STICKY_WORDS}", "level.yellow")
    rows = [line.row(width)]
    indent = 20 if width >= 80 else 4
    for lead, text, body in ((glyphs.because, finding.evidence, "text"), (glyphs.remedy, finding.remedy, "remedy")):
        for i, piece in enumerate(wrapped(terminal_safe(text), max(10, width - indent - 4))):
            rows.append(Line().to(indent).add(f"{lead} " if i == 0 else "  ", body).add(piece, body).row(width))
    return rows
