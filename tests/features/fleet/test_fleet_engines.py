"""A fleet on real engines: an hour of 125 hosts of three exporters' names, with what was planted found again.

Prometheus and VictoriaMetrics of the distribution hold the same data; every answer is compared with the simulation that
wrote it, and some with direct questions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gputop.features.fleet.judge.fleet_frame import fleet_frame
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.engine import Answer, Client, PromQuery
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet
from tests.features.fleet.conftest import engine_with, planted
from tests.support.engines import missing
from tests.support.fleet_pages import past

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.xdist_group("engines")]
FLEET = SimulatedFleet(125)
STEP_S = 60.0
"""Between scrapes: an hour of 1,000 GPUs is then written in seconds."""


@pytest.fixture(scope="module", params=["prometheus", "victoria-metrics"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if reason := missing(request.param):
        pytest.skip(reason)
    with engine_with(
        request.param, tmp_path_factory.mktemp("engine"), past(FLEET, STARTED, 3900.0, STEP_S)
    ) as found:
        yield found


def test_what_was_planted_is_found_now_and_half_an_hour_ago(url: str) -> None:
    client = Client(address_of(url, {}))
    fleet = PrometheusFleet(client, url, "", lambda: STARTED)
    fleet.settle()
    frame, wanted = (fleet_frame(of.ask(STARTED)) for of in (fleet, FLEET))
    assert frame.counts == wanted.counts and set(frame.read.down) == set(wanted.read.down)
    assert {(one.host, one.gpu, one.kind) for one in frame.stragglers} == planted(FLEET)
    assert (
        set(frame.read.names) == {"gputop", "4.9", "legacy"} and frame.problems == wanted.problems
    )
    names = ("gputop_gpu_utilization_ratio", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO")
    by_hand = (
        " + ".join(f"sum(count by (instance, gpu) ({name}))" for name in names),
        "count(up == 0)",
    )
    answers = client.ask([PromQuery(text, STARTED) for text in by_hand])
    numbers = [
        float(answer.rows[0].value[1])
        for answer in answers
        if isinstance(answer, Answer) and answer.rows[0].value
    ]
    down = sum(one.kind == "down" for one in frame.read.down.values())
    assert numbers == [frame.total - frame.counts["lost"], down]
    history, details = fleet.history("node-026", STARTED), fleet.details("node-026", STARTED)
    util, sm = history["0"]
    assert set(history) == {str(i) for i in range(8)} and len(util) == len(sm) == 60
    assert (util[-1], sm[-1], details["3"]["tensor_active_pct"]) == (
        pytest.approx(97.0, abs=4), pytest.approx(9.0, abs=4), pytest.approx(1.0, abs=2),
    )  # fmt: skip
    before, wanted = (fleet_frame(of.ask(STARTED - 1800.0)) for of in (fleet, FLEET))
    fleet.close()
    assert before.t == STARTED - 1800.0 and not before.read.down
    assert abs(before.counts["idle"] - wanted.counts["idle"] - wanted.counts["down"]) <= 8


def test_a_selector_keeps_what_it_selects(url: str) -> None:
    fleet = PrometheusFleet(
        Client(address_of(url, {})), url, 'instance=~"node-02.:9400"', lambda: STARTED
    )
    frame = fleet_frame(fleet.ask(STARTED))
    fleet.close()
    assert {host.name for host in frame.hosts} == {f"node-02{i}" for i in range(10)}
