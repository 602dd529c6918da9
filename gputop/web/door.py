"""Limits connections of strangers in number and time, so that they cannot keep the owner out.

A stranger is a connection that has not sent the key: of a page being loaded, or of somebody who only holds it
open. Knows bytes and time, no HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

MOST_STRANGERS = 64
STRANGER_S = 5.0
"""How long a connection may last without the key."""
ANSWER_S = 30.0
"""The same while an answer is on its way: the page's scripts over a slow line."""
MOST_ASKED = 1 << 16
"""Bytes that a stranger may send; a page needs 3 kB for all that it asks."""
ACCEPTED_AT_ONCE = 16
"""Far fewer than the strangers: the event loop reads from a new connection three rounds after accepting it."""


class Door:
    """Counts the strangers. When there are too many the oldest is closed, which had the most time to send the key."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._strangers: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        self._asked: dict[asyncio.BaseTransport, int] = {}

    def __len__(self) -> int:
        return len(self._strangers)

    def enter(self, transport: asyncio.Transport) -> None:
        """A connection was made."""
        while len(self._strangers) >= MOST_STRANGERS:
            self._turn_out(next(iter(self._strangers)))
        self._strangers[transport] = self._loop.call_later(STRANGER_S, self._late, transport, self._loop.time())
        self._asked[transport] = 0

    def let_in(self, transport: asyncio.BaseTransport | None) -> None:
        """The key was right, or the connection is gone."""
        if transport is not None and (timer := self._strangers.pop(transport, None)) is not None:
            timer.cancel()
            del self._asked[transport]

    def takes(self, transport: asyncio.BaseTransport, size: int) -> bool:
        """Whether ``size`` more bytes may come from this connection; if not, it has been closed."""
        asked = self._asked.get(transport)
        if asked is None:
            return True
        self._asked[transport] = asked + size
        if asked + size <= MOST_ASKED:
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


class Guest(asyncio.Protocol):
    """One connection: passes everything on to the protocol behind the door."""

    def __init__(self, door: Door, inner: asyncio.Protocol) -> None:
        self._door = door
        self._inner = inner
        self._transport: asyncio.BaseTransport | None = None
        # Called for every packet and every full buffer, so not through a method of ours.
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._door.enter(transport)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self._door.takes(self._transport, len(data)):
            self._inner.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._door.let_in(self._transport)
        self._inner.connection_lost(error)


def guarded(door: Door, inner: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
    """A protocol factory that counts at the door."""
    return lambda: Guest(door, inner())
