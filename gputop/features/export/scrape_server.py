"""The scrape server of the exporter.

A request has 3 s to come, after the TLS handshake, and a connection 10 s in all. One request a connection, GET and
HEAD, three paths. Whoever connects and does not ask keeps nobody else out: the oldest unfinished request gives way.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from itertools import islice
from typing import Any

from gputop.features.export.arriving_request import READ_BYTES, ArrivingRequest
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


MOST_ANSWERS = 16
"""Requests that are answered at once, each on a thread of its own."""
MOST_ARRIVING = 128
"""Connections whose request has not come in full."""
ACCEPTED_AT_ONCE = 32
"""Connections that are taken between two looks at those that are there, so fewer than may arrive."""
HEAD_S = 3.0
"""How long a request may take to come: its few hundred bytes come at once, after the handshake."""
LONGEST_S = 10.0
"""How long a connection may last."""
SLOW_READER_S = 1.0
"""From here on an answer that is not taken gives way to a request that waits."""
PACKED_FROM_BYTES = 2048
"""From here on gzip is worth its millisecond: a tenth of the size."""
_LOOK_S, _BUSY_LOOK_S = 1.0, 0.25
_ERROR_PAUSE_S = 0.05


class ScrapeServer:
    """Serves pages until it is stopped.

    One thread takes connections and reads requests; a complete one is answered on a thread of its own. Where too many
    connections say nothing the oldest of them gives way, so that whoever asks in full is answered. ``page`` is called
    for each scrape, on the scrape's own thread.
    """

    def __init__(
        self,
        listener: socket.socket,
        page: Callable[[], str],
        tls: ssl.SSLContext | None,
        *,
        local_only: bool,
    ) -> None:
        """``local_only`` answers only requests whose Host is a loopback name."""
        self.socket = listener
        self.page = page
        self.local_only = local_only
        self._tls = tls
        self._arriving: dict[socket.socket, ArrivingRequest] = {}
        """In the order in which they came."""
        self._complete: deque[ArrivingRequest] = deque()
        self._answering: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._worker = Worker("scrapes", self._serve, again=0.0, close=self._close)
        for one in (listener, self._wake, self._woken):
            one.setblocking(False)
        for one in (listener, self._woken):
            self._selector.register(one, selectors.EVENT_READ)

    def start(self) -> None:
        """Answer from a thread of its own."""
        self._worker.ask()

    def stop(self) -> None:
        """Answer no more."""
        self._worker.stop()
        self._tell()
        self._worker.stop(_LOOK_S)

    def _serve(self) -> None:
        while not self._worker.stopping.is_set():
            is_new = False
            for key, _ in self._selector.select(self._wait_s()):
                if key.fileobj is self.socket:
                    is_new = True
                elif key.fileobj is self._woken:
                    self._woken.recv(READ_BYTES)
                else:
                    self._read(key.data)
            # After the others: who has asked in full does not give way to who has just come.
            if is_new:
                self._accept()
            self._end_late(time.monotonic())
            self._answer_complete()

    def _wait_s(self) -> float:
        return _BUSY_LOOK_S if self._arriving or self._complete or self._answering else _LOOK_S

    def _accept(self) -> None:
        """Take connections that wait; the oldest unfinished ones give way."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, client = self.socket.accept()
            except BlockingIOError:
                return
            except OSError:
                # The client is gone, or there are no more descriptors.
                self._drop_oldest()
                time.sleep(_ERROR_PAUSE_S)
                return
            if len(self._arriving) >= MOST_ARRIVING:
                self._drop_oldest()
            try:
                request = ArrivingRequest(connection, client, self._tls, time.monotonic())
            except OSError:
                connection.close()
                continue
            self._arriving[request.connection] = request
            self._selector.register(request.connection, selectors.EVENT_READ, request)
            self._read(request)

    def _read(self, request: ArrivingRequest) -> None:
        """Read on; a complete request is no longer among the arriving ones."""
        try:
            is_complete = request.read()
        except (OSError, ValueError):
            self._drop(request)
            return
        if is_complete:
            self._forget(request)
            self._complete.append(request)

    def _forget(self, request: ArrivingRequest) -> None:
        del self._arriving[request.connection]
        self._selector.unregister(request.connection)

    def _drop(self, request: ArrivingRequest) -> None:
        self._forget(request)
        request.close()

    def _drop_oldest(self) -> None:
        for request in islice(self._arriving.values(), 1):
            self._drop(request)
            return

    def _end_late(self, now: float) -> None:
        """Close connections that have had their time, whatever they wait for."""
        head_s = min(HEAD_S, LONGEST_S)
        late = [one for one in self._arriving.values() if now - one.since >= head_s]
        for request in late:
            self._drop(request)
        while self._complete and now - self._complete[0].since >= LONGEST_S:
            self._complete.popleft().close()
        with self._lock:
            for connection, since in self._answering.items():
                if now - since >= LONGEST_S:
                    _cut(connection)

    def _answer_complete(self) -> None:
        """Begin answers as far as there is room."""
        while self._complete:
            with self._lock:
                if len(self._answering) >= MOST_ANSWERS:
                    self._cut_slow_reader(time.monotonic())
                    return
                request = self._complete.popleft()
                self._answering[request.connection] = request.since
            try:
                threading.Thread(
                    target=self._answer, args=(request,), name="gputop-scrape", daemon=True
                ).start()
            except RuntimeError:
                # No thread can be had.
                self._end_answer(request)

    def _cut_slow_reader(self, now: float) -> None:
        """End the oldest answer, whose thread then makes room."""
        connection, since = min(self._answering.items(), key=lambda row: row[1])
        if now - since >= SLOW_READER_S:
            _cut(connection)

    def _answer(self, request: ArrivingRequest) -> None:
        """On a thread of its own: parse the request, and answer."""
        try:
            request.connection.settimeout(LONGEST_S)
            _Handler(request, self)
            request.connection.shutdown(socket.SHUT_WR)
        except Exception:  # noqa: BLE001 - a client that goes away or sends nonsense is not worth a message
            pass
        finally:
            self._end_answer(request)

    def _end_answer(self, request: ArrivingRequest) -> None:
        with self._lock:
            self._answering.pop(request.connection, None)
        request.close()
        self._tell()

    def _tell(self) -> None:
        """Wake the thread that takes connections."""
        with contextlib.suppress(OSError):
            self._wake.send(b"x")

    def _close(self) -> None:
        self._selector.close()
        for request in (*self._arriving.values(), *self._complete):
            request.close()
        for one in (self.socket, self._wake, self._woken):
            one.close()


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def accepts_gzip(header: str) -> bool:
    """Return whether a client prefers gzip, by its Accept-Encoding.

    A weight of 0 refuses, and the greater of two weights is preferred (RFC 9110, section 12.5.3). A coding with a
    weight that is none counts as refused: everybody can read plain text.
    """
    weights: dict[str, float] = {}
    for part in header.lower().split(","):
        coding, *parameters = (word.strip() for word in part.split(";"))
        weights[coding] = _weight(parameters)
    any_weight = weights.get("*", 0.0)
    gzip_weight = weights.get("gzip", weights.get("x-gzip", any_weight))
    # Who does not name identity takes it, but did not ask for it.
    return gzip_weight > 0.0 and gzip_weight >= weights.get("identity", 0.0)


