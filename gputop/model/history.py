"""Past measurements in bounded ring buffers.

Ten minutes at full rate, and a day at one value a minute. Written only by the monitor, read by charts and by rules that
look back further than their window. Time enters with the values; nothing here reads a clock. Inside the rings a missing
value is NaN; every reader gets None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from math import ceil, floor, isnan
from typing import NamedTuple

from gputop.model.ring import Ring

FULL_RATE_S = 600.0
MINUTE_S = 60.0
MINUTES_KEPT = 24 * 60
BUSY_CHARTS, UNUSED_S = 64, 30.0
"""From 64 charts on, those that were requested in the last half minute are kept up to date."""
LEAST_COLUMNS = 64
MOST_BREAKS = 64
"""Breaks kept for each key.

A source that changes more often has worse problems than a gap in a chart.
"""


class _Columns:
    """Time-weighted means of one series over columns of equal width.

    Updated sample by sample.
    """

    __slots__ = ("first", "means", "seen", "sums", "used_t", "width_s")

    def __init__(self, width_s: float) -> None:
        self.width_s = width_s
        self.used_t = 0.0
        self.seen = 0
        self.first = 0
        """The index of the first mean."""
        self.means: list[float | None] = []
        self.sums: dict[int, list[float]] = {}
        """Weight and weighted sum of the two newest columns.

        Older columns are complete.
        """

    def cover(self, begin: float, end: float, value: float) -> None:
        """Spread a value over the columns that its time touches.

        The value held from ``begin`` to ``end``.
        """
        width, means = self.width_s, self.means
        for index in range(floor(begin / width), floor(end / width) + 1):
            weight = min(end, (index + 1) * width) - max(begin, index * width)
            if weight <= 0.0:
                continue
            if not means:
                self.first, self.sums = index, {}
            place = index - self.first
            total = self.sums.get(index)
            if total is None:
                if place < len(means):
                    continue
                means += [None] * (place + 1 - len(means))
                self.sums = {i: sums for i, sums in self.sums.items() if i == index - 1}
                total = self.sums[index] = [0.0, 0.0]
            total[0] += weight
            total[1] += weight * value
            means[place] = total[1] / total[0]

    def newest(self, last: int, count: int) -> list[float | None]:
        """Return ``count`` means up to the column with index ``last``."""
        begin = last + 1 - count - self.first
        means = [None] * -begin + self.means[max(0, begin) : max(0, begin + count)]
        return means + [None] * (count - len(means))

    def forget_before(self, index: int) -> None:
        """Drop the columns before an index.

        After a gap longer than the chart, all columns are dropped.
        """
        if self.first < index:
            del self.means[: index - self.first]
            self.first = index


class _FullMean(NamedTuple):
    """The mean of one column, whose number it has."""

    column: int
    mean: float | None


class _Track:
    """Ring buffers of one GPU, or of the host.

    Also holds the sums of the current minute, and the breaks of lines.
    """

    __slots__ = ("breaks", "broken", "fast", "minute", "minutes", "summed", "sums")

    def __init__(self, capacity: int) -> None:
        self.fast = Ring(capacity)
        self.minutes = Ring(MINUTES_KEPT)
        self.minute: int | None = None
        self.sums: dict[str, tuple[int, float]] = {}
        """Number and sum of the minute's added values, by name."""
        self.summed = 0
        """Number of the first sample not yet added.

        Samples are added together before they are overwritten.
        """
        self.breaks: deque[tuple[float, float, frozenset[str]]] = deque(maxlen=MOST_BREAKS)
        """First sample's span, and the affected names, of each break."""
        self.broken: frozenset[str] = frozenset()
        """Names whose line broke within the current minute: its mean would mix two sources."""

    def push(
        self,
        t: float,
        values: Mapping[str, float | None],
        interval_s: float,
        broken: frozenset[str] = frozenset(),
    ) -> None:
        minute, fast = floor(t / MINUTE_S), self.fast
        if self.minute is not None and minute != self.minute:
            self._add_up()
            means = {
                name: total / n for name, (n, total) in self.sums.items() if name not in self.broken
            }
            self.minutes.push((self.minute + 1) * MINUTE_S, means, MINUTE_S)
            self.sums.clear()
            self.broken = frozenset()
        elif fast.count - self.summed == fast.capacity:
            self._add_up()
        self.minute = minute
        fast.push(t, values, interval_s)
        if broken:
            self.broken |= broken
            self.breaks.append((t - fast.spans[(fast.count - 1) % fast.capacity], t, broken))

    def _add_up(self) -> None:
        """Add new samples to the sums of their minute."""
        fast = self.fast
        for name in fast.places:
            values = fast.newest(name, fast.count - self.summed)
            added = sum(values)
            if isnan(added):
                values = [value for value in values if not isnan(value)]
                added = sum(values)
            if len(values):
                n, total = self.sums.get(name, (0, 0.0))
                self.sums[name] = n + len(values), total + added
        self.summed = fast.count


