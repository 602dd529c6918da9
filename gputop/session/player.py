"""Playing the past: a recording, or what this run remembers. Knows no widget; the screen asks it and paints.

Verdicts come from one walk over the whole past (``judged.py``), so a jump shows what playing would have shown. After a
jump the charts reach a minute back at once; the rest of their past is read in slices and then takes over.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.catalogue import titles
from gputop.diagnosis.types import NOT_WORKING_ALARM, VerdictChange, full_title
from gputop.model.quantity import clock_time
from gputop.model.snapshot import Snapshot
from gputop.model.source import PlayedSource, Source
from gputop.monitor import Frame, Monitor
from gputop.paint.view import Replay, View
from gputop.session.judged import CHART_MARGIN, COLLECTING, HISTORY_S, Checkpoint, Judged
from gputop.session.record_run import CLOSE_S
from gputop.session.session import Session

if TYPE_CHECKING:
    from gputop.recording.recent_past import Past
    from gputop.session.session import Revealed


QUICK_S = 75.0
"""The past that is read at once after a jump: a minute of chart, which takes less than 0.5 s for 8 GPUs."""
OPENED_S = 120.0
"""The past that the first picture of a recording shows, where there is so much."""
FAR_INTERVALS = 2.0
"""A checkpoint that lies further back than so many distances between two of them is not read on from at once."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
MOST_NAMED = 3
"""GPUs named in one line; of more, their number is said."""


class _Position(Struct):
    """A monitor at a place of the past, and what is still to be fed to it.

    ``covered_s`` is how much past its charts have, in seconds. It ``is_exact`` where it has gone on from the walk, and
    not from the last minutes alone.
    """

    monitor: Monitor
    past: Iterator[Snapshot] = iter(())
    covered_s: float = 0.0
    is_exact: bool = False


