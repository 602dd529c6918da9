"""Asks a Prometheus-compatible engine, at most three questions at once. The only file of the fleet that talks HTTP.

POST and gzip, no redirects, TLS verified. Every failure is one line that says what to do. Blocking: call it from a
thread.
"""

from __future__ import annotations

import math
import re
import ssl
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
from msgspec import Raw, Struct

from gputop.features.fleet.address import TOKEN_VARIABLE, EngineAddress
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import FleetError
from gputop.model.extras import install
from gputop.model.quantity import clean_text
from gputop.model.source import UsageError

# HTTP to one engine by httpcore: pooled connections, proxies of the environment, a clock that every wait looks at.
#
# Each wait for bytes has its own limit in an HTTP library, so an answer that drips in would never end. Here the network
# backend, a part that httpcore lets its users give, ends all waits of a question at one moment.

if TYPE_CHECKING:
    import httpcore
    from httpcore import NetworkBackend, NetworkStream
else:
    # Help, the simulated fleet and its files need the questions and not who asks them.
    try:
        import httpcore
        from httpcore import NetworkBackend, NetworkStream
    except ImportError:
        httpcore, NetworkBackend, NetworkStream = None, object, object

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
        left_s = self.end - self._clock()
        if left_s <= 0.0 or self._ran_out.is_set():
            self.give_up()
            raise httpcore.ReadTimeout("the answer takes too long")
        return left_s if timeout is None else min(timeout, left_s)

    def give_up(self) -> None:
        """End whatever else waits for it."""
        self._ran_out.set()


class _Now(threading.local):
    """The deadline of the question that this thread asks."""

    deadline: Deadline | None = None

    def left(self, timeout: float | None) -> float | None:
        return timeout if self.deadline is None else self.deadline.left(timeout)


class _Stream(NetworkStream):
    """A connection's bytes; every wait ends at the deadline."""

    def __init__(self, stream: httpcore.NetworkStream, now: _Now) -> None:
        self._stream, self._now = stream, now

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while True:
            left_s = self._now.left(timeout)
            try:
                return self._stream.read(max_bytes, LOOK_S if left_s is None else min(LOOK_S, left_s))
            except httpcore.ReadTimeout:
                if left_s is None:
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
        """Raises OSError or ssl.SSLError for a ``ca`` file without certificates, UsageError without httpcore."""
        if httpcore is None:
            raise UsageError(f"the fleet's client needs httpcore: {install('fleet')}")
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
            left_s = deadline.left(None)
            limits = {"timeout": {"connect": left_s, "read": left_s, "write": left_s, "pool": left_s}}
            with self._pool.stream(method, url, headers=sent, content=body or None, extensions=limits) as response:
                headers_received = {
                    name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
                }
                packed = headers_received.get("content-encoding", "").strip().lower()
                return Reply(response.status, headers_received, self._limited(response.iter_stream(), packed == "gzip"))
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
                    raise WireError(f"an answer of more than {self._most_bytes >> 20} MiB")
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
    proxies = getproxies()
    proxy = proxies.get("https") or proxies.get("all")
    if proxy is None:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        parts_of_proxy = urlsplit(proxy)
        usable = (
            parts_of_proxy.scheme in ("http", "https") and bool(parts_of_proxy.hostname) and parts_of_proxy.port != 0
        )
    except ValueError:
        usable = False
    if not usable:
        raise UsageError("HTTPS_PROXY must be http://HOST:PORT or https://HOST:PORT; NO_PROXY leaves hosts out")
    return proxy


# Why an engine did not answer, in one line each: what is wrong, and what to do. Pure.


class _ErrorBody(Struct, frozen=True):
    error: str = ""


_ERROR_BODY = msgspec.json.Decoder(_ErrorBody)


