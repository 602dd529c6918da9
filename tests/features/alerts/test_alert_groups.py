"""Alerts that act once for all GPUs of a job or a node: whom they blame, what they hand on, and when they wait."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gputop.diagnosis.types import GpuDiagnosis
from gputop.features.alerts.alert_table import Alert, AlertError, alerts_of
from gputop.features.alerts.firing import AlertChange, Judge, NotHanded, firing_of
from gputop.features.alerts.node_alerts import FiringLock
from gputop.model.snapshot import GpuSample, GpuStatic, Machine, ProcessSample, ProcessStatic, Snapshot
from gputop.monitor import Monitor
from gputop.sources.simulation.life import slurm

T0 = 1_780_000_000.0
REQUEUE = {"when": "state:idle_allocated", "for": "3s", "run": ["scontrol", "requeue", "{job_id}"]}
JOB = "slurm 8821"


def made(**fields: Any) -> Alert:
    (alert,) = alerts_of([{"name": "a", "when": "temp_c > 85", "for": "0s", **fields}])
    return alert


def node(t: float, hot: str, jobs: str, states: str = "") -> tuple[Snapshot, list[GpuDiagnosis]]:
    """A node at ``t``: for each GPU whether it is hot (h), cool (c) or unknown (?), whose job it is (a digit, - for
    none), and whether it idles (i) or works (w).
    """
    temperatures = {"h": 90.0, "c": 50.0, "?": None}
    gpus = tuple(GpuSample(GpuStatic(i, f"GPU-{i}", "H100"), temp_c=temperatures[one]) for i, one in enumerate(hot))
    processes = tuple(
        ProcessSample(100 + i, gpu=i, static=ProcessStatic("ml", None, "python", slurm(8820 + int(job))))
        for i, job in enumerate(jobs)
        if job != "-"
    )
    words = {"i": "idle_allocated", "w": "working", "?": "unmeasured"}
    diagnoses = [
        GpuDiagnosis(i, f"GPU-{i}", "collecting" if one == "?" else "x", "green", "", "", state=words[one])
        for i, one in enumerate(states or "w" * len(hot))
    ]
    return Snapshot(t, Machine("node-17"), gpus, processes), diagnoses


def run(alert: Alert, *ticks: tuple[str, str, str]) -> list[tuple[str, float, str, tuple[int, ...]]]:
    judge, found = Judge([alert]), []
    for second, tick in enumerate(ticks):
        changes = judge.take(*node(T0 + second, *tick))
        found += [(change.kind, change.t - T0, change.group, change.gpus) for change in changes]
    return found


def test_an_idle_job_on_eight_gpus_is_requeued_once() -> None:
    idle = ("c" * 8, "1" * 8, "i" * 8)
    assert run(made(**REQUEUE), *[idle] * 20) == [("fired", 3.0, f"job {JOB}", tuple(range(8)))]


def test_a_job_is_not_idle_while_one_of_its_gpus_works_or_nobody_knows() -> None:
    for odd in ("w", "?"):
        assert run(made(**REQUEUE), *[("cccc", "1111", "iii" + odd)] * 20) == []
    assert run(made(gpus="any", **REQUEUE), *[("cccc", "1111", "iwww")] * 20) == [("fired", 3.0, f"job {JOB}", (0,))]
    late = [("cc", "11", "iw")] * 5 + [("cc", "11", "ii")] * 5
    assert run(made(**REQUEUE), *late) == [("fired", 8.0, f"job {JOB}", (0, 1))], "the last to idle decides"
    unknown = [("cc", "11", states) for states in ("iw", "ii", "ii", "ii", "?i")]
    assert run(made(**REQUEUE), *unknown) == [], "all of them have to be seen idle at once"


def test_a_new_job_is_not_blamed_for_what_the_one_before_it_did() -> None:
    first, second = ("cc", "11", "ii"), ("cc", "22", "ii")
    found = run(made(**REQUEUE), *[first] * 3, *[second] * 6)
    assert found == [("fired", 6.0, "job slurm 8822", (0, 1))]
    found = run(made(**REQUEUE), *[first] * 5, *[second] * 2)
    assert found == [("fired", 3.0, f"job {JOB}", (0, 1)), ("resolved", 5.0, f"job {JOB}", (0, 1))]


def test_each_of_two_jobs_is_told_once_and_gpus_without_a_job_together() -> None:
    told = made(run=["mail", "{host}"], per="job")
    assert told.gpus == "any"
    assert run(told, *[("hchh" + "hh", "1122" + "--", "")] * 9) == [
        ("fired", 0.0, "job slurm 8821", (0,)),
        ("fired", 0.0, "job slurm 8822", (2, 3)),
        ("fired", 0.0, "node", (4, 5)),
    ]


def test_a_node_is_cordoned_once_and_later_gpus_are_silent_until_again() -> None:
    cordon = made(run=["kubectl", "cordon", "{host}"], again="6s")
    assert cordon.per == "node"
    found = run(cordon, ("hcc", "1-2", ""), *[("hhc", "1-2", "")] * 8, ("ccc", "1-2", ""))
    assert found == [("fired", 0.0, "node", (0,)), ("fired", 6.0, "node", (0, 1)), ("resolved", 9.0, "node", (0,))]


def test_what_a_command_names_decides_for_whom_it_acts() -> None:
    def per(*command: str, **fields: Any) -> tuple[str, str]:
        alert = made(run=["program", *command], **fields)
        return alert.per, alert.gpus

    assert per("{gpu}") == per("{job_id}", "{uuid}") == per("{pid}") == ("gpu", "any")
    assert per("{host}", "{gpus}") == ("node", "any")
    assert per("{job_id}") == ("job", "all")
    assert per("{job_id}", when="badge:ecc") == ("job", "any"), "one broken GPU breaks the job"
    assert per("{host}", per="job") == ("job", "any")
    assert per("{gpus}", per="node", gpus="all") == ("node", "all")
    assert made().per == "gpu"
    with pytest.raises(AlertError, match=r"\{gpu\} stands for one GPU.*\{gpus\}"):
        per("{gpu}", per="job")


def test_a_command_is_given_the_list_of_gpus_and_the_one_job() -> None:
    def fired(jobs: str, *command: str) -> Any:
        snapshot, _ = node(T0, "hhh", jobs)
        change = AlertChange(
            "fired", T0, made(run=["program", *command], per="job"), "x", (0, 2), ("GPU-0", "GPU-2"), T0
        )
        return firing_of(change, Monitor().feed(snapshot))

    firing = fired("1-1", "{job_id}", "{gpus}", "{host}")
    assert firing.argv()[1:] == ["8821", "0,2", "node-17"]
    data = json.loads(firing.json())
    assert [gpu["uuid"] for gpu in data["gpus"]] == ["GPU-0", "GPU-2"] and data["gpu"] == 0
    assert (data["per"], data["job_id"]) == ("job", "8821")
    with pytest.raises(NotHanded, match="2 batch jobs are on GPUs 0, 2"):
        fired("1-2", "{job_id}").argv()
    with pytest.raises(NotHanded, match="no batch jobs"):
        fired("---", "{job_id}").argv()


def test_the_silence_of_a_job_survives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: T0)
    place = ("a", f"job {JOB}")
    lock = FiringLock(str(tmp_path))
    assert lock.take()
    lock.note(place, T0 - 60)
    lock.close()
    after = FiringLock(str(tmp_path))
    assert after.take()
    judge = Judge([made(**REQUEUE)], after.fired())
    changes = [judge.take(*node(T0 + second, "cc", "11", "ii")) for second in range(9)]
    after.close()
    assert changes == [()] * 9
    assert judge.silent_until(judge.alerts[0]) == T0 - 60 + 3600


def test_the_memory_of_jobs_that_come_and_go_is_bounded() -> None:
    judge = Judge([made(run=["true"], per="job")])
    for number in range(700):
        job = ProcessSample(5, gpu=0, static=ProcessStatic("ml", None, "python", slurm(number)))
        snapshot, diagnoses = node(T0 + number, "h", "-")
        changes = judge.take(Snapshot(snapshot.t, snapshot.machine, snapshot.gpus, (job,)), diagnoses)
        assert [change.kind for change in changes] == ["fired"] + ["resolved"] * (number > 0)
    assert len(judge.fired) <= 257