class Player:
    """Drives one played source and keeps the monitor that belongs to its position."""

    def __init__(
        self,
        source: PlayedSource,
        *,
        own_past: bool = False,
        checkpoints: Sequence[Checkpoint] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``checkpoints`` are what the live run had come to at some places of its own past."""
        self.source = source
        self.frame: Frame | None = None
        self._own_past = own_past
        self._clock = clock
        self._judged = Judged(source.frames(), source.interval_s, checkpoints)
        self._shown = _Position(Monitor(source.interval_s))
        self._jumped = True
        """Whether the monitor must be built again before the next frame."""
        self._chart_s = 0.0
        self._whole: _Position | None = None
        """The same place with the whole past of its charts, which is still being read."""
        self._since_jump: list[Snapshot] = []
        self._changes: tuple[VerdictChange, ...] = ()
        self._recorded: dict[int, list[tuple[float, str, str | None]]] | None = None

    def take(self, budget_s: float = 0.03) -> bool:
        """Show the frames that are due, working for at most ``budget_s``; True when there is a new one to paint."""
        until, new = self._clock() + budget_s, False
        if self._jumped:
            self._rebuild()
        while (snapshot := self.source.poll()) is not None:
            self.frame = self._shown.monitor.feed(snapshot)
            if self._whole is not None:
                self._since_jump.append(snapshot)
            new = True
            if self._clock() > until:
                break
        return new

    def work(self, budget_s: float = 0.02) -> bool:
        """Continue pending work (the past of charts, then the walk); True when it changed what is shown."""
        until = self._clock() + budget_s
        if self._whole is None and self._needs_more():
            self._whole, self._since_jump = self._begun(self._wanted_s()), []
        while self._whole is not None:
            snapshot = next(self._whole.past, None)
            if snapshot is None:
                return self._take_over()
            self._whole.monitor.feed(snapshot)
            if self._clock() > until:
                return False
        changed = self._judged.advance(until, self._clock)
        if changed:
            self._changes = self._judged.changes()
        return changed

    @property
    def busy(self) -> bool:
        """Whether ``work`` has something to do."""
        return self._whole is not None or not self._judged.is_complete or self._needs_more()

    def show_charts_of(self, seconds: float) -> None:
        """Read as much of the past as charts of so many seconds need."""
        self._chart_s = seconds

    def open(self, budget_s: float = 3.0) -> str:
        """Pause at the first red or yellow finding, else at the end; returns which, in words.

        Where the recording has only just begun then, as much later as a whole chart needs.
        """
        self.source.pause()
        judged = self._judged
        judged.to_trouble(self._clock() + budget_s, self._clock)
        self._changes = judged.changes()
        if (finding := judged.trouble) is not None:
            whole = self.source.begin + OPENED_S if judged.trouble_segment == 0 else finding.t
            self.source.go(judged.trouble_segment, max(finding.t, min(whole, self.source.end)))
            self._jumped = True
            title = full_title(finding.text, finding.busy_not_working, alarm=True)
            return f"opened at the first finding: GPU {finding.gpu} {title}"
        self.to_end()
        if not judged.is_complete:
            return (
                f"opened at the end: nothing wrong in the first {self._judged_share():.0f} %, the rest is being judged"
            )
        if not judged.has_verdict:
            return "opened at the end: too short to judge, a verdict needs 10 samples and 8 of 10 seconds that agree"
        return "opened at the end: nothing wrong was seen"

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
            None if self._judged.is_complete else self._judged_share(),
            self._differs(),
        )

    @property
    def monitor(self) -> Monitor:
        """The monitor whose frames are shown."""
        if self._jumped:
            self._rebuild()
        return self._shown.monitor

    def stand_at_end(self, frame: Frame | None = None) -> None:
        """Pause at the end; on the ``frame`` that was on screen, if given, with its own history and verdicts."""
        self.source.pause()
        self.to_end()
        if frame is not None:
            # The frame has all that a monitor would be built for; every way on from the end is a jump.
            self.source.poll()
            self.frame, self._whole, self._jumped = frame, None, False
            self._shown.is_exact, self._shown.covered_s = True, float("inf")

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

    def to_change(self, step: int, offset: float = 0.0) -> str:
        """Jump to the next (1) or previous (-1) change of any GPU's verdict; returns what changed, or why it stays.

        ``offset`` is the local time's, seconds.
        """
        now = self.source.position
        begun = {change.t for change in self._changes if change.t > self.source.begin}
        ahead = sorted(t for t in begun if (t > now + 1e-3 if step > 0 else t < now - 1e-3))
        if not ahead:
            which = f"no {'later' if step > 0 else 'earlier'} verdict change"
            share = f"judged up to {self._judged_share():.0f} % yet: "
            return which if self._judged.is_complete else f"{share}{which} so far"
        t = ahead[0] if step > 0 else ahead[-1]
        self.source.pause()
        self.seek(t)
        changed = [change for change in self._changes if change.t == t]
        return (
            f"{clock_time(t, offset)}  {_named([f'GPU {each.gpu} {each.title or each.verdict}' for each in changed])}"
        )

    def _judged_share(self) -> float:
        """How far the walk has come, percent of the time."""
        source = self.source
        done = (self._judged.place[1] - source.begin) / max(source.end - source.begin, 1e-9)
        return 100.0 * min(1.0, max(0.0, done))

    def _begun(self, seconds: float) -> _Position:
        """For the next frame and so much chart."""
        source, judged = self.source, self._judged
        segment, t = source.place()
        begin = t - seconds
        checkpoint = judged.before(segment, begin)
        is_near = begin - (source.begin if checkpoint is None else checkpoint.t) <= FAR_INTERVALS * judged.every_s
        if checkpoint is None and (first := judged.first(segment)) is not None and (segment or first.t <= source.begin):
            checkpoint = first
        if checkpoint is not None and (is_near or judged.reaches(segment, begin)):
            first_t = checkpoint.t
            since = (snapshot for snapshot in source.past(t - first_t) if snapshot.t >= first_t)
            return _Position(Monitor(source.interval_s, after=checkpoint.judgement), since, seconds, is_exact=True)
        is_exact = checkpoint is None and segment == 0 and is_near
        past = source.past(float("inf") if is_exact else seconds)
        return _Position(Monitor(source.interval_s), past, seconds, is_exact)

    def _rebuild(self) -> None:
        """After a jump: a monitor on what a minute of chart needs; more follows."""
        self._jumped, self._whole = False, None
        self._shown = self._begun(QUICK_S)
        for snapshot in self._shown.past:
            self._shown.monitor.feed(snapshot)

    def _wanted_s(self) -> float:
        return max(HISTORY_S, CHART_MARGIN * self._chart_s)

    def _needs_more(self) -> bool:
        """Whether charts lack past, or the walk has come to where the monitor can go on from it."""
        if self._jumped or self.frame is None:
            return False
        if self._shown.covered_s < self._wanted_s():
            return True
        return not self._shown.is_exact and self._judged.reaches(*self.source.place())

    def _take_over(self) -> bool:
        assert self._whole is not None
        self._shown, self._whole = self._whole, None
        for snapshot in self._since_jump:
            self._shown.monitor.feed(snapshot)
        self._since_jump = []
        self.frame = self._shown.monitor.latest or self.frame
        return True

    def _differs(self) -> str:
        """Which verdicts were recorded otherwise at this moment, in words; empty where all agree."""
        if self._recorded is None:
            if not self.source.events_complete:
                return ""
            self._recorded = self._read_recorded()
        frame = self.frame
        if frame is None or not self._recorded:
            return ""
        other = []
        for d in frame.diagnoses:
            recorded = self._recorded.get(d.index, [])
            at = bisect_right(recorded, frame.snapshot.t + 1e-3, key=itemgetter(0))
            # What was being collected then was not judged otherwise.
            if at and recorded[at - 1][1] != COLLECTING and recorded[at - 1][1:] != (d.verdict, d.busy_not_working):
                other.append((d.index, *recorded[at - 1][1:]))
        words = [
            f"GPU {gpu} {f'{NOT_WORKING_ALARM}: ' if flag else ''}{titles().get(verdict, verdict)}"
            for gpu, verdict, flag in other
        ]
        return f"recorded as {_named(words)}" if words else ""

    def _read_recorded(self) -> dict[int, list[tuple[float, str, str | None]]]:
        """The verdicts that were recorded by GPU; none where a clock was set back, for then a time says too little."""
        verdicts_of_gpu: dict[int, list[tuple[float, str, str | None]]] = {}
        last_t = float("-inf")
        for event in self.source.events:
            if event.verdict is None or event.gpu is None:
                continue
            if event.t < last_t:
                return {}
            last_t = event.t
            verdicts_of_gpu.setdefault(event.gpu, []).append((event.t, event.verdict, event.flag))
        return verdicts_of_gpu


def _named(words: list[str]) -> str:
    """The first few, and how many more there are."""
    more = [f"{len(words) - MOST_NAMED} more"] if len(words) > MOST_NAMED else []
    return ", ".join([*words[:MOST_NAMED], *more])


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
        before = self.newest
        if self.source is not None and self.session is not None:
            while (snapshot := self.source.poll()) is not None:
                self.newest = self.session.take(snapshot)
        came = self.newest is not before
        if self.player is None:
            self.masked = self.newest
            return came
        new = self.take_past()
        # The paused screen shows the growing size of a recording under way.
        return new or (came and self.session is not None and self.session.recorder is not None)

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
        self.player = Player(source, own_past=True, checkpoints=[Checkpoint(*place) for place in past.judged])
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
        if self.player is not None:
            self.player.show_charts_of(view.span_s)
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
