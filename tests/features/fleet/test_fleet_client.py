"""An engine that misbehaves costs one line each. The engine is a small server of our own.

Forms of Thanos and Mimir: "warnings" and "infos" beside "data", https://prometheus.io/docs/prometheus/latest/querying/api/;
what Thanos warns of when a store does not answer, https://thanos.io/tip/components/query.md/#partial-response; Mimir's
limits and tenants, https://grafana.com/docs/mimir/latest/manage/mimir-runbooks/.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.features.fleet.fleet_reading import FleetError
from gputop.features.fleet.fleet_run import moment_of
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.engine import (
    MOST_AT_ONCE,
    MOST_SERIES,
    Answer,
    Client,
    PromQuery,
    QueryError,
    labels_of,
)
from gputop.features.fleet.read.http_wire import proxy_of
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView
from gputop.features.fleet.show.watch_thread import FleetWatch
from gputop.model.source import UsageError
from tests.support.prom_servers import nobody_listens
from tests.support.scripted_engine import JSON, ScriptedEngine, answers, is_discovery, names, vector

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
DEEP = (
    b'{"status":"success","data":{"resultType":"%s","result":'
    + b"[" * 500_000
    + b"]" * 500_000
    + b"}}"
)
REFUSALS = [
    ((401, {}, b"no"), "401, not allowed: give a token"), ((403, {}, b""), "403, not allowed"),
    ((404, {}, b"page not found"), "404, no Prometheus under this path"),
    ((422, JSON, b'{"status":"error","error":"query too long"}'), "422, it refuses: query too long (up)"),
    ((400, JSON, b'{"status":"error","error":"parse error"}'), "400, it refuses: parse error (up)"),
    ((302, {"Location": "https://login.example/"}, b""), "redirects to https://login.example/"),
    ((200, {"Content-Type": "text/html"}, b"<!doctype html><title>Log in"), "a web page, not with JSON"),
    ((503, {}, b"<html>busy"), "503 with a web page"), ((500, {}, b"\x1b[2Jbad\n"), "500, the engine failed: "),
    ((500, {}, b""), "500, the engine failed"),
    ((200, JSON, b'{"status":"success","data":{"resultType":"vector","result":[{"metr'), "its answer broke off"),
    ((200, {**JSON, "Content-Length": "5000"}, b'{"status":"success",'), "broke off within the answer"),
    ((200, JSON, b'{"hello":1}'), "JSON that is not Prometheus'"),
    ((200, JSON, b'{"status":"success","data":{"resultType":"vector","result":[{"value":[1,2]}]}}'), "not Prometheus'"),
    ((200, JSON, b'{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}'), "not Prometheus'"),
    ((200, JSON, b"[" * 100_000), "JSON"), ((200, JSON, DEEP % b"vector"), "JSON"),
    ((200, JSON, b'{"status":"success","data":{"resultType":"vector","result":[{"metric":' + b"[" * 500_000), "JSON"),
    ((500, JSON, b'{"error":' + b"[" * 500_000), "500, the engine failed"),
    ((200, {**JSON, "Content-Encoding": "gzip"}, b"not gzip"), "broke off within the answer"),
    ((200, {}, b""), "its answer broke off"), ((200, JSON, b'{"status":"error","error":"\xff"}'), "JSON"),
    ((200, JSON, b'{"status":"success","warnings":["\xff"]}'), "JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "says"), REFUSALS, ids=[says[:24] for _, says in REFUSALS])
def test_an_answer_that_is_none_is_one_line(engine: ScriptedEngine, answer: Any, says: str) -> None:
    engine.answer = answer
    client = Client(address_of(engine.url, {}))
    (error,) = client.ask([PromQuery("up")])
    client.close()
    assert isinstance(error, QueryError) and says in str(error)
    assert str(error).startswith(engine.url) and str(error).isprintable() and len(str(error)) < 400


def _result(rows: bytes) -> Any:
    body = b'{"status":"success","data":{"resultType":"vector","result":[' + rows + b"]}}"
    return 200, {**JSON, "Content-Encoding": "gzip"}, gzip.compress(body, 1)


def test_an_answer_of_too_many_series_is_refused_before_it_takes_time_and_memory(
    engine: ScriptedEngine,
) -> None:
    one = b'{"metric":{},"value":[1,"1"]}'
    # Whoever decoded it before its series are counted would say that it is no JSON.
    engine.answer = _result(b",".join([one] * (MOST_SERIES + 1)) + b",[")
    client = Client(address_of(engine.url, {}))
    begun = time.process_time()
    (error,) = client.ask([PromQuery("up")])
    spent_s = time.process_time() - begun
    assert str(error).endswith("an answer of more than 250,000 series: narrow it by --select")
    engine.answer = _result(b",".join([one] * MOST_SERIES))
    begun = time.process_time()
    (answer,) = client.ask([PromQuery("up")])
    client.close()
    assert isinstance(answer, Answer) and len(answer.rows) == MOST_SERIES
    assert spent_s < time.process_time() - begun


def test_a_series_with_labels_without_end_is_left_out_and_the_others_stay(
    engine: ScriptedEngine, asked: Asked
) -> None:
    whole = answers(SimulatedFleet(2))

    def long(data: Any) -> Any:
        rows = data["data"]["result"]
        if len(rows) > 8:
            rows[0]["metric"]["x"] = "y" * 1_000_000
        return data

    engine.answer = lambda query: _changed(whole(query), long)
    fleet = asked(engine.url)
    frame = _frames(fleet, 1)
    assert frame.total == 15
    assert any("1 series left out: labels of 1,000,0" in text for text in frame.problems)


def test_values_without_end_are_refused(engine: ScriptedEngine) -> None:
    engine.answer = _result(b'{"metric":{},"values":[' + b'[1,"1"],' * 100_000 + b'[1,"1"]]}')
    client = Client(address_of(engine.url, {}))
    (answer,) = client.ask([PromQuery("up", 2.0, 1.0, 1.0)])
    client.close()
    assert isinstance(answer, Answer)
    with pytest.raises(FleetError, match="800,009 bytes of values in one series, at most 704,000"):
        answer.rows[0].points()


def test_more_gpus_than_can_be_asked_for_one_by_one_are_refused_with_what_helps(
    engine: ScriptedEngine, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gputop.features.fleet.read.gpu_inventory.MOST_GPUS", 15)
    engine.answer = answers(SimulatedFleet(2))
    with pytest.raises(FleetError, match="more than 15 GPUs one by one: narrow them by --select"):
        asked(engine.url).ask()


@contextlib.contextmanager
def _slow(begun: bytes) -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that begins every answer so and goes on byte by byte, or, where it begins none, is silent; its URL and
    its connections."""
    opened: list[socket.socket] = []

    def answer(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.recv(65536)
            connection.sendall(begun)
            while begun:
                connection.sendall(b".")
                time.sleep(0.05)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                opened.append(server.accept()[0])
                threading.Thread(target=answer, args=opened[-1:], daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", opened
        for connection in opened:
            connection.close()


def _changed(answer: Any, change: Callable[[Any], Any]) -> Any:
    """A packed answer with other data."""
    status, headers, body = answer
    return (
        status,
        headers,
        gzip.compress(json.dumps(change(json.loads(gzip.decompress(body)))).encode()),
    )


def _frames(fleet: PrometheusFleet, times: int = 5) -> FleetFrame:
    """The last of some frames: what changes seldom was asked for again meanwhile."""
    return [fleet_frame(fleet.ask()) for _ in range(times)][-1]


@pytest.mark.parametrize(
    "begun", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["header", "body"]
)
def test_an_answer_that_comes_byte_by_byte_ends_at_the_deadline(begun: bytes) -> None:
    with _slow(begun) as (url, _):
        client = Client(address_of(url, {}), 0.6)
        asked_at = time.monotonic()
        (error,) = client.ask([PromQuery("up")])
        client.close()
    assert str(error) == f"{url}: no answer within 1 s" and time.monotonic() - asked_at < 30.0


def test_an_engine_that_hangs_costs_the_deadline_once_and_is_asked_nothing_more_in_that_refresh() -> (
    None
):
    with _slow(b"") as (url, opened):
        client = Client(address_of(url, {}), 0.6)
        for _ in range(2):
            before = len(opened)
            client.begin()
            errors = [
                *client.ask([PromQuery(f"up{i}") for i in range(9)]),
                *client.ask([PromQuery("more")]),
            ]
            assert {str(error) for error in errors} == {f"{url}: no answer within 1 s"}
            assert 1 <= len(opened) - before <= MOST_AT_ONCE
        client.close()


def test_what_an_engine_has_not_ends_the_command_in_one_line(
    engine: ScriptedEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.answer = names()
    assert main(["fleet", "--prom", engine.url, "--json", "--select", 'cluster="a"']) == 3
    err = capsys.readouterr().err
    assert 'no GPU metrics there with cluster="a"; looked for gputop_gpu_utilization_ratio' in err
    assert "DCGM_FI_DEV_GPU_UTIL" in err
    with nobody_listens() as port:
        assert main(["fleet", "--prom", f"http://127.0.0.1:{port}", "--json"]) == 3
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "nobody listens there" in err


def test_names_without_values_of_late_say_so_and_a_gpu_that_comes_is_found(
    engine: ScriptedEngine, asked: Asked
) -> None:
    engine.answer = lambda query: names("legacy") if is_discovery(query) else vector()
    fleet = asked(engine.url)
    with pytest.raises(FleetError, match="no value now: does anything scrape"):
        fleet.ask()
    lost = {("node-002", "7")}
    engine.answer = answers(SimulatedFleet(2), lost=lost)
    assert len(fleet.ask().gpus) == 15
    lost.clear()
    assert len(_frames(fleet).gpus) == 16


def test_questions_are_posted_with_a_limit_gzip_and_the_header_of_the_file(
    engine: ScriptedEngine, tmp_path: Path
) -> None:
    engine.answer = vector({"metric": {"a": "b"}, "value": 1.5})
    secret = tmp_path / "headers"
    secret.write_text("# for the gateway\nX-Scope-OrgID: team\nAuthorization: Bearer s3cret\n")
    secret.chmod(0o600)
    client = Client(address_of(engine.url + "/", {}, header_file=str(secret)))
    (answer,) = client.ask([PromQuery("up", 12.0)])
    client.close()
    assert isinstance(answer, Answer)
    assert labels_of(answer.rows[0].metric) == {"a": "b"} and answer.rows[0].value == (
        STARTED,
        "1.5",
    )
    path, form, headers = engine.asked[0]
    assert path == "/api/v1/query" and form["time"] == ["12.000"] and form["timeout"] == ["9s"]
    assert headers["Authorization"] == "Bearer s3cret" and headers["X-Scope-OrgID"] == "team"
    assert headers["Accept-Encoding"] == "identity"
    assert Client(address_of("https://far", {}))._headers["Accept-Encoding"] == "gzip"
    assert "s3cret" not in repr(address_of(engine.url, {}, header_file=str(secret)))


def test_an_engine_whose_clock_is_off_is_told_and_does_no_harm(
    engine: ScriptedEngine, asked: Asked
) -> None:
    engine.answer = answers(SimulatedFleet(3), skew_s=7200.0)
    read = asked(engine.url).ask()
    assert "7200 s ahead of this machine's" in " ".join(read.problems)
    assert read.age_s == 3.0 and read.t == STARTED + 7200.0 and len(read.gpus) == 24
    assert all("time" not in form for _, form, _ in engine.asked) and len(engine.asked) <= 10


def test_states_are_those_of_the_planted_fleet_and_a_failing_question_is_named_beside_them(
    engine: ScriptedEngine, asked: Asked
) -> None:
    simulated = SimulatedFleet(12)
    whole = answers(simulated)
    engine.answer = lambda query: (500, {}, b"out of memory") if "up[" in query else whole(query)
    frame = fleet_frame(asked(engine.url).ask())
    wanted, found = (
        {(gpu.read.host, gpu.read.gpu): gpu.state for gpu in of.gpus if gpu.read.names in names_of}
        for of, names_of in (
            (fleet_frame(simulated.ask(STARTED)), ("4.9", "legacy")),
            (frame, ("legacy",)),
        )
    )
    known = {gpu: state for gpu, state in wanted.items() if state not in ("down", "idle_allocated")}
    assert known.items() <= found.items() and known
    assert any("500" in problem for problem in frame.problems)


def test_a_host_is_down_after_two_failed_scrapes_keeps_its_last_values_and_comes_back(
    engine: ScriptedEngine, asked: Asked
) -> None:
    up = {"node-001": 1.0}
    engine.answer = answers(SimulatedFleet(3), up=up)
    fleet = asked(engine.url)
    once = fleet.ask()
    assert not once.down, "one failed scrape says nothing"
    up["node-001"] = 0.0
    twice = fleet_frame(fleet.ask())
    assert set(twice.read.down) == {"node-001"} and twice.counts["down"] == 8
    assert [gpu.util_pct for gpu in twice.read.gpus] == [gpu.util_pct for gpu in once.gpus]
    up.clear()
    assert not fleet.ask().down


def test_a_gpu_that_vanishes_from_a_host_that_answers_is_lost_and_known_for_a_day(
    engine: ScriptedEngine, asked: Asked
) -> None:
    lost: set[tuple[str, str]] = set()
    engine.answer = answers(SimulatedFleet(2), lost=lost)
    now = [STARTED]
    fleet = asked(engine.url, lambda: now[0])
    assert fleet_frame(fleet.ask()).counts["lost"] == 0
    lost.add(("node-001", "3"))
    frame = _frames(fleet)
    assert not frame.read.down and len(frame.read.gpus) == 16
    assert [(gpu.read.host, gpu.read.gpu) for gpu in frame.gpus if gpu.state == "lost"] == [
        ("node-001", "3")
    ]
    for later_s, n in ((86000.0, 1), (500.0, 0)):
        now[0] += later_s
        frame = _frames(fleet)
        assert (frame.counts["lost"], len(frame.read.gpus)) == (n, 15 + n)


@pytest.mark.parametrize(
    "said", [{"isPartial": True}, {"warnings": [THANOS_DOWN], "infos": ["a counter?"]}]
)
def test_by_an_answer_that_the_engine_calls_partial_no_gpu_is_lost(
    engine: ScriptedEngine, asked: Asked, said: dict[str, Any]
) -> None:
    lost: set[tuple[str, str]] = set()
    whole = answers(SimulatedFleet(2), lost=lost)
    engine.answer = whole
    fleet = asked(engine.url)
    fleet.settle()
    fleet.ask()
    lost.add(("node-001", "3"))
    engine.answer = lambda query: (
        whole(query) if "__name__" in query else _changed(whole(query), lambda data: data | said)
    )
    frame = _frames(fleet)
    told = [problem for problem in frame.problems if "warns" in problem]
    assert frame.counts["lost"] == 0 and frame.total == 16 and len(told) == 1, "said once"
    assert told[0].startswith("the engine warns: ") and "a counter" not in "".join(frame.problems)
    (gpu,) = [gpu for gpu in frame.gpus if (gpu.read.host, gpu.read.gpu) == ("node-001", "3")]
    assert gpu.state == "unmeasured" and gpu.read.util_pct is None
    engine.answer = whole
    assert _frames(fleet).counts["lost"] == 1


def test_mimir_wants_a_tenant_and_its_limit_is_one_line_that_says_how_to_stay_below(
    engine: ScriptedEngine, asked: Asked
) -> None:
    engine.answer = (401, {"Content-Type": "text/plain; charset=utf-8"}, b"no org id\n")
    with pytest.raises(FleetError, match="X-Scope-OrgID: NAME` in --header-file"):
        asked(engine.url).ask()
    whole = answers(SimulatedFleet(2))
    limit = json.dumps({"status": "error", "errorType": "execution", "error": MIMIR_LIMIT}).encode()
    engine.answer = lambda query: (422, JSON, limit) if "quantile" in query else whole(query)
    fleet = asked(engine.url)
    fleet.settle()
    (problem,) = fleet.ask().problems
    assert "err-mimir-max-series-per-query" in problem and "narrow it by --select (" in problem
    assert problem.isprintable() and len(problem) < 480


def test_every_question_has_its_turn_within_two_refreshes_and_none_asks_more_than_ten(
    engine: ScriptedEngine, asked: Asked
) -> None:
    engine.answer = answers(SimulatedFleet(2))
    fleet = asked(engine.url)
    rounds = []
    for _ in range(5):
        before = len(engine.asked)
        fleet.ask()
        rounds.append(" ".join(form["query"][0] for _, form, _ in engine.asked[before:]))
        assert len(engine.asked) - before <= 9, "and one look at the index"
    always = (
        "avg_over_time(DCGM_FI_DEV_GPU_UTIL",
        "avg_over_time(DCGM_FI_PROF_SM_ACTIVE",
        "max_over_time(up",
    )
    assert all(word in text for text in rounds for word in always)
    for word in ("last_over_time(DCGM_FI_DEV_POWER_USAGE", "last_over_time(DCGM_FI_DEV_FB_USED", "quantile_over_time",
                 "timestamp("):  # fmt: skip
        there = [word in text for text in rounds]
        assert there[0] and there[1] != there[2] and there[1:3] == there[3:5], word
    assert ["modelName" in text for text in rounds] == [True, True, False, False, True]
    assert ["offset 24h" in text for text in rounds] == [False, True, False, False, False], (
        "after the first picture"
    )


def test_whatever_an_answer_does_the_thread_shows_it_and_asks_again(engine: ScriptedEngine) -> None:
    bad: list[Exception | None] = [
        RecursionError("too deep"),
        OverflowError("too much"),
        KeyError("x"),
        None,
    ]

    class Surprising(PrometheusFleet):
        interval_s = 0.01

        def ask(self, at: float | None = None) -> Any:
            if error := bad.pop(0) if bad else None:
                raise error
            return super().ask(at)

        def history(self, *_: Any) -> Any:
            raise ZeroDivisionError("in the history")

    engine.answer = answers(SimulatedFleet(2))
    watch = FleetWatch(Surprising(Client(address_of(engine.url, {})), "x", "", lambda: STARTED))
    seen: list[str] = []
    watch.start(
        lambda: seen.append(
            str(watch.shown.error).partition(" (")[0].removeprefix("internal error: ")
        )
    )
    watch.see((), "node-001")
    deadline = time.monotonic() + 60.0
    while "ZeroDivisionError: in the history" not in seen or len(engine.asked) < 30:
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)
    watch.close()
    assert seen[:3] == ["RecursionError: too deep", "OverflowError: too much", "KeyError: 'x'"]


@pytest.mark.parametrize("value", ["-1e308", "1e308", "-5", "5000", "NaN", "+Inf"])
def test_a_value_that_cannot_be_is_not_measured_and_the_screen_draws_the_rest(
    engine: ScriptedEngine, value: str, asked: Asked
) -> None:
    good = answers(SimulatedFleet(3))

    def spoiled(data: Any) -> Any:
        data["data"]["result"][0]["value"][1] = value
        return data

    engine.answer = lambda query: (
        _changed(good(query), spoiled) if "avg_over_time" in query else good(query)
    )
    frame = fleet_frame(asked(engine.url).ask())
    odd = next(gpu for gpu in frame.gpus if (gpu.read.host, gpu.read.gpu) == ("node-001", "0"))
    assert (
        odd.read.util_pct is None and odd.read.sm_active_pct is None and odd.state == "unmeasured"
    )
    assert sum(gpu.read.util_pct is not None for gpu in frame.gpus) == 23
    for panel in ("hosts", "jobs", "host"):
        assert len(fleet_screen(frame, FleetView(panel=panel, host="node-001"), 120, 36).rows) == 36


def test_the_command_without_an_address_says_how_to_give_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "", "HOME": "/nonexistent"})
    assert main(["fleet", "--json"]) == 2
    err = capsys.readouterr().err
    assert "GPUTOP_PROM_URL" in err and "fleet demo" in err and err.count("\n") == 1


