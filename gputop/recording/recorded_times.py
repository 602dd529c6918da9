"""Look up recorded frames by time.

The clock may have been set back. Shared by a recording on disk and the past of a run in memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.snapshot import Event, GpuStatic, Snapshot
from gputop.recording.moments import TIME_OF_DAY, moment

MOST_JUMP_S = 366 * 86400.0
"""Times further apart than a year are not of one clock [judged]: it was set, and nobody recorded what lies between."""


def is_clock_set(before: float, t: float) -> bool:
    """Return whether the clock was set between two frames that follow each other, with times ``before`` and ``t``."""
    return not before <= t <= before + MOST_JUMP_S


class TimeSegment(Struct, frozen=True):
    """Parts ``first`` to ``last``, in which times only rise.

    ``begin`` and ``end`` are the times of its first and last frame, Unix seconds.
    """

    begin: float
    end: float
    first: int
    last: int

    def contains(self, t: float) -> bool:
        """Return whether a time lies between the first and last frame."""
        return self.begin <= t <= self.end


def _of_the_main_clock(segments: Sequence[TimeSegment]) -> list[int]:
    """Return the numbers of the segments within a year of the longest; of equal ones the last counts."""
    longest = max(reversed(segments), key=lambda segment: segment.end - segment.begin)
    earliest, latest = longest.begin - MOST_JUMP_S, longest.end + MOST_JUMP_S
    return [
        number
        for number, segment in enumerate(segments)
        if earliest <= segment.end and segment.begin <= latest
    ]


class RecordedTimeline(ABC):
    """Recorded frames in parts that can be read separately.

    ``segments`` are in the order of recording.
    """

    path: str
    interval_s: float
    hostname: str
    gpus: tuple[GpuStatic, ...]

    def _lay_out(self, starts: Sequence[float], segments: Sequence[TimeSegment]) -> None:
        """Set the beginnings of the parts, and their segments."""
        self._starts = list(starts)
        self.segments = tuple(segments)
        numbers = _of_the_main_clock(segments)
        self.begin = min(segments[number].begin for number in numbers)
        """Earliest and latest time of a frame, Unix seconds; frames of a clock that was wrong by years do not count."""
        self.end = max(segments[number].end for number in numbers)
        self.last_segment = numbers[-1]
        """Number of the segment that was recorded last, but for those of a clock that was wrong by years."""

    @abstractmethod
    def walk(self, numbers: Iterable[int]) -> Iterator[tuple[int, Snapshot]]:
        """Yield the frames of some parts with their parts' numbers.

        ``numbers`` must rise.
        """

    def close(self) -> None:  # noqa: B027 - not every recording has files
        """Close the open files; by default there are none."""

    @property
    def last_t(self) -> float:
        """Time of the last frame of ``last_segment``."""
        return self.segments[self.last_segment].end

    def moment(self, text: str, now: float | None = None) -> float:
        """Parse a time and clamp it to this recording.

        Returns Unix seconds; see ``moments.moment``. A time of day is taken from the last recorded segment that
        contains it; ``-10m`` counts back from the last frame. Raises ValueError.
        """
        t = self.moment_anywhere(text, now)
        return min(max(t, self.begin), self.end)

    def moment_anywhere(self, text: str, now: float | None = None) -> float:
        """Parse a time that may lie outside the recording.

        Returns Unix seconds. Raises ValueError.
        """
        if TIME_OF_DAY.fullmatch(text.strip()):
            # Every day of the recording has this time.
            for segment in reversed(self.segments[1:]):
                t = moment(text, segment.begin, segment.end, now, keep=False)
                if segment.contains(t):
                    return t
        return moment(text, self.segments[0].begin, self.last_t, now, keep=False)

    def segment_at(self, t: float, near: int | None = None) -> int:
        """Return the number of the segment of a time.

        First choice is ``near`` if it holds the time, then the last recorded segment that does: a clock is set back
        because it was wrong before. If none does, the segment with the nearest frame before the time, else the first to
        begin.
        """
        if near is not None and self.segments[near].contains(t):
            return near
        numbered = list(enumerate(self.segments))
        if holding := [number for number, segment in numbered if segment.contains(t)]:
            return holding[-1]
        if ended := [(segment.end, number) for number, segment in numbered if segment.end < t]:
            return max(ended)[1]
        return min((segment.begin, number) for number, segment in numbered)[1]

    def snapshots(self, begin: float | None = None, end: float | None = None) -> Iterator[Snapshot]:
        """Yield all frames between two times, both included.

        Frames come from every segment, in the order of recording.
        """
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
                yield (
                    replace(snapshot, events=(gap, *snapshot.events))
                    if gap is not None
                    else snapshot
                )
                gap, begun = None, True
            elif begun:
                # Frames between two wanted ones must not hide a clock that was set back.
                gap = next((event for event in snapshot.events if event.kind == "gap"), gap)

    def segment_frames(self, number: int, begin: float, end: float) -> Iterator[Snapshot]:
        """Return one segment's frames between two times, both included."""
        segment = self.segments[number]
        parts = range(self._part_at(segment, begin), self._part_at(segment, end) + 1)
        return (snapshot for _, snapshot in self.walk(parts) if begin <= snapshot.t <= end)

    def play(self, number: int, t: float) -> Iterator[tuple[int, Snapshot]]:
        """Yield frames from a time on, with their segments' numbers.

        The first is the last frame of segment ``number`` at or before ``t``, or the segment's first frame if all are
        later.
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
        """Return segment and time of the frame ``count`` frames earlier.

        Counts back from time ``t`` of segment ``number``.
        """
        part = self._part_at(self.segments[number], t)
        places: list[tuple[int, float]] = []
        while part >= 0 and len(places) < count:
            segment = self._segment_of(part)
            times = [snapshot.t for _, snapshot in self.walk((part,))]
            places = [(segment, time) for time in times if segment != number or time < t] + places
            part -= 1
        return places[-count] if len(places) >= count else (0, self.segments[0].begin)

    def _part_at(self, segment: TimeSegment, t: float) -> int:
        """Return the segment's last part that begins by a time, or its first if all begin later."""
        return max(
            segment.first, bisect_right(self._starts, t, segment.first, segment.last + 1) - 1
        )

    def _segment_of(self, part: int) -> int:
        return bisect_right(self.segments, part, key=lambda segment: segment.first) - 1
