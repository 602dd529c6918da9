"""Snapshots at full speed through everything that may be switched on: recording, alerts, steps, marks; and export.

Export runs in a process of its own, as it does on a node.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

from msgspec.structs import replace

from gputop.features.alerts.alert_table import alerts_of
from gputop.features.alerts.node_alerts import NodeAlerts
from gputop.features.alerts.runner import FiringLock
from gputop.features.export.export_feed import ExportFeed
from gputop.features.export.metrics_page import PageChoice
from gputop.features.export.scrape_server import ScrapeServer, listen, parse
from gputop.model.snapshot import Event, Snapshot
from gputop.model.steps import StepRow
from gputop.monitor import Monitor
from gputop.paint.main_screen import Painter
from gputop.paint.view import View
from gputop.recording.writer import Recorder
from gputop.session.session import Session
from tests.bench.soak.measure import Growth, descriptors, resident_bytes
from tests.bench.soak.snapshots import ticks

MOST_BYTES = 4 << 20
MARKED_TICKS, PAUSED_TICKS, SCRAPED_TICKS, DRAINED_TICKS, PAINTED_TICKS = 97, 5_000, 15, 20, 20
SCRAPE_S, SETTLE_S = 30.0, 10.0
ALERTS = (
    {"name": "hot", "when": "temp_c > 60", "for": "5s", "again": "1h", "per": "node", "run": ["/bin/true", "{gpus}"]},
    {"name": "lost", "when": "badge:lost", "again": "10m"},
    {"name": "idle", "when": "state:idle", "again": "10m"},
    {"name": "busy", "when": "util_pct > 50", "for": "10s", "per": "job"},
    {"name": "wasted", "when": "util_pct < 20 and power_w > 100", "for": "30s", "per": "job", "gpus": "all"},
)
"""The groups are those of GPUs and jobs that come and go. One runs a program, seldom: each run is a process."""


def announced(count: int) -> Iterator[Snapshot]:
    """The soak's snapshots with steps of every GPU's process, and now and then a mark."""
    for tick, snapshot in enumerate(ticks(count)):
        rows = tuple(
            StepRow(p.pid, p.gpu, p.gpu, f"train {p.static.job}", 3, 0.9, 0.2, 0.4, 0.3, 0.4)
            for p in snapshot.processes
            if p.role == "gpu" and p.gpu is not None
        )
        marks = (Event(snapshot.t, "mark", f"epoch {tick}", None),) if tick % MARKED_TICKS == 0 else ()
        yield replace(snapshot, steps=rows, events=(*snapshot.events, *marks))


def switched_on(count: int) -> dict[str, Any]:
    """A session that remembers, records, judges alerts and is shown; now and then a pause looks at its past."""
    before, threads = descriptors(), threading.active_count()
    growth, most, told = Growth(count), [0, 0], Counter[str]()
    with tempfile.TemporaryDirectory() as directory:
        session, recorder, painter = Session(Monitor(1.0)), Recorder(directory, most_bytes=MOST_BYTES), Painter()
        session.remember()
        session.record(recorder)
        session.alerts = NodeAlerts(alerts_of(ALERTS), FiringLock(directory), lambda line: told.update([line[:60]]))
        for tick, snapshot in enumerate(announced(count)):
            frame = session.take(snapshot)
            if tick % PAINTED_TICKS == 0:
                painter.paint(frame, View(), 160, 48)
                session.alerts.board()
            if tick % DRAINED_TICKS == 0:
                # At full speed the disk's thread must not fall behind, or frames would be dropped.
                while recorder.error is None and not recorder._queue.empty():
                    time.sleep(0.001)
                most = [max(most[0], descriptors()), max(most[1], threading.active_count())]
            if tick % PAUSED_TICKS == 0 and (past := session.past()) is not None:
                next(past.snapshots())
                past.close()
            growth.look(tick)
        session.alerts.close()
        session.stop_recording()
        recorder.close()
    _threads_ended(threads)
    return {
        "ticks": count,
        "frames": [recorder.frames, recorder.dropped],
        "recording_error": recorder.error,
        "alerts_fired": told.total(),
        "rss_mb": round(resident_bytes() / 1e6, 1),
        "growth": growth.account(),
        "descriptors": [before, most[0], descriptors()],
        "threads": [threads, most[1], threading.active_count()],
    }


def _threads_ended(most: int) -> None:
    """Threads are not waited for by what closes: those of a fired alert, of the last scrape and of a server end after
    what they have given."""
    last = time.monotonic() + SETTLE_S
    while threading.active_count() > most and time.monotonic() < last:
        time.sleep(0.01)


def scraped(count: int) -> dict[str, Any]:
    """What export does: each snapshot counted, and every fifteenth a scrape by a client of its server."""
    before, threads = descriptors(), threading.active_count()
    growth, size, most = Growth(count), 0, [0, 0]
    feed = ExportFeed(Session(Monitor(1.0, charts=False)), PageChoice(processes=True))
    server = ScrapeServer(listen(parse("127.0.0.1:0")), feed.page, None, local_only=True)
    server.start()
    port = server.socket.getsockname()[1]
    for tick, snapshot in enumerate(announced(count)):
        feed.take(snapshot)
        if tick % SCRAPED_TICKS == 0:
            size = len(_scrape(port))
            most = [max(most[0], descriptors()), max(most[1], threading.active_count())]
        growth.look(tick)
    server.shutdown()
    server.server_close()
    _threads_ended(threads)
    return {
        "ticks": count,
        "page_bytes": size,
        "rss_mb": round(resident_bytes() / 1e6, 1),
        "growth": growth.account(),
        "descriptors": [before, most[0], descriptors()],
        "threads": [threads, most[1], threading.active_count()],
    }


def _scrape(port: int) -> bytes:
    """One page, fetched as Prometheus does."""
    client = HTTPConnection("127.0.0.1", port, timeout=SCRAPE_S)
    try:
        client.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
        return client.getresponse().read()
    finally:
        client.close()
