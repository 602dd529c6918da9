"""A small server of our own in the place of a Prometheus: it answers whatever a test says."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

from msgspec import Raw

from gputop.features.fleet.read.engine import Answer as PromAnswer
from gputop.features.fleet.read.engine import PromQuery, SeriesRow
from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet
from tests.support.answering import answering

JSON = {"Content-Type": "application/json"}
Answer = tuple[int, dict[str, str], bytes]


class ScriptedEngine:
    """Answers every question with ``answer``: (status, headers, body), or what it gives for a query."""

    def __init__(self) -> None:
        self.url = ""
        self.answer: Any = None
        self.asked: list[tuple[str, dict[str, list[str]], dict[str, str]]] = []

    def reply(
        self, asked: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        path, form = asked.path, parse_qs(body.decode())
        if form:
            self.asked.append((path, form, dict(asked.headers)))
        query = form["query"][0] if form else path.partition("?")[0]
        assert form or query == "/metrics"
        status, headers, said = self.answer(query) if callable(self.answer) else self.answer
        return status, said, headers


@contextmanager
def engine() -> Iterator[ScriptedEngine]:
    """A server that runs meanwhile."""
    made = ScriptedEngine()
    with answering(made.reply) as port:
        made.url = f"http://127.0.0.1:{port}"
        yield made


def is_discovery(query: str) -> bool:
    """Whether it is asked which names have series."""
    return query.startswith("label_replace((count(")


def names(*dialects: str) -> Answer:
    """The answer to that question."""
    return vector(*({"metric": {"gputop_names": dialect}, "value": 1} for dialect in dialects))


def vector(*rows: dict[str, Any], t: float = STARTED) -> Answer:
    result = [{"metric": row["metric"], "value": [t, str(row["value"])]} for row in rows]
    data = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return (
        200,
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        gzip.compress(json.dumps(data).encode()),
    )


def answers(
    fleet: SimulatedFleet,
    *,
    skew_s: float = 0.0,
    up: Mapping[str, float] = {},
    lost: Collection[tuple[str, str]] = (),
) -> Callable[[str], Answer]:
    """An engine that holds one moment of a fleet of dcgm-exporters, by the questions' shapes. ``up`` are hosts of which
    a scrape failed: 1 once, 0 twice; ``lost`` are GPUs, by host and number, that are not exported any more."""
    reads = [
        fleet.gpu(host, number, STARTED)
        for host in range(fleet.hosts)
        for number in range(fleet.gpus)
    ]

    def answer(query: str) -> Answer:
        if is_discovery(query):
            return names("legacy")
        rows = [
            {"metric": {"instance": f"{host}:9400", "gputop_names": "up"}, "value": value}
            for host, value in up.items()
            if "up[" in query
        ]
        for read in reads:
            if (read.host, read.gpu) in lost:
                continue
            labels = {"instance": f"{read.host}:9400", "gpu": read.gpu}
            if "count_over_time" in query:
                return vector(
                    {"metric": {"gputop_names": "legacy"}, "value": 20}, t=STARTED + skew_s
                )
            if "modelName" in query:
                labels |= {
                    "Hostname": read.host,
                    "UUID": read.uuid,
                    "hpc_job": read.job[6:],
                    "gputop_names": "legacy",
                }
                rows.append({"metric": labels, "value": read.util_pct})
            elif "timestamp" in query:
                rows.append(
                    {"metric": {**labels, "gputop_names": "age"}, "value": STARTED - 3.0 + skew_s}
                )
            elif "quantile" in query:
                rows += [{"metric": labels, "value": 0.0}] * read.is_quiet
            elif "SM_ACTIVE" in query and read.sm_active_pct is not None:
                rows.append({"metric": labels, "value": read.sm_active_pct / 100.0})
            elif "avg_over_time" in query and "GPU_UTIL" in query:
                rows.append({"metric": labels, "value": read.util_pct})
        return vector(*rows, t=STARTED + skew_s)

    return answer


class ScriptedClient:
    """In the place of a client: the series that ``series`` gives to each question, as labels and value at ``t``."""

    def __init__(
        self, series: Callable[[str], Iterable[tuple[Mapping[str, str], object]]], *dialects: str
    ) -> None:
        self._series, self._dialects, self.t = series, dialects, STARTED

    def begin(self) -> None:
        """Answers at once."""

    def close(self) -> None:
        """Nothing to close."""

    def ask(self, queries: Iterable[PromQuery]) -> list[PromAnswer]:
        return [
            PromAnswer([self._row(*one) for one in self._rows(query.promql)]) for query in queries
        ]

    def _rows(self, query: str) -> Iterable[tuple[Mapping[str, str], object]]:
        return (
            [({"gputop_names": name}, 1) for name in self._dialects]
            if is_discovery(query)
            else self._series(query)
        )

    def _row(self, labels: Mapping[str, str], value: object) -> SeriesRow:
        at = (self.t, str(value))
        return SeriesRow(Raw(json.dumps(labels).encode()), at, Raw(json.dumps([at]).encode()))
