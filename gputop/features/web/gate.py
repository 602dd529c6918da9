"""Which requests are answered: those that name this machine's loopback, and come from no other site.

No cookie is read or set: browsers send cookies to every port of a host, so that a program on another port of this
machine would receive them. The key is asked for later, as the first message on the WebSocket.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from msgspec import Struct

LOCAL_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
"""The accepted Host, with any port, since a forwarded one differs. Any other name was made to point here."""


class Refusal(NamedTuple):
    """Why a request is turned away."""

    status: int
    """HTTP status, 400 or 403."""
    words: str


def refusal(headers: Mapping[str, str], *, socket: bool) -> Refusal | None:
    """Why a request with these headers is turned away, or None; ``socket`` where it opens the WebSocket."""
    host = headers.get("Host", "")
    if LOCAL_HOST.fullmatch(host) is None:
        return Refusal(403, "this server answers to its loopback address only")
    origin = headers.get("Origin")
    if origin is None:
        # Browsers name the origin of every WebSocket.
        return Refusal(403, "only the page of this server may open its socket") if socket else None
    if origin.lower() not in (f"http://{host}".lower(), f"https://{host}".lower()):
        return Refusal(403, "another site may not use this screen")
    return None


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


# Limits connections of strangers in number and time, so that they cannot keep the owner out.
#
# A stranger is a connection that has not sent the key: of a page being loaded, or of a client that only holds it open.
# Knows bytes and time, no HTTP.

MOST_STRANGERS = 64
STRANGER_S = 5.0
"""How long a connection may last without the key."""
ANSWER_S = 30.0
"""The same while an answer is on its way: the page's scripts over a slow line."""
MOST_ASKED = 1 << 16
"""Bytes that a stranger may send; a page needs 3 kB for all that it asks."""
ACCEPTED_AT_ONCE = 16
"""Far fewer than the strangers: the event loop reads from a new connection three rounds after accepting it."""


class ConnectionLimit:
    """Counts the strangers. When there are too many the oldest is closed, which had the most time to send the key."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._strangers: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        self._asked_bytes: dict[asyncio.BaseTransport, int] = {}

    def __len__(self) -> int:
        return len(self._strangers)

    def enter(self, transport: asyncio.Transport) -> None:
        """A connection was made."""
        while len(self._strangers) >= MOST_STRANGERS:
            self._turn_out(next(iter(self._strangers)))
        self._strangers[transport] = self._loop.call_later(STRANGER_S, self._late, transport, self._loop.time())
        self._asked_bytes[transport] = 0

    def let_in(self, transport: asyncio.BaseTransport | None) -> None:
        """The key was right, or the connection is gone."""
        if transport is not None and (timer := self._strangers.pop(transport, None)) is not None:
            timer.cancel()
            del self._asked_bytes[transport]

    def takes(self, transport: asyncio.BaseTransport, size: int) -> bool:
        """Whether ``size`` more bytes may come from this connection; if not, it has been closed."""
        asked_bytes = self._asked_bytes.get(transport)
        if asked_bytes is None:
            return True
        self._asked_bytes[transport] = asked_bytes + size
        if asked_bytes + size <= MOST_ASKED:
            return True
        self._turn_out(transport)
        return False

    def _late(self, transport: asyncio.Transport, since: float) -> None:
        is_answered = transport.get_write_buffer_size() > 0 and self._loop.time() - since < ANSWER_S
        if is_answered:
            self._strangers[transport] = self._loop.call_later(1.0, self._late, transport, since)
        else:
            self._turn_out(transport)

    def _turn_out(self, transport: asyncio.BaseTransport) -> None:
        self.let_in(transport)
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


class LimitedConnection(asyncio.Protocol):
    """One connection: passes everything on to the protocol behind the door.

    aiohttp bounds a request's head and body, but neither the number of connections nor the time until a request has
    come: its middleware begins after the head. ``loop.create_server`` takes any protocol, so this one stands before it.
    """

    def __init__(self, limit: ConnectionLimit, inner: asyncio.Protocol) -> None:
        self._door = limit
        self._inner = inner
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._door.enter(transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self._door.takes(self._transport, len(data)):
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._door.let_in(self._transport)
        self._inner.connection_lost(error)


def guarded(limit: ConnectionLimit, inner: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
    """A protocol factory that counts at the door."""
    return lambda: LimitedConnection(limit, inner())


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
