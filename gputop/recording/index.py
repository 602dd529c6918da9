"""A recording that can be entered at any time, by the beginnings of its parts. A day of 8 GPUs is 1440 parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isnan, nan
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from gputop.model.snapshot import Event, GpuStatic, Snapshot
from gputop.recording.decode import Decoder
from gputop.recording.file_parts import FilePart, parts_of
from gputop.recording.format import RecordingError
from gputop.recording.gzip_members import Allowance, open_recording
from gputop.recording.lines_beside_frames import RunFacts
from gputop.recording.reader import lines_of, placed_frames, recording_files
from gputop.recording.recorded_times import RecordedTimeline, TimeSegment

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

MOST_OPEN = 256
"""Files of a recording that stay open, so that a replay survives their deletion. Further files are opened when they
are read: a month of hourly files is more than a process may have open."""


class Recording(RecordedTimeline):
    """A recording, opened: a file or a directory of them.

    With a ``recording_filter`` everything that is read passes through it.
    Raises RecordingError when it cannot be opened or holds no frame. Not for two threads at once: open it twice.
    """

    def __init__(self, path: str, recording_filter: RecordingFilter | None = None) -> None:
        self.path = path
        self.recording_filter = recording_filter
        self.run: RunFacts | None = None
        """What ran, where this is the recording of a program; known once it was read to its end."""
        self._names = recording_files(path)
        self._files: list[BinaryIO] = []
        """The open files are the oldest, which are the first to be deleted."""
        self._parts: list[FilePart] = []
        try:
            for number, name in enumerate(self._names):
                file = open_recording(name)
                if number < MOST_OPEN:
                    self._files.append(file)
                    self._parts += parts_of(file, number)
                    continue
                with file:
                    self._parts += parts_of(file, number)
            first = next(self.walk(range(len(self._parts))), None)
            if first is None:
                raise RecordingError(f"{path}: no frame of a recording in it")
            self._divide()
        except BaseException:
            self.close()
            raise
        self.interval_s = first[1].interval_s
        self.hostname = first[1].machine.hostname
        self.gpus: tuple[GpuStatic, ...] = tuple(gpu.static for gpu in first[1].gpus)

    def _divide(self) -> None:
        """Find the segments: a part before which the clock was set back begins one. Only the last part of each is
        read."""
        for number, part in enumerate(self._parts):
            if isnan(part.first_t):
                self._parts[number] = replace(part, first_t=next(self._times(number), nan))
        self._parts = [part for part in self._parts if not isnan(part.first_t)]
        segments: list[TimeSegment] = []
        last_t = float("inf")
        for number, part in enumerate(self._parts):
            if part.back or part.first_t < last_t:
                segments.append(TimeSegment(part.first_t, part.first_t, number, number))
            last_t = part.first_t
            segments[-1] = replace(segments[-1], end=part.first_t, last=number)
        ends = [max((segment.end, *self._times(segment.last))) for segment in segments]
        self._lay_out(
            [part.first_t for part in self._parts],
            [replace(segment, end=end) for segment, end in zip(segments, ends, strict=True)],
        )

    def _times(self, number: int) -> Iterator[float]:
        """The times of a part's frames."""
        return (snapshot.t for _, snapshot in self.walk((number,)))

    def walk(self, numbers: Iterable[int]) -> Iterator[tuple[int, Snapshot]]:
        decoder, allowance = Decoder(self.recording_filter), Allowance()
        current_part = [-1]

        def lines() -> Iterator[bytes]:
            for number in numbers:
                current_part[0] = number
                yield from self._lines(self._parts[number], decoder, allowance)

        yield from placed_frames(lines(), decoder, self.path, lambda: current_part[0])
        self.run = decoder.run or self.run

    def events(self) -> Iterator[Event]:
        """Every event that was recorded, verdicts too, without decoding frames. Takes about 3 s for a day of 8 GPUs."""
        decoder, allowance = Decoder(self.recording_filter), Allowance()
        for part in self._parts:
            for line in self._lines(part, decoder, allowance):
                if line.startswith((b'{"k":"event"', b'{"k": "event"')):
                    decoder.feed(line)
                    yield from (*decoder.trailing, *decoder.derived)
                    decoder.trailing.clear()
                    decoder.derived.clear()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _lines(self, part: FilePart, decoder: Decoder, allowance: Allowance) -> Iterator[bytes]:
        if part.file < len(self._files):
            yield from lines_of(self._files[part.file], part, decoder, allowance)
            return
        try:
            file = open_recording(self._names[part.file])
        except RecordingError:
            # Deleted in the meantime.
            decoder.note_damage()
            return
        with file:
            yield from lines_of(file, part, decoder, allowance)
