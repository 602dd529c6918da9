"""HTTP to one engine by httpcore: pooled connections, proxies of the environment, a clock that every wait looks at.

Each wait for bytes has its own limit in an HTTP library, so an answer that drips in would never end. Here the network
backend, a part that httpcore lets its users give, ends all waits of a question at one moment.
"""

from __future__ import annotations

import re
import ssl
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from msgspec import Struct

from gputop.model.extras import install
from gputop.model.quantity import clean_text
from gputop.model.source import UsageError

try:
    import httpcore
    from httpcore import NetworkBackend
except ImportError:
    raise UsageError(f"the fleet's client needs httpcore: {install('fleet')}") from None

CONNECT_S = 5.0
LONGEST_WORDS = 160
BROKEN_OFF = "the connection broke off within the answer"
GZIP = 16 + zlib.MAX_WBITS
CHUNK = 256 * 1024
"""Unpacked bytes between two looks at the size of an answer."""
LOOK_S = 0.25
"""Between two looks at whether a wait is to be given up."""


def cut(text: str) -> str:
    """Words from outside in one line that can be shown."""
    return clean_text(re.sub(r"\s+", " ", text))[:LONGEST_WORDS]


class WireError(Exception):
    """Why no answer came, in words; ``is_late`` where its time ran out."""

    def __init__(self, words: str, *, is_late: bool = False) -> None:
        super().__init__(words)
        self.is_late = is_late


class Reply(Struct, frozen=True):
    """An answer, whatever its status; header names are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Deadline:
    """When the questions of one refresh must be over, on the monotonic clock. One that ran out ends the others."""

    def __init__(self, end: float, clock: Callable[[], float] = monotonic) -> None:
        self.end, self._clock = end, clock
        self._ran_out = threading.Event()

    def left(self, timeout: float | None) -> float:
        """How long one wait may take, in seconds. Raises httpcore.ReadTimeout when the time is over."""
        left = self.end - self._clock()
        if left <= 0.0 or self._ran_out.is_set():
            self.give_up()
            raise httpcore.ReadTimeout("the answer takes too long")
        return left if timeout is None else min(timeout, left)

    def give_up(self) -> None:
        """End whatever else waits for it."""
        self._ran_out.set()


class _Now(threading.local):
    """The deadline of the question that this thread asks."""

    deadline: Deadline | None = None

    def left(self, timeout: float | None) -> float | None:
        return timeout if self.deadline is None else self.deadline.left(timeout)


class _Stream(httpcore.NetworkStream):
    """A connection's bytes; every wait ends at the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, now: _Now) -> None:
        self._stream, self._now = stream, now

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            left = self._now.left(timeout)
            try:
                return self._stream.read(max_bytes, LOOK_S if left is None else min(LOOK_S, left))
            except httpcore.ReadTimeout:
                if left is None:
                    raise

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._now.left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> _Stream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, self._now.left(timeout)), self._now)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(NetworkBackend):
    """Opens connections whose waits end at the deadline."""

    def __init__(self, backend: NetworkBackend, now: _Now) -> None:
        self._backend, self._now = backend, now

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> _Stream:
        limit = min(CONNECT_S, self._now.left(timeout) or CONNECT_S)
        return _Stream(self._backend.connect_tcp(host, port, limit, local_address, socket_options), self._now)


class Wire:
    """Connections to one engine, kept open between questions. ``fetch`` may be called from several threads."""

    def __init__(
        self,
        url: str,
        ca: str | None = None,
        *,
        connections: int,
        most_bytes: int,
        backend: NetworkBackend | None = None,
    ) -> None:
        """Raises OSError or ssl.SSLError for a ``ca`` file without certificates."""
        self._most_bytes, self._now = most_bytes, _Now()
        context = ssl.create_default_context(cafile=ca) if url.startswith("https") else None
        self.proxy = proxy_of(url)
        opens = _Backend(backend or httpcore.SyncBackend(), self._now)
        limits: dict[str, Any] = {
            "ssl_context": context, "max_connections": connections, "max_keepalive_connections": connections,
            "network_backend": opens,
        }  # fmt: skip
        self._pool: httpcore.ConnectionPool
        if self.proxy is None:
            self._pool = httpcore.ConnectionPool(**limits)
        else:
            parts = urlsplit(self.proxy)
            user = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
            address = f"{parts.scheme}://{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
            self._pool = httpcore.HTTPProxy(proxy_url=address, proxy_auth=user, **limits)

    def fetch(self, method: str, url: str, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> Reply:
        """The whole answer, unpacked. Raises WireError."""
        self._now.deadline = deadline
        try:
            sent = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
            left = deadline.left(None)
            limits = {"timeout": {"connect": left, "read": left, "write": left, "pool": left}}
            with self._pool.stream(method, url, headers=sent, content=body or None, extensions=limits) as response:
                found = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                packed = found.get("content-encoding", "").strip().lower()
                return Reply(response.status, found, self._limited(response.iter_stream(), packed == "gzip"))
        except httpcore.TimeoutException as error:
            raise WireError("no answer in time", is_late=not isinstance(error, httpcore.PoolTimeout)) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, OSError) as error:
            raise WireError(self._words_of(error)) from None
        except RuntimeError:
            raise WireError("closed") from None
        finally:
            self._now.deadline = None

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _limited(self, parts: Iterable[bytes], is_gzip: bool) -> bytes:
        """The body; a bomb is cut where it passes the limit, and not unpacked first."""
        unpacked, size = [], 0
        unpacker = zlib.decompressobj(GZIP) if is_gzip else None
        for part in parts:
            for piece in (part,) if unpacker is None else _pieces(unpacker, part):
                size += len(piece)
                if size > self._most_bytes:
                    raise WireError(f"an answer of more than {self._most_bytes >> 20} MiB: narrow it by --select")
                unpacked.append(piece)
        if unpacker is not None and not unpacker.eof and size:
            raise WireError(BROKEN_OFF)
        return b"".join(unpacked)

    def _words_of(self, error: Exception) -> str:
        """Why a connection failed."""
        text, by = str(error), "" if self.proxy is None else " (by the proxy that HTTPS_PROXY names)"
        if "CERTIFICATE" in text.upper():
            return "its certificate is not trusted: --prom-ca FILE names another authority"
        if isinstance(error, httpcore.ProxyError):
            return f"the proxy that HTTPS_PROXY names refuses: {cut(text)}"
        if isinstance(error, httpcore.ConnectError):
            if "refused" in text:
                return f"nobody listens there (connection refused){by}"
            return ("no such host, or no way to it" if "Name" in text or "resolve" in text else "cannot connect") + by
        if isinstance(error, (httpcore.RemoteProtocolError, httpcore.ReadError)):
            return BROKEN_OFF
        return cut(text) or type(error).__name__


def _pieces(unpacker: Any, part: bytes) -> Iterable[bytes]:
    try:
        while part:
            yield unpacker.decompress(part, CHUNK)
            part = unpacker.unconsumed_tail
    except zlib.error as error:
        raise WireError(BROKEN_OFF) from error


def proxy_of(url: str) -> str | None:
    """The proxy that the environment names for an https address; plain http would show a proxy the headers."""
    parts = urlsplit(url)
    if parts.scheme != "https" or proxy_bypass(parts.netloc):
        return None
    found = getproxies()
    proxy = found.get("https") or found.get("all")
    if proxy is None:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        found_parts = urlsplit(proxy)
        usable = found_parts.scheme in ("http", "https") and bool(found_parts.hostname) and found_parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise UsageError("HTTPS_PROXY must be http://HOST:PORT or https://HOST:PORT; NO_PROXY leaves hosts out")
    return proxy
