"""Asks a Prometheus-compatible engine, at most three questions at once. The only file of the fleet that talks HTTP.

POST and gzip, no redirects, TLS verified. Every failure is one line that says what to do. Blocking: call it from a
thread.
"""

from __future__ import annotations

import math
import re
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from gputop.features.fleet.address import TOKEN_VARIABLE, Address
from gputop.features.fleet.fleet_reading import FleetError
from gputop.model.extras import install
from gputop.model.quantity import clean_text
from gputop.model.source import UsageError

# A deadline for a whole answer. httpx bounds only each wait for bytes, so headers that drip in would never end.


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


# Why an engine did not answer, in one line each: what is wrong, and what to do. Pure.

LONGEST_WORDS = 160


class _Said(Struct, frozen=True):
    error: str = ""


_SAID = msgspec.json.Decoder(_Said)


def refusal(status: int, headers: Mapping[str, str], body: bytes, asked: str) -> str:
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
        reason = _SAID.decode(body).error
    except msgspec.DecodeError:
        # Gateways and Thanos' stores answer in plain text.
        reason = body[:LONGEST_WORDS].decode("utf-8", "replace")
    if status in (400, 422):
        narrower = "; narrow it by --select" if "exceeded" in reason else ""
        return f"{status}, it refuses {cut(asked)}: {cut(reason)}{narrower}"
    return f"{status}, the engine failed{': ' * bool(reason.strip())}{cut(reason).strip()}"


def no_answer(error: msgspec.DecodeError | UnicodeDecodeError, kind: str, body: bytes) -> str:
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


def cut(text: str) -> str:
    """Words from outside in one line that can be shown."""
    return clean_text(re.sub(r"\s+", " ", text))[:LONGEST_WORDS]


try:
    import httpx
except ImportError:
    raise UsageError(f"the fleet's client needs httpx: {install('fleet')}") from None

MOST_AT_ONCE = 3
DEADLINE_S = 10.0
"""For one query. The engine is told to give up a little earlier."""
MOST_BYTES = 128 * 2**20
"""Of one answer, unpacked. 8,000 GPUs take some 1 MB per query."""
T = TypeVar("T")


class QueryError(FleetError):
    """An engine that did not answer a question: one line, what is wrong and what to do."""


class Query(Struct, frozen=True):
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


class Row(Struct, frozen=True, gc=False):
    """One series of an answer: ``value`` of an instant, ``values`` of a range, each (Unix seconds, number as text).

    ``metric`` are its labels as they came, see ``series.Remembered``.
    """

    metric: Raw
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class Answer(Struct, frozen=True):
    """The series, and the engine's warnings, such as a store that did not answer."""

    rows: list[Row]
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
_ROWS, _NAMES = msgspec.json.Decoder(list[Row]), msgspec.json.Decoder(list[str])


