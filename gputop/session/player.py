"""Playing the past: a recording, or what this run remembers. Knows no widget; the screen asks it and paints.

After a jump the screen must answer at once, but a verdict needs the ten minutes before it. So the frame is first
judged on a minute of past, while the whole past is fed in slices to a second monitor, which then takes over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from gputop.diagnosis.engine import Diagnoser
from gputop.model.snapshot import Event, Snapshot
from gputop.model.source import PlayedSource
from gputop.monitor import Frame, Monitor
from gputop.paint.replay_bar import Change, Replay

QUICK_S = 45.0
"""The past that the first frame after a jump is judged on: the diagnosis's window and its votes."""
WHOLE_S = 660.0
"""What a monitor needs to reach a live one's state: ten minutes of history and a window of diagnosis."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)


class Player:
    """Drives one played source and keeps the monitor that belongs to its position."""

    def __init__(
        self, source: PlayedSource, *, own_past: bool = False, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.source = source
        self.frame: Frame | None = None
        self._own_past = own_past
        self._clock = clock
        self._monitor = Monitor(source.interval_s)
        self._jumped = True
        """Whether the monitor must be built anew before the next frame."""
        self._whole: Monitor | None = None
        self._whole_past: Iterator[Snapshot] = iter(())
        self._since_jump: list[Snapshot] = []
        self._changes: tuple[Change, ...] = ()
        self._knows_changes = False
        self._reading: Iterator[Snapshot] | None = None
        self._reader = Diagnoser(source.interval_s)
        self._read: list[Change] = []
        self._read_t = float("-inf")
        self._known: dict[int, tuple[str, str | None]] = {}

    def take(self, budget_s: float = 0.03) -> bool:
        """Show the frames that are due, working for at most ``budget_s``; True when there is a new one to paint."""
        until, new = self._clock() + budget_s, False
        if self._jumped:
            self._rebuild()
        while (snapshot := self.source.poll()) is not None:
            self.frame = self._monitor.feed(snapshot)
            if self._whole is not None:
                self._since_jump.append(snapshot)
            new = True
            if self._clock() > until:
                break
        return new

    def work(self, budget_s: float = 0.02) -> bool:
        """Continue pending work (the whole past after a jump, then the time line); True when it changed the frame."""
        until = self._clock() + budget_s
        while self._whole is not None:
            snapshot = next(self._whole_past, None)
            if snapshot is None:
                return self._take_over()
            self._whole.feed(snapshot)
            if self._clock() > until:
                return False
        return self._read_changes(until)

    @property
    def busy(self) -> bool:
        """Whether ``work`` has something to do."""
        return self._whole is not None or not self._knows_changes

    def replay(self) -> Replay:
        """The position, for the time line."""
        source = self.source
        return Replay(
            source.begin,
            source.end,
            source.position,
            source.playing,
            source.speed,
            self._changes,
            self._own_past,
        )

    @property
    def monitor(self) -> Monitor:
        """The monitor whose frames are shown."""
        if self._jumped:
            self._rebuild()
        return self._monitor

    def stand_at_end(self, frame: Frame | None = None) -> None:
        """Pause at the end; on the ``frame`` that was on screen, if given, with its own history and verdicts."""
        self.source.pause()
        self.to_end()
        if frame is not None:
            # The frame has all that a monitor would be built for; every way on from the end is a jump.
            self.source.poll()
            self.frame, self._whole, self._jumped = frame, None, False

    def to_begin(self) -> None:
        """Jump to the frame that was recorded first."""
        self.source.to_begin()
        self._jumped = True

    def to_end(self) -> None:
        """Jump to the frame that was recorded last."""
        self.source.to_end()
        self._jumped = True

    def jump_to(self, text: str) -> None:
        """Jump to a time as people write it. Raises ValueError with what is wrong."""
        self.seek(self.source.moment(text))

    def toggle(self) -> None:
        """Play or pause; at the end, play from the beginning."""
        if self.source.playing:
            self.source.pause()
            return
        at_end = self.source.at_end
        self.source.play()
        if at_end:
            self._jumped = True

    def faster(self, step: int) -> None:
        """Play at the next faster (1) or slower (-1) speed."""
        at = min(range(len(SPEEDS)), key=lambda i: abs(SPEEDS[i] - self.source.speed))
        self.source.set_speed(SPEEDS[max(0, min(len(SPEEDS) - 1, at + step))])

    def step(self, frames: int) -> None:
        """Go ``frames`` frames forward, or back."""
        if self.source.step(frames):
            self._jumped = True

    def seek(self, t: float) -> None:
        """Jump to the last frame at or before a time."""
        self.source.seek(min(max(t, self.source.begin), self.source.end))
        self._jumped = True

    def to_change(self, step: int) -> bool:
        """Jump to the next (1) or previous (-1) change of a verdict; False when there is none."""
        now = self.source.position
        times = sorted({change.t for change in self._changes if change.t > self.source.begin})
        ahead = [t for t in times if t > now + 1e-3] if step > 0 else [t for t in times if t < now - 1e-3]
        if not ahead:
            return False
        self.source.pause()
        self.seek(ahead[0] if step > 0 else ahead[-1])
        return True

    def _rebuild(self) -> None:
        """After a jump: a monitor on a short past at once, and one on the whole past to follow."""
        self._jumped = False
        self._monitor = Monitor(self.source.interval_s)
        for snapshot in self.source.past(QUICK_S):
            self._monitor.feed(snapshot)
        self._whole = Monitor(self.source.interval_s)
        self._whole_past = self.source.past(WHOLE_S)
        self._since_jump = []

    def _take_over(self) -> bool:
        assert self._whole is not None
        self._monitor, self._whole = self._whole, None
        for snapshot in self._since_jump:
            self.frame = self._monitor.feed(snapshot)
        changed = bool(self._since_jump)
        self._since_jump = []
        return changed

    def _read_changes(self, until: float) -> bool:
        """The time line: the verdicts that were recorded, or, where none were, those of a diagnosis made now."""
        if self._knows_changes or not self.source.events_complete:
            return False
        if self._reading is None:
            recorded = [_change(event) for event in self.source.events if event.kind == "verdict"]
            self._changes = _in_order(change for change in recorded if change is not None)
            if self._changes:
                self._knows_changes = True
                return True
            self._reading = self.source.snapshots_between(self.source.begin, self.source.end)
        for snapshot in self._reading:
            if snapshot.t <= self._read_t:
                # The clock was set back: earlier frames cannot be judged together with these.
                self._reader = Diagnoser(self.source.interval_s)
            self._read_t = snapshot.t
            for gpu, d in zip(snapshot.gpus, self._reader.observe(snapshot), strict=True):
                now = (d.verdict, d.busy_not_working)
                if self._known.get(gpu.static.index) != now:
                    self._known[gpu.static.index] = now
                    self._read.append(Change(snapshot.t, gpu.static.index, d.verdict, d.busy_not_working))
            if self._clock() > until:
                return False
        self._reading, self._knows_changes = None, True
        self._changes = _in_order(self._read)
        return True


def _in_order(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Changes in order of time, which they are not where a clock was set back."""
    return tuple(sorted(changes, key=lambda change: change.t))


def _change(event: Event) -> Change | None:
    if event.gpu is None:
        return None
    verdict, _, flag = event.text.partition(" ")
    return Change(event.t, event.gpu, verdict, flag or None)
