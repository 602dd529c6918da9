"""What `gputop fleet deploy` writes, run by the real programs: from an exporter's page by Prometheus' rules through
Alertmanager to whoever is called."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.cli import main
from gputop.features.export.metrics_page import PageChoice
from gputop.features.export.pod_resources import PodContainer, pod_family
from gputop.model.snapshot import ProcessSample, ProcessStatic
from gputop.sources.simulation.life import slurm
from tests.support.engines import ALERTMANAGER, alertmanager, missing, prometheus
from tests.support.exported import feed, gpu_of, snapshot_of
from tests.support.prom_servers import Engine

_ABSENT = [reason for name in ("prometheus", ALERTMANAGER) if (reason := missing(name))]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(_ABSENT), reason=" and ".join(_ABSENT) or "they are here"),
]
OWN_LABELS = {
    "namespace": "gputop",
    "pod": "gputop-export-x7x",
    "container": "gputop",
    "endpoint": "metrics",
}
"""What Prometheus' operator adds to everything that it scrapes: the exporter's own pod."""


class Nodes:
    """Two exporters' pages, of a Slurm node and of one of Kubernetes, and a receiver of alerts."""

    def __init__(self) -> None:
        self.errors = 0
        self.told: list[dict[str, Any]] = []
        self.lock = threading.Lock()
        pods = {"GPU-n2": [PodContainer("team-a", "train-0", "main")]}
        self._feeds = {
            "/n1": feed(),
            "/n2": feed(PageChoice(False, (partial(pod_family, lambda: pods),))),
        }

    def page(self, path: str) -> str:
        with self.lock:
            static = ProcessStatic("ada", None, "python3", slurm(77)) if path == "/n1" else None
            processes = (ProcessSample(9, gpu=0, static=static),) if static is not None else ()
            gpu = gpu_of(util_pct=97.0, sm_active_pct=80.0, ecc_uncorrected_volatile=self.errors)
            # A UUID of its own: one GPU at two addresses is told once.
            own = replace(gpu, static=replace(gpu.static, uuid=f"GPU{path.replace('/', '-')}"))
            given = self._feeds[path]
            given.take(snapshot_of(time.time(), own, processes=processes))
            return given.page()

    def until(
        self, is_there: Callable[[dict[str, Any]], bool], within_s: float = 120.0
    ) -> dict[str, Any]:
        """The first notification of that kind."""
        deadline = time.monotonic() + within_s
        while True:
            with self.lock:
                found = next((one for one in self.told if is_there(one)), None)
            if found is not None:
                return found
            assert time.monotonic() < deadline, self.told
            time.sleep(0.2)


@contextlib.contextmanager
def _served(nodes: Nodes) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(nodes.page(self.path).encode())

        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with nodes.lock:
                nodes.told.append(told)
            self._answer(b"")

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _operator_job(monitor: str, port: int) -> dict[str, Any]:
    """The scrape job that the operator makes of the deployed ServiceMonitor, for one pod on node n2."""
    yaml = pytest.importorskip("yaml")
    endpoint = yaml.safe_load(monitor)["spec"]["endpoints"][0]
    names = {
        "sourceLabels": "source_labels",
        "targetLabel": "target_label",
        "replacement": "replacement",
    }
    relabel = [{"target_label": name, "replacement": value} for name, value in OWN_LABELS.items()]
    relabel += [
        {names[key]: value for key, value in row.items()} for row in endpoint["relabelings"]
    ]
    target = {"targets": [f"127.0.0.1:{port}"], "labels": {"__meta_kubernetes_pod_node_name": "n2"}}
    return {
        "job_name": "serviceMonitor/gputop/gputop-export/0", "honor_labels": endpoint.get("honorLabels", False),
        "metrics_path": "/n2", "static_configs": [target], "relabel_configs": relabel,
    }  # fmt: skip


