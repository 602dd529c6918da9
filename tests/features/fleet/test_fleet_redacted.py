"""What ``--redact`` makes of a fleet, and what is remembered of one over weeks: hosts and jobs that there are."""

from __future__ import annotations

import json
from typing import get_type_hints

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.features.fleet.fleet_reading import (
    Down,
    FiringAlert,
    FleetError,
    FleetReading,
    GpuReading,
    HostShare,
    JobName,
    LastHour,
    Lost,
    RemovedHost,
)
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.read.redacted_fleet import RedactedFleet
from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet
from gputop.features.fleet.show.fleet_data import fleet_csv, fleet_json
from gputop.features.fleet.show.fleet_view import FleetView, selected_host
from gputop.model.redaction import Redactor

LABELS = {
    "instance": "node-007:9400",
    "exported_pod": "anna-secret-0",
    "gpu": "3",
    "uuid": "GPU-0000-7",
    "xid": "79",
}


HOSTS, NEW, REFRESHES = 20, 18, 61
"""Hosts at a time; how many of them have another name at the next refresh."""


class Pods(SimulatedFleet):
    """A fleet of pods, whose names say whose they are; it can fail with a host's name in the message."""

    fails = False

    def ask(self, at: float | None = None) -> FleetReading:
        if self.fails:
            raise FleetError("https://prom.internal:9090/x: node-007 does not answer")
        read = super().ask(at)
        gpus = [
            replace(
                gpu,
                job=JobName("pod", f"secret-{gpu.job.name}-worker-{gpu.gpu}"),
                user=f"group-{gpu.user}",
            )
            if gpu.job
            else gpu
            for gpu in read.gpus
        ]
        alerts = (*read.alerts, FiringAlert("GpuXid", "critical", "node-007", LABELS))
        return replace(
            read,
            gpus=gpus,
            alerts=alerts,
            problems=("node-007 is odd",),
            source="https://prom.internal",
        )


@pytest.fixture(scope="module")
def both() -> tuple[FleetFrame, FleetFrame, RedactedFleet]:
    fleet = RedactedFleet(Pods(60), Redactor())
    return fleet_frame(Pods(60).ask(STARTED)), fleet_frame(fleet.ask(STARTED)), fleet


def test_states_stragglers_and_hours_are_the_same(
    both: tuple[FleetFrame, FleetFrame, RedactedFleet],
) -> None:
    plain, redacted, _ = both
    assert redacted.counts == plain.counts and redacted.not_work_gpu_h == plain.not_work_gpu_h
    shapes = [
        sorted((one.kind, one.by, one.value, one.gpus) for one in frame.stragglers)
        for frame in (plain, redacted)
    ]
    assert shapes[0] == shapes[1] != []
    assert sorted(row.gpu_h for row in plain.waste) == sorted(row.gpu_h for row in redacted.waste)
    assert len(redacted.read.down) == len(plain.read.down) and len(redacted.jobs) == len(plain.jobs)


def test_no_name_is_left_in_data_or_in_words(
    both: tuple[FleetFrame, FleetFrame, RedactedFleet],
) -> None:
    _, frame, fleet = both
    texts = [fleet_json(frame), fleet_csv(frame), fleet.source]
    for text in texts:
        for name in ("node-0", "secret", "group-", "GPU-0000", "prom.internal", "anna"):
            assert name not in text, text
    assert '"xid": "79"' in texts[0]


def test_a_hosts_page_is_asked_by_its_own_name_and_errors_name_nobody(
    both: tuple[FleetFrame, FleetFrame, RedactedFleet],
) -> None:
    _, frame, fleet = both
    host = selected_host(frame, FleetView())
    assert host is not None and len(fleet.history(host, STARTED)) == 8
    broken = Pods(2)
    broken.fails = True
    with pytest.raises(FleetError) as error:
        RedactedFleet(broken, fleet._redactor).ask()
    assert "prom.internal" not in str(error.value) and "node-007" not in str(error.value)


def test_every_command_of_the_fleet_takes_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "demo", "--hosts", "8", "--json", "--redact"]) == 0
    hosts = {host["host"] for host in json.loads(capsys.readouterr().out)["hosts"]}
    assert hosts == {f"host{i}" for i in range(1, 9)}


class Large(SimulatedFleet):
    """A fleet that is read from shares, one of whose hosts was removed."""

    def ask(self, at: float | None = None) -> FleetReading:
        shares = [HostShare("node-0", JobName("slurm", "8"), "anna", {"working": 8})]
        return FleetReading(
            STARTED,
            "",
            [],
            {},
            shares=shares,
            gone={"node-1": RemovedHost(8, 60.0)},
            missing={"node-0": 1},
        )


def test_sums_and_removed_hosts_are_redacted() -> None:
    read = RedactedFleet(Large(1), Redactor()).ask()
    assert [(share.user, share.gpus) for share in read.shares] == [("user1", 8)]
    assert list(read.gone.values()) == [RemovedHost(8, 60.0)] and "node" not in str(read)


PLAIN = {"gpu", "model", "names", "mig", "kind", "name", "severity", "note", "quantity"}
"""Texts of a reading that name no person and no machine."""


def test_every_text_of_a_reading_is_marked_as_a_name_or_known_as_none() -> None:
    records = (FleetReading, GpuReading, Down, RemovedHost, Lost, LastHour, FiringAlert, HostShare)
    unmarked = {
        f"{record.__name__}.{name}"
        for record in records
        for name, hint in get_type_hints(record, include_extras=True).items()
        if hint in (str, str | None) and name not in PLAIN
    }
    assert unmarked == set()
