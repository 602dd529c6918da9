"""The parts of a recording's file: its gzip members, or runs of frames of plain text, each with the time it begins at.

No sidecar file: headers of gzip members are found in the bytes and proven by what they unpack to.
"""

from __future__ import annotations

import re
from math import nan
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from gputop.recording.format import MEMBER_FRAMES, MOST_LINE_BYTES, Damage
from gputop.recording.gzip_members import Allowance, GzipMember, headers, is_gzip, plain_lines

_PEEK = 1 << 14
_BACK = b'"back":true'
_FRAME_TIME = re.compile(rb'^\{"k": ?"frame", ?"t": ?([0-9.eE+]{1,32}),', re.MULTILINE)


class FilePart(Struct, frozen=True):
    """A stretch of one file that begins with what its frames need: ``preamble`` are offsets of lines before it.

    ``first_t`` is the time of its first frame, not a number where that is not known yet; ``back`` says that the clock
    was set back before it.
    """

    file: int = 0
    begin: int = 0
    end: int | None = None
    first_t: float = nan
    preamble: tuple[int, ...] = ()
    back: bool = False


def parts_of(file: BinaryIO, number: int) -> list[FilePart]:
    """The parts of a file, which is the ``number``-th of its recording."""
    parts = _packed_parts(file, number) if is_gzip(file) else _plain_parts(file, number)
    # Another writer's lines may begin differently: such a file is one part, read from its start.
    return parts or [FilePart(number)]


def _packed_parts(file: BinaryIO, number: int) -> list[FilePart]:
    """One part a member, found by its header and proven by the frame that it begins with."""
    parts: list[FilePart] = []
    allowance, last = Allowance(), 0
    for offset in headers(file):
        try:
            allowance.take(offset - last, _PEEK)
            text = _until_frame(file, offset)
        except Damage:
            if allowance.is_over:
                break
            continue
        last = offset
        t = _time_in(text)
        if t is None:
            continue
        if parts:
            parts[-1] = replace(parts[-1], end=offset)
        elif offset:
            # What stands before the first sound member is damage, and is noticed when it is read.
            parts.append(FilePart(number, 0, offset, t))
        parts.append(FilePart(number, offset, None, t, back=_BACK in text.partition(b"\n")[0]))
    return parts


def _until_frame(file: BinaryIO, offset: int) -> bytes:
    """The text of a member up to its first frame; less where that is far. Raises Damage."""
    text = b""
    for piece in GzipMember(file, offset, _PEEK).pieces(Allowance()):
        text += piece
        if not text.startswith(b"{") or len(text) > 2 * MOST_LINE_BYTES or _FRAME_TIME.search(text):
            break
    return text


def _time_in(text: bytes) -> float | None:
    """The time of the first frame in a text."""
    match = _FRAME_TIME.search(text) if text.startswith(b"{") else None
    try:
        return float(match.group(1)) if match else None
    except ValueError:
        return None


def _plain_parts(file: BinaryIO, number: int) -> list[FilePart]:
    """Parts of at most 60 frames in which times rise; each knows the key and the new processes before it."""
    parts: list[FilePart] = []
    preamble: list[int] = []
    count, last_t = 0, float("-inf")
    for offset, line in plain_lines(file):
        if line is None:
            break
        if line.startswith((b'{"k":"key"', b'{"k": "key"')):
            preamble = [offset]
            count = 0
        elif line.startswith((b'{"k":"procs"', b'{"k": "procs"')):
            preamble.append(offset)
        elif (t := _time_in(line)) is not None:
            if count % MEMBER_FRAMES == 0 or t < last_t:
                if parts:
                    parts[-1] = replace(parts[-1], end=offset)
                parts.append(FilePart(number, offset, None, t, tuple(preamble), back=bool(parts) and t < last_t))
                count = 0
            count += 1
            last_t = t
    return parts
