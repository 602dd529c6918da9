"""The bytes of a recording as lines: gzip members or plain text, what is damaged left out, memory bounded.

A gzip member is believed only when its checksum holds; the last one may be torn and then counts as far as it goes.
Nothing here knows what a line means.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO

from gputop.recording.format import MOST_LINE_BYTES, Damage, RecordingError
from gputop.system.given_file import open_regular

MAGIC = b"\x1f\x8b\x08\x00"
"""How a member of a recorder begins: without a name, which gzip(1) gives to the whole file."""
_GZIP = 31
_CHUNK = 1 << 18
_SEARCHED = 8 << 20
_MOST_HELD = 16 << 20
"""A larger member is handed out before its checksum is known: no recorder writes one, but gzip(1) does."""
FREE_BYTES, BOMB_RATIO = 1 << 20, 100
"""What a pass may unpack: so many bytes, and so many for each packed one. Recorders write 10:1, a machine on which
nothing ever changes 71:1, and 88:1 when packed again with gzip -9; gzip reaches 1032:1."""


class Allowance:
    """What one pass over a recording may still unpack."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = FREE_BYTES

    @property
    def is_over(self) -> bool:
        """Whether more was unpacked than a recording would have been: nothing more is read then."""
        return self._left < 0

    def take(self, packed: int, unpacked: int) -> None:
        """Count bytes and what they unpacked to. Raises Damage where that was more than there was."""
        self._left += BOMB_RATIO * packed - unpacked
        if self.is_over:
            raise Damage("a bomb")


class GzipMember:
    """The gzip member at an offset. ``end`` is the offset after it, once it was unpacked; None where it is torn."""

    def __init__(self, file: BinaryIO, begin: int, chunk: int = _CHUNK) -> None:
        self._file = file
        self._begin = begin
        self._chunk = chunk
        self.end: int | None = None

    def pieces(self, allowance: Allowance) -> Iterator[bytes]:
        """Its text, piece by piece. Raises Damage."""
        unpacker = zlib.decompressobj(_GZIP)
        at, packed = self._begin, b""
        while not unpacker.eof:
            if not packed and not (packed := os.pread(self._file.fileno(), self._chunk, at)):
                yield unpacker.flush()
                return
            try:
                text = unpacker.decompress(packed, self._chunk)
            except zlib.error as error:
                raise Damage("a damaged member") from error
            taken = len(packed) - len(unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail)
            at, packed = at + taken, unpacker.unconsumed_tail
            allowance.take(taken, len(text))
            yield text
        self.end = at


def open_recording(path: str) -> BinaryIO:
    """A regular file, opened for reading. Raises RecordingError with the reason in words."""
    try:
        return open_regular(path, buffering=0)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error


def is_gzip(file: BinaryIO) -> bool:
    """Whether a file is compressed, by its bytes and not by its name; also when its first header is damaged."""
    begin = os.pread(file.fileno(), 64, 0)
    if begin.lstrip().startswith(b"{"):
        return False
    return begin.startswith(MAGIC[:2]) or next(headers(file), None) is not None


def headers(file: BinaryIO) -> Iterator[int]:
    """Offsets at which a member may begin."""
    base, rest = 0, b""
    while chunk := os.pread(file.fileno(), _SEARCHED, base + len(rest)):
        data = rest + chunk
        position = data.find(MAGIC)
        while position >= 0:
            yield base + position
            position = data.find(MAGIC, position + 1)
        rest = data[1 - len(MAGIC) :]
        base += len(data) - len(rest)


def packed_lines(file: BinaryIO, begin: int, end: int | None, allowance: Allowance) -> Iterator[bytes | None]:
    """The lines of the members from an offset to another; None stands for damage, which ends them.

    The last line of a torn member may be unfinished; an unfinished object never parses.
    """
    at: int | None = begin
    while at is not None and (end is None or at < end):
        member, held, size = GzipMember(file, at), [b""], 0
        try:
            for piece in member.pieces(allowance):
                held.append(piece)
                size += len(piece)
                if size > _MOST_HELD:
                    text = b"".join(held)
                    cut = text.rfind(b"\n") + 1
                    held, size = [text[cut:]], len(text) - cut
                    if size > MOST_LINE_BYTES:
                        raise Damage("a line without an end")
                    yield from _split(text[:cut])
        except Damage:
            yield None
            return
        at = member.end
        if at is None and end is not None:
            # Another member follows, so that it is not the end of the file that tore this one.
            yield None
            return
        yield from _split(b"".join(held))


def _split(data: bytes) -> Iterator[bytes]:
    """Lines one by one: millions of empty ones would be a bomb by themselves."""
    for line in BytesIO(data):
        yield line.rstrip(b"\n")


def plain_lines(file: BinaryIO, begin: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes | None]]:
    """(offset, line) of plain text, the last one perhaps unfinished; a line that is too long ends them as None."""
    at, rest = begin, b""
    while chunk := os.pread(
        file.fileno(), _CHUNK if end is None else min(_CHUNK, end - at - len(rest)), at + len(rest)
    ):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield at, line
            at += len(line) + 1
        if len(rest) > MOST_LINE_BYTES:
            yield at, None
            return
    if rest:
        yield at, rest
