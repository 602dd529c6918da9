"""A run being watched, one snapshot after the other: the same steps for the screen, a recording and a job.

Knows no source: it is handed what was measured. Imports what recording and remembering need only when they begin, so
that the first frame does not wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gputop.model.snapshot import Event, Snapshot
from gputop.monitor import Frame, Monitor

if TYPE_CHECKING:
    from gputop.recording.blocks import Stretch
    from gputop.recording.memory import Memory
    from gputop.recording.past import Past
    from gputop.recording.recorder import Recorder
    from gputop.recording.rounding import Rounder
    from gputop.session.alerts.node_alerts import NodeAlerts
    from gputop.session.events import FrameEvents


class Session:
    """Gives a frame for each snapshot, and keeps what was asked for: the last minutes, a recording, or both."""

    def __init__(self, monitor: Monitor, earlier: Callable[[], Iterable[Stretch]] | None = None) -> None:
        """``earlier`` gives what came before the first snapshot that is remembered, where a source can tell that."""
        self.monitor = monitor
        self._earlier = earlier
        self._memory: Memory | None = None
        self._recorder: Recorder | None = None
        self._events: FrameEvents | None = None
        self._rounder: Rounder | None = None
        self.alerts: NodeAlerts | None = None
        """The alerts judged at every frame, if there are any."""

    def take(self, snapshot: Snapshot) -> Frame:
        """The frame of one more snapshot. Never waits for a disk.

        While a recording is under way the values are rounded as the file holds them: a verdict at the edge of a
        threshold must be the same in the replay.
        """
        line = None
        if self._rounder is not None:
            snapshot, line = self._rounder.take(snapshot)
        frame = self.monitor.feed(snapshot)
        if self._memory is not None:
            self._memory.add(snapshot, line)
        if self._recorder is not None and self._events is not None:
            self._recorder.offer(snapshot, self._events.of(frame), line)
        if self.alerts is not None:
            self.alerts.take(frame)
        return frame

    def note(self, event: Event) -> None:
        """An event that no snapshot carries, such as a mark after the last one."""
        if self._recorder is not None:
            self._recorder.event(event)

    def remember(self) -> None:
        """Keep the last minutes from now on, the newest snapshot included."""
        from gputop.recording.memory import Memory

        self._memory = Memory()
        if self.monitor.latest is not None:
            self._memory.add(self.monitor.latest.snapshot)

    def past(self) -> Past | None:
        """The last minutes, frozen; None where nothing is remembered."""
        if self._memory is not None and self._earlier is not None:
            # Not at the start: what may never be used must not delay the first frame.
            self._memory.begin_with(self._earlier())
            self._earlier = None
        return None if self._memory is None else self._memory.past()

    def record(self, recorder: Recorder) -> None:
        """Record what comes from now on. One recording at a time: the one before is no longer offered anything."""
        from gputop.recording.rounding import Rounder
        from gputop.session.events import FrameEvents

        self._recorder, self._events, self._rounder = recorder, FrameEvents(), Rounder()

    def stop_recording(self) -> Recorder | None:
        """End the recording, if one is under way. The recorder is the caller's again, to close and to ask."""
        recorder, self._recorder, self._events, self._rounder = self._recorder, None, None, None
        return recorder

    @property
    def recorder(self) -> Recorder | None:
        """The recording under way."""
        return self._recorder
