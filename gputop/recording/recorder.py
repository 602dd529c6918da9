"""Record beside a monitor, in a separate thread.

Frames go into a bounded queue, which the thread writes. ``offer`` never waits and never raises: a slow disk costs
frames, a full one ends the recording with a reason in ``error``, and the monitor goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import Full, Queue

from msgspec.structs import replace

from gputop.model.snapshot import Event, Snapshot
from gputop.model.steps import MOST_STEP_ROWS, StepRow
from gputop.recording.format import RecordingError, RunFacts
from gputop.recording.writer import RecordingWriter
from gputop.system.worker import Worker

QUEUE_FRAMES = 120
"""Frames in the queue: two minutes at 1 Hz.

A disk stalls for less while it flushes.
"""
MOST_OWED = 256
"""Events of dropped frames that the next frame may carry."""


class Recorder:
    """Records offered frames.

    ``target`` and ``most_bytes`` are as in RecordingWriter. Raises RecordingError at once when the target
    cannot be written at all; whatever fails later is in ``error``.
    """

    def __init__(self, target: str, *, most_bytes: int | None = None) -> None:
        self._writer = RecordingWriter(target, most_bytes=most_bytes)
        self._queue: Queue[Callable[[], None]] = Queue(QUEUE_FRAMES)
        """Calls of the writer, in order."""
        self._last_t: float | None = None
        self.seconds = 0.0
        """Time from the first offered frame to the last, without steps of the clock backwards."""
        self.error: str | None = None
        """Reason why recording has stopped.

        None while it continues, or after an orderly end.
        """
        self.dropped = 0
        """Frames dropped because of a slow disk.

        Their events come with the next frame.
        """
        self._owed: tuple[Event, ...] = ()
        self._owed_steps: tuple[StepRow, ...] = ()
        self._queued_t = float("-inf")
        self.ran: RunFacts | None = None
        """Program that ran; written after the last frame."""
        self._worker = Worker("recorder", self._write, close=lambda: self._write(ends=True))
        # Start the thread now: a failure must show before the first frame.
        self._worker.ask()

    @property
    def path(self) -> str | None:
        """Newest file; None before the first frame in a directory."""
        return self._writer.path

    @property
    def frames(self) -> int:
        """The number of frames that are safely written."""
        return self._writer.frames

    @property
    def bytes_written(self) -> int:
        """Bytes written to all files of this recorder."""
        return self._writer.bytes_written

    def offer(
        self, snapshot: Snapshot, derived: Iterable[Event] = (), interval_s: float = 0.0
    ) -> None:
        """Queue one rounded frame and events derived from it.

        Never waits; drops the frame when the queue is full. Of frames that come sooner than ``interval_s`` one an
        interval is recorded. The next frame has the events and steps of one that is not.
        """
        if self._has_ended:
            return
        if self._last_t is not None:
            self.seconds += max(0.0, snapshot.t - self._last_t)
        self._last_t = snapshot.t
        marked = [replace(event, derived=True) for event in derived]
        since_s, usual_s = snapshot.t - self._queued_t, max(interval_s, snapshot.interval_s)
        is_extra = (
            snapshot.interval_s < usual_s and 0.0 < since_s < usual_s - 0.5 * snapshot.interval_s
        )
        events, steps = (
            (*self._owed, *snapshot.events, *marked),
            (*self._owed_steps, *snapshot.steps),
        )
        snapshot = replace(snapshot, events=events, steps=steps, interval_s=usual_s)
        if not is_extra and self._queued(partial(self._writer.write, snapshot)):
            self._owed, self._owed_steps, self._queued_t = (), (), snapshot.t
        else:
            self._owed, self._owed_steps = events[:MOST_OWED], steps[:MOST_STEP_ROWS]
            self.dropped += not is_extra

    def event(self, event: Event) -> None:
        """Queue one event without a frame, such as a mark."""
        if not self._has_ended and not self._queued(partial(self._writer.write_event, event)):
            self._owed = (*self._owed, event)[:MOST_OWED]

    def name_run(self, facts: RunFacts) -> None:
        """Queue the line of the running program.

        The last line of the recording may never be written.
        """
        if not self._has_ended:
            self._queued(partial(self._writer.write_run, facts))

    @property
    def _has_ended(self) -> bool:
        return self.error is not None or self._worker.stopping.is_set()

    def _queued(self, call: Callable[[], None]) -> bool:
        try:
            self._queue.put_nowait(call)
        except Full:
            return False
        self._worker.ask()
        return True

    def close(self, timeout_s: float = 5.0) -> None:
        """Write the queue and end the file.

        Waits at most ``timeout_s``: a hung disk is left to the thread.
        """
        self._worker.stop(timeout_s)
        if self._worker.alive and self.error is None:
            self.error = (
                f"{self._writer.path}: the disk does not answer; the last frames may be missing"
            )

    def _write(self, *, ends: bool = False) -> None:
        """Write the queue, and the last lines if the recording ends.

        The first error stops the recording.
        """
        try:
            while self.error is None and not self._queue.empty():
                self._queue.get_nowait()()
            if ends and self.error is None:
                for event in self._owed:
                    self._writer.write_event(event)
                if self.ran is not None:
                    self._writer.write_run(self.ran)
                self._writer.close()
        except Exception as error:  # noqa: BLE001 — whatever it is, the frames that are missing must be told
            words = (
                str(error)
                if isinstance(error, RecordingError)
                else f"{type(error).__name__}: {error}".rstrip(": ")
            )
            self.error = f"recording stopped: {words}; frames written: {self._writer.frames}"
            with suppress(RecordingError):
                self._writer.close()
