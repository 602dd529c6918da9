"""A recorder beside a monitor: frames go into a bounded queue, a daemon thread of its own writes them.

``offer`` never waits and never raises: a slow disk costs frames, a full one ends the recording with a reason in
``error``, and the monitor goes on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from queue import Full, Queue

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.snapshot import Event, Snapshot
from gputop.recording.format import RecordingError
from gputop.recording.writer import RecordingWriter

QUEUE_FRAMES = 120
"""Two minutes at 1 Hz: longer than a disk stalls while it flushes, and a few MB of memory."""
MOST_OWED = 256
"""Events of dropped frames that are kept for the next frame."""


class _Item(Struct, frozen=True):
    """A frame with what was derived from it, or an event by itself, or nothing to wake the thread."""

    snapshot: Snapshot | None = None
    derived: tuple[Event, ...] = ()
    frame: bytes | None = None
    event: Event | None = None


class Recorder:
    """Records the frames that it is offered.

    ``target`` and ``most_bytes`` are as in RecordingWriter. Raises RecordingError at once when the target
    cannot be written at all; whatever fails later is in ``error``.
    """

    def __init__(self, target: str, *, most_bytes: int | None = None) -> None:
        self._writer = RecordingWriter(target, most_bytes=most_bytes)
        self._queue: Queue[_Item] = Queue(QUEUE_FRAMES)
        self._ending = threading.Event()
        self._last_t: float | None = None
        self.seconds = 0.0
        """Time from the first offered frame to the last; a clock that is set back takes none away and adds none."""
        self._error: str | None = None
        self.dropped = 0
        """Frames that were not recorded because the disk was too slow. Their events come with the next frame."""
        self._owed: tuple[Event, ...] = ()
        self._thread = threading.Thread(target=self._run, name="gputop-recorder", daemon=True)
        self._thread.start()

    @property
    def error(self) -> str | None:
        """Why recording has stopped; None while it goes on or when it was ended in order."""
        return self._error

    @property
    def path(self) -> str | None:
        """The file that is written now, or was written last; None before the first frame in a directory."""
        return self._writer.path

    @property
    def frames(self) -> int:
        """Frames that are safely written."""
        return self._writer.frames

    @property
    def bytes_written(self) -> int:
        """Bytes written, over all files of this recorder."""
        return self._writer.bytes_written

    def offer(self, snapshot: Snapshot, derived: Iterable[Event] = (), frame: bytes | None = None) -> None:
        """Queue one frame with its line, if that is made, and events derived from it.

        Never waits; drops the frame when the queue is full.
        """
        if self._error is not None or self._ending.is_set():
            return
        if self._last_t is not None:
            self.seconds += max(0.0, snapshot.t - self._last_t)
        self._last_t = snapshot.t
        if self._owed:
            snapshot = replace(snapshot, events=(*self._owed, *snapshot.events))
        try:
            self._queue.put_nowait(_Item(snapshot, tuple(derived), frame))
            self._owed = ()
        except Full:
            self._owed = snapshot.events[:MOST_OWED]
            self.dropped += 1

    def event(self, event: Event) -> None:
        """Queue one event by itself, as for a mark while no frame comes."""
        if self._error is not None or self._ending.is_set():
            return
        try:
            self._queue.put_nowait(_Item(event=event))
        except Full:
            self._owed = (*self._owed, event)[:MOST_OWED]

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is queued and end the file. Waits at most ``timeout_s``: a hung disk is left to the thread."""
        if not self._ending.is_set():
            self._ending.set()
            # Wakes the thread; a full queue keeps it awake anyway.
            with suppress(Full):
                for event in self._owed:
                    self._queue.put_nowait(_Item(event=event))
                self._queue.put_nowait(_Item())
        self._thread.join(timeout_s)
        if self._thread.is_alive() and self._error is None:
            self._error = f"{self._writer.path}: the disk does not answer; the last frames may be missing"

    def _run(self) -> None:
        try:
            while True:
                item = self._queue.get()
                if item.snapshot is not None:
                    self._writer.write(item.snapshot, item.derived, item.frame)
                if item.event is not None:
                    self._writer.write_event(item.event)
                if self._ending.is_set() and self._queue.empty():
                    break
            self._writer.close()
        except RecordingError as error:
            self._error = f"recording stopped: {error}; frames written: {self._writer.frames}"
