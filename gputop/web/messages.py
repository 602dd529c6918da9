"""What a browser may send: a closed set of messages, and sizes that a screen can have.

textual.js sends JSON arrays that begin with their kind; ``["key", …]`` is our page's own.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

MOST_COLUMNS, MOST_ROWS = 500, 200
"""Larger than any monitor shows; a screen of a million columns would take all memory."""
LARGEST_MESSAGE = 1 << 16
"""Bytes."""


class BadMessage(Exception):
    """The text is none of the known messages."""


class Size(Struct, frozen=True):
    """Cells of a terminal, as a browser gives them."""

    width: int
    height: int

    def clamped(self) -> Size:
        """The nearest size that a screen can have."""
        return Size(max(1, min(self.width, MOST_COLUMNS)), max(1, min(self.height, MOST_ROWS)))


class Key(Struct, frozen=True, array_like=True, tag="key"):
    """The first message of all: the secret of the address."""

    key: str


class Typed(Struct, frozen=True, array_like=True, tag="stdin"):
    """What a terminal would send: keys and the mouse."""

    text: str


class Resize(Struct, frozen=True, array_like=True, tag="resize"):
    size: Size


class Ping(Struct, frozen=True, array_like=True, tag="ping"):
    """To be answered with the same text."""

    text: str


class Focus(Struct, frozen=True, array_like=True, tag="focus"):
    """The page has the keyboard."""


class Blur(Struct, frozen=True, array_like=True, tag="blur"):
    """The page has lost the keyboard."""


Message = Key | Typed | Resize | Ping | Focus | Blur
_DECODER = msgspec.json.Decoder(Message)


def decoded(text: str) -> Message:
    """One message. Raises BadMessage."""
    try:
        message: Message = _DECODER.decode(text)
        return message
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        raise BadMessage from None


def first_size(width: str, height: str) -> Size:
    """The size in the socket's address, clamped. Raises BadMessage for anything but numbers."""
    if not all(re.fullmatch("[0-9]{1,18}", number) for number in (width, height)):
        raise BadMessage
    return Size(int(width), int(height)).clamped()
