"""The names of a fleet's exporters: every generation gives the same GPU with the same value."""

from __future__ import annotations

import pytest

from gputop.features.fleet.exporter_names import (
    DETAIL_KEYS,
    DIALECTS,
    GPU_KEYS,
    STATE_KEYS,
    group_of,
    host_of,
)
from gputop.features.fleet.fleet_reading import NO_JOB, GpuReading, JobName, merged, with_schedulers
from gputop.features.fleet.promql import ALL_NAMES, SIGNALS, Scope
from gputop.features.fleet.read.decode_labels import owner_of
from gputop.features.fleet.read.gpu_inventory import scrape_seconds
from gputop.model.metrics import GPU_METRICS


def test_every_exporter_tells_all_that_a_fleet_is_asked_for() -> None:
    for name in ALL_NAMES:
        assert {*GPU_KEYS, *SIGNALS.values()} <= set(DIALECTS[name].signals)
    for dialect in DIALECTS.values():
        assert {"util_pct", "power_w", "temp_c", "mem_used_bytes"} <= set(dialect.signals)
    asked = {*STATE_KEYS, *DETAIL_KEYS}
    assert asked <= set(GPU_METRICS)
    names = [
        Scope(own, ()).exported(key)
        for own in DIALECTS.values()
        for key in own.signals
        if key in asked
    ]
    assert len(names) == len(set(names)), "one name, one meaning"


@pytest.mark.parametrize(("dialect", "key", "exported", "wanted"), [
    ("legacy", "sm_active_pct", 0.42, 42.0), ("4.9", "util_pct", 0.97, 97.0), ("legacy", "util_pct", 97.0, 97.0),
    ("legacy", "mem_used_bytes", 1024.0, 2.0**30), ("4.9", "mem_used_bytes", 2.0**30, 2.0**30),
    ("gputop", "sm_clock_mhz", 1.98e9, 1980.0),
])  # fmt: skip
def test_units_become_those_of_the_catalogue(
    dialect: str, key: str, exported: float, wanted: float
) -> None:
    assert exported * DIALECTS[dialect].signals[key].factor == pytest.approx(wanted)


@pytest.mark.parametrize(("labels", "host"), [
    ({"Hostname": "node-1", "instance": "10.0.0.1:9400"}, "node-1"),
    ({"hostname": "localhost", "instance": "node-2:9400"}, "node-2"),
    ({"node": "node-3", "instance": "10.0.0.3:9400"}, "node-3"),
    ({"Hostname": "127.0.0.1:9400", "instance": "node-4:9400"}, "node-4"),
    ({"instance": "localhost:9400"}, "localhost:9400"), ({}, ""),
])  # fmt: skip
def test_the_host_is_the_first_label_that_names_one(labels: dict[str, str], host: str) -> None:
    assert host_of(labels) == host


def test_a_number_without_a_scheduler_takes_the_name_that_it_has_elsewhere() -> None:
    slurm, number, pod = JobName("slurm", "7"), JobName("job", "7"), JobName("pod", "7")
    jobs = [number, JobName("job", "8"), pod, NO_JOB, slurm]
    assert with_schedulers(jobs) == ["slurm 7", "job 8", "pod 7", "", "slurm 7"]
    assert with_schedulers(jobs)[0].kind == "slurm" and with_schedulers([number, pod, NO_JOB]) == [
        number,
        pod,
        NO_JOB,
    ]


def test_a_job_is_known_from_slurm_or_a_pod_and_pods_of_one_operator_are_one_job() -> None:
    assert owner_of({"hpc_job": "8830", "pod": "exporter-1"}) == ("job 8830", "")
    assert owner_of({"exported_pod": "llm-worker-3", "exported_namespace": "team"}) == (
        "pod team/llm-worker-3",
        "team",
    )
    assert owner_of(
        {"pod": "dcgm-exporter-x7x", "namespace": "gpu-operator"}, {"dcgm-exporter-x7x"}
    ) == ("", "")
    assert owner_of({"pod": "x", "container": "nvidia-dcgm-exporter"}) == ("", "")
    assert owner_of({"pod": "llm-0", "namespace": "a"}, {"dcgm-exporter-x7x"}) == (
        "pod a/llm-0",
        "a",
    )
    assert group_of(JobName("pod", "a/trainer-worker-0")) != group_of(
        JobName("pod", "b/trainer-worker-0")
    )
    roles = ("worker", "master", "launcher", "rank", "node", "chief", "ps")
    assert {group_of(JobName("pod", f"llm-{role}-{at}")) for at, role in enumerate(roles)} == {
        "pod llm"
    }
    assert group_of(JobName("pod", "web-7d9f8b6c5-x2x4z")) == "pod web-7d9f8b6c5-x2x4z"


def test_of_two_exporters_the_second_fills_gaps_and_never_replaces_a_measured_zero() -> None:
    first = GpuReading("a", "0", util_pct=0.0, sm_active_pct=None)
    second = GpuReading("a", "0", util_pct=7.0, sm_active_pct=5.0, job=JobName("job", "1"))
    (both,) = merged((first, second))
    assert (both.util_pct, both.sm_active_pct, both.job) == (0.0, 5.0, "job 1")


def test_the_time_between_scrapes_is_told_by_their_number() -> None:
    counts: list[list[float]] = [[], [1.0], [5.0, 2.0], [3.0], [2.0], [900.0]]
    assert [scrape_seconds(samples, 300.0) for samples in counts] == [
        15.0,
        15.0,
        60.0,
        100.0,
        120.0,
        1.0,
    ]
