"""Handles the snapshots of one run for screen, recording and job alike.

Knows no source. What recording and memory need is imported when they begin, so that the first frame is not delayed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from gputop.model.snapshot import Event, Snapshot
from gputop.monitor import Frame, Monitor
from gputop.session.frame_events import FrameEvents

if TYPE_CHECKING:
    from gputop.model.alert_board import AlertBoard
    from gputop.recording.recent_past import Memory, OlderFrames, Past
    from gputop.recording.recorder import Recorder


class RunWatcher(Protocol):
    """Protocol of alerts, which a feature judges at every frame."""

    messages: deque[str]
    """Lines for the user that wait to be shown, the oldest first."""

    def take(self, frame: Frame) -> None:
        """Look at one more frame; never waits."""

    def board(self) -> AlertBoard:
        """Return the state of all alerts, for the findings page."""
        ...

    def close(self) -> None:
        """End with the run."""


def _rounding() -> Callable[[Snapshot], Snapshot]:
    from gputop.recording.rounding import rounded

    return rounded


class Session:
    """Makes a frame of each snapshot; keeps a memory, a recording, or both."""

    def __init__(
        self, monitor: Monitor, earlier: Callable[[], Iterable[OlderFrames]] | None = None
    ) -> None:
        """``earlier`` gives frames before the first snapshot, where a source has them."""
        self.monitor = monitor
        self._earlier = earlier
        self._memory: Memory | None = None
        self._recorder: Recorder | None = None
        self._events: FrameEvents | None = None
        self._round: Callable[[Snapshot], Snapshot] | None = None
        self.alerts: RunWatcher | None = None
        """What looks at every frame besides, if there is anything."""

    def take(self, snapshot: Snapshot) -> Frame:
        """Take one more snapshot and return its frame.

        Never waits for a disk. Values are rounded as in a recording: a verdict at the edge of a threshold must be the
        same in a replay.
        """
        if self._round is not None:
            snapshot = self._round(snapshot)
        if self._memory is not None:
            self._memory.add(snapshot, self.monitor.judgement)
        frame = self.monitor.feed(snapshot)
        if frame.periods is not snapshot.periods:
            snapshot = replace(snapshot, periods=frame.periods)
        if self._recorder is not None and self._events is not None:
            snapshot = replace(snapshot, ongoing=self.monitor.ongoing_conditions())
            self._recorder.offer(snapshot, self._events.events(frame), self.monitor.interval_s)
        if self.alerts is not None:
            self.alerts.take(frame)
        return frame

    def note(self, event: Event) -> None:
        """Record an event outside snapshots, such as a late mark."""
        if self._recorder is not None:
            self._recorder.event(event)

    def remember(self) -> None:
        """Keep the last minutes from now on, with the newest snapshot."""
        from gputop.recording.recent_past import Memory

        self._memory = Memory()
        self._round = _rounding()
        if self.monitor.latest is not None:
            self._memory.add(self._round(self.monitor.latest.snapshot), lambda: None)

    def past(self) -> Past | None:
        """Return the last minutes, frozen; None where nothing is remembered."""
        if self._memory is not None and self._earlier is not None:
            # Not at the start: what may never be used must not delay the first frame.
            self._memory.begin_with(self._earlier())
            self._earlier = None
        return None if self._memory is None else self._memory.past()

    def record(self, recorder: Recorder) -> None:
        """Record from now on, in place of any earlier recording."""
        self._recorder, self._events = recorder, FrameEvents()
        self._round = _rounding()

    def stop_recording(self) -> Recorder | None:
        """End the recording and return its recorder, which the caller closes."""
        recorder, self._recorder, self._events = self._recorder, None, None
        if self._memory is None:
            self._round = None
        return recorder

    @property
    def recorder(self) -> Recorder | None:
        """The recording under way."""
        return self._recorder
