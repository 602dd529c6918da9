"""Which requests are answered: those that name this machine's loopback; and which messages, those of the page.

No cookie is read or set: browsers send cookies to every port of a host, so that a program on another port of this
machine would receive them. The key is asked for later, as the first message on the WebSocket.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

LOCAL_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
"""The accepted Host, with any port, since a forwarded one differs. Any other name was made to point here."""


def refusal(host: str) -> str | None:
    """Why a request that names this Host is turned away (403), or None."""
    return None if LOCAL_HOST.fullmatch(host) else "this server answers to its loopback address only"


def headers_for(host: str) -> dict[str, str]:
    """Headers of every answer: they make the browser refuse whatever is not from here.

    ``host`` has passed the gate. The sockets are named because some browsers do not count them as 'self'; textual.js
    writes its styles into the page.
    """
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; "
        f"img-src 'self' data:; connect-src 'self' ws://{host} wss://{host}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


# What a browser may send: a closed set of messages, and sizes that a screen can have.
#
# textual.js sends JSON arrays that begin with their kind; ``["key", …]`` is our page's own.

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


class GateKey(Struct, frozen=True, array_like=True, tag="key"):
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


Message = GateKey | Typed | Resize | Ping | Focus | Blur
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
