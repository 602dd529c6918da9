"""A stand-in of Kubernetes' API: nodes, as much of them as kubectl asks for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.answering import Answer, answering

RESOURCES = {
    "kind": "APIResourceList",
    "groupVersion": "v1",
    "resources": [
        {
            "name": "nodes",
            "singularName": "node",
            "namespaced": False,
            "kind": "Node",
            "verbs": ["get", "list", "patch"],
        },
    ],
}


class KubeApi:
    """What it holds. ``changes`` are the paths of requests that change something."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.nodes: dict[str, dict[str, Any]] = {
            name: {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "spec": {}} for name in ("n1", "n2")
        }
        self.changes: list[str] = []
        self.asked: set[tuple[str, str]] = set()
        """Verb and resource of every request, as RBAC calls them."""
        self.refuses_changes = False

    def config(self) -> str:
        """A kubeconfig that leads here."""
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "clusters": [cluster], "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
        })  # fmt: skip

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Status and object."""
        if method != "GET":
            self.changes.append(path)
            if self.refuses_changes:
                return 500, _status(500, "etcd has no leader")
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "v1"] and len(parts) > 2:
            self.asked.add(({"GET": "get", "PATCH": "patch", "POST": "create", "PUT": "update"}[method], parts[2]))
        match parts:
            case ["api"]:
                return 200, {"kind": "APIVersions", "versions": ["v1"]}
            case ["apis"]:
                return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
            case ["api", "v1"]:
                return 200, RESOURCES
            case ["api", "v1", "nodes", name] if name in self.nodes:
                if method == "PATCH":
                    self.nodes[name]["spec"].update(body["spec"])
                return 200, self.nodes[name]
        return 404, _status(404, f"{path} not found")


def _status(code: int, message: str) -> dict[str, Any]:
    reason = "NotFound" if code == 404 else "InternalError"
    return {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code,
    }  # fmt: skip


@contextlib.contextmanager
def kube_api() -> Iterator[KubeApi]:
    """The stand-in, on a free port."""

    def answer(asked: BaseHTTPRequestHandler, body: bytes) -> Answer:
        status, told = api.answer(asked.command, asked.path.partition("?")[0], json.loads(body) if body else None)
        return status, json.dumps(told).encode(), {"Content-Type": "application/json"}

    with answering(answer) as port:
        api = KubeApi(port)
        yield api
