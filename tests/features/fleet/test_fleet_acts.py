"""Remedies on real schedulers: a Slurm of one node, and kubectl before a stand-in of Kubernetes' API."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gputop.cli import main
from gputop.features.fleet.address import address_of
from gputop.features.fleet.client import Client
from gputop.features.fleet.deploy_command import files
from gputop.features.fleet.fleet_reading import Grounds
from gputop.features.fleet.prometheus import PrometheusFleet
from gputop.features.fleet.remedy_command import Remedy, apply, remedies
from gputop.model.source import UsageError
from tests.features.fleet.test_fleet_histories import Series, dcgm, gpu_of, lines, merged
from tests.features.fleet.test_fleet_remedies import _frame, _lost
from tests.support.engines import backfill, imported, missing, prometheus, victoria
from tests.support.kube_api import KubeApi, kube_api
from tests.support.slurm import Slurm, no_slurm, slurm

pytestmark = pytest.mark.slow
with_slurm = pytest.mark.skipif(bool(no_slurm()), reason=no_slurm() or "Slurm is here")
with_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on this machine")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.fixture
def commands(cluster: Slurm, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, cluster.environment[name])
    return cluster


def _node(cluster: Slurm) -> str:
    return cluster.run("scontrol", "--oneliner", "show", "node", cluster.node)


def _set_aside(cluster: Slurm, uuid: str = "GPU-7") -> Remedy:
    (one,), _ = remedies(_frame(_lost(cluster.node, "7", uuid)), Grounds(), "slurm")
    return one


@with_slurm
def test_a_slurm_node_is_drained_and_what_a_person_wrote_there_stays(commands: Slurm) -> None:
    one = _set_aside(commands)
    assert apply(one).kind == "done"
    assert "DRAIN" in _node(commands) and "Reason=gputop: GPU 7 lost" in _node(commands)
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=RESUME")
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=DRAIN", "Reason=new fans, ask Ada")
    left = apply(one)
    assert left.kind == "settled" and "new fans, ask Ada" in left.why
    assert "Reason=new fans, ask Ada" in _node(commands)
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=RESUME")
    commands.until("idle", "sinfo", "--noheader", "--format=%T")
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=DOWN", "Reason=its switch")
    assert apply(one).kind == "left" and "Reason=its switch" in _node(commands)
    commands.run("scontrol", "update", f"NodeName={commands.node}", "State=RESUME")
    commands.until("idle", "sinfo", "--noheader", "--format=%T")
    nobody = _set_aside(Slurm("nosuchnode", {}))
    assert apply(nobody).kind == "failed"


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
            return fleet.grounds()
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
    assert apply(one).kind == "done" and kubernetes.nodes["n1"]["spec"]["unschedulable"] is True
    changes = len(kubernetes.changes)
    assert apply(one) == ("settled", "n1 is cordoned") and len(kubernetes.changes) == changes
    (other,), _ = remedies(_frame(_lost("n9", "7", "GPU-7")), Grounds(), "kubernetes")
    assert apply(other).kind == "failed"


@with_kubectl
def test_an_api_that_fails_half_way_is_told_and_the_node_is_tried_again(kubernetes: KubeApi) -> None:
    (one,), _ = remedies(_frame(_lost("n1", "7", "GPU-7")), Grounds(), "kubernetes")
    kubernetes.refuses_changes = True
    failed = apply(one)
    assert failed.kind == "failed" and failed.why
    kubernetes.refuses_changes = False
    assert apply(one).kind == "done"


@with_kubectl
def test_the_deployed_role_allows_what_is_asked_of_the_api_and_nothing_else(kubernetes: KubeApi) -> None:
    validate, yaml = pytest.importorskip("kubernetes_validate"), pytest.importorskip("yaml")
    found, _ = remedies(_frame(_lost("n1", "7", "GPU-7")), Grounds(), "kubernetes")
    assert [apply(one).kind for one in found] == ["done"]
    documents = list(yaml.safe_load_all(files("gputop")["kubernetes/remedy-rbac.yaml"]))
    for document in documents:
        validate.validate(document, "1.30", strict=True)
    (role,) = [one for one in documents if one["kind"] == "ClusterRole"]
    allowed = {(verb, kind) for rule in role["rules"] for kind in rule["resources"] for verb in rule["verbs"]}
    assert kubernetes.asked == allowed


def test_where_the_schedulers_command_is_not_there_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no scontrol on this machine"):
        apply(_set_aside(Slurm("n1", {})))
