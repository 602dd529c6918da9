"""``gputop record``: a source recorded without a screen. Prints nothing; the caller tells where the file is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from gputop.model.source import MarkedSource
from gputop.monitor import Monitor
from gputop.recording.recorder import Recorder
from gputop.session.session import Session

if TYPE_CHECKING:
    from gputop.session.alerts.node_alerts import NodeAlerts

_LOOK_S = 1.5
"""How often to check for a stop and for the end of the time while no frame comes."""
_PATIENCE = 1.5
"""The same in intervals: a wait of just one ends at about the time of the next frame, and every other one for nothing.
"""


class Recorded(Struct, frozen=True):
    """What was recorded: the last file, frames and bytes over all files, frames lost to a slow disk, and the error
    that ended it, if one did."""

    path: str | None
    frames: int
    bytes_written: int
    seconds: float
    dropped: int
    error: str | None


def record(
    source: MarkedSource,
    target: str,
    *,
    stop: threading.Event,
    seconds: float | None = None,
    most_bytes: int | None = None,
    started: Callable[[str], None] | None = None,
    alerts: NodeAlerts | None = None,
) -> Recorded:
    """Record until ``stop`` is set, ``seconds`` of recorded time are over, or writing fails.

    ``target`` is as in RecordingWriter. ``started`` is called once with the path of the first file. Set ``stop`` from
    a signal handler to end cleanly. ``alerts`` are judged meanwhile, and closed.
    Raises RecordingError when the target cannot be written at all, and what ``source.start`` raises.
    """
    recorder = Recorder(target, most_bytes=most_bytes)
    session = Session(Monitor(source.interval_s, charts=False))
    session.record(recorder)
    session.alerts = alerts
    fresh = threading.Event()
    try:
        source.start(fresh.set)
        told = False
        while not stop.is_set() and recorder.error is None:
            # A short wait, because a signal handler sets only ``stop``.
            fresh.wait(min(_LOOK_S, _PATIENCE * source.interval_s))
            fresh.clear()
            while (snapshot := source.poll()) is not None:
                session.take(snapshot)
            if not told and recorder.path is not None and recorder.frames:
                told = True
                if started is not None:
                    started(recorder.path)
            if seconds is not None and recorder.seconds >= seconds:
                break
    finally:
        source.close()
        for mark in source.late:
            session.note(mark)
        recorder.close()
        if alerts is not None:
            alerts.close()
    return Recorded(
        recorder.path, recorder.frames, recorder.bytes_written, recorder.seconds, recorder.dropped, recorder.error
    )
