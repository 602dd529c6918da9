"""Judges a whole past once, from its beginning, by today's rules.

A verdict depends on all samples before it: how long a GPU has been idle, the verdict before, the findings so far. A
jump to a moment must therefore not judge only the minutes before it. One pass over the past keeps the monitor's state
every minute; a jump goes on from the last kept state and gives the same verdicts as playing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct

from gputop.diagnosis.types import Finding, Flag, Level, VerdictChange
from gputop.diagnosis.verdict.summary import LEVEL_OF_ROLE, alarmed, head_of
from gputop.model.snapshot import Snapshot
from gputop.monitor import Frame, Judgement, Monitor

if TYPE_CHECKING:
    from gputop.recording.recorded_times import RecordedTimeline

CHECKPOINT_S = 60.0
"""Distance of the places from which a jump can go on."""
MOST_CHECKPOINTS = 256
"""Of more, every second one is dropped: some 50 kB each for eight GPUs at a sample a second, 150 kB at four."""
HISTORY_S = 660.0
"""The past that a frame's charts are drawn from: ten minutes at full rate, and what lies beneath their first column."""
CHART_MARGIN = 1.1
"""The past that a chart needs, as a multiple of its span: its first column begins before it."""
URGENT = ("red", "yellow")
COLLECTING = "collecting"


class Checkpoint(Struct, frozen=True):
    """State of a monitor before the frame of a segment at Unix time ``t``."""

    t: float
    judgement: Judgement
    segment: int = 0


class Judged:
    """Judges ``frames``, each with the number of its segment, in order.

    ``checkpoints`` come from a live run, whose past has one segment: the pass goes on from each that it meets.
    """

    def __init__(
        self,
        frames: Iterator[tuple[int, Snapshot]],
        interval_s: float,
        checkpoints: Sequence[Checkpoint] = (),
    ) -> None:
        self._frames = frames
        self._interval_s = interval_s
        self._monitor = Monitor(interval_s, charts=False)
        self._made_before = {checkpoint.t: checkpoint for checkpoint in checkpoints}
        self._places: dict[int, list[Checkpoint]] = {0: list(checkpoints)}
        self._count = len(checkpoints)
        self._last: dict[int, tuple[str, Flag | None, Level]] = {}
        self._findings: tuple[Finding, ...] = ()
        self._changes: list[VerdictChange] = []
        self.every_s = CHECKPOINT_S
        """Distance of the checkpoints at present."""
        self.place: tuple[int, float] = (0, float("-inf"))
        """(segment, time) of the frame that was judged last."""
        self.is_complete = False
        self.trouble: Finding | None = None
        """The first red or yellow finding."""
        self.trouble_segment = 0

    def advance(self, until: float, clock: Callable[[], float]) -> bool:
        """Judge on until ``clock`` reaches ``until``.

        Returns True when there is a new verdict change, or the end was reached.
        """
        before = len(self._changes)
        while not self.is_complete:
            following = next(self._frames, None)
            if following is None:
                self.is_complete = True
                return True
            self._take(*following)
            if clock() > until:
                break
        return len(self._changes) > before

    def to_trouble(self, until: float, clock: Callable[[], float]) -> None:
        """Judge on until the first red or yellow finding.

        Stops at the end of the past or at ``until``.
        """
        while not self.is_complete and self.trouble is None and clock() <= until:
            self.advance(until=float("-inf"), clock=clock)

    def _take(self, segment: int, snapshot: Snapshot) -> None:
        places = self._places.setdefault(segment, [])
        if (checkpoint := self._made_before.get(snapshot.t)) is not None:
            self._monitor = Monitor(self._interval_s, charts=False, after=checkpoint.judgement)
        elif segment != self.place[0] or not places or snapshot.t - places[-1].t >= self.every_s:
            self._keep(places, Checkpoint(snapshot.t, self._monitor.judgement(), segment))
        frame = self._monitor.feed(snapshot)
        self.place = segment, snapshot.t
        for d in frame.diagnoses:
            head = head_of(d)
            level = LEVEL_OF_ROLE[head.role]
            now = (d.verdict, d.busy_not_working, level)
            if self._last.get(d.index) != now:
                self._last[d.index] = now
                title = alarmed(head.words)
                self._changes.append(
                    VerdictChange(snapshot.t, d.index, d.verdict, d.busy_not_working, level, title)
                )
        if self.trouble is None and frame.findings is not self._findings:
            self._findings = frame.findings
            self.trouble = next((f for f in frame.findings if f.level in URGENT), None)
            self.trouble_segment = segment

    def _keep(self, places: list[Checkpoint], checkpoint: Checkpoint) -> None:
        # What is known already may lie ahead of the walk.
        places.insert(bisect_right(places, checkpoint.t, key=attrgetter("t")), checkpoint)
        self._count += 1
        if self._count > MOST_CHECKPOINTS:
            self.every_s *= 2
            for checkpoints in self._places.values():
                del checkpoints[1::2]
            self._count = sum(map(len, self._places.values()))

    def changes(self) -> tuple[VerdictChange, ...]:
        """Return every change so far in order of time.

        Changes are collected in another order where a clock was set back.
        """
        return tuple(sorted(self._changes, key=attrgetter("t")))

    @property
    def has_verdict(self) -> bool:
        """Whether any GPU was judged at any time so far."""
        return any(change.verdict != COLLECTING for change in self._changes)

    def checkpoint_before(self, segment: int, t: float) -> Checkpoint | None:
        """Return a segment's last checkpoint at or before a time, else None."""
        places = self._places.get(segment, ())
        at = bisect_right(places, t, key=attrgetter("t"))
        return places[at - 1] if at else None

    def first(self, segment: int) -> Checkpoint | None:
        """Return the first checkpoint of a segment so far."""
        places = self._places.get(segment)
        return places[0] if places else None

    def reaches(self, segment: int, t: float) -> bool:
        """Whether the past up to a time of a segment is judged."""
        return (
            self.is_complete
            or segment < self.place[0]
            or (segment == self.place[0] and t <= self.place[1])
        )


def frame_at(recording: RecordedTimeline, number: int, t: float, chart_s: float) -> Frame | None:
    """Return the frame of a segment at or before a time.

    ``chart_s`` is the span of its charts. None where nothing can be read. Reads the recording from its beginning, so
    that the verdict is the same as when playing it from there.
    """
    place = _place_at(recording, number, t)
    if place is None:
        return None
    begin = place[1] - max(HISTORY_S, CHART_MARGIN * chart_s)
    monitor = Monitor(recording.interval_s, charts=False)
    draws = False
    for segment, snapshot in recording.play(0, recording.segments[0].begin):
        if not draws and segment == place[0] and snapshot.t >= begin:
            monitor, draws = Monitor(recording.interval_s, after=monitor.judgement()), True
        frame = monitor.feed(snapshot)
        if (segment, snapshot.t) >= place:
            return frame
    return monitor.latest


def _place_at(recording: RecordedTimeline, number: int, t: float) -> tuple[int, float] | None:
    """Return segment and time of the frame of a segment at or before a time.

    None where nothing can be read.
    """
    if t == recording.segments[number].end:
        # Its last frame: known without reading all before it.
        return number, t
    chosen = next(recording.play(number, t), None)
    if chosen is None:
        return None
    segment, frame = chosen
    return segment, frame.t
