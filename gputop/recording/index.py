"""A recording that can be entered at any time: an index of its members, built by looking at each one's beginning.

No sidecar file: headers of gzip members are found in the bytes and proven by what they unpack to. A day of 8 GPUs is
1440 members.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise, zip_longest
from math import nan
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from gputop.model.snapshot import Event, GpuStatic, Snapshot
from gputop.recording.decode import Decoder
from gputop.recording.format import MEMBER_FRAMES, MOST_LINE_BYTES, RecordingError
from gputop.recording.gzip_members import MAGIC, Allowance, first_lines, is_gzip, open_recording, plain_lines
from gputop.recording.lines_beside_frames import RunFacts
from gputop.recording.reader import frames, lines_of, placed_frames, recording_files
from gputop.recording.recorded_times import RecordedTimeline, TimeSegment

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

_CHUNK = 8 << 20
AS_LONG = (0.98, 1.03)
"""A part whose length agrees this well with its frames was not shortened by a clock that was set back."""
_BACK = b'"back":true'
MOST_OPEN = 256
"""Files of a recording that stay open, so that a replay survives their deletion. Further files are opened when they
are read: a month of hourly files is more than a process may have open."""
MOST_SEGMENTS = 4096
"""A recording whose clock is set back more often is not divided any further."""
_FRAME_TIME = re.compile(rb'\{"k": ?"frame", ?"t": ?([0-9.eE+]{1,32}),')


class FilePart(Struct, frozen=True):
    """A stretch of one file that begins with what its frames need: ``preamble`` are offsets of lines before it.

    Where the clock was set back within a stretch, each run of rising times is a part of its own: ``turn`` says how
    often it was set back in the stretch before this part. ``rises`` says that it was not, nor at its end, where that is
    known already, ``back`` that it was before its beginning. ``first_t`` is not a number where it is not known yet.
    """

    file: int
    begin: int
    end: int | None
    first_t: float
    preamble: tuple[int, ...] = ()
    turn: int = 0
    rises: bool = False
    back: bool = False


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
        self._others_bytes = 0
        self._parts: list[FilePart] = []
        self._turns: dict[tuple[int, int], list[int]] = {}
        """The numbers of the parts that each stretch was cut into, by file and offset."""
        try:
            for number, name in enumerate(self._names):
                file = open_recording(name)
                if number < MOST_OPEN:
                    self._files.append(file)
                    self._parts += _parts_of(file, number)
                    continue
                with file:
                    self._others_bytes += os.fstat(file.fileno()).st_size
                    self._parts += _parts_of(file, number)
            first = next(self.walk(range(len(self._parts))), None)
            if first is None:
                raise RecordingError(f"{path}: no frame of a recording in it")
            self.interval_s = first[1].interval_s
            self._divide()
        except BaseException:
            self.close()
            raise
        self.hostname = first[1].machine.hostname
        self.gpus: tuple[GpuStatic, ...] = tuple(gpu.static for gpu in first[1].gpus)

    def _divide(self) -> None:
        """Find where the clock was set back, and cut the parts there.

        A part is unpacked for this only where the next one begins sooner or later than a full part lasts, or says that
        the clock was set back. A step back hidden by an equally long gap goes unnoticed in a file that does not say so;
        the segment then holds both, and no frame is lost.
        """
        parts: list[FilePart] = []
        segments: list[TimeSegment] = []
        allowance = self._allowance()
        least_s, most_s = (share * MEMBER_FRAMES * self.interval_s for share in AS_LONG)
        lost: FilePart | None = None
        for part, following in zip_longest(self._parts, self._parts[1:]):
            if lost is not None and lost.file == part.file:
                part = replace(part, begin=lost.begin)
            lost = None
            whole = following is not None and not following.back
            whole = whole and (part.rises or least_s <= following.first_t - part.first_t <= most_s)
            runs = [(part.first_t, part.first_t)] if whole else self._runs(part, allowance)
            if not runs and not self._read_past(parts, part):
                lost = part
            for turn, (begin, end) in enumerate(runs):
                number = len(parts)
                parts.append(replace(part, first_t=begin, turn=turn))
                self._turns.setdefault((part.file, part.begin), []).append(number)
                last = segments[-1] if segments else None
                if last is None or ((begin < last.end or (part.back and not turn)) and number < MOST_SEGMENTS):
                    segments.append(TimeSegment(begin, end, number, number))
                else:
                    segments[-1] = TimeSegment(last.begin, max(end, last.end), last.first, number)
        self._parts = parts
        self._lay_out([part.first_t for part in parts], segments)

    def _read_past(self, parts: list[FilePart], lost: FilePart) -> bool:
        """Extend the stretch before a part without a readable frame over that part, so that its damage is noticed."""
        if not parts or parts[-1].file != lost.file:
            return False
        for number in self._turns[parts[-1].file, parts[-1].begin]:
            parts[number] = replace(parts[number], end=lost.end)
        return True

    def _runs(self, part: FilePart, allowance: Allowance) -> list[tuple[float, float]]:
        """(first, last) time of each run of rising times in a part."""
        times = [t for line in self._lines(part, Decoder(), allowance) if (t := _time_of(line)) is not None]
        if not times or any(after < before for before, after in pairwise(times)):
            decoder = Decoder()
            times = [snapshot.t for snapshot in frames(self._lines(part, decoder, allowance), decoder, self.path)]
        runs: list[tuple[float, float]] = []
        for t in times:
            if runs and t >= runs[-1][1]:
                runs[-1] = runs[-1][0], t
            elif len(runs) < MOST_SEGMENTS:
                runs.append((t, t))
        return runs

    def walk(self, numbers: Iterable[int]) -> Iterator[tuple[int, Snapshot]]:
        decoder = Decoder(self.recording_filter)
        allowance = self._allowance()
        asked_parts = dict.fromkeys(numbers)
        # Parts of one stretch are decoded together, so that gaps and facts between them are right.
        first_of = list(dict.fromkeys(self._siblings(number)[0] for number in asked_parts))
        current_part = [-1]

        def lines() -> Iterator[bytes]:
            for number in first_of:
                current_part[0] = number
                yield from self._lines(self._parts[number], decoder, allowance)

        before, turn, last_t = -1, 0, 0.0
        for first, snapshot in placed_frames(lines(), decoder, self.path, lambda: current_part[0]):
            turn = 0 if first != before else turn + (snapshot.t < last_t)
            before, last_t = first, snapshot.t
            siblings = self._siblings(first)
            # Further turns, which were not looked for, belong to the last part.
            number = siblings[min(turn, len(siblings) - 1)]
            if number in asked_parts:
                yield number, snapshot
        self.run = decoder.run or self.run

    def _siblings(self, number: int) -> list[int]:
        """The parts of the stretch that a part belongs to."""
        part = self._parts[number]
        return self._turns.get((part.file, part.begin)) or [number]

    def events(self) -> Iterator[Event]:
        """Every event that was recorded, verdicts too, without decoding frames. Takes about 3 s for a day of 8 GPUs."""
        decoder, allowance = Decoder(self.recording_filter), self._allowance()
        for part in self._parts:
            if part.turn:
                continue
            for line in self._lines(part, decoder, allowance):
                if line.startswith((b'{"k":"event"', b'{"k": "event"')):
                    decoder.feed(line)
                    yield from (*decoder.trailing, *decoder.derived)
                    decoder.trailing.clear()
                    decoder.derived.clear()

    def close(self) -> None:
        for file in self._files:
            file.close()

    def _allowance(self) -> Allowance:
        return Allowance(self._files, self._others_bytes)

    def _lines(self, part: FilePart, decoder: Decoder, allowance: Allowance) -> Iterable[bytes]:
        if part.file < len(self._files):
            yield from _lines_in(self._files[part.file], part, decoder, allowance)
            return
        try:
            file = open_recording(self._names[part.file])
        except RecordingError:
            # Deleted in the meantime.
            decoder.note_damage()
            return
        with file:
            yield from _lines_in(file, part, decoder, allowance)


def _lines_in(file: BinaryIO, part: FilePart, decoder: Decoder, allowance: Allowance) -> Iterator[bytes]:
    for offset in part.preamble:
        file.seek(offset)
        yield file.readline(MOST_LINE_BYTES)
    yield from lines_of(file, decoder, allowance, part.begin, part.end)


def _parts_of(file: BinaryIO, number: int) -> list[FilePart]:
    parts = _packed_parts(file, number) if is_gzip(file) else _plain_parts(file, number)
    # Another writer's lines may begin differently: such a file is one part, read from its start.
    return parts or [FilePart(number, 0, None, nan)]


def _time_of(line: bytes) -> float | None:
    match = _FRAME_TIME.match(line)
    try:
        return float(match.group(1)) if match else None
    except ValueError:
        return None


def _packed_parts(file: BinaryIO, number: int) -> list[FilePart]:
    """One part a member, found by its header and proven by the frame that it begins with."""
    begins: list[tuple[int, float, bool]] = []
    allowance = Allowance((file,))
    for offset in _headers(file):
        if allowance.is_over:
            break
        lines = first_lines(file, offset, lambda line: _time_of(line) is not None, allowance)
        t = _time_of(lines[-1]) if lines else None
        if t is not None:
            begins.append((offset, t, _BACK in lines[0]))
    ends: list[int | None] = [begin for begin, _, _ in begins[1:]]
    # Anything before the first sound member is damage, and is noticed when it is read.
    begins[:1] = [(0, t, back) for _, t, back in begins[:1]]
    return [
        FilePart(number, begin, end, t, back=back) for (begin, t, back), end in zip(begins, [*ends, None], strict=False)
    ]


def _headers(file: BinaryIO) -> Iterator[int]:
    """Offsets at which a gzip header may stand."""
    base, rest = 0, b""
    while True:
        file.seek(base + len(rest))
        chunk = file.read(_CHUNK)
        if not chunk:
            return
        data = rest + chunk
        position = data.find(MAGIC)
        while position >= 0:
            yield base + position
            position = data.find(MAGIC, position + 1)
        rest = data[1 - len(MAGIC) :]
        base += len(data) - len(rest)


def _plain_parts(file: BinaryIO, number: int) -> list[FilePart]:
    """Parts of at most 60 frames in which times rise; each knows the key and the new processes before it."""
    parts: list[FilePart] = []
    preamble: list[int] = []
    count, last_t = 0, float("-inf")
    for offset, line in plain_lines(file):
        if line is None:
            continue
        if line.startswith((b'{"k":"key"', b'{"k": "key"')):
            preamble = [offset]
            count = 0
        elif line.startswith((b'{"k":"procs"', b'{"k": "procs"')):
            preamble.append(offset)
        elif (t := _time_of(line)) is not None:
            if count % MEMBER_FRAMES == 0 or t < last_t:
                if parts:
                    parts[-1] = replace(parts[-1], end=offset, rises=t >= last_t)
                parts.append(FilePart(number, offset, None, t, tuple(preamble)))
                count = 0
            count += 1
            last_t = t
    return parts
