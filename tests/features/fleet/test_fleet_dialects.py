"""Answers as Thanos and Mimir give them, beside those of Prometheus.

Their forms: "warnings" and "infos" beside "data", https://prometheus.io/docs/prometheus/latest/querying/api/; what
Thanos warns of when a store does not answer, https://thanos.io/tip/components/query.md/#partial-response and
pkg/store/proxy.go; Mimir's limits and tenants, https://grafana.com/docs/mimir/latest/manage/mimir-runbooks/ and
integration/querier_test.go, https://github.com/grafana/mimir/issues/2030.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

from gputop.features.fleet.address import address_of
from gputop.features.fleet.engine import Client, PromQuery, QueryError
from gputop.features.fleet.fleet_frame import fleet_frame
from gputop.features.fleet.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.simulated_fleet import SimulatedFleet
from tests.support.scripted_engine import JSON, Answer, ScriptedEngine, answers

Asked = Callable[..., PrometheusFleet]
THANOS_DOWN = (
    'receive series from Addr: 10.0.3.7:10901 LabelSets: {cluster="b"} MinTime: 1762990000000 MaxTime: '
    "9223372036854775807: rpc error: code = Unavailable desc = connection error"
)
MIMIR_LIMIT = (
    "expanding series: the query exceeded the maximum number of series (limit: 3 series) "
    "(err-mimir-max-series-per-query). To adjust the related per-tenant limit, configure "
    "-querier.max-fetched-series-per-query, or contact your service administrator."
)


def _beside(answer: Answer, **more: object) -> Answer:
    """The answer with further fields beside its data."""
    status, headers, body = answer
    packed = "Content-Encoding" in headers
    data = {**json.loads(gzip.decompress(body) if packed else body), **more}
    text = json.dumps(data).encode()
    return status, headers, gzip.compress(text) if packed else text


def test_a_store_of_thanos_that_does_not_answer_is_told_once_beside_what_the_others_have(
    engine: ScriptedEngine, asked: Asked
) -> None:
    whole = answers(SimulatedFleet(4))
    engine.answer = lambda query: _beside(whole(query), warnings=[THANOS_DOWN], infos=["PromQL info: a counter?"])
    fleet = asked(engine.url)
    frame = fleet_frame(fleet.ask())
    told = [problem for problem in frame.problems if "warns" in problem]
    assert len(told) == 1 and told[0].startswith("the engine warns: receive series from Addr: 10.0.3.7:10901")
    assert sum(frame.counts.values()) == 32 and not any("info" in problem for problem in frame.problems)


def test_mimir_wants_a_tenant_and_gets_it_from_the_header_file(
    engine: ScriptedEngine, tmp_path: Path, asked: Asked
) -> None:
    engine.answer = (401, {"Content-Type": "text/plain; charset=utf-8"}, b"no org id\n")
    client = Client(address_of(engine.url + "/prometheus", {}))
    (error,) = client.ask([PromQuery("up")])
    client.close()
    assert isinstance(error, QueryError) and "X-Scope-OrgID: NAME` in --header-file" in str(error)
    tenant = tmp_path / "tenant"
    tenant.write_text("X-Scope-OrgID: team-a\n")
    tenant.chmod(0o600)
    engine.answer = answers(SimulatedFleet(2))
    fleet = asked(engine.url, header_file=str(tenant))
    assert len(fleet.ask().gpus) == 16
    assert {headers.get("X-Scope-OrgID") for path, _, headers in engine.asked if path == "/api/v1/query"} == {"team-a"}


def test_a_limit_of_mimir_is_one_line_that_says_how_to_stay_below_it(engine: ScriptedEngine, asked: Asked) -> None:
    whole = answers(SimulatedFleet(2))
    limit = json.dumps({"status": "error", "errorType": "execution", "error": MIMIR_LIMIT}).encode()
    engine.answer = lambda query: (422, JSON, limit) if "quantile" in query else whole(query)
    fleet = asked(engine.url)
    fleet.settle()
    (problem, *others) = fleet.ask().problems
    assert "err-mimir-max-series-per-query" in problem and "narrow it by --select (" in problem and not others
    assert problem.isprintable() and len(problem) < 480
