"""Asks a Prometheus-compatible engine, at most three questions at once. The only file of the fleet that talks HTTP.

POST and gzip, no redirects, TLS verified, proxies of the environment. Every failure is one line that says what to do.
Blocking: call it from a thread.
"""

from __future__ import annotations

import math
import re
import ssl
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeVar
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
    """Why no answer came, in words."""


class LateError(WireError):
    """The time for an answer ran out."""


class Reply(Struct, frozen=True):
    """An answer, whatever its status; header names are in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Wire:
    """Connections to one address, kept open between questions. ``fetch`` may be called from several threads."""

    def __init__(self, url: str, ca: str | None = None, *, connections: int, most_bytes: int) -> None:
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

    def fetch(self, method: str, url: str, headers: Mapping[str, str], body: bytes, limit_s: float) -> Reply:
        """The whole answer, unpacked. One that takes longer than ``limit_s`` ends all others with it. Raises
        WireError."""
        end = monotonic() + limit_s
        # The library's limits are those of each wait: an answer that drips in would never end.
        watchdog = threading.Timer(limit_s, self._pool.close)
        watchdog.daemon = True
        watchdog.start()
        waits = {"connect": min(CONNECT_S, limit_s), "read": limit_s, "write": limit_s, "pool": limit_s}
        sent = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
        try:
            with self._pool.stream(
                method, url, headers=sent, content=body or None, extensions={"timeout": waits}
            ) as response:
                received = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                is_packed = received.get("content-encoding", "").strip().lower() == "gzip"
                return Reply(response.status, received, self._whole(response.iter_stream(), is_packed))
        except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, OSError,
                RuntimeError) as error:  # fmt: skip
            if isinstance(error, httpcore.TimeoutException) or monotonic() >= end:
                raise LateError("no answer in time") from None
            raise WireError(self._words_of(error)) from None
        finally:
            watchdog.cancel()

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def _whole(self, parts: Iterable[bytes], is_packed: bool) -> bytes:
        """The body; a bomb is cut where it passes the limit, and not unpacked first."""
        unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if is_packed else None
        whole = bytearray()
        try:
            for part in parts:
                whole += part if unpacker is None else unpacker.decompress(part, self._most_bytes + 1 - len(whole))
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
    """Address and user of the proxy that the environment names for https; plain http would show a proxy the headers."""
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
        raise UsageError("HTTPS_PROXY must be http://HOST:PORT or https://HOST:PORT; NO_PROXY leaves hosts out")
    user = (unquote(proxy.username), unquote(proxy.password or "")) if proxy.username else None
    return f"{proxy.scheme}://{proxy.hostname}:{port}", user


# Why an engine did not answer, in one line each: what is wrong, and what to do. Pure.


class _ErrorBody(Struct, frozen=True):
    error: str = ""


_ERROR_BODY = msgspec.json.Decoder(_ErrorBody)


def refusal(reply: Reply, promql: str) -> str:
    """What a status other than success means."""
    status, body = reply.status, reply.body
    if b"no org id" in body[:512]:
        return f"{status}, no tenant: Mimir and Cortex want a line `X-Scope-OrgID: NAME` in --header-file"
    if status in (401, 403):
        return f"{status}, not allowed: give a token by {TOKEN_VARIABLE} or a header by --header-file"
    if status == 404:
        return "404, no Prometheus under this path: a part such as /prometheus may be missing from the URL"
    if 300 <= status < 400:
        return f"redirects to {cut(reply.headers.get('location', 'nowhere'))}: give that address if you trust it"
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


def no_answer(error: Exception, reply: Reply) -> str:
    """Why a successful response is not an answer."""
    if "html" in reply.headers.get("content-type", "") or is_page(reply.body):
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


class _Body(Struct, Generic[T], frozen=True, rename="camel"):
    status: str
    data: T | None = None
    error: str = ""
    warnings: list[str] | None = None
    is_partial: bool = False
    """VictoriaMetrics' word for what is a warning elsewhere."""


