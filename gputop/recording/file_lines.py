"""Split a recording's file into parts, and parts into lines.

A part is a gzip member or a stretch of plain text. A member counts only if its checksum holds. The last one may be
torn, and the only one of a file may be damaged: these count up to the fault. No sidecar file: headers of members are
found in the bytes and proven by their first frame. Memory is bounded.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from math import nan
from typing import Any, BinaryIO

from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from gputop.model.bounds import UnixTime
from gputop.recording.check import decode_line
from gputop.recording.format import MOST_LINE_BYTES, Damage, MachineLine, RecordingError
from gputop.system.safe_open import open_regular
from gputop.system.unpack_limit import FREE_BYTES, TOO_MUCH, most_unpacked

_MAGIC = b"\x1f\x8b\x08\x00"
"""Header of a recorder's member.

The header has no file name; gzip(1) writes one for the whole file.
"""
_GZIP = 31
_CHUNK, _LITTLE = 1 << 18, 64
_PEEK = 1 << 14
"""Bytes of text that are unpacked at once where only the first frame of a member is searched."""
_SEARCHED = 8 << 20
_MOST_HELD = 16 << 20
"""Largest member that is held until its checksum is known.

No recorder writes a larger one, but gzip(1) does.
"""
_SEARCH_PASSES = 2
"""The search for members unpacks at most so many times the bytes of the file.

A sound file needs less than one: each member is unpacked up to its first frame, and one without a frame to its end.
"""
_HEADER_COST = 64
"""Bytes that a header counts for in this limit: no member with a line in it is smaller [judged]."""
_MOST_SEARCHED_TEXT = 2 * MOST_LINE_BYTES
"""Bytes of text of one member in which its first frame is searched."""
_SEARCHED_RATIO = 32
"""Bytes of text that are unpacked in the search for each byte of the file, beside the first [judged].

A recorder's member has 60 frames, of which one is unpacked, and some 15 bytes of text for each of its own.
"""
_FIRST_BYTES = 512
"""Bytes of a possible member that are read at first: most of what is none is refused by them."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some editors and shells write it at the beginning of a UTF-8 file."""
_LONG = f"a line of more than {MOST_LINE_BYTES >> 20} MiB"
_MACHINE = b'{"k":"machine"', b'{"k": "machine"'


class _FrameTime(Struct, tag_field="k", tag="frame"):
    """Time of a frame, checked like the whole frame's."""

    t: UnixTime


_FRAME_TIMES = Decoder(_FrameTime)


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
    texts = _packed_texts(file, part) if part.is_packed else _plain_texts(file, part)
    for _, line in _placed_lines(texts, part.begin):
        yield line


def _placed_lines(texts: Iterator[bytes], begin: int) -> Iterator[tuple[int, bytes | Damage]]:
    """Yield offset and line of pieces of text, and Damage where data are lost.

    ``begin`` is the offset of the text. Empty lines are left out.
    """
    splitter = _LineSplitter(begin)
    try:
        for text in texts:
            yield from splitter.lines(text)
    except Damage as damage:
        # The line that the damage cuts is lost with it.
        yield splitter.offset, damage
        return
    if last := splitter.unfinished():
        yield splitter.offset, last


class _LineSplitter:
    """Splits text that comes in pieces into lines; leaves out empty ones.

    A line that is too long is passed over to its end, and told once: it costs nothing but itself.
    """

    def __init__(self, begin: int = 0) -> None:
        self.offset = begin
        """Offset of the line that is not finished yet."""
        self._pieces: list[bytes] = []
        self._size = 0

    def lines(self, text: bytes) -> Iterator[tuple[int, bytes | Damage]]:
        """Yield offset and line of those that end in the next piece of text."""
        # By chunks: a list of millions of lines would exhaust the memory.
        for begin in range(0, len(text), _CHUNK):
            first, *others = text[begin : begin + _CHUNK].split(b"\n")
            if self._grows_too_long(first):
                yield self.offset, Damage(_LONG)
            if not others:
                continue
            if line := self.unfinished():
                yield self.offset, line
            self.offset += self._size + 1
            *whole, last = others
            for line in whole:
                if line:
                    yield self.offset, line.removeprefix(_BYTE_ORDER_MARK)
                self.offset += len(line) + 1
            self._pieces, self._size = [last], len(last)

    def unfinished(self) -> bytes:
        """Return the line that is not finished yet; empty if it is too long."""
        return b"".join(self._pieces).removeprefix(_BYTE_ORDER_MARK)

    def _grows_too_long(self, piece: bytes) -> bool:
        """Add a piece to the unfinished line; return whether it becomes too long now."""
        was_too_long = self._size > MOST_LINE_BYTES
        self._size += len(piece)
        if self._size <= MOST_LINE_BYTES:
            self._pieces.append(piece)
            return False
        self._pieces.clear()
        return not was_too_long


