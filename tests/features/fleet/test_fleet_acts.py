"""Remedies on real schedulers: a Slurm of one node, and kubectl before a stand-in of Kubernetes' API."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.features.fleet.address import address_of
from gputop.features.fleet.client import Client
from gputop.features.fleet.deploy import files
from gputop.features.fleet.prometheus import PrometheusFleet
from gputop.features.fleet.remedies import Remedy, remedies
from gputop.features.fleet.remedy_grounds import Grounds, IdleGpu, JobOwner, SilentJob
from gputop.features.fleet.schedulers import apply
from gputop.model.source import UsageError
from tests.features.fleet.test_fleet_histories import Series, dcgm, gpu_of, host, lines, merged, own
from tests.features.fleet.test_fleet_remedies import _frame, _lost
from tests.support.engines import backfill, imported, missing, prometheus, victoria
from tests.support.kube_api import KubeApi, kube_api
from tests.support.slurm import Slurm, no_slurm, slurm

pytestmark = pytest.mark.slow
with_slurm = pytest.mark.skipif(bool(no_slurm()), reason=no_slurm() or "Slurm is here")
with_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on this machine")
JOB = "#!/bin/sh\nexec sleep 600\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.fixture
def commands(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster.environment[name])
    return cluster


def _job(cluster: Slurm, folder: Path) -> str:
    script = folder / "job.sh"
    script.write_text(JOB)
    job = cluster.run("sbatch", "--parsable", "--requeue", f"--output={folder}/out.txt", str(script))
    cluster.until("RUNNING", "squeue", "--noheader", "--format=%T", f"--jobs={job}")
    return job


def _node(cluster: Slurm) -> str:
    return cluster.run("scontrol", "--oneliner", "show", "node", cluster.node)


def _set_aside(cluster: Slurm, uuid: str = "GPU-7") -> Remedy:
    (one,), _ = remedies(_frame(_lost(cluster.node, "7", uuid)), Grounds(), "slurm")
    return one


@with_slurm
def test_a_slurm_node_is_drained_and_what_a_person_wrote_there_stays(commands: Slurm) -> None:
    one = _set_aside(commands)
    assert apply(one, time.time()).kind == "done"
    assert "DRAIN" in _node(commands) and "Reason=gputop: GPU 7 lost" in _node(commands)
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=RESUME")
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=DRAIN", "Reason=new fans, ask Ada")
    left = apply(one, time.time())
    assert left.kind == "settled" and "new fans, ask Ada" in left.why
    assert "Reason=new fans, ask Ada" in _node(commands)
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=RESUME")
    commands.until("idle", "sinfo", "--noheader", "--format=%T")
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=DOWN", "Reason=its switch")
    assert apply(one, time.time()).kind == "left" and "Reason=its switch" in _node(commands)
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=RESUME")
    commands.until("idle", "sinfo", "--noheader", "--format=%T")
    nobody = _set_aside(Slurm("nosuchnode", {}))
    assert apply(nobody, time.time()).kind == "failed"


@with_slurm
def test_a_job_that_stands_is_requeued_and_one_that_has_ended_or_began_anew_is_not(
    commands: Slurm, tmp_path: Path
) -> None:
    number = _job(commands, tmp_path)

    def requeue(job_id: str, *hosts: str, last_t: float) -> Remedy:
        (one,), _ = remedies(_frame(), Grounds(silent=[SilentJob(job_id, hosts, 1, last_t, 1900.0)]), "slurm")
        return one

    now = time.time()
    assert "began anew" in apply(requeue(number, commands.node, last_t=now - 3600.0), now).why
    assert (
        "1 node, and steps are known of 2" in apply(requeue(number, commands.node, "other", last_t=now + 60.0), now).why
    )
    assert commands.run("squeue", "--noheader", "--format=%T", f"--jobs={number}") == "RUNNING"
    assert apply(requeue(number, commands.node, last_t=now + 60.0), now).kind == "done"
    commands.until("Restarts=1", "scontrol", "show", "job", number)
    assert apply(requeue(number, commands.node, last_t=now + 60.0), now).why in (
        f"job {number} is PENDING", f"job {number} is COMPLETING",
    )  # fmt: skip
    commands.run("scancel", number)
    commands.until("JobState=CANCELLED", "scontrol", "show", "job", number)
    ended = apply(requeue(number, commands.node, last_t=now + 60.0), now)
    assert ended.kind in ("left", "failed"), "a job that was cancelled does not begin again"
    commands.run("scontrol", "requeue", "incomplete", number)
    assert "JobState=CANCELLED" in commands.run("scontrol", "show", "job", number)


@with_slurm
def test_the_owner_of_an_idle_gpu_reads_it_in_the_output_of_the_job(commands: Slurm, tmp_path: Path) -> None:
    number = _job(commands, tmp_path)
    commands.until("yes", "sh", "-c", f"[ -e {tmp_path}/out.txt ] && echo yes || true")
    (one,), _ = remedies(_frame(), Grounds(idle=[IdleGpu(JobOwner(job_id=number), commands.node, "3")]), "slurm")
    assert apply(one, time.time()).kind == "done"
    output = tmp_path / "out.txt"
    deadline = time.monotonic() + 30.0
    while not output.exists() or "did nothing" not in output.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert f"1 GPU of this job did nothing for 30 minutes: {commands.node} GPU 3" in output.read_text()
    commands.run("scancel", number)


@with_slurm
@pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus on this machine")
def test_a_job_without_a_step_for_half_an_hour_is_requeued_from_what_prometheus_holds(
    commands: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number, now, node = _job(commands, tmp_path), time.time(), commands.node
    ended = 1860.0

    def stepping(name: str, job: str, silent_s: float) -> Series:
        """Two GPUs of a job that stepped until so many seconds ago."""
        found: Series = {}
        for gpu in range(2):
            at = f'instance="{name}:9401",job="gputop",gpu="{gpu}"'
            info = f'gputop_job_info{{{at},uuid="GPU-{name}-{gpu}",scheduler="slurm",job_id="{job}",user="ada"}}'
            found[info] = lambda back: 1.0
            step = f'gputop_step_last_timestamp_seconds{{{at},rank="{gpu}",job_id="{job}"}}'
            found[step] = lambda back: now - max(back, silent_s)
        return merged(own(name, 0), own(name, 1), host(name), found)

    series = merged(stepping(node, number, ended), stepping("n2", "99", 1200.0), stepping("n3", "98", 30.0))
    series[f'gputop_last_sample_timestamp_seconds{{instance="{node}:9401",job="gputop"}}'] = lambda back: now - back
    for name in ("n2", "n3"):
        series[f'gputop_last_sample_timestamp_seconds{{instance="{name}:9401",job="gputop"}}'] = lambda back: now - back
    monkeypatch.setattr("tests.features.fleet.test_fleet_histories.END", now)
    backfill(tmp_path / "engine", lines(series, 3600.0))
    state = tmp_path / "acts.json"
    with prometheus(tmp_path / "engine") as url:
        asked = ["fleet", "remedy", "--prom", url, "--by", "slurm"]
        assert main(asked) == 0 and "nothing to do" in capsys.readouterr().out, "nothing but what is asked for"
        asked += ["--what", "requeue,tell"]
        assert main(asked) == 1
        out = capsys.readouterr().out
        assert f"would run: scontrol requeue incomplete {number} (no step on 2 GPUs for 31 min" in out
        assert "99" not in out and "98" not in out and "nothing was done" in out
        assert commands.run("squeue", "--noheader", "--format=%T", f"--jobs={number}") == "RUNNING"
        # The job began a moment ago, long after these steps: they are those of an earlier run.
        assert main([*asked, "--act", str(state)]) == 1
        assert "began anew after the last of these steps" in capsys.readouterr().out
        monkeypatch.setattr("gputop.features.fleet.schedulers._job", lambda job_id: ("RUNNING", 1, now - 7200.0))
        assert main([*asked, "--act", str(state)]) == 1
        assert "done: scontrol requeue" in capsys.readouterr().out
        commands.until("Restarts=1", "scontrol", "show", "job", number)
        assert main([*asked, "--act", str(state)]) == 0, "a job is requeued once"
        assert f"requeue {number}" in json.loads(state.read_text())
    commands.run("scancel", number)


ENGINES = [
    pytest.param(name, marks=pytest.mark.skipif(bool(missing(name)), reason=missing(name) or "it is here"))
    for name in ("prometheus", "victoria-metrics")
]


@contextlib.contextmanager
def _engine(name: str, folder: Path, series: Series) -> Iterator[str]:
    """An engine with this history; gives its URL."""
    if name == "prometheus":
        backfill(folder, lines(series, 4500.0))
        with prometheus(folder) as url:
            yield url
    else:
        with victoria(folder) as url:
            imported(url, lines(series, 4500.0))
            yield url


def _grounds(engine: str, folder: Path, series: Series, monkeypatch: pytest.MonkeyPatch) -> Grounds:
    """What a remedy may stand on at the end of this hour."""
    now = time.time()
    monkeypatch.setattr("tests.features.fleet.test_fleet_histories.END", now)
    with _engine(engine, folder / "engine", series) as url:
        fleet = PrometheusFleet(Client(address_of(url, {})), url, "", lambda: now)
        try:
            fleet.ask()
            return fleet.grounds(silent=True, idle=True)
        finally:
            fleet.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_only_a_real_rise_of_a_count_is_one(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blank = 9223372036854775794.0
    counts: dict[str, Callable[[float], float | None]] = {
        "constant": lambda back: 3.0,
        "rose": lambda back: 5.0 if back < 600.0 else 3.0,
        "earlier": lambda back: 5.0 if back < 4200.0 else 3.0,
        "driver-loaded-anew": lambda back: 0.0 if back < 600.0 else 5.0,
        "anew-and-rose": lambda back: 2.0 if back < 600.0 else 0.0 if back < 900.0 else 5.0,
        "blank-meanwhile": lambda back: blank if 600.0 < back < 900.0 else 3.0,
        "blank-now": lambda back: blank if back < 60.0 else 3.0,
        "exporter-restarted": lambda back: None if 600.0 < back < 1200.0 else 3.0,
        "new": lambda back: 3.0 if back < 600.0 else None,
    }
    series = merged(*(dcgm(gpu_of(name, 0), 98.0, 90.0) for name in counts))
    for name, value in counts.items():
        series[f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{gpu_of(name, 0)}}}"] = value
    on = _grounds(engine, tmp_path, series, monkeypatch)
    assert {host for host, _ in on.risen} == {"rose", "anew-and-rose"}
    assert on.risen["anew-and-rose", "0"] == ("GPU-anew-and-rose-0", 2)
    assert on.counts["GPU-driver-loaded-anew-0"] == 0 and "GPU-blank-now-0" not in on.counts


@pytest.mark.parametrize("engine", ENGINES)
def test_an_owner_is_told_only_where_the_same_job_held_the_gpu_idle_for_the_whole_time(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle: dict[str, float] = {"gputop_gpu_utilization_ratio": 0.0, "gputop_gpu_sm_active_ratio": 0.0}

    def job(name: str, number: int, since: float = 9e9, until: float = 0.0) -> Series:
        at = f'instance="{name}:9401",job="gputop",gpu="0",uuid="GPU-{name}-0"'
        info = f'gputop_job_info{{{at},scheduler="slurm",job_id="{number}",user="ada"}}'
        return {info: lambda back: 1.0 if until <= back <= since else None}

    spike, gap = own("spike", 0, **idle), own("gap", 0, **idle)
    for name in list(spike):
        if "utilization" in name:
            spike[name] = lambda back: 0.5 if 1190.0 < back < 1220.0 else 0.0
    for name in list(gap):
        if "utilization" in name:
            gap[name] = lambda back: None if 300.0 < back < 1200.0 else 0.0
    series = merged(
        own("held", 0, **idle), job("held", 1), own("new", 0, **idle), job("new", 2, until=600.0), job("new", 3, 600.0),
        own("nobody", 0, **idle), spike, job("spike", 4), gap, job("gap", 5), own("works", 0), job("works", 6),
        *(host(name) for name in ("held", "new", "nobody", "spike", "gap", "works")),
        dcgm(gpu_of("d1", 0, ',hpc_job="7"'), 0.0, 0.0), dcgm(gpu_of("d2", 0, ',hpc_job="8"'), 40.0, 0.0),
        dcgm(gpu_of("d3", 0, ',exported_pod="train-0",exported_namespace="team-a",pod="dcgm-x"'), 0.0, 0.0),
        dcgm(gpu_of("d4", 0, ',pod="dcgm-x",namespace="gpu-operator",container="exporter"'), 0.0, 0.0),
    )  # fmt: skip
    told = {(str(one.owner), one.host) for one in _grounds(engine, tmp_path, series, monkeypatch).idle}
    assert told == {("job 1", "held"), ("job 7", "d1"), ("pod team-a/train-0", "d3")}


@pytest.mark.parametrize("engine", ENGINES[:1])
def test_nothing_is_done_in_two_clusters_at_once_and_in_the_chosen_one_it_is(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    monkeypatch.setattr("tests.features.fleet.test_fleet_histories.END", now)
    series: Series = {}
    for cluster in ("a", "b"):
        for gpu in range(2):
            labels = gpu_of("n1", gpu).replace("GPU-", f"GPU-{cluster}-") + f',cluster="{cluster}"'
            is_lost = cluster == "b" and gpu == 1
            series.update(dcgm(labels, lambda back, lost=is_lost: None if lost and back < 1500.0 else 98.0, 90.0))  # type: ignore[misc]
        series[f'up{{instance="n1:9400",job="dcgm",cluster="{cluster}"}}'] = lambda back: 1.0
    with _engine(engine, tmp_path / "engine", series) as url:
        asked = ["fleet", "remedy", "--prom", url, "--by", "slurm"]
        assert main([*asked, "--act", str(tmp_path / "acts")]) == 2
        assert "several clusters answer" in capsys.readouterr().err
        assert main([*asked, "--select", 'cluster="a"']) == 0 and "nothing to do" in capsys.readouterr().out
        assert main([*asked, "--select", 'cluster="b"']) == 1
        assert (
            "would run: scontrol update NodeName=n1 State=DRAIN 'Reason=gputop: GPU 1 lost'" in capsys.readouterr().out
        )


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeApi]:
    with kube_api() as api:
        config = tmp_path / "kubeconfig"
        config.write_text(api.config())
        monkeypatch.setenv("KUBECONFIG", str(config))
        monkeypatch.setenv("HOME", str(tmp_path))
        yield api


@with_kubectl
def test_a_kubernetes_node_is_cordoned_and_one_that_is_cordoned_is_left(kubernetes: KubeApi) -> None:
    (one,), _ = remedies(_frame(_lost("n1", "7", "GPU-7")), Grounds(), "kubernetes")
    assert apply(one, 0.0).kind == "done" and kubernetes.nodes["n1"]["spec"]["unschedulable"] is True
    changes = len(kubernetes.changes)
    assert apply(one, 0.0) == ("settled", "n1 is cordoned") and len(kubernetes.changes) == changes
    (other,), _ = remedies(_frame(_lost("n9", "7", "GPU-7")), Grounds(), "kubernetes")
    assert apply(other, 0.0).kind == "failed"


@with_kubectl
def test_an_api_that_fails_half_way_is_told_and_the_node_is_tried_again(kubernetes: KubeApi) -> None:
    (one,), _ = remedies(_frame(_lost("n1", "7", "GPU-7")), Grounds(), "kubernetes")
    kubernetes.refuses_changes = True
    failed = apply(one, 0.0)
    assert failed.kind == "failed" and failed.why
    kubernetes.refuses_changes = False
    assert apply(one, 0.0).kind == "done"


@with_kubectl
def test_the_owner_of_an_idle_gpu_finds_an_event_at_the_pod(kubernetes: KubeApi) -> None:
    idle = [IdleGpu(JobOwner(namespace="team-a", pod="train-0"), "n1", "3")]
    (one,), _ = remedies(_frame(), Grounds(idle=idle), "kubernetes")
    assert apply(one, 1_763_000_000.0).kind == "done"
    (event,) = kubernetes.events
    assert event["involvedObject"] == {
        "apiVersion": "v1", "kind": "Pod", "namespace": "team-a", "name": "train-0", "uid": "uid-of-train-0",
    }  # fmt: skip
    assert (event["reason"], event["firstTimestamp"]) == ("GpuIdle", "2025-11-13T02:13:20Z")
    assert event["message"] == "gputop: 1 GPU of this pod did nothing for 30 minutes: n1 GPU 3"
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(_named(event), "1.30", strict=True)
    gone = [IdleGpu(JobOwner(namespace="team-a", pod="train-9"), "n1", "3")]
    (one,), _ = remedies(_frame(), Grounds(idle=gone), "kubernetes")
    assert apply(one, 0.0).kind == "failed" and len(kubernetes.events) == 1


@with_kubectl
def test_the_deployed_role_allows_what_is_asked_of_the_api_and_nothing_else(kubernetes: KubeApi) -> None:
    validate, yaml = pytest.importorskip("kubernetes_validate"), pytest.importorskip("yaml")
    idle = [IdleGpu(JobOwner(namespace="team-a", pod="train-0"), "n1", "3")]
    found, _ = remedies(_frame(_lost("n1", "7", "GPU-7")), Grounds(idle=idle), "kubernetes")
    assert [apply(one, time.time()).kind for one in found] == ["done", "done"]
    documents = list(yaml.safe_load_all(files("gputop")["kubernetes/remedy-rbac.yaml"]))
    for document in documents:
        validate.validate(document, "1.30", strict=True)
    (role,) = [one for one in documents if one["kind"] == "ClusterRole"]
    allowed = {(verb, kind) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}
    assert kubernetes.asked == allowed


def _named(event: dict[str, Any]) -> dict[str, Any]:
    """As the API keeps it: it makes a name of ``generateName``."""
    return {**event, "metadata": {**event["metadata"], "name": "gputop-1"}}


def test_where_the_schedulers_command_is_not_there_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no scontrol on this machine"):
        apply(_set_aside(Slurm("n1", {})), 0.0)
