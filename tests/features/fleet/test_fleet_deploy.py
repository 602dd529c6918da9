"""What gputop fleet deploy writes: complete, by each tool's own check, and never over what is there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gputop.cli import main
from gputop.features.fleet.deploy.deploy_command import files
from gputop.features.fleet.deploy.questions import QUESTIONS
from gputop.features.fleet.promql import ALL_NAMES, Names
from gputop.model.prometheus_names import gpu_series

WANTED = {
    "prometheus/gputop.rules.yml", "prometheus/scrape.yml",
    "grafana/gputop-fleet.json", "grafana/gputop-job.json", "alertmanager/alertmanager.yml",
    "kubernetes/daemonset.yaml", "kubernetes/servicemonitor.yaml", "kubernetes/Dockerfile",
    "systemd/gputop-export.service",
    "slurm/prolog.sh", "slurm/epilog.sh", "compose.yaml",
}  # fmt: skip


RULES, BOARD = "prometheus/gputop.rules.yml", "grafana/gputop-fleet.json"


def _asked(board: Any) -> dict[str, str]:
    """The dashboard's queries with their kinds of panel."""
    return {
        panel["targets"][0]["expr"]: panel["type"]
        for panel in board["panels"]
        if panel.get("targets")
    }


def _done(*command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def _needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


@pytest.mark.parametrize("names", ALL_NAMES)
def test_every_file_is_there_says_how_to_use_it_and_holds_no_placeholder(names: Names) -> None:
    made = files(names)
    assert set(made) >= WANTED
    for path, text in made.items():
        if not path.endswith(".json"):
            words = [
                line
                for line in text.splitlines()[:4]
                if line.startswith("#") and not line.startswith("#!")
            ]
            assert len(words) >= 2, path
            continue
        board = json.loads(text)
        asked, taken = _asked(board), set()
        assert board["description"] and len(asked) > (8 if "job.json" in path else 20)
        assert not [expr for expr in asked if "@" in expr] and ("DCGM_" in " ".join(asked)) == (
            names != "gputop"
        )
        assert {variable["name"] for variable in board["templating"]["list"]} >= {
            "cluster",
            "host",
            "gpu",
            "job",
        }
        assert re.search(r"/d/gputop-(fleet|job)", board["links"][0]["url"])
        for place in (panel["gridPos"] for panel in board["panels"]):
            cells = {
                (place["x"] + dx, place["y"] + dy)
                for dx in range(place["w"])
                for dy in range(place["h"])
            }
            assert not cells & taken and max(x for x, _ in cells) < 24, (
                "panels lie in lines and on no other"
            )
            taken |= cells


def test_what_is_there_is_left_alone_unless_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "new" / "folder"
    assert main(["fleet", "deploy", str(target)]) == 0
    assert {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()} == set(
        files("gputop")
    )
    assert main(["fleet", "deploy", str(target)]) == 2 and "--force" in capsys.readouterr().err
    (target / "compose.yaml").write_text("mine")
    assert main(["fleet", "deploy", str(target), "--names", "legacy", "--force"]) == 0
    assert (target / "compose.yaml").read_text() != "mine"
    assert main(["fleet", "deploy", str(target / "compose.yaml")]) == 2


def test_nothing_is_written_through_a_link_out_of_the_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    outside.mkdir()
    for name in ("soft", "hard"):
        (outside / name).write_text("mine")
    (target / "prometheus").mkdir(parents=True)
    (target / "compose.yaml").symlink_to(outside / "soft")
    (target / "prometheus" / "scrape.yml").hardlink_to(outside / "hard")
    assert main(["fleet", "deploy", str(target), "--force"]) == 0
    assert [(outside / name).read_text() for name in ("soft", "hard")] == ["mine", "mine"]
    assert (
        not (target / "compose.yaml").is_symlink()
        and (target / "compose.yaml").read_text() != "mine"
    )

    shutil.rmtree(target / "slurm")
    (target / "slurm").symlink_to(outside)
    (target / "compose.yaml").write_text("kept: nothing is written where one part is refused")
    capsys.readouterr()
    assert main(["fleet", "deploy", str(target), "--force"]) == 2
    assert f"{target / 'slurm'} is a link" in capsys.readouterr().err
    assert sorted(path.name for path in outside.iterdir()) == ["hard", "soft"]
    assert (target / "compose.yaml").read_text().startswith("kept")


@pytest.mark.slow
def test_the_dashboards_are_those_that_the_builder_makes_today() -> None:
    pytest.importorskip("grafana_foundation_sdk")
    from tests.tools.dashboards import FOLDER, built

    old = [
        name
        for name, text in built().items()
        if (FOLDER / name).read_text(encoding="utf-8") != text
    ]
    assert not old, "run `python -m tests.tools.dashboards`"


def _manifests(text: str) -> tuple[list[Any], Any]:
    """The documents of a file, each as Kubernetes defines it, and the pod of the DaemonSet among them."""
    validate, yaml = pytest.importorskip("kubernetes_validate"), pytest.importorskip("yaml")
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        validate.validate(document, "1.30", strict=True)
    daemons = [document for document in documents if document["kind"] == "DaemonSet"]
    return documents, daemons[0]["spec"]["template"]["spec"] if daemons else None


@pytest.mark.slow
def test_the_manifests_are_valid_kubernetes_and_ask_for_no_privilege() -> None:
    yaml, made = pytest.importorskip("yaml"), files("gputop")
    documents, pod = _manifests(made["kubernetes/daemonset.yaml"])
    _manifests(made["kubernetes/networkpolicy.yaml"])
    for resource in yaml.safe_load(made["kubernetes/kustomization.yaml"])["resources"]:
        assert f"kubernetes/{resource}" in made
    container = pod["containers"][0]["securityContext"]
    assert (
        pod["hostPID"] and not pod["automountServiceAccountToken"] and "privileged" not in container
    )
    assert container["readOnlyRootFilesystem"] and container["capabilities"] == {"drop": ["ALL"]}
    monitor = yaml.safe_load(made["kubernetes/servicemonitor.yaml"])
    service = next(document for document in documents if document["kind"] == "Service")
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    for path in (path for path in made if path.endswith((".yml", ".yaml"))):
        assert list(yaml.safe_load_all(made[path])), path
    compose = yaml.safe_load(made["compose.yaml"])
    for service in compose["services"].values():
        assert {"image", "build"} & set(service) and all(
            port.startswith("127.0.0.1:") for port in service["ports"]
        )
        assert set(service.get("depends_on", ())) <= set(compose["services"])


@pytest.mark.slow
def test_the_commented_parts_of_the_manifest_are_valid_as_well() -> None:
    text = files("gputop", image="r.example/gputop:1")["kubernetes/daemonset.yaml"]
    args, named, _ = re.findall(r"^ +(?:# )?args: .*\n", text, re.MULTILINE)
    with_pods = text.replace(args, "").replace(named, named.replace("# ", ""))
    with_pods = re.sub(r"# (- \{name: pods.*)", r"\1", with_pods).replace(
        "runAsNonRoot: true", "runAsNonRoot: false"
    )
    _, pod = _manifests(with_pods.replace("runAsUser: 65534", "runAsUser: 0"))
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert pod["containers"][0]["args"][-1] == f"{mounts['pods']}/kubelet.sock"
    assert {volume["name"] for volume in pod["volumes"]} == set(mounts)
    begin, end = text.index("      # initContainers:"), text.index("      containers:\n")
    _, pod = _manifests(text[:begin] + text[begin:end].replace("      # ", "      ") + text[end:])
    (steps,), container = pod["initContainers"], pod["containers"][0]
    assert steps["image"] == container["image"] == "r.example/gputop:1"
    assert steps["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert steps["volumeMounts"] == container["volumeMounts"][:1]
    assert str(container["securityContext"]["runAsUser"]) in steps["command"][-1]


@pytest.mark.slow
def test_the_service_monitor_is_what_the_operator_defines() -> None:
    models = pytest.importorskip("cloudcoil.models.prometheus_operator.v1")
    yaml = pytest.importorskip("yaml")
    text = files("gputop")["kubernetes/servicemonitor.yaml"]

    def is_defined(changed: str) -> bool:
        """Whether every field is known to the definition: what it does not know is dropped on the way through."""
        given = yaml.safe_load(changed)
        model = models.ServiceMonitor.model_validate(given)
        return bool(model.model_dump(mode="json", by_alias=True, exclude_unset=True) == given)

    assert is_defined(text)
    assert not is_defined(text.replace("interval:", "intervall:"))
    assert not is_defined(text.replace("targetLabel: job", "targetLable: job"))
    with pytest.raises(ValueError, match="interval"):
        is_defined(text.replace("15s", "15 s"))


@pytest.mark.slow
def test_the_compose_file_is_what_the_specification_allows() -> None:
    compose_spec = pytest.importorskip("compose_spec")
    text = files("gputop")["compose.yaml"]
    assert compose_spec.PyCompose.from_yaml(text).service_names() == [
        "gputop",
        "prometheus",
        "alertmanager",
        "grafana",
    ]
    for wrong in (text.replace("read_only:", "readonly:"), text.replace("[ALL]", "ALL")):
        with pytest.raises(ValueError, match=r"services\.gputop"):
            compose_spec.PyCompose.from_yaml(wrong)


@pytest.mark.slow
@_needs("systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "gputop-export.service"
    unit.write_text(
        files("gputop")[f"systemd/{unit.name}"].replace("/usr/local/bin/gputop", "/bin/true")
    )
    done = _done("systemd-analyze", "verify", str(unit))
    assert done.returncode == 0 and "gputop" not in done.stderr, done.stderr


def test_the_families_that_the_example_leaves_out_are_asked_by_no_rule() -> None:
    made = files("gputop")
    pattern = re.search(r'# +regex: "(.+)"$', made["prometheus/scrape.yml"], re.MULTILINE)
    assert pattern is not None
    assert any(re.fullmatch(pattern[1], series.name) for series in gpu_series())
    asked = set(re.findall(r"gputop_[a-z0-9_]+", made["prometheus/gputop.rules.yml"]))
    assert asked and not any(re.fullmatch(pattern[1], name) for name in asked)


@pytest.mark.slow
@_needs("promtool")
@pytest.mark.parametrize("names", ALL_NAMES)
def test_prometheus_vmalert_and_alertmanager_take_their_files(names: Names, tmp_path: Path) -> None:
    for path, text in files(names, 2.5).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    checks = (
        "promtool check config prometheus/prometheus.yml", "promtool check config prometheus/scrape.yml",
        f"promtool check rules --lint=all {RULES}", f"vmalert -rule={RULES} -dryRun",
        "amtool check-config alertmanager/alertmanager.yml",
    )  # fmt: skip
    # promtool comes with Prometheus, and vmalert with VictoriaMetrics; amtool may be missing.
    for words in (words.split() for words in checks if shutil.which(words.split()[0]) is not None):
        done = _done(*words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stdout, done.stderr)


@pytest.mark.slow
@_needs("amtool")
def test_the_commented_route_to_owners_is_valid_and_takes_idle_gpus_of_known_users_alone(
    tmp_path: Path,
) -> None:
    text = files("gputop")["alertmanager/alertmanager.yml"]
    text = re.sub(r"^( +)# (- (?:matchers|name)|  [ a-z-])", r"\1\2", text, flags=re.MULTILINE)
    config = tmp_path / "alertmanager.yml"
    config.write_text(
        "global: {smtp_smarthost: 'mail.example.org:25', smtp_from: gpu@example.org}\n" + text
    )
    check = _done("amtool", "check-config", str(config))
    assert check.returncode == 0 and "3 receivers" in check.stdout, check.stderr
    for labels, wanted in (
        ("alertname=GpuIdleWithMemory user=ada severity=info", "owner"),
        ("alertname=GpuIdleWithMemory severity=info", "team"),
        ("alertname=GpuStarved user=ada severity=info", "team"),
        ("alertname=GpuLost user=ada severity=critical", "on-call"),
    ):
        done = _done(
            "amtool", "config", "routes", "test", f"--config.file={config}", *labels.split()
        )
        assert done.stdout.strip() == wanted, (labels, done.stdout, done.stderr)


@pytest.mark.parametrize("wrong", [
    "", "gputop", "team/gputop", "team/GPUTOP:1", "a b:1", "x:1 \nimage: evil", "-x:1", "gputop:1@sha256:12",
    "x:" + "1" * 600,
])  # fmt: skip
def test_an_image_that_is_no_reference_or_has_no_version_is_one_line(
    tmp_path: Path, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fleet", "deploy", str(tmp_path / "x"), f"--image={wrong}"]) == 2
    err = capsys.readouterr().err
    assert "--image" in err and err.count("\n") == 1 and not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "image",
    [
        "registry.example:5000/team/gputop:0.2.0",
        "gputop:1",
        f"r.io/gputop@sha256:{'a' * 64}",
        "localhost/x__y:v1",
    ],
)
def test_the_image_stands_in_the_manifest_and_every_file_can_be_read_whatever_the_umask(
    tmp_path: Path, image: str
) -> None:
    before = os.umask(0o077)
    try:
        assert main(["fleet", "deploy", str(tmp_path / "x"), "--image", image]) == 0
    finally:
        os.umask(before)
    assert f"image: {image}\n" in (tmp_path / "x" / "kubernetes" / "daemonset.yaml").read_text()
    for path in (tmp_path / "x").rglob("*"):
        assert path.stat().st_mode & 0o044 == 0o044, path


@pytest.mark.slow
def test_the_shell_scripts_hold_no_job_up(tmp_path: Path) -> None:
    for name in ("slurm/prolog.sh", "slurm/epilog.sh"):
        script = tmp_path / Path(name).name
        script.write_text(files("gputop")[name])
        assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0
        done = subprocess.run(
            ["sh", str(script)], env={"PATH": "/bin"}, capture_output=True, timeout=60, check=False
        )
        assert (done.returncode, done.stdout) == (0, b"")


@pytest.mark.parametrize("names", ALL_NAMES)
def test_the_fleet_s_dashboard_reads_what_the_rules_record_and_draws_few_lines(
    names: Names,
) -> None:
    made = files(names, 2.5)
    recorded = set(re.findall(r"record: (gputop:fleet:(?:hours|waste)_\S+)", made[RULES]))
    assert len(recorded) >= 8
    asked = _asked(json.loads(made[BOARD]))
    assert {
        series for expr in asked for series in recorded if expr.startswith(f"{series}{{")
    } == recorded
    assert not any("[1h]" in expr for expr in asked if "state_seconds" in expr), (
        "an hour of every GPU, at each refresh"
    )
    assert all(expr.startswith("topk(") for expr, kind in asked.items() if kind == "timeseries")
    left_out = {
        query.id
        for query in QUESTIONS.values()
        if json.dumps(query.title)[1:-1] not in files("gputop")[BOARD]
    }
    assert left_out == {query.id for query in QUESTIONS.values() if query.needs_price}, (
        "every other one has a panel"
    )


@pytest.mark.parametrize("names", ALL_NAMES)
def test_money_is_shown_at_the_given_price_alone_and_the_price_stands_beside_it(
    names: Names,
) -> None:
    without, priced = files(names), files(names, 2.5)
    wanted = {query.title: query.id for query in QUESTIONS.values() if query.needs_price}
    assert (
        "cost" not in without[RULES]
        and "price" not in without[BOARD]
        and "Cost" not in without[BOARD]
    )
    assert {f"gputop:fleet:{id}" for id in wanted.values()} <= set(
        re.findall(r"record: (\S+)", priced[RULES])
    )
    assert "2.5 a GPU-hour" in priced[RULES] and "* 2.5" in priced[RULES]
    board = json.loads(priced[BOARD])
    (variable,) = [row for row in board["templating"]["list"] if row["name"] == "price"]
    assert (variable["query"], variable["current"]["value"], variable["label"]) == (
        "2.5",
        "2.5",
        "Price of a GPU-hour",
    )
    costs = {
        panel["title"]: panel["targets"][0]["expr"]
        for panel in board["panels"]
        if panel["title"] in wanted
    }
    assert costs.keys() == wanted.keys() and all("$price" in expr for expr in costs.values())
