"""Protocol Buffers' wire format, as far as it takes to read texts and messages.

https://protobuf.dev/programming-guides/encoding/. Other fields are skipped, since newer versions of a message may
have more.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class WireError(Exception):
    """Why bytes are not a message, in one line."""


def fields(data: bytes, left: list[int]) -> Iterator[tuple[int, bytes]]:
    """The number and content of each length-delimited field. ``left`` holds how many fields may still be read, of all
    messages that share it. Raises WireError.
    """
    at = 0
    while at < len(data):
        left[0] -= 1
        if left[0] < 0:
            raise WireError("the answer has more parts than a node can have")
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _LEN:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise WireError("the answer breaks off")
            yield key >> 3, data[at : at + size]
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at)
        elif kind in (_I64, _I32):
            at += 8 if kind == _I64 else 4
            if at > len(data):
                raise WireError("the answer breaks off")
        else:
            raise WireError("the answer is not a message of this API")


def text(value: bytes) -> str:
    """A text field. Raises WireError for what is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise WireError("the answer holds a text that is not UTF-8") from None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    value = 0
    for position, byte in enumerate(data[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, at + position + 1
    raise WireError("the answer breaks off" if len(data) - at < _LONGEST_VARINT else "the answer holds no number")
