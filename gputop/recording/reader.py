"""Read recordings frame by frame, from any time.

Unreadable parts are left out and become gaps; only a file without any frame is an error. Memory is constant; a day of 8
GPUs is 1440 parts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from math import isnan, nan
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from gputop.model.snapshot import GpuStatic, Snapshot
from gputop.recording.decode import LineDecoder
from gputop.recording.file_lines import FilePart, lines_of, open_recording, parts_of
from gputop.recording.format import SUFFIXES, Damage, RecordingError, RunFacts
from gputop.recording.recorded_times import RecordedTimeline, TimeSegment

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

_SERIES = re.compile(r"(.+)-\d{8}T\d{6}Z-(\d+)(?:\.\d+)?(?:\.gputop)?\.jsonl(?:\.gz)?")
"""HOST-TIME-PID: the files of one recorder."""
MOST_NAMED = 3
"""Files named in one line."""
_MOST_BAD_LINES = 1000
"""Bad lines without a good frame after which a file is given up."""
MOST_OPEN = 256
"""Files of a recording that stay open.

A replay then survives their deletion. Further files are opened when they are read: a month of hourly files is more
than a process may have open.
"""


def read_snapshots(
    path: str, recording_filter: RecordingFilter | None = None
) -> Iterator[Snapshot]:
    """Yield every readable frame of a recording, oldest first.

    ``path`` is a file or a directory of files. Raises RecordingError when there is no frame, or for another format.
    """
    decoder, has_frame = LineDecoder(recording_filter), False
    for file_path in recording_files(path):
        with open_recording(file_path) as file:
            lines = ((0, line) for part in parts_of(file, 0) for line in lines_of(file, part))
            for _, snapshot in placed_frames(lines, decoder, file_path):
                has_frame = True
                yield snapshot
    if not has_frame:
        raise _no_frame(path, decoder)


def _no_frame(path: str, decoder: LineDecoder) -> RecordingError:
    is_empty = not decoder.reason and os.path.isfile(path) and not os.path.getsize(path)
    reason = "the file is empty" if is_empty else decoder.reason
    return RecordingError(f"{path}: no frame of a recording in it{f': {reason}' if reason else ''}")


def recording_files(path: str) -> list[str]:
    """Return the files of a recording in order of time.

    ``path`` is one file, or a directory of files. Raises RecordingError when there is no file, or when a directory
    holds recordings of several machines.
    """
    if not os.path.isdir(path):
        return [path]
    runs = runs_in(path)
    if not runs:
        raise RecordingError(f"{path}: no recording in this directory")
    names = [os.path.basename(file) for files in runs for file in files]
    hosts = {None if (match := _SERIES.fullmatch(name)) is None else match[1] for name in names}
    if len(hosts) > 1 and None not in hosts:
        machines = ", ".join(sorted(map(str, hosts))[:MOST_NAMED])
        raise RecordingError(f"{path}: recordings of several machines ({machines}): name one file")
    if None in hosts and len(runs) > 1:
        shown = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
        raise RecordingError(
            f"{path}: {len(runs)} recordings ({shown}): name one file, or compare two of them: gputop compare A B"
        )
    return sorted(file for files in runs for file in files)


def runs_in(path: str) -> list[list[str]]:
    """Return a folder's recordings, each as its files in order.

    Raises RecordingError when the folder cannot be listed.
    """
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(SUFFIXES))
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error
    series: dict[object, list[str]] = {}
    for name in names:
        match = _SERIES.fullmatch(name)
        series.setdefault(name if match is None else match.groups(), []).append(
            os.path.join(path, name)
        )
    return list(series.values())


def placed_frames(
    lines: Iterable[tuple[int, bytes | Damage]], decoder: LineDecoder, name: str
) -> Iterator[tuple[int, Snapshot]]:
    """Yield the frames of lines with their lines' places.

    Events after the last frame are given to it, so that none is lost.
    """
    last: tuple[int, Snapshot] | None = None
    bad = 0
    for place, line in lines:
        if isinstance(line, Damage):
            decoder.note_damage(str(line))
            continue
        before = decoder.damaged
        try:
            snapshot = decoder.feed(line)
        except RecordingError as error:
            raise RecordingError(f"{name}: {error}") from error
        bad += decoder.damaged - before
        if bad > _MOST_BAD_LINES:
            break
        if snapshot is not None:
            bad = 0
            if last is not None:
                yield last
            last = place, snapshot
    if last is not None:
        late = (*decoder.trailing, *decoder.lost_end(last[1].t))
        decoder.trailing.clear()
        yield last[0], replace(last[1], events=last[1].events + late) if late else last[1]


class Recording(RecordedTimeline):
    """An opened recording: a file or a directory of files.

    Readers see the contents through ``recording_filter``. Raises RecordingError when it cannot be opened or holds no
    frame. Not for two threads at once: open it twice.
    """

    def __init__(self, path: str, recording_filter: RecordingFilter | None = None) -> None:
        self.path = path
        self.recording_filter = recording_filter
        self.run: RunFacts | None = None
        """The program that was recorded; known once the recording has been read to its end."""
        self._names = recording_files(path)
        self._files: list[BinaryIO] = []
        """Open files: the oldest, which are deleted first."""
        self._parts: list[FilePart] = []
        with ExitStack() as opened:
            for number, name in enumerate(self._names):
                with ExitStack() as for_now:
                    file = (opened if number < MOST_OPEN else for_now).enter_context(
                        open_recording(name)
                    )
                    self._parts += parts_of(file, number)
                    self._files += [file] if number < MOST_OPEN else []
            first = next(self.walk(range(len(self._parts))), None)
            if first is None:
                raise _no_frame(path, self._decoder)
            self._divide()
            self._opened = opened.pop_all()
        self.interval_s = first[1].interval_s
        self.hostname = first[1].machine.hostname
        self.gpus: tuple[GpuStatic, ...] = tuple(gpu.static for gpu in first[1].gpus)

    def _divide(self) -> None:
        """Divide the parts into segments with rising times.

        A segment begins where the clock was set back.
        """
        for number, part in enumerate(self._parts):
            if isnan(part.first_t):
                self._parts[number] = replace(part, first_t=next(self._times(number), nan))
        self._parts = [part for part in self._parts if not isnan(part.first_t)]
        segments: list[TimeSegment] = []
        last_t = float("inf")
        for number, part in enumerate(self._parts):
            if part.clock_set_back or part.first_t < last_t:
                segments.append(TimeSegment(part.first_t, part.first_t, number, number))
            last_t = part.first_t
            segments[-1] = replace(segments[-1], end=part.first_t, last=number)
        ends = [max((segment.end, *self._times(segment.last))) for segment in segments]
        self._lay_out(
            [part.first_t for part in self._parts],
            [replace(segment, end=end) for segment, end in zip(segments, ends, strict=True)],
        )

    def _times(self, number: int) -> Iterator[float]:
        """Yield the times of a part's frames."""
        return (snapshot.t for _, snapshot in self.walk((number,)))

    def walk(self, numbers: Iterable[int]) -> Iterator[tuple[int, Snapshot]]:
        numbers = list(numbers)
        from_start = bool(numbers) and not self._parts[numbers[0]].begin
        self._decoder = decoder = LineDecoder(self.recording_filter, from_start=from_start)
        lines = ((number, line) for number in numbers for line in self._lines(self._parts[number]))
        yield from placed_frames(lines, decoder, self.path)
        self.run = decoder.run or self.run

    def close(self) -> None:
        self._opened.close()

    def _lines(self, part: FilePart) -> Iterator[bytes | Damage]:
        if part.file < len(self._files):
            yield from lines_of(self._files[part.file], part)
            return
        try:
            with open_recording(self._names[part.file]) as file:
                yield from lines_of(file, part)
        except RecordingError:
            yield Damage("the file was deleted in the meantime")