def test_a_time_long_ago_is_asked_as_it_is_and_one_to_come_is_now() -> None:
    assert moment_of("1763000000", STARTED + 1e7) == 1_763_000_000.0
    assert moment_of("+5h", STARTED) == STARTED and moment_of(None, STARTED) is None
    with pytest.raises(UsageError, match="--at"):
        moment_of("yesterday", STARTED)


@pytest.mark.parametrize(("variables", "url", "proxy"), [
    ({"https_proxy": "http://anna:p%40ss@proxy:3128"}, "https://prom.example", ("http://proxy:3128", ("anna", "p@ss"))),
    # Its headers may hold a token.
    ({"https_proxy": "http://proxy:3128", "http_proxy": "http://proxy:3128"}, "http://prom.example:9090", None),
    ({"https_proxy": "http://proxy:3128", "no_proxy": ".example"}, "https://prom.example", None),
    ({"https_proxy": "proxy:8080"}, "https://prom.example", ("http://proxy:8080", None)),
    ({"https_proxy": "https://proxy"}, "https://prom.example", ("https://proxy:443", None)),
    ({"https_proxy": "socks5://proxy:1080"}, "https://prom.example", UsageError),
])  # fmt: skip
def test_only_questions_that_a_proxy_cannot_read_go_through_one(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], url: str, proxy: Any
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if proxy is UsageError:
        with pytest.raises(UsageError, match="HTTPS_PROXY must be"):
            proxy_of(url)
    else:
        assert proxy_of(url) == proxy


def test_the_simulated_fleet_needs_no_client_of_http() -> None:
    code = (
        "import sys; from gputop.cli import main; main(['fleet', 'demo', '--json']); "
        "print(*{'httpcore', 'urllib.request', 'textual'}.intersection(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == ""