def refusal(status: int, headers: Mapping[str, str], body: bytes, promql: str) -> str:
    """What a status other than success means."""
    if b"no org id" in body[:512]:
        return f"{status}, no tenant: Mimir and Cortex want a line `X-Scope-OrgID: NAME` in --header-file"
    if status in (401, 403):
        return f"{status}, not allowed: give a token by {TOKEN_VARIABLE} or a header by --header-file"
    if status == 404:
        return "404, no Prometheus under this path: a part such as /prometheus may be missing from the URL"
    if 300 <= status < 400:
        return f"redirects to {cut(headers.get('location', 'nowhere'))}: give that address if you trust it"
    if is_page(body):
        return f"{status} with a web page: is this Prometheus' address?"
    try:
        reason = _ERROR_BODY.decode(body).error
    except (msgspec.DecodeError, RecursionError):
        # Gateways and Thanos' stores answer in plain text.
        reason = body[:LONGEST_WORDS].decode("utf-8", "replace")
    if status in (400, 422):
        narrower = "; narrow it by --select" if "exceeded" in reason else ""
        # Some repeat all of the query before they say what is wrong with it.
        short = re.sub(r'query="(?:[^"\\]|\\.)*"', "it", reason)
        return f"{status}, it refuses: {cut(short)}{narrower} ({cut(promql)})"
    return f"{status}, the engine failed{': ' * bool(reason.strip())}{cut(reason).strip()}"


def no_answer(error: msgspec.DecodeError | UnicodeDecodeError | RecursionError, kind: str, body: bytes) -> str:
    """Why a successful response is not an answer."""
    if "html" in kind or is_page(body):
        return "answers with a web page, not with JSON: a login page, or another service"
    if "truncated" in str(error):
        return "its answer broke off"
    if isinstance(error, msgspec.ValidationError):
        return "answers with JSON that is not Prometheus': is this its address?"
    return "does not answer with JSON: is this Prometheus' address?"


def is_page(body: bytes) -> bool:
    """Whether this is HTML."""
    return body[:512].lstrip()[:1] == b"<"


# Questions and answers.

MOST_AT_ONCE = 3
DEADLINE_S = 10.0
"""For one question. The engine is told to give up a little earlier."""
MOST_BYTES = 128 * 2**20
"""Of one answer, unpacked. 8,000 GPUs take some 1 MB per query."""
T = TypeVar("T")


class QueryError(FleetError):
    """An engine that did not answer a question: one line, what is wrong and what to do."""


class PromQuery(Struct, frozen=True):
    """PromQL at one moment, or over a range with ``step_s``. Without ``end`` it is the engine's own present."""

    promql: str
    end: float | None = None
    begin: float | None = None
    step_s: float = 0.0

    @property
    def form(self) -> dict[str, str]:
        """The API's parameters."""
        form = {"query": self.promql}
        if self.begin is not None and self.end is not None:
            return {**form, "start": f"{self.begin:.3f}", "end": f"{self.end:.3f}", "step": f"{self.step_s:g}"}
        return form if self.end is None else {**form, "time": f"{self.end:.3f}"}


class SeriesRow(Struct, frozen=True, gc=False):
    """One series of an answer: ``value`` of an instant, ``values`` of a range, each (Unix seconds, number as text).

    ``metric`` are its labels as they came, see ``series.Remembered``.
    """

    metric: Raw
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class Answer(Struct, frozen=True):
    """The series, and the engine's warnings, such as a store that did not answer."""

    rows: list[SeriesRow]
    warnings: tuple[str, ...] = ()


class _Data(Struct, frozen=True):
    resultType: str
    result: Raw


class _Body(Struct, frozen=True):
    status: str
    data: Raw = Raw(b"null")
    error: str = ""
    warnings: list[str] | None = None


_BODY, _DATA = msgspec.json.Decoder(_Body), msgspec.json.Decoder(_Data)
_ROWS, _NAMES = msgspec.json.Decoder(list[SeriesRow]), msgspec.json.Decoder(list[str])


