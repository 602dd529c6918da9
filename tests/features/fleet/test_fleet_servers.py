"""Real engines scrape a node and a simulated fleet: every query, every panel, stragglers, and a restart in between."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from gputop.features.fleet.deploy.deploy_command import files
from gputop.features.fleet.deploy.questions import QUESTIONS
from gputop.features.fleet.deploy.rules_file import alerts, rules_yaml
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.promql import ALL_NAMES, Names, rule_scope
from tests.nvml.stand_in import Scenario
from tests.support.engines import free_port
from tests.support.prom_servers import Engine, engines, nobody_listens
from tests.support.simulated_fleet import SLOW, STARVED, fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.nvml,
    pytest.mark.xdist_group("servers"),
]
ROOT = Path(__file__).parents[3]
SETTLED_S = 22.0
"""Until the shortest window holds its samples, and the GPU that vanishes has been gone for one."""


class Node:
    """``gputop export`` on the stand-in's eight GPUs, to be closed; it can be started again on its port."""

    def __init__(self, scenario: Scenario) -> None:
        self.port = free_port()
        self.environment = scenario.environment()
        self._process = self._started()

    def restart(self) -> None:
        self.close()
        self._process = self._started()

    def close(self) -> None:
        self._process.terminate()
        try:
            assert self._process.wait(30) == 0
        finally:
            self._process.kill()
            self._process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gputop", "export", "--listen", f"127.0.0.1:{self.port}"]
        return subprocess.Popen(command, cwd=ROOT, env=self.environment, stderr=subprocess.DEVNULL)


class Place(NamedTuple):
    """What all tests of this file look at."""

    node: Node
    engines: Mapping[str, Engine]


@pytest.fixture(scope="module")
def place(nvml_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("servers")
    scenario = Scenario(folder, nvml_dir, 8, "NVIDIA H100 80GB HBM3")
    for index, gpu in enumerate(scenario.gpus):
        gpu.set(util=10 + 10 * index, temp_c=50 + index, power_w=300 + index)
    scenario.write()
    # Without the engines the tests are skipped from inside: the exporter ends then, too.
    with closing(Node(scenario)) as node, fleet() as port, nobody_listens() as dead:
        scrapes = (
            f"  - job_name: live\n    static_configs: [{{targets: ['127.0.0.1:{node.port}']}}]\n"
        )
        for names in ALL_NAMES:
            scrapes += (
                f"  - job_name: sim-{names}\n    honor_labels: true\n    metrics_path: /{names}\n"
                f"    static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
            )
        for job in ("gputop", "dcgm-exporter"):
            scrapes += (
                f"  - job_name: {job}\n    static_configs: [{{targets: ['127.0.0.1:{dead}']}}]\n"
            )
        # Each minute is too seldom for a fleet that is there for half of one; windows are those of its scrapes.
        rules = {
            names: rules_yaml(names, 2.5, scrape_s=1.0).replace("interval: 1m", "interval: 5s")
            for names in ALL_NAMES
        }
        with engines(folder, scrapes, rules) as asked:
            time.sleep(SETTLED_S)
            yield Place(node, asked)


MISSED = ("absent", "fewer_targets", "hang")
"""Questions without an answer here: every target is there, and nothing hangs."""


OWN_NAMES_FIRST = [
    name if name == "gputop" else pytest.param(name, marks=pytest.mark.weekly) for name in ALL_NAMES
]
"""gputop's own metric names; those of dcgm-exporter's generations are left to the weekly part."""


def _asked(id: str, names: Names) -> str | None:
    query = QUESTIONS[id].promql(rule_scope(names, scrape_s=1.0, price=2.5))
    # A minute between two points of a subquery is longer than this fleet has been there.
    return (
        None
        if query is None
        else query.replace(":1m]", ":5s]").replace(":host:gpus[24h]", ":host:gpus[40s]")
    )


@pytest.mark.parametrize("engine", ["prometheus", "victoria-metrics"])
@pytest.mark.parametrize("names", OWN_NAMES_FIRST)
def test_every_query_of_every_generation_is_answered(
    place: Place, engine: str, names: Names
) -> None:
    # What is recorded is in the engine that evaluates the rules.
    asked = {
        id: query
        for id, row in QUESTIONS.items()
        if (query := _asked(id, names)) is not None
        and (engine == "prometheus" or "gputop:" not in query)
        and id not in MISSED
    }
    assert _never_answered(place.engines[engine], asked) == []


def _never_answered(engine: Engine, queries: Mapping[str, str]) -> list[str]:
    """Those without an answer within minutes.

    An engine that gets no processor misses scrapes, and short windows hold nothing.
    """
    deadline = time.monotonic() + 200.0
    unanswered = dict(queries)
    while True:
        unanswered = {id: query for id, query in unanswered.items() if not engine.ask(query)}
        if not unanswered or time.monotonic() > deadline:
            return list(unanswered)
        time.sleep(0.5)


@pytest.mark.parametrize("engine", ["prometheus", "victoria-metrics"])
@pytest.mark.parametrize("names", ALL_NAMES)
def test_both_planted_stragglers_are_found_and_no_other_of_800(
    place: Place, engine: str, names: Names
) -> None:
    host = DIALECTS[names].hosts[0]
    for id, planted in (("straggler_slow", SLOW), ("straggler_starved", STARVED)):
        # As with all queries, a window may hold nothing where an engine got no processor for some seconds.
        found = place.engines[engine].until(_asked(id, names) or "")
        assert {(labels[host].partition(":")[0], labels["gpu"]) for labels, _ in found} == {
            planted
        }, id


@pytest.mark.parametrize("names", OWN_NAMES_FIRST)
def test_every_panel_of_the_dashboards_shows_something(place: Place, names: Names) -> None:
    made, missed = files(names, 2.5), {QUESTIONS[id].title for id in MISSED}
    shown: dict[str, str] = {}
    for file in ("grafana/gputop-fleet.json", "grafana/gputop-job.json"):
        for panel in json.loads(made[file])["panels"]:
            for target in panel.get("targets", ()) if panel["title"] not in missed else ():
                query = re.sub(r"\$(cluster|host|gpu|job)", ".*", target["expr"]).replace(
                    ":1m]", ":5s]"
                )
                query = query.replace("$price", "2.5")
                shown[query.replace("[2m]", "[8s]")] = panel["title"]
    # Several panels may have one title.
    queries = {f"{title}: {query}": query for query, title in shown.items()}
    assert _never_answered(place.engines["prometheus"], queries) == []


def test_the_rules_are_loaded_as_they_are_and_record(place: Place) -> None:
    engine = place.engines["prometheus"]
    assert engine.until("gputop:job_sm:avg_w") and engine.until("gputop:fleet:gpus_by_state")
    pending = {labels["alertname"] for labels, _ in engine.until("ALERTS")}
    known = {alert.name for _, alert in alerts("gputop")}
    assert pending <= known and len(pending) >= 5
