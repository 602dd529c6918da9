"""Read recordings frame by frame, from any time.

Unreadable parts are left out and become gaps; only a file without any frame is an error. Memory is constant; a day of 8
GPUs is 1440 parts.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from math import inf, isnan, nan
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.snapshot import GpuStatic, Snapshot
from gputop.recording.check import NOT_A_LINE, is_sound_frame
from gputop.recording.decode import LineDecoder
from gputop.recording.file_lines import FilePart, frame_time, lines_of, open_recording, parts_of
from gputop.recording.format import SUFFIXES, Damage, RecordingError, RunFacts
from gputop.recording.recorded_times import RecordedTimeline, TimeSegment, is_clock_set
from gputop.system.safe_open import open_regular

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

_SERIES = re.compile(r"(.+)-\d{8}T\d{6}Z-(\d+)(?:\.\d+)?(?:\.gputop)?\.jsonl(?:\.gz)?")
"""HOST-TIME-PID: the files of one recorder."""
MOST_NAMED = 3
"""Files named in one line."""
_MOST_BAD_LINES = 1000
"""Bad lines without a good frame after which a file is given up."""
_MOST_UNFRAMED_LINES = 65_536
"""Lines of any kind without a frame after which a file is given up.

Before a frame stand its processes, at most 4096, and its events.
"""
_MOST_SCANNED = 16 << 20
"""Bytes of text that are read when a recording is opened, to find where times fall within a part.

A recorder begins a member when its clock is set back, so that the begins of the members say it; other programs' files
are mostly one part, which is read as a whole.
"""
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
    if reason.startswith(NOT_A_LINE) and (advice := _reader_of(path)):
        # What its parser says is no help to somebody who named another file.
        reason = f"{NOT_A_LINE}; {advice}"
    return RecordingError(f"{path}: no frame of a recording in it{f': {reason}' if reason else ''}")


_SQLITE, _PICKLE = b"SQLite format 3\0", b"\x80"
_LINE = b'{"k":'
_SEARCHED = 1 << 16


def _reader_of(path: str) -> str:
    """Advice to somebody who took another file for a recording; empty for lines like a recording's."""
    begin = b""
    with suppress(OSError), open_regular(path) as file:
        begin = file.read(_SEARCHED)
    with suppress(zlib.error):
        if begin.startswith(b"\x1f\x8b"):
            begin = zlib.decompressobj(31).decompress(begin, _SEARCHED)
    if begin.startswith(_PICKLE):
        return "`gputop memory` reads PyTorch's memory snapshots"
    if begin.startswith(_SQLITE) or b'"traceEvents"' in begin:
        return "`gputop trace` reads profilers' traces"
    if begin.startswith(_LINE):
        return ""
    return "`gputop record` and `gputop run` write recordings"


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
            f"{path}: {len(runs)} recordings ({shown}): name one file, or compare them: gputop compare A B …"
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
    bad = unframed = 0
    for place, line in lines:
        if isinstance(line, Damage):
            decoder.note_damage(str(line))
            continue
        unframed += 1
        if unframed > _MOST_UNFRAMED_LINES:
            decoder.note_damage(f"more than {_MOST_UNFRAMED_LINES} lines without a frame")
            break
        before = decoder.damaged
        try:
            snapshot = decoder.feed(line)
        except RecordingError as error:
            raise RecordingError(f"{name}: {error}") from error
        bad += decoder.damaged - before
        if bad > _MOST_BAD_LINES:
            break
        if snapshot is not None:
            bad = unframed = 0
            if last is not None:
                yield last
            last = place, snapshot
    if last is not None:
        late = (*decoder.trailing, *decoder.lost_end(last[1].t))
        decoder.trailing.clear()
        yield last[0], replace(last[1], events=last[1].events + late) if late else last[1]


class _Stretch(Struct, frozen=True):
    """Frames of a part of a file in which times rise.

    ``part`` and ``number`` count the parts of the recording and the stretches of the part. ``first_t`` and ``last_t``
    are the times of its first and last frame, as far as known.
    """

    part: int
    number: int
    first_t: float
    last_t: float


