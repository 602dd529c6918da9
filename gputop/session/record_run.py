"""Records a source without a screen (``gputop record``).

Prints nothing; the caller reports where the file is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from gputop.model.source import MarkedSource
from gputop.monitor import Monitor
from gputop.recording.recorder import Recorder
from gputop.session.arrivals import Arrivals
from gputop.session.session import RunWatcher, Session

_LOOK_S = 1.5
"""How often to check for a stop and for the end of the time while no frame comes."""
_PATIENCE = 1.5
"""The same in intervals: a wait of just one ends at about the time of the next frame, and every other one for nothing.
"""


def record(
    source: MarkedSource,
    target: str,
    *,
    stop: threading.Event,
    seconds: float | None = None,
    most_bytes: int | None = None,
    started: Callable[[str], None] | None = None,
    alerts: RunWatcher | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Recorder:
    """Record until ``stop`` is set, ``seconds`` are over, or writing fails.

    ``target`` is as in RecordingWriter. ``started`` is called once with the path of the first file. Set ``stop`` from
    a signal handler to end cleanly. ``alerts`` are judged meanwhile, and closed. ``seconds`` count from the first
    snapshot by a monotonic ``clock``: a step of the wall clock ends no recording. The recorder is returned closed.
    Raises RecordingError when the target cannot be written at all, and what ``source.begin`` raises.
    """
    recorder = Recorder(target, most_bytes=most_bytes)
    session = Session(Monitor(source.interval_s, charts=False))
    session.record(recorder)
    session.alerts = alerts
    arrivals = Arrivals(source)
    try:
        arrivals.start()
        has_announced, begun = False, None
        while not stop.is_set() and recorder.error is None:
            for snapshot in arrivals.wait(min(_LOOK_S, _PATIENCE * source.interval_s)):
                session.take(snapshot)
                begun = clock() if begun is None else begun
            if not has_announced and recorder.path is not None and recorder.frames:
                has_announced = True
                if started is not None:
                    started(recorder.path)
            if seconds is not None and begun is not None and clock() - begun >= seconds:
                break
    finally:
        source.close()
        for snapshot in arrivals.new():
            session.take(snapshot)
        for mark in source.late:
            session.note(mark)
        recorder.close()
        if alerts is not None:
            alerts.close()
    return recorder
