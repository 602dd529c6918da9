"""A recording that can be entered at any time: an index of its members, built by looking at each one's beginning.

No sidecar file: headers of gzip members are found in the bytes and proven by what they unpack to. A day of 8 GPUs is
1440 members.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct

from gputop.model.snapshot import Event, GpuStatic, Snapshot
from gputop.recording.decode import Decoder
from gputop.recording.format import MEMBER_FRAMES, MOST_LINE_BYTES, RecordingError
from gputop.recording.gzip_members import MAGIC, first_lines, is_gzip, open_recording, plain_lines
from gputop.recording.reader import frames, lines_of, recording_files

if TYPE_CHECKING:
    from gputop.model.redaction import Redactor

_CHUNK = 8 << 20
_FRAME_TIME = re.compile(rb'\{"k": ?"frame", ?"t": ?([0-9.eE+]{1,32}),')


class Part(Struct, frozen=True):
    """A stretch of one file that begins with what its frames need: ``preamble`` are offsets of lines before it."""

    file: int
    begin: int
    end: int | None
    first_t: float
    preamble: tuple[int, ...] = ()


class Recording:
    """A recording, opened: a file or a directory of them.

    With a ``redactor`` everything that is read is redacted by it.
    Raises RecordingError when it cannot be opened or holds no frame. Not for two threads at once: open it twice.
    """

    def __init__(self, path: str, redactor: Redactor | None = None) -> None:
        self.path = path
        self.redactor = redactor
        self._files: list[BinaryIO] = []
        self._parts: list[Part] = []
        try:
            for number, name in enumerate(recording_files(path)):
                file = open_recording(name)
                self._files.append(file)
                parts = _packed_parts(file, number) if is_gzip(file) else _plain_parts(file, number)
                # Lines of another writer may begin in another way: such a file is one part, read from its start.
                self._parts += parts or [Part(number, 0, None, 0.0)]
            first = next(self.snapshots(), None)
            last = self._last_frame()
        except BaseException:
            self.close()
            raise
        if first is None or last is None:
            self.close()
            raise RecordingError(f"{path}: no frame of a recording in it")
        # Times run backwards where a clock was set back; a search needs them in order.
        self._starts: list[float] = []
        for part in self._parts:
            self._starts.append(max(part.first_t, self._starts[-1] if self._starts else part.first_t))
        self.begin = first.t
        self.end = last.t
        """Times of the first and the last frame, Unix seconds."""
        self.interval_s = first.interval_s
        self.hostname = first.machine.hostname
        self.gpus: tuple[GpuStatic, ...] = tuple(gpu.static for gpu in first.gpus)

    def snapshots(self, begin: float | None = None, end: float | None = None) -> Iterator[Snapshot]:
        """The frames from a time to a time, both included, in the order in which they were recorded."""
        first = 0 if begin is None else max(0, bisect_right(self._starts, begin) - 1)
        for snapshot in self.from_part(first):
            if end is not None and snapshot.t > end:
                return
            if begin is None or snapshot.t >= begin:
                yield snapshot

    def part_at(self, t: float) -> int:
        """The number of the part that holds the last frame at or before a time; 0 when all frames are later."""
        return max(0, bisect_right(self._starts, t) - 1)

    def part(self, number: int) -> list[Snapshot]:
        """The frames of one part. The gap to the part before is not among their events."""
        decoder = Decoder(self.redactor)
        return list(frames(self._lines(self._parts[number], decoder), decoder, self.path))

    def from_part(self, number: int) -> Iterator[Snapshot]:
        """The frames from the beginning of a part on, with gaps between parts."""
        decoder = Decoder(self.redactor)
        parts = self._parts[number:]
        return frames((line for part in parts for line in self._lines(part, decoder)), decoder, self.path)

    def events(self) -> Iterator[Event]:
        """Every event that was recorded, verdicts too, without decoding frames. Takes about 3 s for a day of 8 GPUs."""
        decoder = Decoder(self.redactor)
        for part in self._parts:
            for line in self._lines(part, decoder):
                if line.startswith((b'{"k":"event"', b'{"k": "event"')):
                    decoder.feed(line)
                    yield from (*decoder.trailing, *decoder.derived)
                    decoder.trailing.clear()
                    decoder.derived.clear()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _lines(self, part: Part, decoder: Decoder) -> Iterable[bytes]:
        file = self._files[part.file]
        for offset in part.preamble:
            file.seek(offset)
            yield file.readline(MOST_LINE_BYTES)
        yield from lines_of(file, decoder, part.begin, part.end)

    def _last_frame(self) -> Snapshot | None:
        for number in range(len(self._parts) - 1, -1, -1):
            found = self.part(number)
            if found:
                return found[-1]
        return None


def _time_of(line: bytes) -> float | None:
    found = _FRAME_TIME.match(line)
    try:
        return float(found.group(1)) if found else None
    except ValueError:
        return None


def _packed_parts(file: BinaryIO, number: int) -> list[Part]:
    """One part a member, found by its header and proven by the frame that it begins with."""
    begins: list[tuple[int, float]] = []
    for offset in _headers(file):
        lines = first_lines(file, offset, lambda line: _time_of(line) is not None)
        t = _time_of(lines[-1]) if lines else None
        if t is not None:
            begins.append((offset, t))
    ends: list[int | None] = [begin for begin, _ in begins[1:]]
    return [Part(number, begin, end, t) for (begin, t), end in zip(begins, [*ends, None], strict=False)]


def _headers(file: BinaryIO) -> Iterator[int]:
    """Offsets at which a gzip header may stand."""
    base, rest = 0, b""
    while True:
        file.seek(base + len(rest))
        chunk = file.read(_CHUNK)
        if not chunk:
            return
        data = rest + chunk
        found = data.find(MAGIC)
        while found >= 0:
            yield base + found
            found = data.find(MAGIC, found + 1)
        rest = data[1 - len(MAGIC) :]
        base += len(data) - len(rest)


def _plain_parts(file: BinaryIO, number: int) -> list[Part]:
    """Parts of at most 60 frames; each knows the key line and the lines of new processes before it."""
    begins: list[tuple[int, float, tuple[int, ...]]] = []
    preamble: list[int] = []
    count = 0
    for offset, line in plain_lines(file):
        if line is None:
            continue
        if line.startswith((b'{"k":"key"', b'{"k": "key"')):
            preamble = [offset]
            count = 0
        elif line.startswith((b'{"k":"procs"', b'{"k": "procs"')):
            preamble.append(offset)
        elif (t := _time_of(line)) is not None:
            if count % MEMBER_FRAMES == 0:
                begins.append((offset, t, tuple(preamble)))
            count += 1
    ends: list[int | None] = [begin for begin, _, _ in begins[1:]]
    return [Part(number, begin, end, t, known) for (begin, t, known), end in zip(begins, [*ends, None], strict=False)]
