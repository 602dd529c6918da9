"""Ask a Prometheus-compatible engine several questions by name, at most three at once.

Takes PromQL by name; returns the series of each answer with its labels still as JSON, which a ``LabelCache`` decodes
once. An answer is as old as its refresh: nothing is kept. Every failure is one line that says what to do. Blocking:
call it from a thread.
"""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Raw, Struct

from gputop.features.fleet.exporter_names import exporter_of
from gputop.features.fleet.fleet_reading import FleetError
from gputop.features.fleet.read.address import TOKEN_VARIABLE, EngineAddress
from gputop.features.fleet.read.http_wire import (
    LONGEST_WORDS,
    LateError,
    Reply,
    Wire,
    WireError,
    cut,
)
from gputop.model.source import UsageError

MOST_AT_ONCE = 3
NO_API = (404, 405, 501)
"""Statuses of a server that is not Prometheus: no such path, or no POST."""
DEADLINE_S = 10.0
"""For one question. The engine is told to give up a little earlier."""
MOST_BYTES = 128 * 2**20
"""Of one answer, unpacked. 8,000 GPUs take some 1 MB per query."""
MOST_SERIES = 250_000
"""Of one answer: 10,000 hosts of 8 GPUs have 240,000 states, verdicts and jobs."""
LONGEST_LABELS = 16_384
"""Bytes of one series' labels as JSON; exporters and relabelling together make some 1,000."""
LONGEST_VALUES = 11_000 * 64
"""Bytes of one series' values: Prometheus gives 11,000 points at most."""
NARROWER = "narrow it by --select"
T = TypeVar("T")
_LABELS = msgspec.json.Decoder(dict[str, str])
_POINTS = msgspec.json.Decoder(list[tuple[float, str]])


class QueryError(FleetError):
    """An engine that did not answer, with one line of advice."""


class PromQuery(Struct, frozen=True):
    """PromQL at one moment, or over a range with ``step_s``.

    Without ``end`` it is asked at the engine's own present. ``patience`` multiplies the client's deadline.
    """

    promql: str
    end: float | None = None
    begin: float | None = None
    step_s: float = 0.0
    patience: float = 1.0

    @property
    def form(self) -> dict[str, str]:
        """The API's parameters."""
        form = {"query": self.promql}
        if self.begin is not None and self.end is not None:
            return {
                **form,
                "start": f"{self.begin:.3f}",
                "end": f"{self.end:.3f}",
                "step": f"{self.step_s:g}",
            }
        return form if self.end is None else {**form, "time": f"{self.end:.3f}"}


class SeriesRow(Struct, frozen=True, gc=False):
    """One series of an answer: one ``value``, or ``values`` of a range.

    ``metric`` are its labels as they came, see ``LabelCache``. Values of a range stay JSON until ``points`` decodes
    them: decoded, a whole fleet's would take ten times their size.
    """

    metric: Raw
    value: tuple[float, str] | None = None
    values: Raw = Raw(b"[]")

    @property
    def label_bytes(self) -> int:
        """The length of its labels."""
        return memoryview(self.metric).nbytes

    def points(self) -> list[tuple[float, str]]:
        """Decode the values of a range. Raises FleetError."""
        n_bytes = memoryview(self.values).nbytes
        if n_bytes > LONGEST_VALUES:
            raise FleetError(
                f"an answer with {n_bytes:,} bytes of values in one series, at most "
                f"{LONGEST_VALUES:,}: is this Prometheus' address?"
            )
        return _decoded(_POINTS, self.values, "values")


class Answer(Struct, frozen=True):
    """The series, and the engine's warnings, such as a store that did not answer.

    ``left_out`` names what was left out for a limit; empty for nothing.
    """

    rows: list[SeriesRow]
    warnings: tuple[str, ...] = ()
    left_out: str = ""


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


