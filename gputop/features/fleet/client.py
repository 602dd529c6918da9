"""Asks a Prometheus-compatible engine, at most three questions at once. The only file of the fleet that talks HTTP.

POST and gzip, no redirects, TLS verified. Every failure is one line that says what to do. Blocking: call it from a
thread.
"""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Raw, Struct

from gputop.features.fleet.address import TOKEN_VARIABLE, EngineAddress
from gputop.features.fleet.fleet_reading import FleetError
from gputop.features.fleet.wire import LONGEST_WORDS, Deadline, Wire, WireError, cut
from gputop.model.source import UsageError

if TYPE_CHECKING:
    import httpcore


# Why an engine did not answer, in one line each: what is wrong, and what to do. Pure.


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
    except (msgspec.DecodeError, RecursionError):
        # Gateways and Thanos' stores answer in plain text.
        reason = body[:LONGEST_WORDS].decode("utf-8", "replace")
    if status in (400, 422):
        narrower = "; narrow it by --select" if "exceeded" in reason else ""
        return f"{status}, it refuses {cut(asked)}: {cut(reason)}{narrower}"
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
        asked: list[Deadline] = []
        return list(self._pool.map(lambda query: self._answer(query, asked), queries))

    def names(self, series: str, begin: float | None = None, end: float | None = None) -> list[str]:
        """Which names the series of a selector have in that time. Raises QueryError."""
        form = {"match[]": series}
        if begin is not None and end is not None:
            form |= {"start": f"{begin:.3f}", "end": f"{end:.3f}"}
        body, kind = self._fetched("GET", f"label/__name__/values?{urlencode(form)}", b"", series, [])
        return self._decoded(lambda: _NAMES.decode(self._success(body).data), kind, body)

    def close(self) -> None:
        """Close the connections; a query that hangs ends by its deadline, and nobody waits for it."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._wire.close()

    def _answer(self, query: PromQuery, asked: list[Deadline]) -> Answer | QueryError:
        path = "query" if query.begin is None else "query_range"
        form = {**query.form, "timeout": f"{max(1.0, self._deadline_s - 1.0):.0f}s"}
        try:
            body, kind = self._fetched("POST", path, urlencode(form).encode(), query.promql, asked)
            return self._decoded(lambda: self._rows(body, query), kind, body)
        except QueryError as error:
            return error

    def _fetched(self, method: str, path: str, body: bytes, asked: str, beside: list[Deadline]) -> tuple[bytes, str]:
        """The body of a success, and its content type. ``beside`` are the deadlines of questions asked with it."""
        if self._late:
            raise QueryError(f"{self._url}: {self._late}")
        deadline = Deadline(self._clock() + self._deadline_s, self._clock)
        beside.append(deadline)
        headers = {**self._headers, **({"Content-Type": "application/x-www-form-urlencoded"} if body else {})}
        try:
            reply = self._wire.fetch(method, f"{self._url}/api/v1/{path}", headers, body, deadline)
        except WireError as error:
            words = f"no answer within {self._deadline_s:.0f} s" if error.is_late else str(error)
            if error.is_late:
                self._late = words
                for other in beside:
                    other.give_up()
            raise QueryError(f"{self._url}: {words}") from None
        if reply.status != 200:
            raise QueryError(f"{self._url}: {refusal(reply.status, reply.headers, reply.body, asked)}")
        return reply.body, reply.headers.get("content-type", "")

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
