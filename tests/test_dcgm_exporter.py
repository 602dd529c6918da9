"""SM activity from a dcgm-exporter that already runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gputop.sources.activity.dcgm_exporter import MOST_BYTES, Exporter, fetch, parse
from gputop.sources.activity.ladder import Activity, RungFailed, Waiting
from gputop.sources.base import UsageError

UUID = "GPU-1"
OLD = """# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned (in %).
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",device="nvidia0",modelName="A100 {x}",Hostname="n"} 0.375
DCGM_FI_PROF_SM_ACTIVE{gpu="1",UUID="GPU-2",Hostname="n"} 0.000000
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1",pod="a\\"b"} 0.25
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1"} 9223372036854775794
DCGM_FI_PROF_SM_OCCUPANCY{gpu="0",UUID="GPU-1"} NaN
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 0.9
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 96
garbage line {
"""
NEW = 'DCGM_FI_PROF_SM_UTIL_RATIO{gpu="0",uuid="GPU-1",hostname="n"} 0.5\n'


def exporter(*bodies: str | Exception, url: str | None = "http://node:9400/metrics") -> Exporter:
    answers = list(bodies)

    def answer(_url: str, _timeout_s: float) -> str:
        body = answers.pop(0)
        if isinstance(body, Exception):
            raise body
        return body

    return Exporter(url, answer)


def measured(value: Activity | Waiting) -> Activity:
    assert isinstance(value, Activity), value
    return value


def test_rows_are_joined_on_the_uuid_without_blanks_and_instances() -> None:
    assert parse(OLD) == {
        "GPU-1": {"sm_active_pct": 0.375, "tensor_active_pct": 0.25},
        "GPU-2": {"sm_active_pct": 0.0},
    }


def test_names_of_both_generations_are_known() -> None:
    assert parse(NEW) == {"GPU-1": {"sm_active_pct": 0.5}}


def test_ratios_become_percent() -> None:
    source = exporter(OLD)
    source.scrape(10.0)
    got = measured(source.newest(UUID, 10.5))
    assert got.values == {"sm_active_pct": 37.5, "tensor_active_pct": 25.0}
    assert "dram_active_pct" in got.missing


def test_a_build_that_prints_percent_is_recognised_for_good() -> None:
    source = exporter(NEW.replace("0.5", "50"), NEW.replace("0.5", "0.7"))
    source.scrape(1.0)
    assert measured(source.newest(UUID, 1.0)).values["sm_active_pct"] == 50.0
    source.scrape(2.0)
    assert measured(source.newest(UUID, 2.0)).values["sm_active_pct"] == 0.7


def test_window_and_age_come_from_watching_the_values_change() -> None:
    bodies = [NEW, NEW, NEW + "# 1\n", NEW + "# 1\n", NEW + "# 2\n"]
    source = exporter(*bodies)
    seen = []
    for now in (0.0, 10.0, 20.0, 30.0, 50.0):
        source.scrape(now)
        got = measured(source.newest(UUID, now))
        seen.append((got.window_s, got.t))
    assert seen == [(None, None), (None, None), (None, 20.0), (None, 20.0), (30.0, 50.0)]


def test_values_that_never_change_are_not_believed_forever() -> None:
    source = exporter(NEW, NEW)
    source.scrape(0.0)
    source.scrape(400.0)
    with pytest.raises(RungFailed, match="repeated itself for 400 s"):
        source.newest(UUID, 400.0)


def test_an_exporter_without_sm_activity_names_the_fix() -> None:
    source = exporter(OLD.replace("SM_ACTIVE", "OTHER"))
    source.scrape(0.0)
    with pytest.raises(RungFailed, match="exports no SM activity") as failure:
        source.newest(UUID, 0.0)
    assert "DCGM_FI_PROF_SM_ACTIVE" in failure.value.fix


def test_only_a_guessed_address_is_given_up_at_the_first_failure() -> None:
    for url, forever in ((None, True), ("http://node:9400/metrics", False)):
        source = exporter(OSError("connection refused"), url=url)
        source.scrape(0.0)
        with pytest.raises(RungFailed) as failure:
            source.newest(UUID, 0.0)
        assert failure.value.forever is forever


def test_before_the_first_answer_it_is_only_being_looked_for() -> None:
    got = exporter().newest(UUID, 0.0)
    assert isinstance(got, Waiting)
    assert got.looking


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:9400", "ftp://x/metrics"])
def test_only_http_addresses_are_taken(url: str) -> None:
    with pytest.raises(UsageError, match="--dcgm-url"):
        Exporter(url)


@pytest.fixture
def server() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/broken":
                self.wfile.write(b"no HTTP at all\r\n\r\n")
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"x" * (MOST_BYTES + 10) if self.path == "/huge" else OLD.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's output clean."""

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


def test_a_real_server_is_read_within_bounds(server: str) -> None:
    assert fetch(f"{server}/metrics", 1.0) == OLD
    with pytest.raises(ValueError, match="more than 4 MiB"):
        fetch(f"{server}/huge", 1.0)
    with pytest.raises(ValueError, match="does not speak HTTP"):
        fetch(f"{server}/broken", 1.0)