def _weight(parameters: list[str]) -> float:
    """Return the weight of a coding, from 0 to 1; 1 if it has none."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return float(value) if _WEIGHT.fullmatch(value := value.strip()) else 0.0
    return 1.0


_WEIGHT = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?", re.ASCII)


class _Handler(BaseHTTPRequestHandler):
    """One request, whose head has come."""

    server_version, sys_version = "gputop", ""
    protocol_version = "HTTP/1.0"
    error_message_format, error_content_type = (
        "%(message)s: GET /metrics\n",
        "text/plain; charset=utf-8",
    )

    def __init__(self, request: ArrivingRequest, server: ScrapeServer) -> None:
        self._head, self._scrapes = request.head, server
        of_library: Any = server
        super().__init__(request.connection, request.client, of_library)

    def setup(self) -> None:
        """Take the head that has come; the answer goes to the connection."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BytesIO(self._head)

    def do_GET(self) -> None:
        """Answer a GET or a HEAD."""
        if self._scrapes.local_only and not all(
            map(names_loopback, self.headers.get_all("Host", [""]))
        ):
            self._answer(403, "this exporter answers to its loopback address only\n")
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            # A HEAD needs no page.
            self._answer(200, self._scrapes.page() if self.command == "GET" else None, CONTENT_TYPE)
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
        accepted = ",".join(self.headers.get_all("Accept-Encoding", []))
        if len(body) > PACKED_FROM_BYTES and accepts_gzip(accepted):
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
