"""A fleet on real engines: an hour of 125 hosts of three exporters' names, with what was planted found again.

Prometheus and VictoriaMetrics of the distribution hold the same data; every answer is compared with the simulation that
wrote it, and some with direct questions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gputop.features.fleet.address import address_of
from gputop.features.fleet.engine import Client, PromQuery
from gputop.features.fleet.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.simulated_fleet import STARTED, SimulatedFleet
from tests.features.fleet.conftest import planted
from tests.support.engines import backfill, imported, missing, prometheus, victoria
from tests.support.fleet_pages import past

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("engines")]
FLEET = SimulatedFleet(125)
STEP_S = 60.0
"""Between scrapes: an hour of 1,000 GPUs is then written in seconds."""


@pytest.fixture(scope="module", params=["prometheus", "victoria-metrics"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := missing(request.param):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("engine")
    lines = past(FLEET, STARTED, 3900.0, STEP_S)
    if request.param == "prometheus":
        backfill(folder, lines)
        with prometheus(folder) as found:
            yield found
    else:
        with victoria(folder) as found:
            imported(found, lines)
            yield found


@pytest.fixture(scope="module")
def asked(url: str) -> Iterator[tuple[PrometheusFleet, FleetFrame]]:
    fleet = PrometheusFleet(Client(address_of(url, {})), url, "", lambda: STARTED)
    fleet.settle()
    yield fleet, fleet_frame(fleet.ask(STARTED))
    fleet.close()


def test_counts_states_and_stragglers_are_those_that_were_planted(asked: tuple[PrometheusFleet, FleetFrame]) -> None:
    _, frame = asked
    wanted = fleet_frame(FLEET.ask(STARTED))
    assert frame.counts == wanted.counts and set(frame.read.down) == set(wanted.read.down)
    assert {(one.host, one.gpu, one.kind) for one in frame.stragglers} == planted(FLEET)
    assert set(frame.read.names) == {"gputop", "4.9", "legacy"} and frame.problems == wanted.problems


def test_counts_equal_questions_asked_by_hand(asked: tuple[PrometheusFleet, FleetFrame], url: str) -> None:
    _, frame = asked
    client = Client(address_of(url, {}))
    names = ("gputop_gpu_utilization_ratio", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO")
    union = " + ".join(f"sum(count by (instance, gpu) ({name}))" for name in names)
    rows, up = client.ask([PromQuery(union, STARTED), PromQuery("count(up == 0)", STARTED)])
    client.close()
    assert not isinstance(rows, Exception) and not isinstance(up, Exception)
    assert float(rows.rows[0].value[1]) == sum(frame.counts.values()) - frame.counts["lost"]  # type: ignore[index]
    assert float(up.rows[0].value[1]) == sum(one.kind == "down" for one in frame.read.down.values())  # type: ignore[index]


def test_a_host_has_an_hour_and_its_details(asked: tuple[PrometheusFleet, FleetFrame]) -> None:
    fleet, _ = asked
    history = fleet.history("node-026", STARTED)
    assert set(history) == {str(i) for i in range(8)}
    util, sm = history["0"]
    assert len(util) == len(sm) == 60 and util[-1] == pytest.approx(97.0, abs=4) and sm[-1] == pytest.approx(9.0, abs=4)
    details = fleet.details("node-026", STARTED)
    assert details["3"]["tensor_active_pct"] == pytest.approx(1.0, abs=2)


def test_going_back_in_time_finds_jobs_before_they_began_idle(asked: tuple[PrometheusFleet, FleetFrame]) -> None:
    fleet, _ = asked
    frame = fleet_frame(fleet.ask(STARTED - 1800.0))
    wanted = fleet_frame(FLEET.ask(STARTED - 1800.0))
    assert frame.t == STARTED - 1800.0
    assert abs(frame.counts["idle"] - wanted.counts["idle"] - wanted.counts["down"]) <= 8 and not frame.read.down


def test_a_selector_keeps_what_it_selects(url: str) -> None:
    fleet = PrometheusFleet(Client(address_of(url, {})), url, 'instance=~"node-02.:9400"', lambda: STARTED)
    frame = fleet_frame(fleet.ask(STARTED))
    fleet.close()
    assert {host.name for host in frame.hosts} == {f"node-02{i}" for i in range(10)}