def _with_times(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    """Give stretches without a frame the time before them, else the first time.

    They tell of damage.
    """
    t = next(stretch.first_t for stretch in stretches if not isnan(stretch.first_t))
    timed: list[_Stretch] = []
    for stretch in stretches:
        if isnan(stretch.first_t):
            stretch = replace(stretch, first_t=t, last_t=t)
        timed.append(stretch)
        t = stretch.last_t
    return timed


class Recording(RecordedTimeline):
    """An opened recording: a file or a directory of files.

    Readers see the contents through ``recording_filter``. Raises RecordingError when it cannot be opened or holds no
    frame. Not for two threads at once: open it twice.
    """

    def __init__(
        self,
        path: str,
        recording_filter: RecordingFilter | None = None,
        note_read: Callable[[int], object] | None = None,
    ) -> None:
        """``note_read`` is called with the bytes of text that were read so far."""
        self.path = path
        self._note_read = note_read
        self.recording_filter = recording_filter
        self.run: RunFacts | None = None
        """The program that was recorded; known once the recording has been read to its end."""
        self.damage = ""
        """The first fault that was met so far; empty without one."""
        self._names = recording_files(path)
        self._files: list[BinaryIO] = []
        """Open files: the oldest, which are deleted first."""
        self._parts: list[FilePart] = []
        self._stretches: list[_Stretch] = []
        self._bytes_read = 0
        with ExitStack() as opened:
            for number, name in enumerate(self._names):
                with ExitStack() as for_now:
                    file = (opened if number < MOST_OPEN else for_now).enter_context(
                        open_recording(name)
                    )
                    self._parts += parts_of(file, number)
                    self._files += [file] if number < MOST_OPEN else []
            first = next(self._read_parts(range(len(self._parts))), None)
            if first is None:
                raise _no_frame(path, self._decoder)
            self._divide()
            self._opened = opened.pop_all()
        self.interval_s = first[1].interval_s
        self.hostname = first[1].machine.hostname
        self.gpus: tuple[GpuStatic, ...] = tuple(gpu.static for gpu in first[1].gpus)

    def _divide(self) -> None:
        """Divide the parts into segments with rising times.

        A segment begins at each frame whose time falls, or lies years ahead.
        """
        stretches: list[_Stretch] = []
        begun = self._bytes_read
        for number, part in enumerate(self._parts):
            is_last = number + 1 == len(self._parts) or self._falls_after(number)
            must_scan = is_last or isnan(part.first_t)
            if must_scan or self._bytes_read - begun < _MOST_SCANNED:
                stretches += self._stretches_of(number)
            else:
                stretches.append(_Stretch(number, 0, part.first_t, part.first_t))
        if all(isnan(stretch.first_t) for stretch in stretches):
            raise _no_frame(self.path, self._decoder)
        self._stretches = _with_times(stretches)
        segments: list[TimeSegment] = []
        last_t = -inf
        for number, stretch in enumerate(self._stretches):
            part = self._parts[stretch.part]
            is_set_back = part.clock_set_back and stretch.number == 0
            if is_set_back or is_clock_set(last_t, stretch.first_t):
                segments.append(TimeSegment(stretch.first_t, stretch.last_t, number, number))
            segments[-1] = replace(segments[-1], end=stretch.last_t, last=number)
            last_t = stretch.last_t
        self._lay_out([stretch.first_t for stretch in self._stretches], segments)

    def _falls_after(self, number: int) -> bool:
        """Return whether the next part begins before this one, or says that the clock was set back."""
        part, following = self._parts[number], self._parts[number + 1]
        return following.clock_set_back or following.first_t < part.first_t

    def _stretches_of(self, number: int) -> list[_Stretch]:
        """Return the stretches of rising times in a part; a part without frames is one without times."""
        if (rising := self._whole_stretch(number)) is not None:
            return [rising]
        stretches: list[_Stretch] = []
        last_t = -inf
        for _, snapshot in self._read_parts([number]):
            if is_clock_set(last_t, snapshot.t):
                stretches.append(_Stretch(number, len(stretches), snapshot.t, snapshot.t))
            last_t = snapshot.t
            stretches[-1] = replace(stretches[-1], last_t=snapshot.t)
        return stretches or [_Stretch(number, 0, nan, nan)]

    def _whole_stretch(self, number: int) -> _Stretch | None:
        """Return a part as one stretch if the times of all its frames rise.

        Only times are read, and the first and the last frame as a whole: a fifth of the work. None where these are
        damaged, or where a time falls: which frames count is known only when all are read.
        """
        first = last = b""
        first_t, last_t = nan, -inf
        for line in self._lines(self._parts[number]):
            if isinstance(line, Damage) or (t := frame_time(line)) is None:
                continue
            if first and is_clock_set(last_t, t):
                return None
            if not first:
                first, first_t = line, t
            last, last_t = line, t
        if is_sound_frame(first) and is_sound_frame(last):
            return _Stretch(number, 0, first_t, last_t)
        return None

    def walk(self, numbers: Iterable[int]) -> Iterator[tuple[int, Snapshot]]:
        wanted = {
            (self._stretches[number].part, self._stretches[number].number): number
            for number in numbers
        }
        parts = sorted({part for part, _ in wanted})
        stretch, last_part, last_t = 0, -1, 0.0
        for part, snapshot in self._read_parts(parts):
            if part != last_part:
                stretch = 0
            elif is_clock_set(last_t, snapshot.t):
                stretch += 1
            last_part, last_t = part, snapshot.t
            if (number := wanted.get((part, stretch))) is not None:
                yield number, snapshot

    def _read_parts(self, parts: Sequence[int]) -> Iterator[tuple[int, Snapshot]]:
        """Yield the frames of some parts with the numbers of these."""
        first = parts[0] if parts else 0
        self._decoder = decoder = LineDecoder(
            self.recording_filter,
            from_start=self._parts[first].begin == 0,
            refuses_formats=first == 0,
        )
        lines = ((number, line) for number in parts for line in self._lines(self._parts[number]))
        try:
            yield from placed_frames(lines, decoder, self.path)
        finally:
            # Readers may stop at the frame that they wanted.
            self.run = decoder.run or self.run
            self.damage = self.damage or decoder.reason

    def close(self) -> None:
        self._opened.close()

    def _lines(self, part: FilePart) -> Iterator[bytes | Damage]:
        for line in self._lines_of(part):
            if not isinstance(line, Damage):
                self._bytes_read += len(line)
                if self._note_read is not None:
                    self._note_read(self._bytes_read)
            yield line

    def _lines_of(self, part: FilePart) -> Iterator[bytes | Damage]:
        if part.file < len(self._files):
            yield from lines_of(self._files[part.file], part)
            return
        try:
            with open_recording(self._names[part.file]) as file:
                yield from lines_of(file, part)
        except RecordingError:
            yield Damage("the file was deleted in the meantime")
