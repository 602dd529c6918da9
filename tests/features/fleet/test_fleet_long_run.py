"""A fleet that is watched for weeks remembers the hosts and jobs that there are, not all that there ever were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from gputop.features.fleet.engine import LabelCache
from gputop.features.fleet.fleet_reading import Down, FleetReading
from gputop.features.fleet.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.redacted_fleet import LEAST_HOSTS, RedactedFleet
from gputop.features.fleet.simulated_fleet import STARTED
from gputop.model.redaction import Redactor
from tests.support.held import held, too_large
from tests.support.scripted_engine import ScriptedClient

HOSTS, NEW, REFRESHES = 20, 18, 61
"""Hosts at a time; how many of them have another name at the next refresh."""


def test_hosts_and_jobs_that_were_replaced_are_forgotten() -> None:
    first = 0

    def series(promql: str) -> Iterator[tuple[dict[str, str], float]]:
        """Of an engine whose hosts are replaced all the time, with jobs of new numbers."""
        for number in range(first, first + HOSTS):
            name, labels, value = f"node-{number}", {"instance": f"node-{number}:9400", "gpu": "0"}, 50.0
            if "count_over_time" in promql:
                labels, value = {"gputop_names": "legacy"}, 20.0
            elif "modelName" in promql:
                labels |= {"Hostname": name, "UUID": f"GPU-{name}", "hpc_job": name[5:], "gputop_names": "legacy"}
            elif "timestamp" in promql:
                labels, value = {"instance": labels["instance"], "gputop_names": "age"}, client.t - 3.0
            yield labels, value

    client: Any = ScriptedClient(series, "legacy")
    fleet = PrometheusFleet(client, "http://prom", "", lambda: client.t)
    for _ in range(REFRESHES):
        read = fleet.ask()
        fleet.hour(client.t)
        first += NEW
        client.t += 15.0
    shown = {gpu.host for gpu in read.gpus}
    assert {f"node-{first - NEW + number}" for number in range(HOSTS)} <= shown
    assert REFRESHES * NEW > 1000 > len(shown) and too_large(fleet) == []
    assert any(where.endswith("_value_of_labels") for _, where in held(fleet)), "what is known of labels was counted"


def test_labels_are_read_once_for_as_long_as_they_are_looked_up() -> None:
    read: list[str] = []
    known = LabelCache(lambda labels: read.append(labels["host"]) or labels["host"])
    stays = msgspec.Raw(b'{"host":"stays"}')
    for number in range(100):
        assert known.value(stays) == "stays"
        assert known.value(msgspec.Raw(json.dumps({"host": f"h{number}"}).encode())) == f"h{number}"
        if number % 10 == 0:
            known.turn()
    assert read.count("stays") == 1 and len(read) == 101
    assert len(known._value_of_labels) + len(known._before) <= 21


class Renamed:
    """A fleet of one host that has another name each time."""

    source, interval_s = "an engine", 15.0

    def __init__(self) -> None:
        self.number = 0

    def ask(self, at: float | None = None) -> FleetReading:
        self.number += 1
        alerts = ()
        return FleetReading(STARTED, "", [], {f"node-{self.number}": Down(None, "")}, (), alerts=alerts)


def test_a_redacted_fleet_keeps_the_names_of_few_hosts_that_are_gone() -> None:
    fleet: Any = Renamed()
    redacted = RedactedFleet(fleet, Redactor())
    for number in range(LEAST_HOSTS + 500):
        assert list(redacted.ask().down) == [f"host{number + 1}"]
    assert len(redacted._hosts) <= LEAST_HOSTS + 1 and len(redacted._shown) <= LEAST_HOSTS + 1
