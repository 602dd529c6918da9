"""Asks a Prometheus-compatible engine, at most three questions at once. The only file of the fleet that talks HTTP.

POST and gzip, no redirects, TLS verified. Every failure is one line that says what to do. Blocking: call it from a
thread.
"""

from __future__ import annotations

import math
import ssl
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from gputop.fleet.address import Address
from gputop.fleet.deadline import Deadline, bound
from gputop.fleet.reading import FleetError
from gputop.fleet.refusals import cut, no_answer, refusal
from gputop.model.extras import install
from gputop.model.source import UsageError

# httpx imports its command line where click and rich are installed: 10 MB of memory for nothing.
sys.modules["httpx._main"] = None  # type: ignore[assignment]
try:
    import httpx
except ImportError:
    raise UsageError(f"the fleet's client needs httpx: {install('fleet')}") from None
finally:
    del sys.modules["httpx._main"]

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
