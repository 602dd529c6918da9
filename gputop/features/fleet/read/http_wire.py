"""Fetch answers over HTTP with a deadline and a size limit."""

from __future__ import annotations

import re
import ssl
import threading
import zlib
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from msgspec import Struct

from gputop.model.clean_text import clean_text
from gputop.model.extras import install
from gputop.model.source import UsageError

if TYPE_CHECKING:
    import httpcore
else:
    # Help, the simulated fleet and its files need the questions and not who asks them.
    try:
        import httpcore
    except ImportError:
        httpcore = None
CONNECT_S = 5.0
LONGEST_WORDS = 160
BROKEN_OFF = "the connection broke off within the answer"


def cut(text: str) -> str:
    """Words from outside in one line that can be shown."""
    return clean_text(re.sub(r"\s+", " ", text))[:LONGEST_WORDS]


class WireError(Exception):
    """No answer, with the reason in words."""


class LateError(WireError):
    """An answer that did not come in time."""


class Reply(Struct, frozen=True):
    """An answer, whatever its status; header names are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """Kept connections to one address. ``fetch`` may be called from several threads."""

    def __init__(
        self, url: str, ca: str | None = None, *, connections: int, most_bytes: int
    ) -> None:
        """Raises OSError or ssl.SSLError for a ``ca`` file without certificates, UsageError without httpcore."""
        if httpcore is None:
            raise UsageError(f"the fleet's client needs httpcore: {install('fleet')}")
        self._most_bytes = most_bytes
        limits: dict[str, Any] = {
            "ssl_context": ssl.create_default_context(cafile=ca) if url.startswith("https") else None,
            "max_connections": connections, "max_keepalive_connections": connections,
        }  # fmt: skip
        proxy = proxy_of(url)
        self._by = "" if proxy is None else " (by the proxy that HTTPS_PROXY names)"
        self._pool: httpcore.ConnectionPool = (
            httpcore.ConnectionPool(**limits)
            if proxy is None
            else httpcore.HTTPProxy(proxy_url=proxy[0], proxy_auth=proxy[1], **limits)
        )

    def fetch(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, limit_s: float
    ) -> Reply:
        """Fetch a whole answer within ``limit_s``. Raises WireError.

        An answer that takes longer ends all others with it.
        """
        end = monotonic() + limit_s
        # The library's limits are those of each wait: an answer that drips in would never end.
        watchdog = threading.Timer(limit_s, self._pool.close)
        watchdog.daemon = True
        watchdog.start()
        waits = {
            "connect": min(CONNECT_S, limit_s),
            "read": limit_s,
            "write": limit_s,
            "pool": limit_s,
        }
        sent = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        try:
            with self._pool.stream(
                method, url, headers=sent, content=body or None, extensions={"timeout": waits}
            ) as response:
                received = {
                    name.decode("latin-1").lower(): value.decode("latin-1")
                    for name, value in response.headers
                }
                is_packed = received.get("content-encoding", "").strip().lower() == "gzip"
                return Reply(
                    response.status, received, self._whole(response.iter_stream(), is_packed)
                )
        except (
            httpcore.TimeoutException,
            httpcore.NetworkError,
            httpcore.ProtocolError,
            httpcore.ProxyError,
            OSError,
            RuntimeError,
        ) as error:
            if isinstance(error, httpcore.TimeoutException) or monotonic() >= end:
                raise LateError("no answer in time") from None
            raise WireError(self._words_of(error)) from None
        finally:
            watchdog.cancel()

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _whole(self, parts: Iterable[bytes], is_packed: bool) -> bytes:
        """Read and unpack a body; a bomb is cut at the limit."""
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if is_packed else None
        whole = bytearray()
        try:
            for part in parts:
                whole += (
                    part
                    if unpacker is None
                    else unpacker.decompress(part, self._most_bytes + 1 - len(whole))
                )
                if len(whole) > self._most_bytes:
                    raise WireError(f"an answer of more than {self._most_bytes >> 20} MiB")
        except zlib.error:
            raise WireError(BROKEN_OFF) from None
        if unpacker is not None and whole and not unpacker.eof:
            raise WireError(BROKEN_OFF)
        return bytes(whole)

    def _words_of(self, error: Exception) -> str:
        """Why a connection failed."""
        text = str(error)
        if "CERTIFICATE" in text.upper():
            return "its certificate is not trusted: --prom-ca FILE names another authority"
        if isinstance(error, httpcore.ProxyError):
            return f"the proxy that HTTPS_PROXY names refuses: {cut(text)}"
        if isinstance(error, httpcore.ConnectError):
            if "refused" in text:
                return f"nobody listens there (connection refused){self._by}"
            no_name = "Name" in text or "resolve" in text
            return f"{'no such host, or no way to it' if no_name else 'cannot connect'}{self._by}"
        if isinstance(error, (httpcore.RemoteProtocolError, httpcore.ReadError)):
            return BROKEN_OFF
        return cut(text) or type(error).__name__


def proxy_of(url: str) -> tuple[str, tuple[str, str] | None] | None:
    """Address and user of the environment's proxy for https.

    Plain http would show a proxy the headers.
    """
    parts, proxies = urlsplit(url), getproxies()
    named = proxies.get("https") or proxies.get("all")
    if parts.scheme != "https" or named is None or proxy_bypass(parts.netloc):
        return None
    try:
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        port = proxy.port or (443 if proxy.scheme == "https" else 80)
    except ValueError:
        proxy, port = urlsplit(""), 0
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        raise UsageError(
            "HTTPS_PROXY must be http://HOST:PORT or https://HOST:PORT; NO_PROXY leaves hosts out"
        )
    user = (unquote(proxy.username), unquote(proxy.password or "")) if proxy.username else None
    return f"{proxy.scheme}://{proxy.hostname}:{port}", user
