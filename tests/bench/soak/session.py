"""Snapshots at full speed through a session with everything switched on, and through an exporter.

Export runs in a process of its own, as it does on a node.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import StatisticsError, linear_regression
from typing import Any
from urllib.request import urlopen

from msgspec.structs import replace

from gputop.features.alerts.alert_table import alerts_of
from gputop.features.alerts.node_alerts import FiringLock, NodeAlerts
from gputop.features.export.export_feed import ExportFeed
from gputop.features.export.metrics_page import PageChoice
from gputop.features.export.scrape_server import ScrapeServer, listen, parse
from gputop.model.snapshot import Event, Snapshot
from gputop.model.steps import StepRow
from gputop.monitor import Frame, Monitor
from gputop.paint.detail_page import DetailsView
from gputop.paint.gpu_page import gpu_details
from gputop.paint.main_screen import Painter
from gputop.paint.process_page import process_details
from gputop.paint.verdict_history import finding_blocks
from gputop.paint.view import View
from gputop.recording.recorder import Recorder
from gputop.session.session import Session
from tests.bench.soak.snapshots import ticks

DAY_TICKS = 86_400
LOOKS = 200
"""How often memory is looked at over a run."""
LEAST_TICKS = 20
"""Between two looks, of a run of more than a minute: each takes as long as ten ticks."""
WARM_UP = 10_000
"""Ticks in which what is loaded late, caches, the ten minutes and the findings fill up; at most half of a run."""
MOST_BYTES = 4 << 20
SIZES = ((160, 48), (80, 24), (1, 1), (300, 100), (40, 10), (120, 200))
SPANS_S = (120.0, 3600.0, 86_400.0)
MARKED, PAUSED, SCRAPED, DRAINED, RESIZED, LOOKED_INTO = 97, 5_000, 15, 20, 500, 50
"""After how many ticks each happens."""
SCRAPE_S, SETTLE_S = 30.0, 10.0
ALERTS = (
    {"name": "hot", "when": "temp_c > 60", "for": "5s", "again": "1h", "run": ["/bin/true"]},
    {"name": "lost", "when": "badge:lost", "again": "10m"},
    {"name": "idle", "when": "state:idle", "again": "10m"},
    {"name": "busy", "when": "util_pct > 50", "for": "10s"},
    {"name": "wasted", "when": "util_pct < 20 and power_w > 100", "for": "30s"},
)
"""One alert runs a program, seldom: each run is a process."""


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def living() -> dict[str, int]:
    """Descriptors and threads of this process."""
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count()}


def slope(points: list[tuple[int, int]]) -> float:
    """Bytes a tick, by least squares."""
    try:
        return linear_regression(*zip(*points, strict=True)).slope
    except (StatisticsError, TypeError):
        return 0.0


class Growth:
    """Resident memory looked at evenly over a run of ``ticks``, after a full collection of garbage each time; and the
    most descriptors and threads that there were."""

    def __init__(self, count: int) -> None:
        self._every = max(1, count // LOOKS, min(LEAST_TICKS, count // 4))
        self._warm = min(WARM_UP, count // 2)
        self._before = self._most = living()
        self.points: list[tuple[int, int]] = []

    def look(self, tick: int) -> None:
        """Called with every tick. Each look is told on stderr, so that a run that is cut short has said something."""
        if tick % self._every:
            return
        gc.collect()
        now = living()
        self._most = {gauge: max(most, now[gauge]) for gauge, most in self._most.items()}
        self.points.append((tick, resident_bytes()))
        print(json.dumps({"tick": tick, "rss": self.points[-1][1], **now}), file=sys.stderr, flush=True)

    def account(self) -> dict[str, object]:
        """The slope over all that came after the warm-up and, in a run of more than a day, over what came after that.

        The ring of minutes fills up for a day and then stays: only the second figure is without it.
        """
        warm = [point for point in self.points if point[0] >= self._warm]
        late = [point for point in self.points if point[0] >= DAY_TICKS]
        shown = self.points[:: max(1, len(self.points) // 20)]
        return {
            "warm_up_ticks": self._warm,
            "rss_mb": {str(tick): round(size / 1e6, 2) for tick, size in (*shown, self.points[-1])},
            "rss_slope_mb_a_day": _day_slope_mb(warm),
            "rss_slope_mb_a_day_after_a_day": _day_slope_mb(late) if len(late) >= LOOKS // 4 else None,
            "halves_mb_a_day": [_day_slope_mb(half) for half in (warm[: len(warm) // 2], warm[len(warm) // 2 :])],
        }

    def left(self) -> dict[str, list[int]]:
        """Of descriptors and threads how many there were before, at most, and in the end.

        Threads are not waited for by what closes: those of a fired alert, of the last scrape and of a server end after
        what they have given.
        """
        last = time.monotonic() + SETTLE_S
        while living()["threads"] > self._before["threads"] and time.monotonic() < last:
            time.sleep(0.01)
        now = living()
        return {gauge: [before, self._most[gauge], now[gauge]] for gauge, before in self._before.items()}


def _day_slope_mb(points: list[tuple[int, int]]) -> float:
    return round(slope(points) * DAY_TICKS / 1e6, 3)


def announced(count: int) -> Iterator[Snapshot]:
    """The soak's snapshots with steps of every GPU's process, and now and then a mark."""
    for tick, snapshot in enumerate(ticks(count)):
        rows = tuple(
            StepRow(p.pid, p.gpu, p.gpu, f"train {p.static.job}", 3, 0.9, 0.2, 0.4, 0.3, 0.4)
            for p in snapshot.processes
            if p.role == "gpu" and p.gpu is not None
        )
        marks = (Event(snapshot.t, "mark", f"epoch {tick}", None),) if tick % MARKED == 0 else ()
        yield replace(snapshot, steps=rows, events=(*snapshot.events, *marks))


def switched_on(count: int) -> dict[str, Any]:
    """A session that remembers, records, judges alerts and is painted; now and then a pause looks at its past."""
    growth, told = Growth(count), Counter[str]()
    painter = Painter()
    with tempfile.TemporaryDirectory() as directory:
        session, recorder = Session(Monitor(1.0)), Recorder(directory, most_bytes=MOST_BYTES)
        session.remember()
        session.record(recorder)
        session.alerts = NodeAlerts(alerts_of(ALERTS), FiringLock(directory), lambda line: told.update([line[:60]]))
        for tick, snapshot in enumerate(announced(count)):
            frame = session.take(snapshot)
            session.alerts.board()
            width, height = SIZES[tick // RESIZED % len(SIZES)]
            view = View(scroll=tick % 7, span_s=SPANS_S[tick // (2 * RESIZED) % len(SPANS_S)])
            painter.paint(frame, view, width, height)
            if tick % LOOKED_INTO == 0:
                _look_into(frame, view, tick // LOOKED_INTO, max(20, width), max(5, height))
            if tick % DRAINED == 0:
                # At full speed the disk's thread must not fall behind, or frames would be dropped.
                while recorder.error is None and not recorder._queue.empty():
                    time.sleep(0.001)
            if tick % PAUSED == 0 and (past := session.past()) is not None:
                next(past.snapshots())
                past.close()
            growth.look(tick)
        session.alerts.close()
        session.stop_recording()
        recorder.close()
    frames = {"frames": [recorder.frames, recorder.dropped], "recording_error": recorder.error}
    return {"ticks": count, **frames, "alerts_fired": told.total(), "growth": growth.account(), **growth.left()}


def _look_into(frame: Frame, view: View, number: int, width: int, height: int) -> None:
    """Open the screens of a GPU, of a process and of the findings."""
    gpus, processes = frame.snapshot.gpus, frame.snapshot.processes
    gpu_details(frame, DetailsView(view), gpus[number % len(gpus)].static.uuid, width, height)
    if processes:
        p = processes[number % len(processes)]
        process_details(frame, DetailsView(view), (p.pid, p.starttime, p.gpu), p, None, width, height)
    finding_blocks(frame, width, view.utc_offset_s)


def scraped(count: int) -> dict[str, Any]:
    """What export does: each snapshot counted, and every fifteenth a scrape by a client of its server."""
    growth, size = Growth(count), 0
    feed = ExportFeed(Session(Monitor(1.0, charts=False)), PageChoice(processes=True))
    server = ScrapeServer(listen(parse("127.0.0.1:0")), feed.page, None, local_only=True)
    server.start()
    url = f"http://127.0.0.1:{server.socket.getsockname()[1]}/metrics"
    for tick, snapshot in enumerate(announced(count)):
        feed.take(snapshot)
        if tick % SCRAPED == 0:
            with urlopen(url, timeout=SCRAPE_S) as page:
                size = len(page.read())
        growth.look(tick)
    server.stop()
    return {"ticks": count, "page_bytes": size, "growth": growth.account(), **growth.left()}