class Client:
    """A connection that stays open between refreshes."""

    def __init__(self, address: Address, deadline_s: float = DEADLINE_S) -> None:
        self._url, self._deadline_s = address.url, deadline_s
        try:
            verify: Any = ssl.create_default_context(cafile=address.ca) if address.url.startswith("https") else True
        except (OSError, ssl.SSLError):
            raise UsageError(f"--prom-ca: {address.ca} holds no certificates") from None
        self._client = httpx.Client(
            headers={
                **address.headers,
                # On the same machine compression costs both sides more than it saves.
                "Accept-Encoding": "identity" if address.is_local else "gzip",
                "Accept": "application/json",
            },
            verify=verify,
            timeout=httpx.Timeout(deadline_s, connect=min(5.0, deadline_s)),
            limits=httpx.Limits(max_connections=MOST_AT_ONCE, max_keepalive_connections=MOST_AT_ONCE),
            follow_redirects=False,
            # A proxy would see the headers of unencrypted requests.
            trust_env=address.url.startswith("https"),
        )
        self._deadline = Deadline()
        bound(self._client, self._deadline)
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "prometheus")

    def ask(self, queries: Sequence[Query]) -> list[Answer | QueryError]:
        """The answers in the questions' order; one that failed is its error."""
        return list(self._pool.map(self._answer, queries))

    def names(self, series: str, begin: float | None = None, end: float | None = None) -> list[str]:
        """Which names the series of a selector have in that time. Raises QueryError."""
        form = {"match[]": series}
        if begin is not None and end is not None:
            form |= {"start": f"{begin:.3f}", "end": f"{end:.3f}"}
        body, kind = self._fetched("GET", "label/__name__/values", form, series)
        return self._decoded(lambda: _NAMES.decode(self._success(body).data), kind, body)

    def close(self) -> None:
        """Close the connections; a query that hangs ends by its deadline, and nobody waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _answer(self, query: Query) -> Answer | QueryError:
        path = "query" if query.begin is None else "query_range"
        form = {**query.form, "timeout": f"{max(1.0, self._deadline_s - 1.0):.0f}s"}
        try:
            body, kind = self._fetched("POST", path, form, query.promql)
            return self._decoded(lambda: self._rows(body, query), kind, body)
        except QueryError as error:
            return error

    def _fetched(self, method: str, path: str, form: dict[str, str], asked: str) -> tuple[bytes, str]:
        """The body of a success, and its content type."""
        url = f"{self._url}/api/v1/{path}"
        given: dict[str, Any] = {"data": form} if method == "POST" else {"params": form}
        self._deadline.end = monotonic() + self._deadline_s
        try:
            with self._client.stream(method, url, **given) as response:
                body = _limited(response)
                status, headers = response.status_code, response.headers
        except (httpx.HTTPError, TimeoutError) as error:
            raise QueryError(f"{self._url}: {_words_of(error, self._deadline_s)}") from None
        except RuntimeError:
            raise QueryError(f"{self._url}: closed") from None
        if status != 200:
            raise QueryError(f"{self._url}: {refusal(status, headers, body, asked)}")
        return body, headers.get("content-type", "")

    def _decoded(self, decode: Callable[[], T], kind: str, body: bytes) -> T:
        try:
            return decode()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise QueryError(f"{self._url}: {no_answer(error, kind, body)}") from None

    def _success(self, body: bytes) -> _Body:
        answer = _BODY.decode(body)
        if answer.status != "success":
            raise QueryError(f"{self._url}: {cut(answer.error or 'it failed without a reason')}")
        return answer

    def _rows(self, body: bytes, query: Query) -> Answer:
        answer = self._success(body)
        data = _DATA.decode(answer.data)
        if data.resultType not in ("vector", "matrix"):
            raise QueryError(f"{self._url}: answers with {cut(data.resultType)} to {cut(query.promql)}")
        return Answer(_ROWS.decode(data.result), tuple(map(cut, answer.warnings or ())))


def _limited(response: httpx.Response) -> bytes:
    """The body."""
    parts, size = [], 0
    for part in response.iter_bytes():
        size += len(part)
        if size > MOST_BYTES:
            raise QueryError(
                f"{response.url.host}: an answer of more than {MOST_BYTES >> 20} MiB: narrow it by --select"
            )
        parts.append(part)
    return b"".join(parts)


def _words_of(error: httpx.HTTPError | TimeoutError, deadline_s: float) -> str:
    """Why a connection failed."""
    if isinstance(error, (httpx.TimeoutException, TimeoutError)):
        return f"no answer within {deadline_s:.0f} s"
    text = str(error)
    if "CERTIFICATE" in text.upper():
        return "its certificate is not trusted: --prom-ca FILE names another authority"
    if isinstance(error, httpx.ConnectError):
        if "refused" in text:
            return "nobody listens there (connection refused)"
        return "no such host, or no way to it" if "Name" in text or "resolve" in text else "cannot connect"
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError, httpx.DecodingError)):
        return "the connection broke off within the answer"
    return cut(text) or type(error).__name__


def number(text: str) -> float | None:
    """A value of an answer; None for NaN and infinities."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