def _is_gzip(file: BinaryIO) -> bool:
    """Return whether a file's bytes are gzip.

    Recognises a gzip file also if its first header is damaged.
    """
    begin = os.pread(file.fileno(), 64, 0)
    if begin.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{"):
        return False
    return begin.startswith(_MAGIC[:2]) or any(True for _ in _headers(file))


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
            if given > most_unpacked(taken):
                raise Damage(f"it unpacks to {TOO_MUCH}")
            packed = rest
            yield text, unpacker.eof


def _packed_texts(file: BinaryIO, part: FilePart) -> Iterator[bytes]:
    """Yield the text of whole gzip members, in pieces.

    A file's only member is read up to its damage. Raises Damage.
    """
    held: list[bytes] = []
    size = 0
    try:
        for text, is_end in _unpacked(file, part.begin, part.end, _CHUNK):
            held.append(text)
            size += len(text)
            if is_end or size > _MOST_HELD:
                yield from held
                held, size = [], 0
    except Damage:
        if part.is_only:
            yield from held
        raise


def _plain_texts(file: BinaryIO, part: FilePart) -> Iterator[bytes]:
    """Yield the plain text of a part, in pieces."""
    at = part.begin
    while True:
        size = _CHUNK if part.end is None else min(_CHUNK, part.end - at)
        text = os.pread(file.fileno(), size, at)
        if not text:
            return
        yield text
        at += len(text)


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
    """Yield the gzip members that begin with a machine line that a frame follows.

    A member is found by its header and proven by its first frame, which may stand in a later member. Yields (offset,
    time of the first frame, whether the clock was set back).
    """
    search = _MemberSearch(file)
    head: tuple[int, bool] | None = None
    for offset in _headers(file):
        if offset < search.sound_end:
            continue
        look = search.first_look(offset, needs_machine=head is None)
        if search.is_over:
            return
        if look.machine is not None:
            head = offset, look.machine.clock_set_back
        if head is None or look.first_t is None:
            continue
        begin, is_set_back = head
        yield begin, look.first_t, is_set_back
        head = None


class _FirstLook(Struct):
    """What the begin of a possible member says.

    ``machine`` is its first line, None where that is another. ``first_t`` is the time of its first frame.
    """

    machine: MachineLine | None = None
    first_t: float | None = None


class _MemberSearch:
    """Looks into possible gzip members; its work is bounded by the size of the file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        size = os.fstat(file.fileno()).st_size
        self._bytes_left = FREE_BYTES + _SEARCH_PASSES * size
        self._text_left = _MOST_SEARCHED_TEXT + _SEARCHED_RATIO * size
        self.sound_end = 0
        """End of the last member that was unpacked to its end without a frame: no other begins in it."""

    @property
    def is_over(self) -> bool:
        """Whether all the work is done that the file's size allows."""
        return min(self._bytes_left, self._text_left) < 0

    def first_look(self, offset: int, *, needs_machine: bool) -> _FirstLook:
        """Unpack a possible member up to its first frame.

        With ``needs_machine`` one that does not begin with a machine line is left at once.
        """
        self._bytes_left -= _HEADER_COST
        look = _FirstLook()
        try:
            for number, line in enumerate(self._lines(offset)):
                if number == 0:
                    look.machine = _machine_of(line)
                    if needs_machine and look.machine is None:
                        break
                look.first_t = frame_time(line)
                if look.first_t is not None:
                    break
        except zlib.error:
            return _FirstLook()
        return look

    def _lines(self, offset: int) -> Iterator[bytes]:
        """Yield the lines of one member, as far as it is searched.

        Raises zlib.error.
        """
        splitter = _LineSplitter()
        size = 0
        for text in self._texts(offset):
            if size == 0 and not text.removeprefix(_BYTE_ORDER_MARK).startswith(b"{"):
                return
            size += len(text)
            if size > _MOST_SEARCHED_TEXT:
                return
            for _, line in splitter.lines(text):
                if isinstance(line, bytes):
                    yield line
        if last := splitter.unfinished():
            yield last

    def _texts(self, offset: int) -> Iterator[bytes]:
        """Yield the text of one member, in pieces.

        Raises zlib.error.
        """
        unpacker = zlib.decompressobj(_GZIP)
        at, packed, wanted = offset, b"", _FIRST_BYTES
        while not unpacker.eof:
            if self.is_over:
                return
            if not packed:
                packed = os.pread(self._file.fileno(), wanted, at)
                at, wanted = at + len(packed), _PEEK
            if not packed:
                return
            text = unpacker.decompress(packed, _PEEK)
            rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            self._bytes_left -= len(packed) - len(rest)
            self._text_left -= len(text)
            packed = rest
            if text:
                yield text
        self.sound_end = at - len(packed)


def _plain_parts(file: BinaryIO) -> Iterator[tuple[int, float, bool]]:
    """Yield the parts of plain text like ``_packed_parts``.

    A part begins at a machine line that a frame follows.
    """
    head: tuple[int, bool] | None = None
    for offset, line in _placed_lines(_plain_texts(file, FilePart(0, False)), 0):
        if isinstance(line, Damage):
            continue
        if (machine := _machine_of(line)) is not None:
            head = offset, machine.clock_set_back
            continue
        if head is None or (t := frame_time(line)) is None:
            continue
        begin, is_set_back = head
        yield begin, t, is_set_back
        head = None


def _machine_of(line: bytes) -> MachineLine | None:
    """Return a sound machine line; None for any other line."""
    if not line.startswith(_MACHINE):
        return None
    try:
        value = decode_line(line)
    except (Damage, RecordingError):
        return None
    return value if isinstance(value, MachineLine) else None


def frame_time(line: bytes) -> float | None:
    """Return the time of a frame's line; None for any other line, or a time that cannot be."""
    try:
        return _FRAME_TIMES.decode(line).t
    except (DecodeError, ValueError, RecursionError):
        return None
