"""Plays a recording: the same snapshots as live, at any speed.

Every frame is handed out, also at high speed, because the diagnosis needs all of them. After a jump (``seek`` or a step
back) a consumer starts a new monitor and feeds it ``past()`` first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gputop.model.snapshot import GAP_INTERVALS, GpuStatic, Snapshot
from gputop.recording.reader import Recording
from gputop.recording.recent_past import Past
from gputop.system.awaited import News

PAST_S = 660.0
"""What a monitor needs to reach a live one's state: ten minutes of history and a window of diagnosis."""
_MOST_LAG_S = 2.0
NOTHING_DUE_S = 3600.0
"""How long a run waits for a key where no frame is due."""


class RecordedSource:
    """Plays a recording (a path, or opened), or a live run's past.

    ``at`` is where to begin, Unix seconds. ``clock`` gives seconds that only run forward. All of it happens in the
    consumer's thread. Raises RecordingError when there is no recording.
    """

    def __init__(
        self,
        recording: str | Recording | Past,
        *,
        at: float | None = None,
        speed: float = 1.0,
        loop: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recording = Recording(recording) if isinstance(recording, str) else recording
        self._clock = clock
        self.speed = speed
        """Recorded seconds in one second."""
        self._loop = loop
        self.playing = True
        self._owed = 1
        self._news, self._is_closed = News(), False
        self.begin_t = self._recording.begin
        self.end_t = self._recording.end
        self.interval_s = self._recording.interval_s
        self.hostname = self._recording.hostname
        self.gpus: tuple[GpuStatic, ...] = self._recording.gpus
        self.position = self.begin_t
        """The time of the frame that was handed out last, or that a jump has chosen."""
        self._segment = 0
        self._ahead: Iterator[tuple[int, Snapshot]] = iter(())
        self._next: tuple[int, Snapshot] | None = None
        self._due = clock()
        first = self._recording.segments[0].begin
        self.go(0, first) if at is None else self.go(self._recording.segment_at(at), at)

    @property
    def duration(self) -> float:
        """Seconds from the first frame to the last."""
        return self.end_t - self.begin_t

    @property
    def at_end(self) -> bool:
        """Whether no frame is left to hand out."""
        return self._next is None

    def begin(self, wait_s: float) -> Snapshot | None:
        """Return the first frame, which is there at once."""
        return self.next_due()

    async def run(self, deliver: Callable[[Snapshot], object]) -> None:
        """Deliver each frame when it is due, until closed.

        Others have their turn between two frames. Playing, pausing and jumps end the wait.
        """
        while not self._is_closed:
            await self._news.wait(self._due_in_s())
            frame = None if self._is_closed else self.next_due()
            if frame is not None:
                deliver(frame)

    def next_due(self) -> Snapshot | None:
        """Return the next due frame, or None."""
        upcoming, now = self._next, self._clock()
        if upcoming is None or not (self._owed or (self.playing and now >= self._due)):
            return None
        self._owed = max(0, self._owed - 1)
        self._segment, frame = upcoming
        self.position = frame.t
        self._next = next(self._ahead, None)
        if self._next is None and self._loop and self.playing:
            self._ahead = self._recording.play(0, self._recording.segments[0].begin)
            self._next = next(self._ahead, None)
        if self._next is not None:
            # A consumer that cannot keep up plays more slowly; it never has to catch up minutes.
            distance_s = self._distance(frame, self._next[1]) / self.speed
            self._due = max(self._due, now - _MOST_LAG_S) + distance_s
        elif self.playing:
            self.playing = False
        return frame

    def play(self) -> None:
        """Play from here; from the start when the end was reached."""
        if self._next is None:
            self.to_begin()
        self.playing = True
        self._due = self._clock()
        self._news.set()

    def pause(self) -> None:
        self.playing = False
        self._news.set()

    def set_speed(self, speed: float) -> None:
        """Set the recorded seconds per second, above 0."""
        if not speed > 0.0:
            raise ValueError("a speed is above 0")
        now = self._clock()
        self._due = now + max(0.0, self._due - now) * self.speed / speed
        self.speed = speed
        self._news.set()

    def seek(self, t: float) -> None:
        """Jump to the last frame at or before a time.

        ``next_due`` then gives it at once, playing or not. Where the clock was set back a time may exist twice: the
        one in the current segment is meant.
        """
        self.go(self._recording.segment_at(t, self._segment), t)

    def to_begin(self) -> None:
        """Jump to the frame that was recorded first."""
        self.go(0, self._recording.segments[0].begin)

    def to_end(self) -> None:
        """Jump to the frame that was recorded last."""
        self.go(self._recording.last_segment, self._recording.last_t)

    def moment(self, text: str) -> float:
        """Return the time that a text means from here. Raises ValueError."""
        return self._recording.moment(text, self.position)

    def step(self, frames: int) -> bool:
        """Pause and move by so many frames.

        True after a jump, which needs a new monitor.
        """
        self.pause()
        if frames >= 0:
            self._owed += frames
            self._news.set()
            return False
        self.go(*self._recording.place_before(self._segment, self.position, -frames))
        return True

    def past(self, seconds: float = PAST_S) -> Iterator[Snapshot]:
        """Yield the frames of so many seconds before the next one.

        All from its segment.
        """
        upcoming = self._next
        segment, end = self.place()
        frames = self._recording.segment_frames(segment, end - seconds, end)
        return (snapshot for snapshot in frames if upcoming is None or snapshot.t < end)

    def place(self) -> tuple[int, float]:
        """Return segment and time of the next frame, or of the last."""
        upcoming = self._next
        return (self._segment, self.position) if upcoming is None else (upcoming[0], upcoming[1].t)

    def frames(self) -> Iterator[tuple[int, Snapshot]]:
        """Yield every recorded frame with the number of its segment."""
        return self._recording.play(0, self._recording.segments[0].begin)

    def close(self) -> None:
        self._is_closed = True
        self._news.set()
        self._recording.close()

    def go(self, segment: int, t: float) -> None:
        """Jump to a segment's last frame at or before a time."""
        ahead = self._recording.play(segment, t)
        chosen = next(ahead, None)
        self._ahead = ahead
        self._next = chosen
        self._segment, self.position = (segment, t) if chosen is None else (chosen[0], chosen[1].t)
        self._owed = 1
        self._due = self._clock()
        self._news.set()

    def _distance(self, frame: Snapshot, following: Snapshot) -> float:
        """Return the recorded time between two frames.

        A gap is skipped, and a clock set back counts as one interval.
        """
        span = following.t - frame.t
        interval = following.interval_s
        return span if 0.0 < span <= GAP_INTERVALS * interval else interval

    def _due_in_s(self) -> float:
        """Return the seconds until a frame is due; an hour where none is."""
        if self._next is None or not (self._owed or self.playing):
            return NOTHING_DUE_S
        return 0.0 if self._owed else max(0.0, self._due - self._clock())
