"""Asks a Prometheus-compatible engine, at most three questions at once. The only file of the fleet that talks HTTP.

POST and gzip, no redirects, TLS verified. Every failure is one line that says what to do. Blocking: call it from a
thread.
"""

from __future__ import annotations

import math
import re
import ssl
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec import Struct

from gputop.fleet.address import TOKEN_VARIABLE, Address
from gputop.fleet.reading import FleetError
from gputop.model.extras import install
from gputop.model.source import UsageError
from gputop.model.text import clean_text

# httpx takes its command line along where click and rich are: 10 MB of memory for nothing. It can do without.
sys.modules["httpx._main"] = None  # type: ignore[assignment]
try:
    import httpx
except ImportError:
    raise UsageError(f"the fleet's client needs httpx: {install('fleet')}") from None
finally:
    del sys.modules["httpx._main"]

MOST_AT_ONCE = 3
DEADLINE_S = 10.0
"""For one question. The engine is told to give up a little earlier."""
MOST_BYTES = 128 * 2**20
"""Of one answer, unpacked. 8,000 GPUs take some 2 MB a question."""
LONGEST_WORDS = 160


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
        form = {"query": self.promql, "timeout": f"{DEADLINE_S - 1.0:.0f}s"}
        if self.begin is not None and self.end is not None:
            return {**form, "start": f"{self.begin:.3f}", "end": f"{self.end:.3f}", "step": f"{self.step_s:g}"}
        return form if self.end is None else {**form, "time": f"{self.end:.3f}"}


class Row(Struct, frozen=True):
    """One series of an answer: ``value`` of an instant, ``values`` of a range, each (Unix seconds, number as text)."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: list[tuple[float, str]] = []


class _Data(Struct, frozen=True):
    resultType: str
    result: msgspec.Raw


class _Answer(Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


_ANSWER = msgspec.json.Decoder(_Answer)
_ROWS = msgspec.json.Decoder(list[Row])


class Client:
    """A connection that stays open between refreshes."""

    def __init__(self, address: Address) -> None:
        self._url = address.url
        try:
            verify: Any = ssl.create_default_context(cafile=address.ca) if address.url.startswith("https") else True
        except (OSError, ssl.SSLError):
            raise UsageError(f"--prom-ca: {address.ca} holds no certificates") from None
        self._client = httpx.Client(
            headers={**address.headers, "Accept-Encoding": "gzip", "Accept": "application/json"},
            verify=verify,
            timeout=httpx.Timeout(DEADLINE_S, connect=5.0),
            limits=httpx.Limits(max_connections=MOST_AT_ONCE, max_keepalive_connections=MOST_AT_ONCE),
            follow_redirects=False,
            # A proxy would see the headers of what is not encrypted.
            trust_env=address.url.startswith("https"),
        )
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "prometheus")

    def ask(self, queries: Sequence[Query]) -> list[list[Row] | QueryError]:
        """The answers in the questions' order; one that failed is its error."""
        return list(self._pool.map(self._tried, queries))

    def close(self) -> None:
        """Let go of the connections; a question that hangs ends by its deadline, and nobody waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _tried(self, query: Query) -> list[Row] | QueryError:
        try:
            return self._one(query)
        except QueryError as error:
            return error

    def _one(self, query: Query) -> list[Row]:
        kind = "query" if query.begin is None else "query_range"
        url = f"{self._url}/api/v1/{kind}"
        try:
            with self._client.stream("POST", url, data=query.form) as response:
                body = _limited(response)
                status, headers = response.status_code, response.headers
        except httpx.HTTPError as error:
            raise QueryError(f"{self._url}: {_words_of(error)}") from None
        except RuntimeError:
            raise QueryError(f"{self._url}: closed") from None
        if status != 200:
            raise QueryError(f"{self._url}: {_refusal(status, headers, body, query)}")
        return self._rows(body, headers.get("content-type", ""), query)

    def _rows(self, body: bytes, kind: str, query: Query) -> list[Row]:
        try:
            answer = _ANSWER.decode(body)
            if answer.status != "success" or answer.data is None:
                raise QueryError(f"{self._url}: {_cut(answer.error or 'it failed without a reason')}")
            if answer.data.resultType not in ("vector", "matrix"):
                raise QueryError(f"{self._url}: answers with {_cut(answer.data.resultType)} to {_cut(query.promql)}")
            return _ROWS.decode(answer.data.result)
        except msgspec.DecodeError as error:
            if "html" in kind or body[:512].lstrip()[:1] == b"<":
                said = "answers with a web page, not with JSON: a login page, or another service"
            elif "truncated" in str(error):
                said = "its answer broke off"
            elif isinstance(error, msgspec.ValidationError):
                said = "answers with JSON that is not Prometheus': is this its address?"
            else:
                said = "does not answer with JSON: is this Prometheus' address?"
            raise QueryError(f"{self._url}: {said}") from None


def _limited(response: httpx.Response) -> bytes:
    parts, size = [], 0
    for part in response.iter_bytes():
        size += len(part)
        if size > MOST_BYTES:
            raise QueryError(
                f"{response.url.host}: an answer of more than {MOST_BYTES >> 20} MiB: narrow it by --select"
            )
        parts.append(part)
    return b"".join(parts)


def _words_of(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.TimeoutException):
        return f"no answer within {DEADLINE_S:.0f} s"
    text = str(error)
    if "CERTIFICATE" in text.upper():
        return "its certificate is not trusted: --prom-ca FILE names another authority"
    if isinstance(error, httpx.ConnectError):
        if "refused" in text:
            return "nobody listens there (connection refused)"
        return "no such host, or no way to it" if "Name" in text or "resolve" in text else "cannot connect"
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError, httpx.DecodingError)):
        return "the connection broke off within the answer"
    return _cut(text) or type(error).__name__


def _refusal(status: int, headers: httpx.Headers, body: bytes, query: Query) -> str:
    if status in (401, 403):
        return f"{status}, not allowed: give a token by {TOKEN_VARIABLE} or a header by --header-file"
    if status == 404:
        return "404, no Prometheus under this path: a part such as /prometheus may be missing from the URL"
    if 300 <= status < 400:
        return f"redirects to {_cut(headers.get('location', 'nowhere'))}: give that address if you trust it"
    reason = ""
    try:
        reason = _ANSWER.decode(body).error
    except msgspec.DecodeError:
        if body[:512].lstrip()[:1] == b"<":
            return f"{status} with a web page: is this Prometheus' address?"
    if status in (400, 422):
        return f"{status}, it refuses {_cut(query.promql)}: {_cut(reason)}"
    return f"{status} {_cut(reason)}".rstrip()


def _cut(text: str) -> str:
    return clean_text(re.sub(r"\s+", " ", text))[:LONGEST_WORDS]


def number(text: str) -> float | None:
    """A value of an answer; None for NaN and infinities."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
