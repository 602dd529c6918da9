"""Recordings read from the beginning, frame by frame, in constant memory.

What cannot be read is left out and becomes a gap in the frames; only a file without any frame is an error. Seeking is
in ``index.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from msgspec.structs import replace

from gputop.model.snapshot import Snapshot
from gputop.recording.decode import Decoder
from gputop.recording.file_parts import FilePart, parts_of
from gputop.recording.format import MOST_LINE_BYTES, SUFFIXES, RecordingError
from gputop.recording.gzip_members import Allowance, is_gzip, open_recording, packed_lines, plain_lines

if TYPE_CHECKING:
    from gputop.recording.decode import RecordingFilter

_SERIES = re.compile(r"(.+)-\d{8}T\d{6}Z-(\d+)(?:\.\d+)?(?:\.gputop)?\.jsonl(?:\.gz)?")
"""HOST-TIME-PID: the files that one process has written."""
MOST_NAMED = 3
"""Files named in one line."""
_MOST_BAD_LINES = 1000
"""After so many bad lines without a good frame a file is given up as not a recording."""


def read_snapshots(path: str, recording_filter: RecordingFilter | None = None) -> Iterator[Snapshot]:
    """Every readable frame of a recording, a file or a directory of them, oldest first.

    Raises RecordingError when there is nothing to read, or when the format is newer than this program.
    """
    decoder, has_frame = Decoder(recording_filter), False
    for file_path in recording_files(path):
        with open_recording(file_path) as file:
            for snapshot in frames(lines_in(file, decoder), decoder, file_path):
                has_frame = True
                yield snapshot
    if not has_frame:
        raise RecordingError(f"{path}: no frame of a recording in it")


def recording_files(path: str) -> list[str]:
    """The files of a recording: the file itself, or those of a directory in the order of their names, which hold the
    time. Raises RecordingError when there is none, or when a directory holds more than the recording of one machine."""
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
            f"{path}: {len(runs)} recordings ({shown}): name one file, or see all: gputop report {path}"
        )
    return sorted(file for files in runs for file in files)


def runs_in(path: str) -> list[list[str]]:
    """The recordings of a folder, each as its files in order. Raises RecordingError when it cannot be listed."""
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(SUFFIXES))
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error
    series: dict[object, list[str]] = {}
    for name in names:
        match = _SERIES.fullmatch(name)
        series.setdefault(name if match is None else match.groups(), []).append(os.path.join(path, name))
    return list(series.values())


def frames(lines: Iterable[bytes], decoder: Decoder, name: str) -> Iterator[Snapshot]:
    """The frames that lines make. Events after the last frame are given to it, so that none is lost."""
    return (snapshot for _, snapshot in placed_frames(lines, decoder, name, lambda: 0))


def placed_frames(
    lines: Iterable[bytes], decoder: Decoder, name: str, place: Callable[[], int]
) -> Iterator[tuple[int, Snapshot]]:
    """As ``frames``, each frame with what ``place`` returned when its line was read."""
    last: tuple[int, Snapshot] | None = None
    bad = 0
    for line in lines:
        before = decoder.damaged
        try:
            snapshot = decoder.feed(line)
        except RecordingError as error:
            raise RecordingError(f"{name}: {error}") from error
        if decoder.damaged != before:
            bad += 1
            if bad > _MOST_BAD_LINES:
                break
        if snapshot is not None:
            bad = 0
            if last is not None:
                yield last
            last = place(), snapshot
    if last is not None:
        late = (*decoder.trailing, *decoder.lost_end(last[1].t))
        decoder.trailing.clear()
        yield last[0], replace(last[1], events=last[1].events + late) if late else last[1]


def lines_in(file: BinaryIO, decoder: Decoder) -> Iterator[bytes]:
    """The lines of a whole file. Damage is reported to the decoder."""
    allowance = Allowance()
    for part in parts_of(file, 0):
        yield from lines_of(file, part, decoder, allowance)


def lines_of(file: BinaryIO, part: FilePart, decoder: Decoder, allowance: Allowance) -> Iterator[bytes]:
    """The lines of a part. Damage is reported to the decoder, and nothing is read where the allowance is over."""
    if allowance.is_over:
        return
    if is_gzip(file):
        lines = packed_lines(file, part.begin, part.end, allowance)
    else:
        lines = (line for _, line in plain_lines(file, part.begin, part.end))
    for line in lines:
        if line is None or len(line) > MOST_LINE_BYTES:
            decoder.note_damage()
        elif line:
            yield line
