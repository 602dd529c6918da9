"""What the viewer keeps of a run: a recording and pictures, in the directory that gputop was started in."""

from __future__ import annotations

import os
import time
from pathlib import Path

from gputop.monitor import Frame
from gputop.output.svg import svg
from gputop.paint.main_screen import main_screen
from gputop.paint.text import sanitise
from gputop.paint.theme import Theme
from gputop.paint.view import View
from gputop.recording.format import RecordingError
from gputop.recording.recorder import Recorder
from gputop.session.events import FrameEvents


class Evidence:
    """At most one recording at a time; every answer is one line for the user."""

    def __init__(self, theme: Theme) -> None:
        self._theme = theme
        self._events = FrameEvents()
        self.recording: Recorder | None = None

    @property
    def state(self) -> tuple[float, int] | None:
        """(seconds, bytes) of the recording under way."""
        return None if self.recording is None else (self.recording.seconds, self.recording.bytes_written)

    def take(self, frame: Frame) -> None:
        """Record a frame, if a recording is under way. Never waits."""
        if self.recording is not None:
            self.recording.offer(frame.snapshot, self._events.of(frame))

    def toggle_recording(self) -> str:
        """Begin or end the recording; what to tell the user."""
        if self.recording is not None:
            recorder, self.recording = self.recording, None
            recorder.close(timeout_s=1.0)
            return recorder.error or f"recorded {recorder.frames} frames to {recorder.path}"
        try:
            self.recording = Recorder(os.getcwd() + os.sep)
        except (RecordingError, OSError) as error:
            return f"cannot record: {error}"
        self._events = FrameEvents()
        return f"recording to {os.getcwd()}; R ends it"

    @property
    def failure(self) -> str | None:
        """Why the recording has stopped by itself; asked once, it is forgotten."""
        if self.recording is None or self.recording.error is None:
            return None
        recorder, self.recording = self.recording, None
        return recorder.error

    def screenshot(self, frame: Frame, view: View, width: int, height: int) -> str:
        """Write the screen as an SVG; where it is, or why not."""
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(frame.snapshot.t))
        host = "".join(char if char.isalnum() or char in "-." else "-" for char in frame.snapshot.machine.hostname)
        path = Path(os.getcwd(), f"gputop-{host}-{stamp}Z.svg")
        rows = main_screen(frame, view, width, height).rows
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(svg(rows, self._theme, f"gputop on {sanitise(frame.snapshot.machine.hostname)}"))
        except OSError as error:
            return f"no screenshot: {path}: {error.strerror}"
        return f"screenshot in {path}"

    def close(self) -> None:
        if self.recording is not None:
            self.recording.close(timeout_s=1.0)
