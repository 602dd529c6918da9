"""``gputop record``: a source recorded without a screen. Prints nothing; the caller tells where the file is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from gputop.model.quantity import count, terminal_safe
from gputop.model.source import MarkedSource
from gputop.monitor import Frame, Monitor
from gputop.paint.line import Row
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import Theme
from gputop.paint.view import View
from gputop.recording.format import RecordingError
from gputop.recording.recorder import Recorder
from gputop.session.session import Arrivals, RunWatcher, Session

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
    Raises RecordingError when the target cannot be written at all, and what ``source.start`` raises.
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


# What the viewer saves from the screen: a recording and pictures, in the directory that gputop was started in.
#
# Every answer is one line for the user.

CLOSE_S = 1.0
"""How long the screen waits for the disk when a recording ends."""


def toggle_recording(session: Session) -> str:
    """Begin or end the recording. Returns what to tell the user."""
    recorder = session.stop_recording()
    if recorder is not None:
        recorder.close(timeout_s=CLOSE_S)
        # Names without their directory: the screen may be shared, and is redacted for that.
        return (
            recorder.error or f"recorded {count(recorder.frames, 'frame')} to {os.path.basename(recorder.path or '')}"
        )
    try:
        session.record(Recorder(os.getcwd() + os.sep))
    except (RecordingError, OSError) as error:
        return f"cannot record: {error}"
    return "recording to the directory that gputop was started in; R ends it"


def end_if_failed(session: Session) -> str | None:
    """Release a recording that has failed. Returns why it did, None where none has."""
    if session.recorder is None or session.recorder.error is None:
        return None
    reason = session.recorder.error
    session.stop_recording()
    return reason


def screenshot(frame: Frame, view: View, theme: Theme, width: int, height: int) -> str:
    """Write the screen as an SVG. Returns where it is, or why there is none."""
    host = "".join(char if char.isalnum() or char in "-." else "-" for char in frame.snapshot.machine.hostname)
    rows = main_screen(frame, view, width, height).rows
    title = f"gputop on {terminal_safe(frame.snapshot.machine.hostname)}"
    return saved_picture(rows, theme, f"gputop-{host}", title, frame.snapshot.t)


def saved_picture(rows: list[Row], theme: Theme, name: str, title: str, t: float) -> str:
    """Write rows as an SVG with the Unix time in its name. Returns where it is, or why there is none."""
    # It imports the table of all HTML entities.
    from gputop.output.picture import svg

    path = Path(os.getcwd(), f"{name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime(t))}Z.svg")
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(svg(rows, theme, title))
    except OSError as error:
        return f"no screenshot: {path}: {error.strerror}"
    return f"screenshot in {path.name}"
