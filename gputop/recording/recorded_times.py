"""Times of recorded frames, where a clock may have been set back: lookups by segment, in which times only rise.

Shared by a recording on disk and the past of a run in memory. Decodes nothing itself.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.quantity import SECONDS
from gputop.model.snapshot import Event, GpuStatic, Snapshot

# Times as people write them: ``12:03``, ``-10m``, an ISO date, to seconds since 1970. Nothing here reads a clock.

_DISTANCE = re.compile(r"([+-])(\d+(?:\.\d+)?)(s|m|min|h|d)?")
WITHIN_S = 0.999
"""The end of the second that a clock shows."""
_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")


def moment(text: str, begin: float, end: float, now: float | None = None, *, keep: bool = True) -> float:
    """The Unix time that a text means within a recording from ``begin`` to ``end``.

    ``-10m`` counts back from ``now``, or from the end when there is no now; ``+10m`` counts on from ``now``, or from
    the beginning. ``12:03`` is the first such time of day, in local time, at or after the beginning: the end of
    that second, for a screen shows whole seconds, and the frame that it showed then is meant. ISO dates without
    a zone are local; a plain number is Unix time. With ``keep`` the result is kept within the
    recording. Raises ValueError.
    """
    text = text.strip()
    if match := _DISTANCE.fullmatch(text):
        seconds = float(match.group(2)) * SECONDS[match.group(3) or ""]
        back = match.group(1) == "-"
        start = now if now is not None else (end if back else begin)
        t = start - seconds if back else start + seconds
    elif match := _OF_DAY.fullmatch(text):
        t = _time_of_day(int(match.group(1)), int(match.group(2)), int(match.group(3) or 0), begin)
    else:
        try:
            t = float(text)
        except ValueError:
            t = _iso(text)
    return min(max(t, begin), end) if keep else t


def _time_of_day(hour: int, minute: int, second: int, begin: float) -> float:
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{hour}:{minute:02d} is not a time of day")
    first = datetime.fromtimestamp(begin).astimezone()
    day = first.replace(hour=hour, minute=minute, second=second, microsecond=0)
    if day.timestamp() < int(begin):
        day += timedelta(days=1)
    return day.timestamp() + WITHIN_S


def _iso(text: str) -> float:
    try:
        # Python 3.10 does not know the Z of UTC.
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text}: not a time; write 12:03, -10m, +1h, 2026-11-20T12:03 or Unix seconds") from error


class TimeSegment(Struct, frozen=True):
    """Parts ``first`` to ``last`` (both included), between whose frames the clock was never set back.

    ``begin`` and ``end`` are the times of its first and last frame, Unix seconds.
    """

    begin: float
    end: float
    first: int
    last: int

    def holds(self, t: float) -> bool:
        """Whether a time lies between its first and its last frame."""
        return self.begin <= t <= self.end


class RecordedTimeline(ABC):
    """Frames in parts that can be entered. ``segments`` are in the order in which they were recorded."""

    path: str
    interval_s: float
    hostname: str
    gpus: tuple[GpuStatic, ...]

    def _lay_out(self, starts: Sequence[float], segments: Sequence[TimeSegment]) -> None:
        """Set where each part begins, and which segments the parts form."""
        self._starts = list(starts)
        self.segments = tuple(segments)
        self.begin = min(segment.begin for segment in segments)
        self.end = max(segment.end for segment in segments)
        """The earliest and the latest time of a frame, Unix seconds."""

    @abstractmethod
    def walk(self, numbers: Iterable[int]) -> Iterator[tuple[int, Snapshot]]:
        """The frames of some parts, each with the number of its part; ``numbers`` rise. Gaps are among their events."""

    @abstractmethod
    def events(self) -> Iterator[Event]:
        """Every event that was recorded, in order."""

    @abstractmethod
    def close(self) -> None:
        """Close what is open."""

    @property
    def last_t(self) -> float:
        """The time of the frame that was recorded last."""
        return self.segments[-1].end

    def moment(self, text: str, now: float | None = None) -> float:
        """The Unix time that a text means here, as ``moments.moment`` says. Raises ValueError.

        A time of day is that of the last recorded segment that has it; ``-10m`` counts back from the last frame.
        """
        t = self.moment_anywhere(text, now)
        return min(max(t, self.begin), self.end)

    def moment_anywhere(self, text: str, now: float | None = None) -> float:
        """The same, also where it lies outside of what was recorded. Raises ValueError."""
        if _OF_DAY.fullmatch(text.strip()):
            # Each day has it.
            for segment in reversed(self.segments[1:]):
                t = moment(text, segment.begin, segment.end, now, keep=False)
                if segment.holds(t):
                    return t
        return moment(text, self.segments[0].begin, self.last_t, now, keep=False)

    def segment_at(self, t: float, near: int | None = None) -> int:
        """The number of the segment that a time belongs to.

        That is ``near`` if it holds the time, else the last recorded one that does: a clock is set back
        because it was wrong before. Where none has, the one with the nearest frame before it, else the one that begins
        first.
        """
        if near is not None and self.segments[near].holds(t):
            return near
        numbered = list(enumerate(self.segments))
        if holding := [number for number, segment in numbered if segment.holds(t)]:
            return holding[-1]
        if ended := [(segment.end, number) for number, segment in numbered if segment.end < t]:
            return max(ended)[1]
        return min((segment.begin, number) for number, segment in numbered)[1]

    def snapshots(self, begin: float | None = None, end: float | None = None) -> Iterator[Snapshot]:
        """The frames from a time to a time, both included, of every segment, in the order of recording."""
        parts: list[int] = []
        for segment in self.segments:
            if (begin is None or segment.end >= begin) and (end is None or segment.begin <= end):
                first = segment.first if begin is None else self._part_at(segment, begin)
                last = segment.last if end is None else self._part_at(segment, end)
                parts += range(first, last + 1)
        gap: Event | None = None
        begun = False
        for _, snapshot in self.walk(parts):
            if (begin is None or snapshot.t >= begin) and (end is None or snapshot.t <= end):
                yield replace(snapshot, events=(gap, *snapshot.events)) if gap is not None else snapshot
                gap, begun = None, True
            elif begun:
                # What lies between two wanted frames must not hide that the clock was set back there.
                gap = next((event for event in snapshot.events if event.kind == "gap"), gap)

    def segment_frames(self, number: int, begin: float, end: float) -> Iterator[Snapshot]:
        """The frames of one segment from a time to a time, both included."""
        segment = self.segments[number]
        parts = range(self._part_at(segment, begin), self._part_at(segment, end) + 1)
        return (snapshot for _, snapshot in self.walk(parts) if begin <= snapshot.t <= end)

    def play(self, number: int, t: float) -> Iterator[tuple[int, Snapshot]]:
        """The last frame of a segment at or before a time (its first, when all are later) and all that follow it.

        Each with the number of its segment.
        """
        segment = self.segments[number]
        ahead = self.walk(range(self._part_at(segment, t), len(self._starts)))
        chosen: tuple[int, Snapshot] | None = None
        for part, snapshot in ahead:
            if chosen is not None and (part > segment.last or snapshot.t > t):
                yield self._segment_of(chosen[0]), chosen[1]
                yield self._segment_of(part), snapshot
                chosen = None
                break
            chosen = part, snapshot
        if chosen is not None:
            yield self._segment_of(chosen[0]), chosen[1]
        for part, snapshot in ahead:
            yield self._segment_of(part), snapshot

    def place_before(self, number: int, t: float, count: int) -> tuple[int, float]:
        """(segment, time) of the frame that was recorded ``count`` frames before a time of a segment."""
        part = self._part_at(self.segments[number], t)
        places: list[tuple[int, float]] = []
        while part >= 0 and len(places) < count:
            segment = self._segment_of(part)
            times = [snapshot.t for _, snapshot in self.walk((part,))]
            places = [(segment, time) for time in times if segment != number or time < t] + places
            part -= 1
        return places[-count] if len(places) >= count else (0, self.segments[0].begin)

    def _part_at(self, segment: TimeSegment, t: float) -> int:
        """The part of a segment that holds the last frame at or before a time; its first, when all are later."""
        return max(segment.first, bisect_right(self._starts, t, segment.first, segment.last + 1) - 1)

    def _segment_of(self, part: int) -> int:
        return bisect_right(self.segments, part, key=lambda segment: segment.first) - 1
