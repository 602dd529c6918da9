"""The longest idle times of a GPU: when, how long, why, and what the host was in."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.features.traces.trace_report import CAUSE_WORDS, LongGap, Measures
from gputop.features.traces.trace_tables import ms
from gputop.output.document import Block, Drawing, Table, part
from gputop.output.html import strip

TEXT_GAPS = 5
LEAST_SHOWN_PCT = 0.1
"""Shorter gaps, in percent of the window, are the GPU's own switching time and no place to look at [judged]."""


def long_gap_blocks(m: Measures, *, is_page: bool) -> Iterator[Block]:
    """Yield the longest idle times as a table, on a page also on a line of time."""
    gaps = [gap for gap in m.gaps if gap.ms >= LEAST_SHOWN_PCT / 100.0 * m.window_ms]
    shown = gaps if is_page else gaps[:TEXT_GAPS]
    rows = tuple(
        (ms(gap.at_ms), ms(gap.ms), CAUSE_WORDS[gap.cause], _host_words(gap)) for gap in shown
    )
    table = Table(("at ms", "ms", "cause", "the host was in"), rows, ">><~")
    if not is_page or not rows:
        yield from part("The longest idle times", table)
        return
    pct_a_ms = 100.0 / m.window_ms
    marks = [
        (pct_a_ms * gap.at_ms, pct_a_ms * gap.ms, f"{ms(gap.ms)} ms at {ms(gap.at_ms)} ms")
        for gap in shown
    ]
    yield from part("The longest idle times", Drawing(strip(marks)), table)


def _host_words(gap: LongGap) -> str:
    """What the host was in, each with its share of the gap."""
    under = [f"{row.name} {row.pct:.0f} %" for row in gap.under if row.pct >= 1.0]
    return ", ".join(under) or "not late: it had launched before"