def _quicker(text: str) -> str:
    """The same in seconds in place of minutes; nothing else is changed."""
    changes = {
        "scrape_interval: 5s": "scrape_interval: 1s", "evaluation_interval: 15s": "evaluation_interval: 1s",
        "interval: 1m": "interval: 2s", "group_wait: 30s": "group_wait: 1s", "group_interval: 5m": "group_interval: 2s",
    }  # fmt: skip
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def test_an_error_on_a_node_reaches_whoever_is_called_with_host_job_user_and_pod(
    tmp_path: Path,
) -> None:
    yaml = pytest.importorskip("yaml")
    made = tmp_path / "made"
    assert main(["fleet", "deploy", str(made)]) == 0
    nodes = Nodes()
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(_served(nodes))
        routes = yaml.safe_load(_quicker((made / "alertmanager/alertmanager.yml").read_text()))
        for receiver in routes["receivers"]:
            receiver["webhook_configs"] = [{"url": f"http://127.0.0.1:{port}/hook"}]
        alerts = stack.enter_context(alertmanager(tmp_path / "am", yaml.safe_dump(routes)))
        config = yaml.safe_load(_quicker((made / "prometheus/prometheus.yml").read_text()))
        config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [
            f"127.0.0.1:{alerts}"
        ]
        own = config["scrape_configs"][0]
        own["metrics_path"] = "/n1"
        own["static_configs"] = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"instance": "n1:9401"}}
        ]
        config["scrape_configs"].append(
            _operator_job((made / "kubernetes/servicemonitor.yaml").read_text(), port)
        )
        engine = tmp_path / "prometheus"
        engine.mkdir()
        (engine / "gputop.rules.yml").write_text(
            _quicker((made / "prometheus/gputop.rules.yml").read_text())
        )
        url = stack.enter_context(prometheus(engine, config=yaml.safe_dump(config)))
        asked = Engine("prometheus", int(url.rpartition(":")[2]))
        asked.until("count(gputop:gpu:owner) >= 2")
        asked.until('count by (instance) (gputop_gpu_ecc_errors_total{counter="volatile"}) >= 1')
        time.sleep(3.0)
        nodes.errors = 2

        def about(host: str) -> Callable[[dict[str, Any]], bool]:
            wanted = {"alertname": "GpuUncorrectedEcc", "hostname": host}
            return lambda told: wanted.items() <= told["groupLabels"].items()

        told = [nodes.until(about(host)) for host in ("n1", "n2")]
        assert {one["receiver"] for one in told} == {"on-call"}
        (first,), (second,) = (one["alerts"] for one in told)
        slurm = {
            "hostname": "n1",
            "gpu": "0",
            "job_id": "77",
            "user": "ada",
            "severity": "critical",
        }
        pod = {"hostname": "n2", "gpu": "0", "k8s_namespace": "team-a", "k8s_pod": "train-0"}
        assert first["labels"].items() >= slurm.items() and second["labels"].items() >= pod.items()
        assert "n1 GPU 0" in first["annotations"]["summary"] and first["annotations"]["action"]
        # Nothing of ours collides with what the operator adds, and the exporter's own pod is no job.
        assert not [name for name in _labels(url) if name.startswith("exported_")]
        assert not {"pod", "namespace", "container"} & set(second["labels"])

        # A host that is down says nothing of its GPUs.
        _down(alerts, "n1")
        deadline = time.monotonic() + 60.0
        while not _inhibited(alerts, "n1"):
            assert time.monotonic() < deadline
            time.sleep(0.3)
        assert not _inhibited(alerts, "n2")


def _labels(url: str) -> list[str]:
    with urllib.request.urlopen(f"{url}/api/v1/labels", timeout=30) as answer:
        return list(json.load(answer)["data"])


def _down(port: int, host: str) -> None:
    alert = [{"labels": {"alertname": "GpuExporterDown", "hostname": host, "severity": "critical"}}]
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v2/alerts",
        json.dumps(alert).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30):
        pass


def _inhibited(port: int, host: str) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/alerts", timeout=30) as answer:
        found = [
            one for one in json.load(answer)
            if one["labels"].get("hostname") == host and one["labels"]["alertname"] == "GpuUncorrectedEcc"
        ]  # fmt: skip
    return bool(found) and all(one["status"]["inhibitedBy"] for one in found)
