"""Ask a Prometheus-compatible engine, at most three questions at once.

POST and gzip, no redirects, TLS verified. Every failure is one line that says what to do. Blocking: call it from a
thread.
"""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import msgspec
from msgspec import Raw, Struct

from gputop.features.fleet.address import TOKEN_VARIABLE, EngineAddress
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import FleetError
from gputop.features.fleet.http_wire import LONGEST_WORDS, LateError, Reply, Wire, WireError, cut
from gputop.model.source import UsageError


class _ErrorBody(Struct, frozen=True):
    error: str = ""


_ERROR_BODY = msgspec.json.Decoder(_ErrorBody)


def refusal(reply: Reply, promql: str) -> str:
    """Explain a status other than success."""
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


MOST_AT_ONCE = 3
NO_API = (404, 405, 501)
"""Statuses of a server that is not Prometheus: no such path, or no POST."""
DEADLINE_S = 10.0
"""For one question. The engine is told to give up a little earlier."""
MOST_BYTES = 128 * 2**20
"""Of one answer, unpacked. 8,000 GPUs take some 1 MB per query."""


class QueryError(FleetError):
    """An engine that did not answer, with one line of advice."""


class PromQuery(Struct, frozen=True):
    """PromQL at one moment, or over a range with ``step_s``.

    Without ``end`` it is asked at the engine's own present.
    """

    promql: str
    end: float | None = None
    begin: float | None = None
    step_s: float = 0.0
    patience: float = 1.0
    """Multiple of the client's deadline."""

    @property
    def form(self) -> dict[str, str]:
        """The API's parameters."""
        form = {"query": self.promql}
        if self.begin is not None and self.end is not None:
            return {**form, "start": f"{self.begin:.3f}", "end": f"{self.end:.3f}", "step": f"{self.step_s:g}"}
        return form if self.end is None else {**form, "time": f"{self.end:.3f}"}


class SeriesRow(Struct, frozen=True, gc=False):
    """One series of an answer: one ``value``, or ``values`` of a range.

    ``metric`` are its labels as they came, see ``LabelCache``. Values of a range stay JSON until ``points`` decodes
    them: decoded, a whole fleet's would take ten times their size.
    """

    metric: Raw
    value: tuple[float, str] | None = None
    values: Raw = Raw(b"[]")

    def points(self) -> list[tuple[float, str]]:
        """Decode the values of a range. Raises FleetError."""
        try:
            return _POINTS.decode(self.values)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise FleetError("an answer with values that are not Prometheus': is this its address?") from None


class Answer(Struct, frozen=True):
    """The series, and the engine's warnings, such as a store that did not answer."""

    rows: list[SeriesRow]
    warnings: tuple[str, ...] = ()


class _Result(Struct, frozen=True):
    result: list[SeriesRow]


class _Body(Struct, frozen=True, rename="camel"):
    status: str
    data: _Result | None = None
    error: str = ""
    warnings: list[str] | None = None
    is_partial: bool = False
    """VictoriaMetrics' word for what is a warning elsewhere."""


_BODY = msgspec.json.Decoder(_Body)
_POINTS = msgspec.json.Decoder(list[tuple[float, str]])


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
        """Begin a refresh: an engine that was late is asked again."""
        self._late = ""

    def ask(self, queries: Sequence[PromQuery]) -> list[Answer | QueryError]:
        """Ask at most three at once; answers or errors in their order.

        After one answer that came too late nothing more is asked in this refresh: an engine that hangs costs the
        deadline once.
        """
        return list(self._pool.map(self._answer, queries))

    def close(self) -> None:
        """Close the connections; a query that hangs ends at its deadline."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._wire.close()

    def _answer(self, query: PromQuery) -> Answer | QueryError:
        path = "query" if query.begin is None else "query_range"
        limit_s = query.patience * self._deadline_s
        form = {**query.form, "timeout": f"{max(1.0, limit_s - 1.0):.0f}s"}
        try:
            reply = self._fetched(path, urlencode(form).encode(), query.promql, limit_s)
            data, warnings = self._decoded(reply)
            return Answer(data.result, warnings)
        except QueryError as error:
            return error

    def _fetched(self, path: str, body: bytes, promql: str, limit_s: float) -> Reply:
        """Post a question and return a successful reply. Raises QueryError."""
        if self._late:
            raise QueryError(f"{self._url}: {self._late}")
        headers = {**self._headers, "Content-Type": "application/x-www-form-urlencoded"}
        try:
            reply = self._wire.fetch("POST", f"{self._url}/api/v1/{path}", headers, body, limit_s)
        except LateError:
            self._late = f"no answer within {limit_s:.0f} s"
            raise QueryError(f"{self._url}: {self._late}") from None
        except WireError as error:
            narrower = ": narrow it by --select" if str(error).endswith("MiB") else ""
            raise QueryError(f"{self._url}: {error}{narrower}") from None
        if reply.status in NO_API and (exporter := self._exporter()):
            raise QueryError(f"{self._url}: {exporter}")
        if reply.status != 200:
            raise QueryError(f"{self._url}: {refusal(reply, promql)}")
        return reply

    def _exporter(self) -> str:
        """Advice for an address that is an exporter's; empty elsewhere."""
        url = self._url.removesuffix("/metrics") + "/metrics"
        try:
            reply = self._wire.fetch("GET", url, self._headers, b"", self._deadline_s)
        except WireError:
            return ""
        page = b"\n" + reply.body
        for dialect in DIALECTS.values() if reply.status == 200 else ():
            name = "gputop_up" if dialect.id == "gputop" else dialect.signals["util_pct"].name
            if f"\n# TYPE {name} ".encode() in page:
                own = dialect.id == "gputop"
                return f"that is an exporter: {f'gputop fleet {self._url}' if own else 'give the Prometheus of it'}"
        return ""

    def _decoded(self, reply: Reply) -> tuple[_Result, tuple[str, ...]]:
        """Decode a reply and its warnings. Raises QueryError."""
        try:
            body = _BODY.decode(reply.body)
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
