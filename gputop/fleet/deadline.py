"""A deadline for a whole answer. httpx bounds only each wait for bytes, so headers that drip in would never end."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any


class Deadline(threading.local):
    """When this thread's query must be over, on the monotonic clock."""

    end = float("inf")

    def left(self, timeout: float | None) -> float:
        """How long one wait may take. Raises TimeoutError when the time is over."""
        left = self.end - monotonic()
        if left <= 0.0:
            raise TimeoutError("the answer takes too long")
        return left if timeout is None else min(timeout, left)


class _Stream:
    """A connection's bytes, as the pool below httpx reads and writes them."""

    def __init__(self, stream: Any, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data: bytes = self._stream.read(max_bytes, self._deadline.left(timeout))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.left(timeout))

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> _Stream:
        return _Stream(
            self._stream.start_tls(ssl_context, server_hostname, self._deadline.left(timeout)), self._deadline
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Backend:
    """What opens connections for a pool."""

    def __init__(self, backend: Any, deadline: Deadline) -> None:
        self._backend, self._deadline = backend, deadline

    def connect_tcp(self, *place: Any, **how: Any) -> _Stream:
        return _Stream(self._backend.connect_tcp(*place, **how), self._deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def bound(client: Any, deadline: Deadline) -> None:
    """Apply the deadline to every read and write of an httpx client, also through proxies.

    httpx has no setting for it. Where a later version keeps its pools elsewhere, each wait is bounded as before.
    """
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        if pool is not None and hasattr(pool, "_network_backend"):
            pool._network_backend = _Backend(pool._network_backend, deadline)
