"""Saves recordings and pictures from the screen, in the directory where gputop was started.

Every function returns one line for the user.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from gputop.model.clean_text import terminal_safe
from gputop.model.quantity import count
from gputop.monitor import Frame
from gputop.paint.line import Row
from gputop.paint.main_screen import main_screen
from gputop.paint.theme import Theme
from gputop.paint.view import View
from gputop.recording.format import RecordingError
from gputop.recording.recorder import Recorder
from gputop.session.session import Session

CLOSE_S = 1.0
"""How long the screen waits for the disk when a recording ends."""


def toggle_recording(session: Session) -> str:
    """Begin or end the recording; return a message for the user."""
    recorder = session.stop_recording()
    if recorder is not None:
        recorder.close(timeout_s=CLOSE_S)
        # Names without their directory: the screen may be shared, and is redacted for that.
        return (
            recorder.error
            or f"recorded {count(recorder.frames, 'frame')} to {os.path.basename(recorder.path or '')}"
        )
    try:
        session.record(Recorder(os.getcwd() + os.sep))
    except (RecordingError, OSError) as error:
        return f"cannot record: {error}"
    return "recording to the directory that gputop was started in; R ends it"


def end_if_failed(session: Session) -> str | None:
    """Release a failed recording and return its error, else None."""
    if session.recorder is None or session.recorder.error is None:
        return None
    reason = session.recorder.error
    session.stop_recording()
    return reason


def screenshot(frame: Frame, view: View, theme: Theme, width: int, height: int) -> str:
    """Write the screen as an SVG.

    Returns where it is, or why there is none.
    """
    host = "".join(
        char if char.isalnum() or char in "-." else "-" for char in frame.snapshot.machine.hostname
    )
    rows = main_screen(frame, view, width, height).rows
    title = f"gputop on {terminal_safe(frame.snapshot.machine.hostname)}"
    return saved_picture(rows, theme, f"gputop-{host}", title, frame.snapshot.t)


def saved_picture(rows: list[Row], theme: Theme, name: str, title: str, t: float) -> str:
    """Write rows as an SVG named by its Unix time.

    Returns where it is, or why there is none.
    """
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