def _decoded(decoder: msgspec.json.Decoder[T], part: Raw, what: str) -> T:
    """Decode a part of an answer. Raises FleetError.

    Some engines pass on an exporter's text that is not UTF-8: one such label must not hide a fleet.
    """
    try:
        try:
            return decoder.decode(part)
        except UnicodeDecodeError:
            return decoder.decode(bytes(part).decode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        raise FleetError(
            f"an answer with {what} that are not Prometheus': is this its address?"
        ) from None


def labels_of(metric: Raw) -> dict[str, str]:
    """The labels of a series. Raises FleetError."""
    return _decoded(_LABELS, metric, "labels")


class LabelCache(Generic[T]):
    """Caches the result of ``read`` by the labels' JSON: the same ones come at every refresh.

    Labels that were not used between two turns are forgotten: an autoscaled cluster has new names all the time.
    """

    def __init__(self, read: Callable[[Mapping[str, str]], T]) -> None:
        self._read = read
        self._value_of_labels: dict[bytes, T] = {}
        self._before: dict[bytes, T] = {}
        """Entries from before the last turn that have not been looked up since."""

    def value(self, metric: Raw) -> T:
        """The value for these labels. Raises FleetError for invalid ones."""
        raw = bytes(metric)
        if raw in self._value_of_labels:
            return self._value_of_labels[raw]
        known = self._before.pop(raw, None)
        value = self._value_of_labels[raw] = (
            self._read(labels_of(metric)) if known is None else known
        )
        return value

    def turn(self) -> None:
        """Forget labels that were not used since the last turn."""
        self._value_of_labels, self._before = {}, self._value_of_labels


def number(text: str) -> float | None:
    """A value of an answer; None for NaN and infinities."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def values(rows: Sequence[SeriesRow], cache: LabelCache[T]) -> Iterator[tuple[T, float]]:
    """Yield the decoded labels and value of each series; skips NaN."""
    for row in rows:
        if row.value is not None and (value := number(row.value[1])) is not None:
            yield cache.value(row.metric), value


class Client:
    """A connection that stays open between refreshes."""

    def __init__(self, address: EngineAddress, deadline_s: float = DEADLINE_S) -> None:
        """Raises UsageError for a file without certificates."""
        self._url, self._deadline_s, self._late = address.url, deadline_s, ""
        try:
            self._wire = Wire(
                address.url, address.ca, connections=MOST_AT_ONCE, most_bytes=MOST_BYTES
            )
        except (OSError, ssl.SSLError):
            raise UsageError(f"--prom-ca: {address.ca} holds no certificates") from None
        # On the same machine compression costs both sides more than it saves.
        packed = "identity" if address.is_local else "gzip"
        self._headers = {
            "User-Agent": "gputop", "Accept-Encoding": packed, "Accept": "application/json", **address.headers,
        }  # fmt: skip
        self._pool = ThreadPoolExecutor(MOST_AT_ONCE, "prometheus")

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
        try:
            if self._late:
                raise WireError(self._late)
            return self._asked(query)
        except WireError as error:
            narrower = f": {NARROWER}" if str(error).endswith("MiB") else ""
            return QueryError(f"{self._url}: {error}{narrower}")

    def _asked(self, query: PromQuery) -> Answer:
        """Post a question and decode its answer. Raises WireError."""
        path, limit_s = (
            "query" if query.begin is None else "query_range",
            query.patience * self._deadline_s,
        )
        body = urlencode({**query.form, "timeout": f"{max(1.0, limit_s - 1.0):.0f}s"}).encode()
        headers = {**self._headers, "Content-Type": "application/x-www-form-urlencoded"}
        try:
            reply = self._wire.fetch("POST", f"{self._url}/api/v1/{path}", headers, body, limit_s)
        except LateError:
            self._late = f"no answer within {limit_s:.0f} s"
            raise WireError(self._late) from None
        if reply.status in NO_API and (advice := self._exporter_advice()):
            raise WireError(advice)
        if reply.status != 200:
            raise WireError(refusal(reply, query.promql))
        # Counted before they are decoded, which would take the memory that a limit saves.
        if reply.body.count(b'"metric"') > MOST_SERIES:
            raise WireError(TOO_MANY)
        try:
            told = _BODY.decode(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(no_answer(error, reply)) from None
        if told.status != "success" or told.data is None:
            raise WireError(cut(told.error or "it failed without a reason"))
        warnings = (
            *(told.warnings or ()),
            *("a part of its storage did not answer",) * told.is_partial,
        )
        rows = told.data.result
        if len(rows) > MOST_SERIES:
            raise WireError(TOO_MANY)
        sound = [row for row in rows if row.label_bytes <= LONGEST_LABELS]
        left_out = _left_out(rows) if len(sound) < len(rows) else ""
        return Answer(sound, tuple(map(cut, warnings)), left_out)

    def _exporter_advice(self) -> str:
        """Advice for an address that is an exporter's; empty elsewhere."""
        url = self._url.removesuffix("/metrics") + "/metrics"
        try:
            reply = self._wire.fetch("GET", url, self._headers, b"", self._deadline_s)
        except WireError:
            return ""
        dialect = exporter_of(reply.body.decode(errors="replace")) if reply.status == 200 else None
        if dialect is None:
            return ""
        return (
            "that is an exporter: "
            f"{f'gputop fleet {self._url}' if dialect.is_own else 'give the Prometheus of it'}"
        )


TOO_MANY = f"an answer of more than {MOST_SERIES:,} series: {NARROWER}"


def _left_out(rows: Sequence[SeriesRow]) -> str:
    """A line on the series whose labels are too long."""
    lengths = [row.label_bytes for row in rows if row.label_bytes > LONGEST_LABELS]
    return (
        f"{len(lengths):,} series left out: labels of {max(lengths):,} bytes, at most "
        f"{LONGEST_LABELS:,}"
    )


def refusal(reply: Reply, promql: str) -> str:
    """Explain a status other than success."""
    status, body = reply.status, reply.body
    if b"no org id" in body[:512]:
        return (
            f"{status}, no tenant: Mimir and Cortex want a line `X-Scope-OrgID: NAME` in "
            "--header-file"
        )
    if status in (401, 403):
        return (
            f"{status}, not allowed: give a token by {TOKEN_VARIABLE} or a header by --header-file"
        )
    if status == 404:
        return (
            "404, no Prometheus under this path: a part such as /prometheus may be missing from "
            "the URL"
        )
    if 300 <= status < 400:
        return (
            f"redirects to {cut(reply.headers.get('location', 'nowhere'))}: give that address if "
            "you trust it"
        )
    if is_page(body):
        return f"{status} with a web page: is this Prometheus' address?"
    try:
        reason = _BODY.decode(body).error
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


class FleetAnswers(Struct, frozen=True):
    """Series by question, lines for people, and the engine's own time.

    Answers that the engine ``warned`` of may be incomplete.
    """

    rows: Mapping[str, list[SeriesRow]]
    problems: list[str]
    t: float | None
    warned: frozenset[str] = frozenset()

    def rows_of(self, name: str) -> list[SeriesRow]:
        """The series of a question; none if it failed or was not asked."""
        return self.rows.get(name, [])


class Engine:
    """One engine and the matchers that narrow every query."""

    def __init__(self, client: Client, select: str) -> None:
        self.client, self.select = client, select

    def asked(
        self,
        queries: Mapping[str, str | PromQuery],
        at: float | None = None,
        *,
        needs: Collection[str] = (),
    ) -> FleetAnswers:
        """Ask queries by name at a Unix time, or at the engine's present.

        Failed ones are missing in the answers, empty texts are not asked. Raises FleetError if one of ``needs`` failed.
        """
        asked = {
            name: PromQuery(query, at) if isinstance(query, str) else query
            for name, query in queries.items()
            if query
        }
        rows: dict[str, list[SeriesRow]] = {}
        problems: dict[str, None] = {}
        warned: set[str] = set()
        t = None
        for name, answer in zip(asked, self.client.ask(list(asked.values())), strict=True):
            if isinstance(answer, QueryError):
                if name in needs:
                    raise answer
                problems[str(answer)] = None
                continue
            for text in answer.warnings:
                warned.add(name)
                problems[f"the engine warns: {text}"] = None
            if answer.left_out:
                warned.add(name)
                problems[answer.left_out] = None
            rows[name] = answer.rows
            if answer.rows and answer.rows[0].value is not None:
                t = answer.rows[0].value[0]
        return FleetAnswers(rows, list(problems), t, frozenset(warned))