class Client:
    """A connection that stays open between refreshes."""

    def __init__(
        self,
        address: EngineAddress,
        deadline_s: float = DEADLINE_S,
        *,
        backend: httpcore.NetworkBackend | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``backend`` opens connections in place of the system's."""
        self._url, self._deadline_s, self._clock = address.url, deadline_s, clock
        try:
            self._wire = Wire(address.url, address.ca, connections=MOST_AT_ONCE, most_bytes=MOST_BYTES, backend=backend)
        except (OSError, ssl.SSLError):
            raise UsageError(f"--prom-ca: {address.ca} holds no certificates") from None
        self._headers = {
            "User-Agent": "gputop",
            # On the same machine compression costs both sides more than it saves.
            "Accept-Encoding": "identity" if address.is_local else "gzip",
            "Accept": "application/json",
            **address.headers,
        }
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "prometheus")
        self._late = ""

    def begin(self) -> None:
        """A refresh begins: an engine that was too late in the last one is asked again."""
        self._late = ""

    def ask(self, queries: Sequence[PromQuery]) -> list[Answer | QueryError]:
        """The answers in the questions' order; one that failed is its error.

        Where one had no answer in time the others end with it, and nothing more is asked in this refresh: an engine
        that hangs costs the deadline once.
        """
        deadlines: list[Deadline] = []
        return list(self._pool.map(lambda query: self._answer(query, deadlines), queries))

    def names(self, series: str, begin: float | None = None, end: float | None = None) -> list[str]:
        """Which names the series of a selector have in that time. Raises QueryError."""
        form = {"match[]": series}
        if begin is not None and end is not None:
            form |= {"start": f"{begin:.3f}", "end": f"{end:.3f}"}
        body, kind = self._fetched("GET", f"label/__name__/values?{urlencode(form)}", b"", series, [])
        return self._decoded(lambda: _NAMES.decode(self._success(body).data), kind, body)

    def close(self) -> None:
        """Close the connections; a query that hangs ends by its deadline, and is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._wire.close()

    def _answer(self, query: PromQuery, deadlines: list[Deadline]) -> Answer | QueryError:
        path = "query" if query.begin is None else "query_range"
        form = {**query.form, "timeout": f"{max(1.0, self._deadline_s - 1.0):.0f}s"}
        try:
            body, kind = self._fetched("POST", path, urlencode(form).encode(), query.promql, deadlines)
            return self._decoded(lambda: self._rows(body, query), kind, body)
        except QueryError as error:
            return error

    def _fetched(
        self, method: str, path: str, body: bytes, promql: str, deadlines: list[Deadline]
    ) -> tuple[bytes, str]:
        """The body of a success, and its content type. ``deadlines`` are those of the queries asked with it."""
        if self._late:
            raise QueryError(f"{self._url}: {self._late}")
        deadline = Deadline(self._clock() + self._deadline_s, self._clock)
        deadlines.append(deadline)
        headers = {**self._headers, **({"Content-Type": "application/x-www-form-urlencoded"} if body else {})}
        try:
            reply = self._wire.fetch(method, f"{self._url}/api/v1/{path}", headers, body, deadline)
        except WireError as error:
            words = f"no answer within {self._deadline_s:.0f} s" if error.is_late else str(error)
            words += ": narrow it by --select" * words.endswith("MiB")
            if error.is_late:
                self._late = words
                for other in deadlines:
                    other.give_up()
            raise QueryError(f"{self._url}: {words}") from None
        if reply.status == 404 and method == "GET" and self._is_exporter(deadline):
            raise QueryError(f"{self._url}: that is an exporter: gputop fleet {self._url}")
        if reply.status != 200:
            raise QueryError(f"{self._url}: {refusal(reply.status, reply.headers, reply.body, promql)}")
        return reply.body, reply.headers.get("content-type", "")

    def _is_exporter(self, deadline: Deadline) -> bool:
        """Whether GPUs' metrics stand there themselves."""
        try:
            reply = self._wire.fetch(
                "GET", self._url.removesuffix("/metrics") + "/metrics", self._headers, b"", deadline
            )
        except WireError:
            return False
        names = ["gputop_up", *(dialect.signals["util_pct"].name for dialect in DIALECTS.values())]
        return reply.status == 200 and any(f"# TYPE {name} ".encode() in reply.body for name in names)

    def _decoded(self, decode: Callable[[], T], kind: str, body: bytes) -> T:
        try:
            return decode()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise QueryError(f"{self._url}: {no_answer(error, kind, body)}") from None

    def _success(self, body: bytes) -> _Body:
        answer = _BODY.decode(body)
        if answer.status != "success":
            raise QueryError(f"{self._url}: {cut(answer.error or 'it failed without a reason')}")
        return answer

    def _rows(self, body: bytes, query: PromQuery) -> Answer:
        answer = self._success(body)
        data = _DATA.decode(answer.data)
        if data.resultType not in ("vector", "matrix"):
            raise QueryError(f"{self._url}: answers with {cut(data.resultType)} to {cut(query.promql)}")
        return Answer(_ROWS.decode(data.result), tuple(map(cut, answer.warnings or ())))


def number(text: str) -> float | None:
    """A value of an answer; None for NaN and infinities."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
