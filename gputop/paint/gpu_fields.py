"""Numbers of one GPU as fields of fixed width: utilisation, counters, buses, the board."""

from __future__ import annotations

from gputop.diagnosis.thresholds import WIDE_GAP
from gputop.diagnosis.types import (
    GpuDiagnosis,
)
from gputop.diagnosis.verdict.shown import is_newest
from gputop.model.quantity import NOT_MEASURED, gib, number
from gputop.model.sm import MEASURED
from gputop.model.snapshot import GpuSample
from gputop.paint.line import Span
from gputop.paint.words import Field, is_red


def sm_text(gpu: GpuSample, d: GpuDiagnosis, *, newest: bool) -> Span:
    """Return SM's number: measured, a bound, or n/a.

    Never one under another's name. Green praises, so not on a red GPU, nor at 0. ``newest`` is a single second,
    without a verdict: dim.
    """
    if gpu.sm_active_pct is not None:
        praised = not is_red(d) and gpu.sm_active_pct >= 0.5
        return number(
            gpu.sm_active_pct, 3
        ), "dim" if newest else "value.sm" if praised else "strong"
    if gpu.sm_high_pct is not None and gpu.sm_high_pct < 99.5:
        return f"≤{gpu.sm_high_pct:.0f}"[:4].rjust(3), "dim"
    return ("…" if _is_coming(gpu) else NOT_MEASURED), "dim"


def _is_coming(gpu: GpuSample) -> bool:
    """Return whether SM waits for its second sample."""
    lack = gpu.sm_lack
    return (
        gpu.sm_source in MEASURED
        and gpu.sm_active_pct is None
        and lack is not None
        and lack.kind == "collecting"
    )


def shown_gap(gpu: GpuSample) -> int | None:
    """Return UTIL − SM in points, never below 0.

    Both as they are shown: subtracting them gives the same.
    """
    if gpu.util_pct is None or gpu.sm_active_pct is None:
        return None
    return max(0, int(number(gpu.util_pct, 3)) - int(number(gpu.sm_active_pct, 3)))


def gap_style(gap: float | None, *, alarm: bool) -> str:
    """Return the style of a gap in points.

    ``alarm`` is that a GPU is busy and not working.
    """
    return "value.alarm" if alarm else "value.gap" if gap is not None and gap >= WIDE_GAP else "dim"


def number_labels(
    gpu: GpuSample, d: GpuDiagnosis, rows: int = 3, *, newest: bool | None = None
) -> list[list[Span]]:
    """Return UTIL, SM and GAP with labels, a row each.

    The first ``rows`` of them; the values of one second are dim.
    """
    newest = is_newest(d) if newest is None else newest
    sm, sm_style = sm_text(gpu, d, newest=newest)
    gap = shown_gap(gpu)
    style = "dim" if gap is None or newest else gap_style(gap, alarm=d.busy_not_working is not None)
    absent = "…" if _is_coming(gpu) else NOT_MEASURED
    labels: list[list[Span]] = [
        [("  UTIL ", "dim"), (number(gpu.util_pct, 4), "dim" if newest else "strong")],
        [("  SM   ", "dim"), (f"{sm:>4}", sm_style)],
        [("  GAP  ", "dim"), (f"{absent if gap is None else gap:>4}", style)],
    ]
    return labels[:rows]


def fields(parts: list[Field], width: int, gap: str = "   ") -> list[Span]:
    """Return as many fields as fit, from the left.

    A field is never cut.
    """
    spans: list[Span] = []
    used = 0
    for text, style in parts:
        need = len(text) + (len(gap) if spans else 0)
        if used + need > width:
            break
        if spans:
            spans.append((gap, "text"))
        spans.append((text, style))
        used += need
    return spans


def memory(gpu: GpuSample) -> str:
    """Return used and total memory: ``58.0 / 80.0 GiB``.

    Memory of the host is named as such.
    """
    total = gib(gpu.mem_total_bytes)
    unified = " unified" if gpu.static.unified_memory else ""
    return f"{gib(gpu.mem_used_bytes, len(total))} / {total} GiB{unified}"
