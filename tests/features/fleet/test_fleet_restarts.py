"""A real Prometheus that restarts, answers in part, or scrapes hosts whose clocks are hours off."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputop.features.fleet.judge.fleet_frame import fleet_frame
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.engine import Client
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView
from gputop.features.fleet.show.watch_thread import FleetWatch
from tests.features.fleet.conftest import text_of
from tests.features.fleet.test_fleet_histories import END, host, lines, merged, own
from tests.support.engines import backfill, free_port, missing, prometheus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus"),
]
STAMP = "gputop_last_sample_timestamp_seconds"


def _until(shown: FleetWatch, holds: str) -> None:
    """Wait until the error of the watch has this text; an empty one means no error."""
    deadline = time.monotonic() + 60.0
    while True:
        error = shown.shown.error
        if (error is None) if not holds else (error is not None and holds in error):
            return
        assert time.monotonic() < deadline, error
        time.sleep(0.05)


class _Quick(PrometheusFleet):
    """Asks ten times a second, at the end of what was written."""

    interval_s = 0.1

    def ask(self, at: float | None = None):  # type: ignore[no-untyped-def]
        return super().ask(END if at is None else at)


def test_a_prometheus_that_restarts_takes_no_host_from_the_screen(tmp_path: Path) -> None:
    series = merged(own("n1", 0), own("n2", 0), host("n1"), host("n2"))
    backfill(tmp_path, lines(series, 900.0))
    port = free_port()
    client = Client(address_of(f"http://127.0.0.1:{port}", {}))
    fleet = _Quick(client, "x", "", lambda: END)
    watch = FleetWatch(fleet)
    with prometheus(tmp_path, port=port):
        watch.start(lambda: None)
        _until(watch, "")
        deadline = time.monotonic() + 60.0
        while watch.shown.frame is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        before = watch.shown.frame
    assert before.counts["down"] == 0 and len(before.hosts) == 2
    _until(watch, "nobody listens there")
    assert watch.is_failing and watch.shown.frame is not None
    assert watch.shown.frame.hosts == before.hosts, "the last values stay, and are told to be old"
    view = FleetView(error=watch.shown.error, stale_s=30.0)
    text = text_of(fleet_screen(watch.shown.frame, view, 160, 48).rows)
    assert "STALE 30 s" in text and "nobody listens there" in text
    with prometheus(tmp_path, port=port):
        _until(watch, "")
        after = watch.shown.frame
        assert after is not None and not after.counts["lost"] and not after.read.gone
        assert [one.name for one in after.hosts] == [one.name for one in before.hosts]
    watch.close()


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus with three hosts: one clock right, one two hours ahead, one two hours behind and its driver late."""
    series = merged(*(own(name, 0) for name in ("right", "ahead", "behind")))
    series = merged(series, *(host(name) for name in ("right", "ahead", "behind")))
    off_s = {"right": 0.0, "ahead": 7200.0, "behind": -7200.0}
    for name, skew_s in off_s.items():
        target = f'instance="{name}:9401",job="gputop"'
        series[f"{STAMP}{{{target}}}"] = lambda back, skew_s=skew_s: END - back + skew_s
    folder = tmp_path_factory.mktemp("skewed")
    backfill(folder, lines(series, 900.0))
    with prometheus(folder) as url:
        yield url


def test_a_node_whose_clock_is_hours_off_is_told_on_its_row(skewed: str) -> None:
    fleet = PrometheusFleet(Client(address_of(skewed, {})), "x", "", lambda: END)
    frame = fleet_frame(fleet.ask(END))
    fleet.close()
    faults = {one.name: list(one.faults) for one in frame.hosts}
    assert faults == {
        "right": [],
        "ahead": ["its clock is 2 h ahead of the engine's"],
        "behind": ["its clock is 2 h behind the engine's"],
    }
    assert not frame.read.down and frame.counts["down"] == frame.counts["late"] == 0


def test_an_engine_whose_clock_is_hours_off_is_told_and_changes_nothing(skewed: str) -> None:
    client = Client(address_of(skewed, {}))
    right = PrometheusFleet(client, "x", "", lambda: END)
    wrong = PrometheusFleet(client, "x", "", lambda: END - 10_800.0)
    frames = [fleet_frame(fleet.ask(END)) for fleet in (right, wrong)]
    assert frames[0].hosts == frames[1].hosts
    right.close()


def test_a_question_that_the_engine_refuses_leaves_the_rest(tmp_path: Path) -> None:
    backfill(tmp_path, lines(merged(own("n1", 0), host("n1")), 900.0))
    with prometheus(tmp_path) as url:
        client = Client(address_of(url, {}))
        asked = client.ask
        client.ask = lambda queries: asked([_spoiled(query) for query in queries])  # type: ignore[method-assign]
        fleet = PrometheusFleet(client, "x", "", lambda: END)
        frame = fleet_frame(fleet.ask(END))
        fleet.close()
    assert any("it refuses" in text for text in frame.problems)
    (only,) = frame.hosts
    assert only.util_pct is not None and only.power_w is None


def _spoiled(query):  # type: ignore[no-untyped-def]
    """The query, refused where it asks for power."""
    from msgspec.structs import replace

    if re.search("power", query.promql):
        return replace(query, promql=f"{query.promql} +")
    return query
