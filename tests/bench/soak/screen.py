"""Snapshots at full speed through what shows them: monitor, memory of the past, painted screens of every kind."""

from __future__ import annotations

import time
from typing import Any

from gputop.monitor import Frame, Monitor
from gputop.output.ansi import Differ
from gputop.paint.detail_page import DetailsView
from gputop.paint.gpu_page import gpu_details
from gputop.paint.line import Row
from gputop.paint.main_screen import Painter
from gputop.paint.process_page import process_details
from gputop.paint.theme import THEMES
from gputop.paint.verdict_history import finding_blocks
from gputop.paint.view import View
from gputop.recording.recent_past import Memory
from tests.bench.soak.measure import Growth, resident_bytes
from tests.bench.soak.snapshots import ticks

SIZES = ((160, 48), (80, 24), (1, 1), (300, 100), (40, 10), (120, 200))
SPANS_S = (120.0, 3600.0, 86_400.0)
RESIZED_TICKS, ZOOMED_TICKS = 500, 1000
LOOKED_INTO_TICKS = 50
REPLAYED_TICKS = 1000


def drawn(count: int) -> dict[str, Any]:
    """Every snapshot through monitor, memory and screen; what that took and left behind."""
    monitor, painter, memory = Monitor(), Painter(), Memory()
    differ = Differ(THEMES["dark"], "truecolor")
    shown: list[Row] = []
    growth = Growth(count)
    begun = time.monotonic()
    for tick, snapshot in enumerate(ticks(count)):
        frame = monitor.feed(snapshot)
        memory.add(snapshot)
        width, height = SIZES[tick // RESIZED_TICKS % len(SIZES)]
        view = View(scroll=tick % 7, span_s=SPANS_S[tick // ZOOMED_TICKS % len(SPANS_S)])
        rows = list(painter.paint(frame, view, width, height).rows)
        if len(rows) == len(shown):
            differ.changes(shown, rows)
        shown = rows
        if tick % LOOKED_INTO_TICKS == 0:
            _look_into(frame, view, tick // LOOKED_INTO_TICKS, max(20, width), max(5, height))
        if tick % REPLAYED_TICKS == 0 and (past := memory.past()) is not None:
            next(past.snapshots())
            past.close()
        growth.look(tick)
    took = time.monotonic() - begun
    assert monitor.latest is not None
    return {
        "ticks": count,
        "ms_a_tick": round(1000 * took / count, 3),
        "rss_mb": round(resident_bytes() / 1e6, 1),
        "growth": growth.account(),
        "findings": len(monitor.latest.findings),
        "changes_a_gpu": max(len(d.timeline) for d in monitor.latest.diagnoses),
        "charts_kept": len(monitor.latest.history.keys()),
    }


def _look_into(frame: Frame, view: View, number: int, width: int, height: int) -> None:
    """Open the screens of a GPU, of a process and of the findings."""
    gpus, processes = frame.snapshot.gpus, frame.snapshot.processes
    gpu_details(frame, DetailsView(view), gpus[number % len(gpus)].static.uuid, width, height)
    if processes:
        p = processes[number % len(processes)]
        process_details(frame, DetailsView(view), (p.pid, p.starttime, p.gpu), p, None, width, height)
    finding_blocks(frame, view.glyphs, width, view.utc_offset_s)