class _Result(Struct, frozen=True):
    result: list[SeriesRow]


_ROWS, _NAMES = msgspec.json.Decoder(_Body[_Result]), msgspec.json.Decoder(_Body[list[str]])


class Client:
    """A connection that stays open between refreshes."""

    def __init__(self, address: EngineAddress, deadline_s: float = DEADLINE_S) -> None:
        """Raises UsageError for a file without certificates."""
        self._url, self._deadline_s = address.url, deadline_s
        try:
            self._wire = Wire(address.url, address.ca, connections=MOST_AT_ONCE, most_bytes=MOST_BYTES)
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

        Where one had no answer in time nothing more is asked in this refresh: an engine that hangs costs the deadline
        once.
        """
        return list(self._pool.map(self._answer, queries))

    def names(self, series: str, begin: float | None = None, end: float | None = None) -> list[str]:
        """Which names the series of a selector have in that time. Raises QueryError."""
        form = {"match[]": series}
        if begin is not None and end is not None:
            form |= {"start": f"{begin:.3f}", "end": f"{end:.3f}"}
        reply = self._fetched("GET", f"label/__name__/values?{urlencode(form)}", b"", series)
        return self._decoded(_NAMES, reply)[0]

    def close(self) -> None:
        """Close the connections; a query that hangs ends by its deadline, and is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._wire.close()

    def _answer(self, query: PromQuery) -> Answer | QueryError:
        path = "query" if query.begin is None else "query_range"
        form = {**query.form, "timeout": f"{max(1.0, self._deadline_s - 1.0):.0f}s"}
        try:
            reply = self._fetched("POST", path, urlencode(form).encode(), query.promql)
            data, warnings = self._decoded(_ROWS, reply)
            return Answer(data.result, warnings)
        except QueryError as error:
            return error

    def _fetched(self, method: str, path: str, body: bytes, promql: str) -> Reply:
        """A success."""
        if self._late:
            raise QueryError(f"{self._url}: {self._late}")
        headers = {**self._headers, **({"Content-Type": "application/x-www-form-urlencoded"} if body else {})}
        try:
            reply = self._wire.fetch(method, f"{self._url}/api/v1/{path}", headers, body, self._deadline_s)
        except LateError:
            self._late = f"no answer within {self._deadline_s:.0f} s"
            raise QueryError(f"{self._url}: {self._late}") from None
        except WireError as error:
            narrower = ": narrow it by --select" if str(error).endswith("MiB") else ""
            raise QueryError(f"{self._url}: {error}{narrower}") from None
        if reply.status == 404 and method == "GET" and self._is_exporter():
            raise QueryError(f"{self._url}: that is an exporter: gputop fleet {self._url}")
        if reply.status != 200:
            raise QueryError(f"{self._url}: {refusal(reply, promql)}")
        return reply

    def _is_exporter(self) -> bool:
        """Whether GPUs' metrics stand there themselves."""
        url = self._url.removesuffix("/metrics") + "/metrics"
        try:
            reply = self._wire.fetch("GET", url, self._headers, b"", self._deadline_s)
        except WireError:
            return False
        names = ["gputop_up", *(dialect.signals["util_pct"].name for dialect in DIALECTS.values())]
        return reply.status == 200 and any(f"# TYPE {name} ".encode() in reply.body for name in names)

    def _decoded(self, decoder: msgspec.json.Decoder[_Body[T]], reply: Reply) -> tuple[T, tuple[str, ...]]:
        """What a success holds, and its warnings."""
        try:
            body = decoder.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise QueryError(f"{self._url}: {no_answer(error, reply)}") from None
        if body.status != "success" or body.data is None:
            raise QueryError(f"{self._url}: {cut(body.error or 'it failed without a reason')}")
        warnings = (*(body.warnings or ()), *("a part of its storage did not answer",) * body.is_partial)
        return body.data, tuple(map(cut, warnings))


def number(text: str) -> float | None:
    """A value of an answer; None for NaN and infinities."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
