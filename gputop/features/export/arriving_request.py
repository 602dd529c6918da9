"""A connection whose request has not come in full.

It costs a socket and its bytes, and no thread: clients that connect and say little are many where somebody means ill.
"""

from __future__ import annotations

import re
import socket
import ssl

READ_BYTES = 8192
MOST_HEAD = 32_768
"""Bytes of a request's head; Prometheus sends some 300, a browser with cookies some thousand."""
_END = re.compile(rb"\r?\n\r?\n")


class NoRequestError(OSError):
    """No request will come of this connection."""


class ArrivingRequest:
    """Collects a request's head, without waiting; with TLS after the handshake."""

    def __init__(
        self, connection: socket.socket, client: object, tls: ssl.SSLContext | None, since: float
    ) -> None:
        """``since`` is when the connection came, in monotonic seconds. Raises OSError."""
        connection.setblocking(False)
        self.client, self.since = client, since
        self.head = b""
        self._shakes_hands = tls is not None
        self.connection = connection
        if tls is not None:
            self.connection = tls.wrap_socket(
                connection, server_side=True, do_handshake_on_connect=False
            )

    def read(self) -> bool:
        """Read the next bytes; return whether the head is complete. Raises OSError."""
        try:
            if isinstance(self.connection, ssl.SSLSocket) and self._shakes_hands:
                self.connection.do_handshake()
                self._shakes_hands = False
            while True:
                piece = self.connection.recv(READ_BYTES)
                if not piece:
                    return self._ended()
                self.head += piece
                if _END.search(self.head, max(0, len(self.head) - len(piece) - 3)):
                    return True
                if len(self.head) > MOST_HEAD:
                    raise NoRequestError("a head without an end")
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False

    def _ended(self) -> bool:
        """Return True for a line that its client believes to be a request."""
        if not self.head:
            raise NoRequestError("closed without a request")
        return True

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
