"""Plays a recording, or the remembered past of this run.

Knows no widget. Verdicts come from one pass over the whole past (``judged.py``), so that a jump shows the same as
playing. After a jump the charts cover a minute at once; the rest of their past is read in slices.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from gputop.diagnosis.types import Finding, VerdictChange, full_title
from gputop.model.durations import clock_time
from gputop.model.snapshot import Snapshot
from gputop.model.source import PlayedSource
from gputop.monitor import Frame, Monitor
from gputop.paint.view import Replay
from gputop.session.judged import CHART_MARGIN, HISTORY_S, Checkpoint, Judged

if TYPE_CHECKING:
    pass


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
    """A monitor at a place of the past, and frames still to be fed.

    ``covered_s`` is the span of its charts in seconds. ``is_exact`` where it goes on from a checkpoint or the
    beginning, and not from the last minutes alone.
    """

    monitor: Monitor
    past: Iterator[Snapshot] = iter(())
    covered_s: float = 0.0
    is_exact: bool = False


class Player:
    """Drives a played source with the monitor of its position."""

    def __init__(
        self,
        source: PlayedSource,
        *,
        own_past: bool = False,
        checkpoints: Sequence[Checkpoint] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``checkpoints`` are states of the live run at places of its past."""
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

    def take(self, budget_s: float = 0.03) -> bool:
        """Show due frames for at most ``budget_s``; True for a new frame."""
        until, new = self._clock() + budget_s, False
        if self._jumped:
            self._rebuild()
        while (snapshot := self.source.next_due()) is not None:
            self._feed(snapshot)
            new |= self._is_judged
            if self._clock() > until:
                break
        return new

    def add(self, snapshot: Snapshot) -> None:
        """Show a frame that the source has delivered."""
        if self._jumped:
            self._rebuild()
        self._feed(snapshot)

    def _feed(self, snapshot: Snapshot) -> None:
        frame = self._shown.monitor.feed(snapshot)
        if self._whole is not None:
            self._since_jump.append(snapshot)
        if self._is_judged:
            self.frame = frame

    def work(self, budget_s: float = 0.02) -> bool:
        """Continue pending work; True when the shown state changed.

        The past of charts is read first, then the pass over the past goes on.
        """
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
        """Read as much past as charts of this span need."""
        self._chart_s = seconds

    def open(self, budget_s: float = 3.0) -> str:
        """Pause at the first red or yellow finding, else at the end.

        Returns which, in words. A finding in the first two minutes is shown later, with a whole chart, unless the
        recording is shorter than that.
        """
        self.source.pause()
        judged = self._judged
        judged.to_trouble(self._clock() + budget_s, self._clock)
        self._changes = judged.changes()
        if (finding := judged.trouble) is not None:
            self.source.go(judged.trouble_segment, self._opening_t(finding))
            self._jumped = True
            title = full_title(finding.text, finding.busy_not_working, alarm=True)
            return f"opened at the first finding: GPU {finding.gpu} {title}"
        self.to_end()
        if not judged.is_complete:
            return (
                f"opened at the end: nothing wrong in the first {self._judged_share():.0f} %, the "
                "rest is being judged"
            )
        if not judged.has_verdict:
            return (
                "opened at the end: too short to judge, a verdict needs 10 samples and 8 of 10 "
                "seconds that agree"
            )
        return "opened at the end: nothing wrong was seen"

    def _opening_t(self, finding: Finding) -> float:
        """Return the time at which the first finding is shown."""
        whole = self.source.begin_t + OPENED_S
        if self._judged.trouble_segment or whole > self.source.end_t:
            return finding.t
        return max(finding.t, whole)

    def replay(self) -> Replay:
        """The position, for the time line."""
        source = self.source
        return Replay(
            source.begin_t,
            source.end_t,
            source.position,
            source.playing,
            source.speed,
            self._changes,
            self._own_past,
            None if self._judged.is_complete else self._judged_share(),
        )

    @property
    def monitor(self) -> Monitor:
        """The monitor whose frames are shown."""
        if self._jumped:
            self._rebuild()
        return self._shown.monitor

    def stand_at_end(self, frame: Frame | None = None) -> None:
        """Pause at the end.

        ``frame`` is the one that was on screen, kept with its own history and verdicts.
        """
        self.source.pause()
        self.to_end()
        if frame is not None:
            # The frame has all that a monitor would be built for; every way on from the end is a jump.
            self.source.next_due()
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
        """Jump to a time as people write it.

        Raises ValueError with the reason.
        """
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
        self.source.seek(min(max(t, self.source.begin_t), self.source.end_t))
        self._jumped = True

    def to_change(self, step: int, offset: float = 0.0) -> str:
        """Jump to the next (1) or previous (-1) verdict change.

        Returns what changed, or why there is no jump. ``offset`` is the local time's, in seconds.
        """
        now = self.source.position
        begun = {change.t for change in self._changes if change.t > self.source.begin_t}
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
            f"{clock_time(t, offset)}  "
            f"{_named([f'GPU {each.gpu} {each.title or each.verdict}' for each in changed])}"
        )

    def _judged_share(self) -> float:
        """Return how much of the past is judged, in percent."""
        source = self.source
        done = (self._judged.place[1] - source.begin_t) / max(source.end_t - source.begin_t, 1e-9)
        return 100.0 * min(1.0, max(0.0, done))

    def _begun(self, seconds: float) -> _Position:
        """Return a position for the next frame with charts of a span."""
        source, judged = self.source, self._judged
        segment, t = source.place()
        begin = t - seconds
        checkpoint = judged.checkpoint_before(segment, begin)
        is_near = (
            begin - (source.begin_t if checkpoint is None else checkpoint.t)
            <= FAR_INTERVALS * judged.every_s
        )
        if (
            checkpoint is None
            and (first := judged.first(segment)) is not None
            and (segment or first.t <= source.begin_t)
        ):
            checkpoint = first
        if checkpoint is not None and (is_near or judged.reaches(segment, begin)):
            first_t = checkpoint.t
            since = (snapshot for snapshot in source.past(t - first_t) if snapshot.t >= first_t)
            return _Position(
                Monitor(source.interval_s, after=checkpoint.judgement),
                since,
                seconds,
                is_exact=True,
            )
        is_exact = checkpoint is None and segment == 0 and is_near
        past = source.past(float("inf") if is_exact else seconds)
        return _Position(Monitor(source.interval_s), past, seconds, is_exact)

    def _rebuild(self) -> None:
        """Build a monitor with a minute of chart after a jump."""
        self._jumped, self._whole = False, None
        self._shown = self._begun(QUICK_S)
        for snapshot in self._shown.past:
            self._shown.monitor.feed(snapshot)

    def _wanted_s(self) -> float:
        return max(HISTORY_S, CHART_MARGIN * self._chart_s)

    def _needs_more(self) -> bool:
        """Whether charts lack past, or an exact position is available."""
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
        if self._is_judged:
            self.frame = self._shown.monitor.latest or self.frame
        return self._is_judged

    @property
    def _is_judged(self) -> bool:
        """Whether the frame of this place may show.

        The past of this run is judged within seconds: until then the frame before stays, and no verdict is shown that
        rests on a part of the past. Of a recording, which may be long, the time line says how much is judged.
        """
        if self.frame is None:
            return True
        return self._shown.is_exact or not self._own_past


def _named(words: list[str]) -> str:
    """Join the first few names and count the rest."""
    more = [f"{len(words) - MOST_NAMED} more"] if len(words) > MOST_NAMED else []
    return ", ".join([*words[:MOST_NAMED], *more])
