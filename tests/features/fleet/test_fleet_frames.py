"""What follows from a fleet's numbers: states, stragglers, waste and words, on planted cases and a simulated fleet."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.features.fleet.fleet_reading import (
    NO_JOB,
    Down,
    FiringAlert,
    FleetReading,
    GpuReading,
    HostShare,
    JobName,
    LastHour,
    Lost,
    with_hour,
)
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame, worst_first
from gputop.features.fleet.judge.gpu_state import state_of
from gputop.features.fleet.judge.straggler import stragglers
from gputop.features.fleet.read.decode_values import fact_labels, series_facts
from gputop.features.fleet.read.recorded_hosts import RecordedHosts
from gputop.features.fleet.read.screen_queries import (
    DIALECT_LABEL,
    STEP,
    STEP_WAIT,
    FleetSchema,
    node_facts,
)
from gputop.features.fleet.read.simulated_fleet import STARTED, SimulatedFleet
from gputop.features.fleet.show.fleet_data import fleet_csv, fleet_data
from tests.features.fleet.conftest import planted

GIB = 2.0**30
BUSY = GpuReading(
    "a",
    "0",
    util_pct=98.0,
    sm_active_pct=90.0,
    power_w=600.0,
    mem_used_bytes=60 * GIB,
    job=JobName("job", "1"),
)


QUIET = {"util_pct": 1.0, "is_quiet": True}
SMALL = {"mem_used_bytes": GIB / 2}


@pytest.mark.parametrize(("change", "wanted"), [
    ({}, "working sm"), ({"sm_active_pct": 29.0}, "busy_not_working sm"),
    ({"util_pct": 80.0, "sm_active_pct": 30.0}, "starved util"), ({"sm_active_pct": None}, "unmeasured nothing"),
    ({"sm_active_pct": None, "util_pct": 50.0}, "starved util"),
    ({"util_pct": 50.0, "sm_active_pct": 45.0, "mem_used_bytes": None, "job": ""}, "working sm"),
    (QUIET, "idle_allocated util"), ({**QUIET, **SMALL}, "idle util"),
    ({**QUIET, **SMALL, "is_allocated": True}, "allocated_unused util"),
    ({**QUIET, "is_allocated": True}, "idle_allocated util"),
    ({"own_state": "idle", "is_allocated": True}, "allocated_unused gputop"), ({"own_state": "idle"}, "idle gputop"),
    ({"own_state": "idle_allocated", "is_allocated": True}, "idle_allocated gputop"),
    ({"util_pct": None}, "unmeasured nothing"), ({"own_state": "starved"}, "starved gputop"),
    ({"util_pct": 60.0, "sm_active_pct": 10.0}, "busy_not_working sm"),
    ({"util_pct": 40.0, "sm_active_pct": 30.0, "job": ""}, "working sm"),
    ({"util_pct": 40.0, "sm_active_pct": None, "job": ""}, "unmeasured nothing"),
    ({**QUIET, "is_quiet": None}, "unmeasured nothing"),
    ({"util_pct": 60.0, "is_quiet": None, "sm_active_pct": 45.0}, "starved util"),
    ({**QUIET, "mem_used_bytes": None}, "idle util"),
    ({**QUIET, "mem_used_bytes": None, "unanswered": frozenset({"mem_used_bytes"})}, "unmeasured nothing"),
    ({"sm_active_pct": None, "util_pct": 50.0, "unanswered": frozenset({"sm_active_pct"})}, "unmeasured nothing"),
])  # fmt: skip
def test_a_gpu_has_the_first_state_that_holds(change: dict[str, object], wanted: str) -> None:
    gpu = replace(BUSY, **change)
    assert state_of(gpu) == tuple(wanted.split())
    assert state_of(gpu, down="down") == ("down", "up") and state_of(gpu, down="late") == (
        "late",
        "up",
    )
    assert state_of(replace(gpu, is_lost=True)) == ("lost", "up")


def _job(*sm: float, util: float = 97.0, **more: object) -> list[GpuReading]:
    return [
        replace(BUSY, gpu=str(i), util_pct=util, sm_active_pct=value, **more)
        for i, value in enumerate(sm)
    ]


def _with(members: list[GpuReading], place: int, **change: object) -> list[GpuReading]:
    return [replace(gpu, **change) if i == place else gpu for i, gpu in enumerate(members)]


POWERED = [
    replace(gpu, sm_active_pct=None, power_w=400.0 + i)
    for i, gpu in enumerate(_job(0.0, 0.0, 0.0, 0.0))
]
STEPS = _with(_job(62.0, 61.0, 63.0, 94.0, step_s=1.0), 1, step_s=1.1)
WAITED = _with([replace(gpu, step_wait_s=0.3) for gpu in STEPS], 2, step_wait_s=0.02)


@pytest.mark.parametrize(("members", "late"), [
    (_job(62.0, 61.0, 63.0, 94.0), ("3", "slow", "sm", 94.0, 62.0)),
    (_with(_job(60.0, 60.0, 60.0), 1, util_pct=61.0), ("1", "starved", "util", 61.0, 97.0)),
    (_with(POWERED, 2, power_w=640.0), ("2", "slow", "power", 640.0, 401.0)),
    (_with(STEPS, 1, step_s=1.11), ("1", "slow", "step", 1.11, 1.0)),
    # Equal steps say nothing of who waits; a step is not compared with the part of another; two ranks are too few.
    (STEPS, ("3", "slow", "sm", 94.0, 62.0)),
    (_with(WAITED, 0, step_wait_s=None), ("3", "slow", "sm", 94.0, 62.0)),
    ([replace(gpu, step_s=None if gpu.gpu in "23" else 1.0 + int(gpu.gpu)) for gpu in STEPS],
     ("3", "slow", "sm", 94.0, 62.0)),
    (WAITED, ("2", "slow", "own_step", 0.98, 0.7)),
    # A wide spread, one that does less, two GPUs, no job, within 15 points, not all busy, several jobs.
    (_job(90.0, 60.0, 20.0, 40.0), None), (_job(62.0, 61.0, 20.0), None), (_job(62.0, 94.0), None),
    (_job(62.0, 61.0, 63.0, 94.0, job=NO_JOB), None), (_job(62.0, 61.0, 63.0, 76.0), None),
    (_job(60.0, 60.0, 90.0, util=70.0), None),
    ([replace(gpu, job=JobName("job", gpu.gpu)) for gpu in _job(62.0, 61.0, 63.0, 94.0)], None),
])  # fmt: skip
def test_the_straggler_of_a_job_does_more_starves_or_steps_later(
    members: list[GpuReading], late: Any
) -> None:
    found = [(one.gpu, one.kind, one.by, one.value, one.median) for one in stragglers(members)]
    assert found == ([] if late is None else [late])


@pytest.mark.parametrize("seed", [0, 2])
def test_every_planted_straggler_is_found_and_none_beside_them(seed: int) -> None:
    fleet = SimulatedFleet(250, seed=seed)
    stragglers = fleet_frame(fleet.ask(STARTED + 77.0)).stragglers
    assert {(one.host, one.gpu, one.kind) for one in stragglers} == planted(fleet)
    assert {"step", "sm", "util"} <= {one.by for one in stragglers}


def test_counts_are_gpus_and_a_host_that_is_down_counts_those_it_had(frame: FleetFrame) -> None:
    assert sum(frame.counts.values()) == 1000
    for kind in ("down", "late"):
        assert (
            frame.counts[kind] == 8 * sum(one.kind == kind for one in frame.read.down.values()) > 0
        )  # type: ignore[index]
    assert all(frame.counts.values()), "the demo shows every state that there is"


def test_waste_is_summed_by_job_user_and_cause_and_splits_a_starved_gpu_by_its_utilisation(
    frame: FleetFrame,
) -> None:
    assert frame.read.hour.lost is not None
    by_job = {lost.job for lost in frame.read.hour.lost}
    assert {row.job for row in frame.waste} == by_job
    total = sum(row.gpu_h for row in frame.waste)
    assert (
        total
        == pytest.approx(frame.not_work_gpu_h)
        == pytest.approx(sum(lost.gpu_h for lost in frame.read.hour.lost))
    )
    starved = next(row for row in frame.waste if row.state == "starved")
    job = next(job for job in SimulatedFleet(125).jobs if job.name == starved.job)
    hours = min(1.0, job.begun_s / 3600.0)
    assert starved.gpu_h == pytest.approx(
        job.hosts * 8 * hours * (1 - job.fate.util / 100), rel=0.02
    )


def test_the_worst_come_first_and_a_straggler_before_those_who_wait(frame: FleetFrame) -> None:
    states = [group.verdict.state for group in sorted(frame.hosts, key=worst_first)]
    assert states[:3] == ["lost", "late", "busy_not_working"] and states[-1] == "down"
    straggling = next(group for group in frame.hosts if group.stragglers)
    assert "straggles" in straggling.verdict.text
    waiting = [group for group in frame.hosts if "wait for" in group.verdict.text]
    assert all(worst_first(straggling) < worst_first(group) for group in waiting) and waiting


def test_what_dcgm_exporter_leaves_out_is_said_once_with_the_row_to_add(frame: FleetFrame) -> None:
    (line,) = frame.problems
    assert "DCGM_FI_PROF_SM_ACTIVE, gauge" in line and "hosts" in line
    bare = [gpu for host in frame.hosts for gpu in host.gpus if gpu.state == "unmeasured"]
    assert bare and all(gpu.read.sm_active_pct is None and gpu.gap_pct is None for gpu in bare)


def test_json_and_csv_have_every_gpu_null_where_nothing_was_measured(frame: FleetFrame) -> None:
    data = json.loads(json.dumps(fleet_data(frame), allow_nan=False))
    assert list(data)[:5] == ["schema", "t", "source", "names", "age_s"]
    gpus = [gpu for host in data["hosts"] for gpu in host["gpus"]]
    assert len(gpus) == 1000 and data["counts"]["down"] == 8 * data["hosts_down"]
    assert {gpu["sm_source"] for gpu in gpus} == {"gputop", "4.9", "legacy", "none"}
    rows = list(csv.DictReader(io.StringIO(fleet_csv(frame))))
    assert len(rows) == 1000
    assert {row["sm_active_pct"] for row in rows if row["state"] == "unmeasured"} == {""}


def test_numbers_have_four_digits_what_is_no_number_is_null_and_a_label_is_no_formula() -> None:
    odd = replace(
        BUSY,
        host="=1+1",
        job=JobName('@SUM("a")'),
        util_pct=97.123456,
        sm_active_pct=None,
        power_w=float("nan"),
    )
    frame = fleet_frame(FleetReading(1.23456, "x", (odd,)))
    data, (row,) = fleet_data(frame), csv.DictReader(io.StringIO(fleet_csv(frame)))
    (gpu,) = data["hosts"][0]["gpus"]
    assert (data["t"], gpu["util_pct"], gpu["power_w"], gpu["gap_pct"]) == (
        1.2346,
        97.1235,
        None,
        None,
    )
    assert (row["t"], row["util_pct"], row["power_w"]) == ("1.2346", "97.1235", "")
    assert row["host"] == "'=1+1" and row["job"].startswith("'@")
    assert (frame.hosts[0].gap_pct, frame.hosts[0].waste_gpu_h, frame.not_work_gpu_h) == (None,) * 3


def test_a_host_that_is_down_says_for_how_long_and_loses_nothing_of_its_hour() -> None:
    lost = (Lost("a", "0", JobName("job", "1"), "ml", "busy_not_working", 0.5),)
    frame = fleet_frame(
        FleetReading(
            1.0,
            "x",
            (BUSY,),
            {"a": Down(240.0, "no answer"), "b": Down(None, "x")},
            hour=LastHour(lost),
        )
    )
    a, b = frame.hosts
    assert (
        a.verdict.text == "down 4 min: no answer"
        and a.waste_gpu_h == 0.5
        and a.gpus[0].state == "down"
    )
    assert b.gpus == () and frame.counts["down"] == 1


def test_the_demo_runs_anywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "demo", "--hosts", "10", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["hosts"]) == 10
    assert main(["fleet", "demo", "--hosts", "0", "--json"]) == 2
    assert main(["fleet", "demo", "--hosts", "2", "--csv", "--seed", "3"]) == 0
    assert capsys.readouterr().out.count("\n") == 17


def test_steps_and_waits_of_a_gpu_are_read_from_two_series_that_say_which_they_are() -> None:
    known = FleetSchema({}, {"gputop": ("host", "gpu", "uuid")})
    asked = node_facts(known)
    assert (
        asked.count("gputop_step_seconds_") == 2 and asked.count("gputop_step_wait_seconds_") == 2
    )
    labels = {"host": "a", "gpu": "0", "uuid": "GPU-0"}
    rows = [
        (fact_labels({**labels, DIALECT_LABEL: mark}, known), value)
        for mark, value in ((STEP, 1.0), (STEP_WAIT, 0.3))
    ]
    (one,) = series_facts(rows).values()
    assert (one.step_s, one.step_wait_s) == (1.0, 0.3)
    assert GpuReading("a", "0", step_s=1.0, step_wait_s=0.3).own_step_s == 0.7
    assert GpuReading("a", "0", step_s=1.0).own_step_s is None


def test_a_new_hour_reaches_hosts_that_are_as_before() -> None:
    read = FleetReading(
        1.0, "", [], {}, shares=[HostShare("a", JobName("slurm", "8"), "u", {"starved": 8})]
    )
    hour = LastHour([Lost("a", "", JobName("slurm", "8"), "u", "starved", 2.0)])
    assert fleet_frame(with_hour(read, hour), fleet_frame(read)).hosts[0].waste_gpu_h == 2.0


def test_a_straggler_that_is_alone_on_its_host_is_named_by_its_number() -> None:
    gpus = [
        GpuReading(
            f"h{i}",
            "3",
            util_pct=98.0,
            sm_active_pct=95.0 if i == 0 else 40.0,
            job=JobName("slurm", "8"),
        )
        for i in range(8)
    ]
    assert [late.where for late in stragglers(gpus)] == ["h0 GPU 3"]


def test_all_hosts_of_a_straggling_kubernetes_job_are_looked_at() -> None:
    hosts = RecordedHosts(Any)
    hosts._alerts = (FiringAlert("GpuStragglerSlow", "warning", "n0", {}),)
    hosts.shares = [
        HostShare(f"n{i}", JobName("pod", f"ns/train-worker-{i}"), "ns", {"working": 8})
        for i in range(2)
    ]
    assert hosts.of_straggling_jobs() == ["n0", "n1"]
