"""The scrape server of the exporter.

A connection has 10 s in all, for the TLS handshake, the request and the answer; 16 may be open, further ones are closed
at once. One request a connection, GET and HEAD, three paths; http.server limits the length of a request.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from gputop.features.export.exposition import CONTENT_TYPE
from gputop.features.export.listen_address import HOST_PATTERN
from gputop.model.fleet_settings import is_loopback
from gputop.model.source import UsageError
from gputop.system.safe_open import open_regular
from gputop.system.worker import Worker


def names_loopback(header: str) -> bool:
    """Return whether a request's Host names this machine.

    A page of another site may point its own name here.
    """
    match = HOST_PATTERN.fullmatch(header.strip().lower())
    return match is not None and is_loopback(match[1].strip("[]"))


MOST_CONNECTIONS = 16
LONGEST_S = 10.0
"""How long a connection may last."""
PACKED_FROM_BYTES = 2048
"""From here on gzip is worth its millisecond: a tenth of the size."""
_LOOK_S = 1.0


class ScrapeServer(ThreadingMixIn, TCPServer):
    """Serves pages until it is shut down.

    ``page`` is called for each scrape, on the scrape's own thread.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        listener: socket.socket,
        page: Callable[[], str],
        tls: ssl.SSLContext | None,
        *,
        local_only: bool,
    ) -> None:
        """``local_only`` answers only requests whose Host is a loopback name."""
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.page = page
        self.local_only = local_only
        self._tls = tls
        self._open: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        self._worker = Worker("scrapes", self._serve, again=0.0)

    def start(self) -> None:
        """Answer from a thread of its own."""
        self._worker.ask()

    def stop(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()

    def _serve(self) -> None:
        self.serve_forever(_LOOK_S)
        # It was shut down; after an error it goes on.
        self._worker.stop()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread; close it where too many are open."""
        with self._lock:
            is_full = len(self._open) >= MOST_CONNECTIONS
            if not is_full:
                self._open[request] = time.monotonic()
        if is_full:
            self.shutdown_request(request)
            return
        request.settimeout(LONGEST_S)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections that have had their time, whatever they wait for."""
        now = time.monotonic()
        with self._lock:
            for request in [
                request for request, since in self._open.items() if now - since >= LONGEST_S
            ]:
                self._cut(request)

    def _cut(self, request: socket.socket) -> None:
        self._open.pop(request, None)
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """On the connection's thread: the handshake, then the request."""
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        # The copy shares the connection: closing reaches it, and the original stays the one that is counted.
        with self._tls.wrap_socket(request.dup(), server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away or sends nonsense is not worth a message."""


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: ScrapeServer
    server_version, sys_version = "gputop", ""
    protocol_version = "HTTP/1.0"
    error_message_format, error_content_type = (
        "%(message)s: GET /metrics\n",
        "text/plain; charset=utf-8",
    )

    def do_GET(self) -> None:
        """Answer a GET or a HEAD."""
        if self.server.local_only and not all(
            map(names_loopback, self.headers.get_all("Host", [""]))
        ):
            self._answer(403, "this exporter answers to its loopback address only\n")
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            # A HEAD needs no page.
            self._answer(200, self.server.page() if self.command == "GET" else None, CONTENT_TYPE)
        elif path == "/healthz":
            self._answer(200, "ok\n")
        else:
            self._answer(404, "there are /metrics and /healthz\n")

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a malformed request with a status line and plain text."""
        self.request_version = self.protocol_version
        super().send_error(code, message, explain)

    def _answer(
        self, status: int, text: str | None, kind: str = "text/plain; charset=utf-8"
    ) -> None:
        """Send one page; without a text only its headers."""
        body = (text or "").encode()
        self.send_response(status)
        if len(body) > PACKED_FROM_BYTES and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1, mtime=0)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", kind)
        self.send_header("Vary", "Accept-Encoding")
        if text is not None:
            self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Scrapes are not logged."""


def context(certificate: str | None, key: str | None, client_ca: str | None) -> ssl.SSLContext:
    """Return the TLS context of these files. Raises UsageError."""
    if certificate is None:
        raise UsageError("TLS needs a certificate: name it with --tls-cert")
    for option, path in (
        ("--tls-cert", certificate),
        ("--tls-key", key),
        ("--client-ca", client_ca),
    ):
        if path is not None:
            with _readable(option, path):
                # OpenSSL would wait for the writer of a pipe.
                open_regular(path).close()
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2

    def no_password() -> str:
        # OpenSSL would ask for it on the terminal, and a service would wait for ever.
        raise UsageError(f"the key in {key or certificate} has a passphrase: give one without")

    with _readable("--tls-cert", certificate):
        made.load_cert_chain(certificate, key, no_password)
    if client_ca is not None:
        with _readable("--client-ca", client_ca):
            made.load_verify_locations(client_ca)
        made.verify_mode = ssl.CERT_REQUIRED
    return made


@contextlib.contextmanager
def _readable(option: str, path: str) -> Iterator[None]:
    """Raises UsageError for a file that cannot be used."""
    try:
        yield
    except ssl.SSLError as error:
        # Not every failure of OpenSSL has a reason: a file without any PEM block has none.
        words = (error.reason or "no PEM block of that kind").lower().replace("_", " ")
        raise UsageError(
            f"{option} {path}: no certificate and key that fit together ({words})"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{option} {path}: {getattr(error, 'strerror', None) or 'not a PEM file'}"
        ) from None
