"""The parts of a recording's file: its gzip members, or what follows a key line of plain text.

No sidecar file: headers of gzip members are found in the bytes and proven by what they unpack to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import nan
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from gputop.recording.format import MOST_LINE_BYTES, Damage
from gputop.recording.gzip_members import Allowance, GzipMember, headers, is_gzip, plain_lines

_PEEK = 1 << 14
_BACK = b'"back":true'
_FRAME_TIME = re.compile(rb'^\{"k": ?"frame", ?"t": ?([0-9.eE+]{1,32}),', re.MULTILINE)


class FilePart(Struct, frozen=True):
    """A stretch of one file that begins with the key line that its frames need.

    ``first_t`` is the time of its first frame, not a number where that is not known yet; ``back`` says that the clock
    was set back before it.
    """

    file: int
    begin: int = 0
    end: int | None = None
    first_t: float = nan
    back: bool = False


def parts_of(file: BinaryIO, number: int) -> list[FilePart]:
    """The parts of a file, which is the ``number``-th of its recording."""
    parts: list[FilePart] = []
    for part in _packed_parts(file, number) if is_gzip(file) else _plain_parts(file, number):
        if parts:
            parts[-1] = replace(parts[-1], end=part.begin)
        elif part.begin:
            # What stands before the first sound part is damage, and is noticed when it is read.
            parts.append(replace(part, begin=0, end=part.begin))
        parts.append(part)
    # Another writer's lines may begin differently: such a file is one part, read from its start.
    return parts or [FilePart(number)]


def _packed_parts(file: BinaryIO, number: int) -> Iterator[FilePart]:
    """The beginning of each member, found by its header and proven by the frame that it begins with."""
    allowance, last = Allowance(), 0
    for offset in headers(file):
        try:
            allowance.take(offset - last, _PEEK)
            text = _until_frame(file, offset)
        except Damage:
            if allowance.is_over:
                return
            continue
        last = offset
        if (t := _time_in(text)) is not None:
            yield FilePart(number, offset, None, t, _BACK in text.partition(b"\n")[0])


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


def _plain_parts(file: BinaryIO, number: int) -> Iterator[FilePart]:
    """The beginning of each stretch of plain text: a key line that frames follow."""
    key: tuple[int, bool] | None = None
    for offset, line in plain_lines(file):
        if line is None:
            return
        if line.startswith((b'{"k":"key"', b'{"k": "key"')):
            key = offset, _BACK in line
        elif key is not None and (t := _time_in(line)) is not None:
            yield FilePart(number, key[0], None, t, key[1])
            key = None