class History:
    """Series by key and name.

    A key is a GPU's UUID or a process; a name is a catalogue key or a lane of the diagnosis.
    """

    def __init__(self, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self._capacity = max(16, round(FULL_RATE_S / interval_s))
        self._tracks: dict[Hashable, _Track] = {}
        self._charts: dict[tuple[Hashable, str, float], _Columns] = {}
        self._full_means: dict[Hashable, dict[tuple[str, float], _FullMean]] = {}
        """The mean of the last full column, by key, name and width."""
        self.latest_t: float | None = None
        self.marks: deque[tuple[float, str | None, str]] = deque(maxlen=256)
        """Marks in charts: time, key (None for all), text."""

    def add(
        self,
        t: float,
        key: Hashable,
        values: Mapping[str, float | None],
        interval_s: float | None = None,
        broken: frozenset[str] = frozenset(),
    ) -> None:
        """Append one sample.

        Times must not run backwards within a key; the monitor starts afresh when they do. ``interval_s`` is the
        source's intended interval, if different from the history's own: a recording and the past of a scenario may be
        coarser. ``broken`` names the series that are measured in another way from this sample on: the columns that it
        touches stay empty, so that no line continues and no mean mixes two sources.
        """
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = _Track(self._capacity)
        track.push(t, values, interval_s or self._interval_s, broken)
        self.latest_t = t

    def pass_time(self, t: float) -> None:
        """Advance time without a sample; the newest columns stay empty.

        Used while a source repeats itself.
        """
        self.latest_t = t

    def mark(self, t: float, key: str | None, text: str) -> None:
        """Store a mark for charts.

        Examples: a change of the SM source, a mark of the user, a lost GPU.
        """
        self.marks.append((t, key, text))

    def marks_within(self, key: str, begin: float, end: float) -> list[tuple[float, str]]:
        """Return time and text of marks from ``begin`` to ``end``.

        Includes marks of one key, and marks that concern all keys.
        """
        return [
            (t, text) for t, owner, text in self.marks if owner in (None, key) and begin <= t <= end
        ]

    def forget(self, key: Hashable) -> None:
        """Drop everything under a key."""
        self._tracks.pop(key, None)
        self._full_means.pop(key, None)
        for chart in [chart for chart in self._charts if chart[0] == key]:
            del self._charts[chart]

    def covered_s(self, key: Hashable) -> float:
        """Return how many seconds of full-rate values a key has.

        Counts back from the latest time; 0 without values.
        """
        track = self._tracks.get(key)
        if track is None or self.latest_t is None:
            return 0.0
        return self.latest_t - next(
            (track.fast.times[i] for i in track.fast.since(0)), self.latest_t
        )

    def recent(self, key: Hashable, name: str, seconds: float) -> list[tuple[float, float | None]]:
        """Return recent full-rate times and values, oldest first.

        Missing values are None.
        """
        track = self._tracks.get(key)
        values = None if track is None else track.fast.series(name)
        if track is None or self.latest_t is None or values is None:
            return []
        times = track.fast.times
        begin = self.latest_t - seconds
        return [
            (times[i], None if isnan(values[i]) else values[i])
            for i in track.fast.since(0)
            if times[i] > begin
        ]

    def columns(self, key: Hashable, name: str, width_s: float, count: int) -> list[float | None]:
        """Return the newest ``count`` columns of a chart.

        Each is the time-weighted mean over ``width_s`` seconds; None is a gap. Columns begin at multiples of their
        width in Unix time, so that a column never changes once its time is over.
        """
        track = self._tracks.get(key)
        if track is None or self.latest_t is None:
            return [None] * count
        # A sample at a column's first instant belongs to the previous column.
        last = floor(self.latest_t / width_s)
        if self.latest_t == last * width_s:
            last -= 1
        oldest = last - max(2 * count, LEAST_COLUMNS)
        chart = self._charts.get((key, name, width_s))
        if chart is None:
            self._make_room()
            chart = self._charts[(key, name, width_s)] = _Columns(width_s)
            self._cover_minutes(chart, track, name, oldest * width_s)
        chart.used_t = self.latest_t
        # Before the new samples: a clock that was set forward by years would be filled column by column.
        chart.forget_before(oldest)
        self._cover_new(chart, track, name, oldest * width_s)
        first = last - count + 1
        means = chart.newest(last, count)
        for begin, end, names in track.breaks:
            if name in names:
                for i in range(
                    max(first, floor(begin / width_s)), min(last, ceil(end / width_s) - 1) + 1
                ):
                    means[i - first] = None
        return means

    def last_full_mean(self, key: Hashable, name: str, width_s: float, t: float) -> float | None:
        """Return the mean of the last column that is over at Unix time ``t``.

        The columns are the same as in ``columns``; None is a gap. It is computed once: a column never changes once its
        time is over.
        """
        # A sample at a column's first instant belongs to the previous column.
        column = ceil(t / width_s) - 2
        means = self._full_means.setdefault(key, {})
        known = means.get((name, width_s))
        if known is None or known.column != column:
            mean = self._mean_between(key, name, column * width_s, (column + 1) * width_s)
            known = means[name, width_s] = _FullMean(column, mean)
        return known.mean

    def _mean_between(self, key: Hashable, name: str, begin: float, end: float) -> float | None:
        """Return the time-weighted mean of a series; None where it is unknown or broken."""
        track = self._tracks.get(key)
        place = None if track is None else track.fast.places.get(name)
        if track is None or place is None:
            return None
        for broken_from, broken_to, names in track.breaks:
            if name in names and broken_from < end and broken_to > begin:
                return None
        ring, width = track.fast, len(track.fast.places)
        weight = total = 0.0
        for number in range(ring.count - 1, ring.count - len(ring.times) - 1, -1):
            slot = number % ring.capacity
            t, value = ring.times[slot], ring.values[slot * width + place]
            if t <= begin:
                break
            covered_s = min(t, end) - max(t - ring.spans[slot], begin)
            if covered_s > 0.0 and not isnan(value):
                weight += covered_s
                total += covered_s * value
        return total / weight if weight else None

    def _make_room(self) -> None:
        """Drop unused charts before another one is kept."""
        if len(self._charts) >= BUSY_CHARTS and self.latest_t is not None:
            begin = self.latest_t - UNUSED_S
            self._charts = {
                name: chart for name, chart in self._charts.items() if chart.used_t >= begin
            }

    def _cover_minutes(self, chart: _Columns, track: _Track, name: str, begin: float) -> None:
        values = track.minutes.series(name)
        if values is None:
            return
        oldest = next((track.fast.times[i] for i in track.fast.since(0)), float("inf"))
        for i in track.minutes.since(0):
            end = track.minutes.times[i]
            if begin < end <= oldest and not isnan(values[i]):
                chart.cover(max(begin, end - MINUTE_S), end, values[i])

    def _cover_new(self, chart: _Columns, track: _Track, name: str, begin: float) -> None:
        ring = track.fast
        place = ring.places.get(name)
        if place is None:
            return
        times, spans, values, width = ring.times, ring.spans, ring.values, len(ring.places)
        for slot in ring.since(chart.seen):
            value, t = values[slot * width + place], times[slot]
            if t > begin and not isnan(value):
                chart.cover(max(begin, t - spans[slot]), t, value)
        chart.seen = ring.count
