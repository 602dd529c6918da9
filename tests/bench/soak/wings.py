"""Snapshots at full speed through everything that may be switched on: recording, alerts, steps, marks; and export.

Export runs in a process of its own, as it does on a node.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gputop.diagnosis.alerts.table import alerts_of
from gputop.export.feed import Feed
from gputop.export.page import Choice
from gputop.model.snapshot import Event, Snapshot
from gputop.model.steps import StepRow
from gputop.monitor import Monitor
from gputop.recording.recorder import Recorder
from gputop.session.alerts.lock import FiringLock
from gputop.session.alerts.node_alerts import NodeAlerts
from gputop.session.session import Session
from tests.bench.soak.measure import Growth, descriptors, resident_bytes
from tests.bench.soak.snapshots import ticks

MOST_BYTES = 4 << 20
MARKED_TICKS, PAUSED_TICKS, SCRAPED_TICKS, DRAINED_TICKS = 97, 5_000, 15, 20
ALERTS = (
    {"name": "hot", "when": "temp_c > 60", "for": "5s", "again": "10m", "run": ["/bin/true", "{gpu}"]},
    {"name": "idle", "when": "state:idle", "again": "10m", "run": ["/bin/true"]},
    {"name": "wasted", "when": "util_pct < 20 and power_w > 100", "for": "30s"},
)


def announced(count: int) -> Iterator[Snapshot]:
    """The soak's snapshots with steps of every GPU's process, and now and then a mark."""
    for tick, snapshot in enumerate(ticks(count)):
        rows = tuple(
            StepRow(p.pid, p.gpu, p.gpu, "train", 3, 0.9, 0.2, 0.4, 0.3, 0.4)
            for p in snapshot.processes
            if p.role == "gpu" and p.gpu is not None
        )
        marks = (Event(snapshot.t, "mark", f"epoch {tick}", None),) if tick % MARKED_TICKS == 0 else ()
        yield replace(snapshot, steps=rows, events=(*snapshot.events, *marks))


def switched_on(count: int) -> dict[str, Any]:
    """A session that remembers, records and judges alerts; now and then a pause looks at its past."""
    before, threads = descriptors(), threading.active_count()
    growth, most = Growth(count), [0, 0]
    with tempfile.TemporaryDirectory() as directory:
        session, recorder = Session(Monitor(1.0)), Recorder(directory, most_bytes=MOST_BYTES)
        session.remember()
        session.record(recorder)
        session.alerts = NodeAlerts(alerts_of(ALERTS), FiringLock([directory]))
        for tick, snapshot in enumerate(announced(count)):
            session.take(snapshot)
            if tick % DRAINED_TICKS == 0:
                # At full speed the disk's thread must not fall behind, or frames would be dropped.
                while recorder.error is None and not recorder._queue.empty():
                    time.sleep(0.001)
            if tick % PAUSED_TICKS == 0 and (past := session.past()) is not None:
                next(past.snapshots())
                past.close()
            growth.look(tick)
            most = [max(most[0], descriptors()), max(most[1], threading.active_count())]
        session.alerts.close()
        session.stop_recording()
        recorder.close()
    return {
        "ticks": count,
        "frames": [recorder.frames, recorder.dropped],
        "recording_error": recorder.error,
        "rss_mb": round(resident_bytes() / 1e6, 1),
        "growth": growth.account(),
        "descriptors": [before, most[0], descriptors()],
        "threads": [threads, most[1], threading.active_count()],
    }


def scraped(count: int) -> dict[str, Any]:
    """What export does: each snapshot counted, a page for every fifteenth."""
    growth, size = Growth(count), 0
    feed = Feed(Session(Monitor(1.0, charts=False)), Choice(processes=True))
    for tick, snapshot in enumerate(announced(count)):
        feed.take(snapshot)
        if tick % SCRAPED_TICKS == 0:
            size = len(feed.page())
        growth.look(tick)
    return {"ticks": count, "page_bytes": size, "rss_mb": round(resident_bytes() / 1e6, 1), "growth": growth.account()}
