"""Playing the past: a recording, or what this run remembers. Knows no widget; the screen asks it and paints.

After a jump the screen must answer at once, but a verdict needs the ten minutes before it. So the frame is first
judged on a minute of past, while the whole past is fed in slices to a second monitor, which then takes over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.model.snapshot import Event, Snapshot
from gputop.model.source import PlayedSource, Source
from gputop.monitor import Frame, Monitor
from gputop.paint.replay_bar import Change, Replay
from gputop.paint.view import View
from gputop.session.record_run import CLOSE_S
from gputop.session.session import Session

if TYPE_CHECKING:
    from gputop.recording.recent_past import Past
    from gputop.session.session import Revealed


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


# What a screen shows: a live run, that run's own past while it is paused, or a recording.


class Playback:
    """The frame to show, and where it comes from.

    Live, ``source`` and ``session`` are given, and ``replay_past`` makes a played source of what the session remembers;
    for a recording only ``player`` is. A player that is there is what shows.
    """

    def __init__(
        self,
        *,
        source: Source | None = None,
        session: Session | None = None,
        player: Player | None = None,
        replay_past: Callable[[Past], PlayedSource] | None = None,
    ) -> None:
        self.source = source
        self.session = session
        self.player = player
        self._replay_past = replay_past
        self.newest: Frame | None = None if session is None else session.monitor.latest
        """The newest frame of the live run, also while its past is on screen."""
        self.masked = self.newest
        """The frame on screen, as files and pictures get it."""
        self.revealed: Revealed | None = None
        """Shows secrets on command lines, where the user wants to see them."""
        if session is not None and replay_past is not None:
            session.remember()

    @property
    def frame(self) -> Frame | None:
        """The frame on screen."""
        if self.revealed is None or self.masked is None:
            return self.masked
        return self.revealed.frame(self.masked)

    @property
    def interval_s(self) -> float:
        """How often something new is to be expected."""
        return 1.0 if self.source is None else self.source.interval_s

    @property
    def shows_past(self) -> bool:
        """Whether the screen shows the past."""
        return self.player is not None

    def take(self) -> bool:
        """Take what the sources have; True when there is something new to paint."""
        snapshot = None if self.source is None else self.source.poll()
        if snapshot is not None and self.session is not None:
            self.newest = self.session.take(snapshot)
        if self.player is None:
            self.masked = self.newest
            return snapshot is not None
        new = self.take_past()
        # The paused screen shows the growing size of a recording under way.
        return new or (snapshot is not None and self.session is not None and self.session.recorder is not None)

    def take_past(self) -> bool:
        """Take what the player has, if the past is on screen; True when that is a new frame."""
        if self.player is None:
            return False
        new = self.player.take()
        self.masked = self.player.frame or self.masked
        return new

    def work(self) -> bool:
        """Continue the player's pending work; True when it changed the frame."""
        if self.player is None or not self.player.work():
            return False
        self.masked = self.player.frame or self.masked
        return True

    def pause(self, notify: Callable[[], None]) -> bool:
        """Pause at the end of the live run's own past; False where nothing is remembered.

        ``notify`` is called, from any thread, whenever the played source has something.
        """
        past = None if self.session is None else self.session.past()
        if past is None or self._replay_past is None:
            return False

        source = self._replay_past(past)
        self.player = Player(source, own_past=True)
        source.start(notify)
        self.player.stand_at_end(None if self.session is None else self.session.monitor.frozen())
        self.take()
        return True

    def go_live(self) -> None:
        """Leave the past and show the live run."""
        if self.player is not None:
            self.player.source.close()
        self.player, self.masked = None, self.newest

    def acknowledge(self, gpu: int, badge_id: str) -> None:
        """Clear a sticky badge on screen, by the GPU's index."""
        if self.player is not None:
            self.player.monitor.acknowledge(gpu, badge_id)
        if self.session is not None:
            self.session.monitor.acknowledge(gpu, badge_id)

    def shown_view(self, view: View) -> View:
        """The view as it is painted: with the time line, and with the state of the recording under way."""
        recorder = None if self.session is None else self.session.recorder
        return replace(
            view,
            replay=None if self.player is None else self.player.replay(),
            recording=None if recorder is None else (recorder.seconds, recorder.bytes_written),
        )

    def close(self) -> None:
        """End a recording under way, and the past. A live source is closed by its owner."""
        recorder = None if self.session is None else self.session.stop_recording()
        if recorder is not None:
            recorder.close(timeout_s=CLOSE_S)
        if self.player is not None:
            self.player.source.close()
