"""The bytes of a recording as lines: gzip members and plain text, damage skipped, memory bounded.

A gzip member is believed only when its checksum holds; the last one may be torn and then counts as far as it goes.
Nothing here knows what a line means.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import BinaryIO, Literal

from msgspec import Struct

from gputop.recording.format import MOST_LINE_BYTES, RecordingError
from gputop.system.given_file import open_regular

MAGIC = b"\x1f\x8b\x08"
_GZIP = 31
_CHUNK = 1 << 18
_MOST_HELD = 16 << 20
"""A larger member is handed out before its checksum is known: no recorder writes one, but gzip(1) does."""
BOMB_RATIO = 100
"""A higher compression ratio is a bomb; gzip reaches 1032. Measured: recorders write 10:1, a machine on which nothing
ever changes 71:1, and 88:1 when packed again with gzip -9."""
MOST_LINES, LINES_A_FRAME = 20_000, 64
"""Lines that are read without any frame, and how many more each frame allows."""
_PEEK = 4096
_BLANK_LINES = re.compile(rb"\n{2,}")

Fate = Literal["whole", "torn", "damaged", "bomb"]


class Allowance:
    """What one pass over files may cost: bytes unpacked or looked at, and lines that are no frames.

    Both grow with the size of the files, so that no file costs more than a recording of its size.
    """

    __slots__ = ("_bytes", "_lines")

    def __init__(self, files: Iterable[BinaryIO], others_bytes: int = 0) -> None:
        """``others_bytes`` is the size of files that are not open now."""
        size = others_bytes + sum(os.fstat(file.fileno()).st_size for file in files)
        self._bytes = _MOST_HELD + BOMB_RATIO * size
        self._lines = MOST_LINES

    @property
    def is_over(self) -> bool:
        """Whether more was spent than there was."""
        return self._bytes < 0 or self._lines < 0

    def take(self, size: int, text: bytes = b"") -> bool:
        """Spend ``size`` bytes and the empty lines of ``text``; False when fewer were left."""
        self._bytes -= size
        self._lines -= text.count(b"\n\n")
        return not self.is_over

    def admit(self, line: bytes) -> bool:
        """Spend one line; one that holds a frame adds to the allowance. False when none is left."""
        if b'"frame"' in line:
            self._lines = min(MOST_LINES, self._lines + LINES_A_FRAME)
            return True
        self._lines -= 1
        return self._lines >= 0


class MemberEnd(Struct):
    """How reading one member ended: ``end`` is the offset after it, or where the search for the next one begins.

    After a ``bomb`` the allowance is spent and the file is given up.
    """

    fate: Fate = "torn"
    end: int = 0


def open_recording(path: str) -> BinaryIO:
    """A regular file, opened for reading. Raises RecordingError with the reason in words."""
    try:
        return open_regular(path, buffering=0)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error


def is_gzip(file: BinaryIO) -> bool:
    """Whether a file is compressed, by its bytes and not by its name; also when its first header is damaged."""
    file.seek(0)
    begin = file.read(64)
    if begin.lstrip().startswith(b"{"):
        return False
    return begin.startswith(MAGIC[:2]) or next_member(file, 0, Allowance((file,))) is not None


def gzip_lines(file: BinaryIO, offset: int, outcome: MemberEnd, allowance: Allowance) -> Iterator[bytes]:
    """The lines of the member at an offset, without their newlines; none of them when it is damaged.

    The last line of a torn member may be unfinished; an unfinished object never parses.
    """
    unpacker = zlib.decompressobj(_GZIP)
    outcome.fate, outcome.end = "damaged", offset + 1
    chunks: list[bytes] = []
    read = produced = pending = 0
    while not unpacker.eof:
        # Another reader of the same file may have moved it since the last chunk.
        file.seek(offset + read)
        packed = file.read(_CHUNK)
        if not packed:
            outcome.fate, outcome.end = "torn", offset + read
            break
        read += len(packed)
        while packed:
            try:
                chunk = unpacker.decompress(packed, _CHUNK)
            except zlib.error:
                return
            taken = len(packed) - len(unpacker.unconsumed_tail)
            packed = unpacker.unconsumed_tail
            produced += len(chunk)
            if not allowance.take(taken + len(chunk), chunk):
                outcome.fate = "bomb"
                return
            newline = chunk.rfind(b"\n")
            pending = pending + len(chunk) if newline < 0 else len(chunk) - newline
            if pending > MOST_LINE_BYTES or (produced > _MOST_HELD and produced > BOMB_RATIO * (read - len(packed))):
                return
            chunks.append(chunk)
            if produced > _MOST_HELD:
                data = b"".join(chunks)
                cut = data.rfind(b"\n") + 1
                chunks = [data[cut:]]
                yield from _split(data[:cut])
            if unpacker.eof:
                outcome.fate, outcome.end = "whole", offset + read - len(unpacker.unused_data)
                break
    data = b"".join(chunks)
    chunks.clear()
    yield from _split(data)


def _split(data: bytes) -> Iterator[bytes]:
    """Lines one by one without the empty ones, sixteen million of which would be a bomb by themselves."""
    if b"\n\n" in data:
        data = _BLANK_LINES.sub(b"\n", data)
    for line in BytesIO(data):
        yield line.rstrip(b"\n")


def next_member(file: BinaryIO, offset: int, allowance: Allowance) -> int | None:
    """The offset of the next member at or after an offset whose text begins as a line of a recording does.

    None at the end, or when the allowance is spent.
    """
    while True:
        file.seek(offset)
        chunk = file.read(_CHUNK)
        position = chunk.find(MAGIC)
        while position >= 0:
            if not allowance.take(_PEEK):
                return None
            if peek(file, offset + position, 1) == b"{":
                return offset + position
            position = chunk.find(MAGIC, position + 1)
        if len(chunk) < len(MAGIC):
            return None
        offset += max(1, len(chunk) - len(MAGIC) + 1)


def peek(file: BinaryIO, offset: int, size: int) -> bytes:
    """The first ``size`` bytes of text of the member at an offset; fewer when it has less or is none."""
    file.seek(offset)
    try:
        return zlib.decompressobj(_GZIP).decompress(file.read(max(_PEEK, size)), size)
    except zlib.error:
        return b""


def plain_lines(file: BinaryIO, offset: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes | None]]:
    """(offset, line) of plain text, the last one perhaps unfinished; None stands for a line that is too long."""
    rest, at, where = b"", offset, offset
    overlong = False
    while end is None or at < end:
        # Another reader of the same file may have moved it since the last chunk.
        file.seek(where)
        chunk = file.read(_CHUNK)
        where += len(chunk)
        if not chunk:
            if rest and not overlong:
                yield at, rest
            return
        if b"\n" not in chunk:
            if overlong or len(rest) + len(chunk) > MOST_LINE_BYTES:
                at, rest, overlong = at + len(rest) + len(chunk), b"", True
            else:
                rest += chunk
            continue
        *lines, tail = (rest + chunk).split(b"\n")
        rest = tail
        for line in lines:
            if end is not None and at >= end:
                return
            yield at, None if overlong or len(line) > MOST_LINE_BYTES else line
            overlong = False
            at += len(line) + 1


def first_lines(file: BinaryIO, offset: int, enough: Callable[[bytes], bool], allowance: Allowance) -> list[bytes]:
    """The first lines of the member at an offset, up to and with the first that is ``enough``; [] when none is.

    Reads little further than needed, than one longest line, or than the allowance. Of a line that does not end the
    beginning is asked about.
    """
    size = _PEEK
    while size <= 2 * MOST_LINE_BYTES:
        text = peek(file, offset, size)
        if not allowance.take(_PEEK + len(text), text) or not text.startswith(b"{"):
            return []
        lines = _BLANK_LINES.sub(b"\n", text).split(b"\n")
        found = next((number for number, line in enumerate(lines[:MOST_LINES]) if enough(line)), None)
        if found is not None or len(text) < size or len(lines) > MOST_LINES:
            return [] if found is None else lines[: found + 1]
        # From the beginning again, which costs a third more in all than going on would.
        size *= 4
    return []
