"""The bytes of a recording as lines: gzip members and plain text, damage skipped, memory bounded.

A gzip member is believed only when its checksum holds; the last one may be torn and then counts as far as it goes.
Nothing here knows what a line means.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import BinaryIO, Literal

from msgspec import Struct

from gputop.recording.format import MOST_LINE_BYTES, RecordingError

MAGIC = b"\x1f\x8b\x08"
_GZIP = 31
_CHUNK = 1 << 18
_MOST_HELD = 16 << 20
"""A member that unpacks to more is given out before its checksum is known: no recorder writes one, gzip(1) does."""
_BOMB_RATIO = 256
_PEEK = 4096

Fate = Literal["whole", "torn", "damaged"]


class Outcome(Struct):
    """How reading one member ended: ``end`` is the offset after it, or where the search for the next one begins."""

    fate: Fate = "torn"
    end: int = 0


def open_recording(path: str) -> BinaryIO:
    """A regular file, opened for reading. Raises RecordingError with the reason in words."""
    try:
        # Without O_NONBLOCK, opening a pipe that nobody writes to would wait for ever.
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb", buffering=0)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise RecordingError(f"{path}: not a regular file")
    return file


def is_gzip(file: BinaryIO) -> bool:
    """Whether a file is compressed, by its bytes and not by its name; also when its first header is damaged."""
    file.seek(0)
    begin = file.read(64)
    if begin.lstrip().startswith(b"{"):
        return False
    return begin.startswith(MAGIC[:2]) or next_member(file, 0) is not None


def gzip_lines(file: BinaryIO, offset: int, outcome: Outcome) -> Iterator[bytes]:
    """The lines of the member at an offset, without their newlines; none of them when it is damaged.

    The last line of a torn member may be unfinished; an unfinished object never parses.
    """
    unpacker = zlib.decompressobj(_GZIP)
    file.seek(offset)
    outcome.fate, outcome.end = "damaged", offset + 1
    held: list[bytes] = []
    read = produced = pending = 0
    while not unpacker.eof:
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
            packed = unpacker.unconsumed_tail
            produced += len(chunk)
            newline = chunk.rfind(b"\n")
            pending = pending + len(chunk) if newline < 0 else len(chunk) - newline
            if pending > MOST_LINE_BYTES or (produced > _MOST_HELD and produced > _BOMB_RATIO * read):
                return
            held.append(chunk)
            if produced > _MOST_HELD:
                data = b"".join(held)
                cut = data.rfind(b"\n") + 1
                held = [data[cut:]]
                yield from _split(data[:cut])
            if unpacker.eof:
                outcome.fate, outcome.end = "whole", offset + read - len(unpacker.unused_data)
                break
    data = b"".join(held)
    held.clear()
    yield from _split(data)


def _split(data: bytes) -> Iterator[bytes]:
    """Lines one by one: a list of sixteen million empty ones would be a bomb by itself."""
    for line in BytesIO(data):
        yield line.rstrip(b"\n")


def next_member(file: BinaryIO, offset: int, first: bytes = b"{") -> int | None:
    """The offset of the next member at or after an offset whose text begins with ``first``; None at the end."""
    while True:
        file.seek(offset)
        chunk = file.read(_CHUNK)
        found = chunk.find(MAGIC)
        while found >= 0:
            if peek(file, offset + found, len(first)) == first:
                return offset + found
            found = chunk.find(MAGIC, found + 1)
        if len(chunk) < len(MAGIC):
            return None
        offset += max(1, len(chunk) - len(MAGIC) + 1)


def peek(file: BinaryIO, offset: int, size: int) -> bytes:
    """The first ``size`` bytes of text of the member at an offset; fewer when it has less or is none."""
    file.seek(offset)
    try:
        return zlib.decompressobj(_GZIP).decompress(file.read(_PEEK), size)
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


def first_lines(file: BinaryIO, offset: int, enough: Callable[[bytes], bool]) -> list[bytes]:
    """The first lines of the member at an offset, up to and with the first that is ``enough``; [] when none is.

    Reads no more than that needs, and no further than one longest line.
    """
    unpacker = zlib.decompressobj(_GZIP)
    lines: list[bytes] = []
    rest, produced = b"", 0
    file.seek(offset)
    while produced <= 2 * MOST_LINE_BYTES and not unpacker.eof:
        packed = unpacker.unconsumed_tail or file.read(_PEEK)
        if not packed:
            break
        try:
            chunk = unpacker.decompress(packed, 2 * _PEEK)
        except zlib.error:
            return []
        produced += len(chunk)
        if produced and not (rest or lines or chunk.startswith(b"{")):
            return []
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            lines.append(line)
            if enough(line):
                return lines
        if enough(rest):
            return [*lines, rest]
    return []
