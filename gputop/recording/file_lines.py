"""Split a recording's file into parts, and parts into lines.

A part is a gzip member or a stretch of plain text. A member counts only if its checksum holds. The last one may be
torn, and the only one of a file may be damaged: these count up to the fault. No sidecar file: headers of members are
found in the bytes and proven by their first frame. Memory is bounded.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from math import nan
from typing import Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from gputop.recording.format import MOST_LINE_BYTES, Damage, RecordingError
from gputop.system.safe_open import open_regular

_MAGIC = b"\x1f\x8b\x08\x00"
"""Header of a recorder's member.

The header has no file name; gzip(1) writes one for the whole file.
"""
_GZIP = 31
_CHUNK, _PEEK, _LITTLE = 1 << 18, 1 << 14, 64
_SEARCHED = 8 << 20
_MOST_HELD = 16 << 20
"""Largest member that is held until its checksum is known.

No recorder writes a larger one, but gzip(1) does.
"""
FREE_BYTES, BOMB_RATIO = 1 << 20, 100
"""Limit of unpacked bytes: a constant, and a multiple of packed bytes."""
_CLOCK_SET_BACK = b'"clock_set_back":true'
_LONG = f"a line of more than {MOST_LINE_BYTES >> 20} MiB"
_MACHINE = b'{"k":"machine"', b'{"k": "machine"'
_FRAME_TIME = re.compile(rb'^\{"k": ?"frame", ?"t": ?([0-9.eE+]{1,32}),', re.MULTILINE)


class FilePart(Struct, frozen=True):
    """Part of one file that begins with a machine line.

    ``first_t`` is the time of the first frame, NaN while unknown.
    """

    file: int
    is_packed: bool
    begin: int = 0
    end: int | None = None
    first_t: float = nan
    clock_set_back: bool = False
    is_only: bool = False
    """Whether no other part of the file could be read if this one is damaged."""


def open_recording(path: str) -> BinaryIO:
    """Open a regular file for reading.

    Raises RecordingError with the reason.
    """
    try:
        return open_regular(path, buffering=0)
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror or error}") from error


def parts_of(file: BinaryIO, number: int) -> list[FilePart]:
    """Return the parts of a recording's file.

    ``number`` is the file's position in the recording.
    """
    whole = FilePart(number, _is_gzip(file))
    parts: list[FilePart] = []
    for begin, first_t, back in _packed_parts(file) if whole.is_packed else _plain_parts(file):
        if parts:
            parts[-1] = replace(parts[-1], end=begin)
        elif begin:
            # Damage before the first sound part is noticed when it is read.
            parts.append(replace(whole, end=begin, first_t=first_t))
        parts.append(replace(whole, begin=begin, first_t=first_t, clock_set_back=back))
    # Another writer's lines may begin differently: such a file is one part, read from its start.
    parts = parts or [whole]
    return [replace(parts[0], is_only=True)] if len(parts) == 1 else parts


def lines_of(file: BinaryIO, part: FilePart) -> Iterator[bytes | Damage]:
    """Yield the lines of a part, and Damage where data are lost.

    The last line may be unfinished.
    """
    try:
        placed = _placed_lines(file, part.begin, part.end)
        for line in _packed_lines(file, part) if part.is_packed else (line for _, line in placed):
            if len(line) > MOST_LINE_BYTES:
                yield Damage(_LONG)
            elif line:
                yield line
    except Damage as damage:
        yield damage


def _is_gzip(file: BinaryIO) -> bool:
    """Return whether a file's bytes are gzip.

    Recognises a gzip file also if its first header is damaged.
    """
    begin = os.pread(file.fileno(), 64, 0)
    return not begin.lstrip().startswith(b"{") and (
        begin.startswith(_MAGIC[:2]) or any(True for _ in _headers(file))
    )


def _headers(file: BinaryIO) -> Iterator[int]:
    """Yield the offsets at which a member may begin."""
    base, rest = 0, b""
    while chunk := os.pread(file.fileno(), _SEARCHED, base + len(rest)):
        data = rest + chunk
        position = data.find(_MAGIC)
        while position >= 0:
            yield base + position
            position = data.find(_MAGIC, position + 1)
        rest = data[1 - len(_MAGIC) :]
        base += len(data) - len(rest)


def _unpacked(
    file: BinaryIO, begin: int, end: int | None, chunk: int
) -> Iterator[tuple[bytes, bool]]:
    """Unpack the members between two offsets.

    Yields pieces of text, each with whether its member ends there, also those before a damage. Raises Damage.
    """
    at, packed = begin, b""
    while True:
        unpacker, taken, given = zlib.decompressobj(_GZIP), 0, 0
        while not unpacker.eof:
            if not packed:
                packed = os.pread(file.fileno(), chunk if end is None else min(chunk, end - at), at)
                at += len(packed)
            if not packed:
                if taken and end is not None:
                    # Another member follows, so the end of the file did not cut this one.
                    raise Damage("a member without an end")
                yield unpacker.flush(), True
                return
            before = unpacker.copy()
            try:
                text = unpacker.decompress(packed, chunk)
            except zlib.error as error:
                yield _before_damage(before, packed), False
                raise Damage("a damaged member") from error
            rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            taken, given = taken + len(packed) - len(rest), given + len(text)
            if given > FREE_BYTES + BOMB_RATIO * taken:
                raise Damage(
                    f"it unpacks to more than {BOMB_RATIO} times its size, as no recording does"
                )
            packed = rest
            yield text, unpacker.eof


def _packed_lines(file: BinaryIO, part: FilePart) -> Iterator[bytes]:
    """Yield the lines of whole gzip members.

    A file's only member is read up to its damage. Raises Damage.
    """
    held, size = [b""], 0
    try:
        for text, is_end in _unpacked(file, part.begin, part.end, _CHUNK):
            held.append(text)
            size += len(text)
            if not is_end and size <= _MOST_HELD:
                continue
            whole = b"".join(held)
            cut = len(whole) if is_end else whole.rfind(b"\n") + 1
            held, size = [whole[cut:]], len(whole) - cut
            if size > MOST_LINE_BYTES:
                raise Damage(_LONG)
            # One by one: a list of millions of empty lines would exhaust the memory.
            for line in BytesIO(whole[:cut]):
                yield line.rstrip(b"\n")
    except Damage:
        text = b"".join(held) if part.is_only else b""
        for line in BytesIO(text[: text.rfind(b"\n") + 1]):
            yield line.rstrip(b"\n")
        raise


def _before_damage(unpacker: Any, packed: bytes) -> bytes:
    """Unpack up to a damage: an error discards what its call has unpacked, so each call unpacks little."""
    text = bytearray()
    with suppress(zlib.error):
        for begin in range(0, len(packed), _LITTLE):
            text += unpacker.decompress(packed[begin : begin + _LITTLE])
            if len(text) > _MOST_HELD:
                break
    return bytes(text)


def _packed_parts(file: BinaryIO) -> Iterator[tuple[int, float, bool]]:
    """Yield the gzip members that begin with a readable frame.

    A member is found by its header and proven by its first frame. Yields (offset, time of the first frame, whether the
    clock was set back).
    """
    for offset in _headers(file):
        text = b""
        try:
            for piece, _ in _unpacked(file, offset, None, _PEEK):
                text += piece
                if (
                    not text.startswith(b"{")
                    or len(text) > 2 * MOST_LINE_BYTES
                    or _FRAME_TIME.search(text)
                ):
                    break
        except Damage:
            continue
        if text.startswith(b"{") and (t := _time_in(text)) is not None:
            yield offset, t, _CLOCK_SET_BACK in text.partition(b"\n")[0]


def _placed_lines(file: BinaryIO, begin: int, end: int | None) -> Iterator[tuple[int, bytes]]:
    """Yield offset and line of plain text.

    Raises Damage at a line that is too long.
    """
    at, rest = begin, b""
    while chunk := os.pread(
        file.fileno(), _CHUNK if end is None else min(_CHUNK, end - at - len(rest)), at + len(rest)
    ):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield at, line
            at += len(line) + 1
        if len(rest) > MOST_LINE_BYTES:
            raise Damage(_LONG)
    if rest:
        yield at, rest


def _plain_parts(file: BinaryIO) -> Iterator[tuple[int, float, bool]]:
    """Yield the parts of plain text like ``_packed_parts``.

    A part begins at a machine line that a frame follows.
    """
    head: tuple[int, bool] | None = None
    try:
        for offset, line in _placed_lines(file, 0, None):
            if line.startswith(_MACHINE):
                head = offset, _CLOCK_SET_BACK in line
            elif head is not None and (t := _time_in(line)) is not None:
                yield head[0], t, head[1]
                head = None
    except Damage:
        return


def _time_in(text: bytes) -> float | None:
    """Return the time of the first frame in a text."""
    match = _FRAME_TIME.search(text)
    try:
        return float(match.group(1)) if match else None
    except ValueError:
        return None
