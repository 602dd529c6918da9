"""Prometheus and VictoriaMetrics on free loopback ports, started for a test and stopped after it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines import free_port
from tests.support.started import started


class Engine:
    """A server that answers PromQL."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port

    def ask(self, query: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """The instant vector: labels and values. Fails with the server's words where it refuses the query."""
        fields = {"query": query} if at is None else {"query": query, "time": f"{at:.3f}"}
        body = urllib.parse.urlencode(fields).encode()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query", body, timeout=120) as answer:
                data: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{self.name}: {error.read().decode()[:500]}\n{query}") from error
        result = data["data"]["result"]
        if data["data"]["resultType"] == "scalar":
            return [({}, float(result[1]))]
        return [(row["metric"], float(row["value"][1])) for row in result]

    def until(self, query: str, within_s: float = 120.0) -> list[tuple[dict[str, str], float]]:
        """The first answer that is not empty."""
        deadline = time.monotonic() + within_s
        while True:
            found = self.ask(query)
            if found:
                return found
            assert time.monotonic() < deadline, f"{self.name}: nothing for {query}"
            time.sleep(0.3)


@contextmanager
def nobody_listens() -> Iterator[int]:
    """A port that refuses connections, and that nobody else is given meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def command_of(*names: str) -> str:
    """The first of these programs; without one the test is skipped, or fails where nothing may be."""
    for name in names:
        if (path := shutil.which(name)) is not None:
            return path
    reason = f"needs {names[0]}: apt-get install prometheus victoria-metrics"
    if os.environ.get("GPUTOP_TEST_EVERYTHING"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def engines(folder: Path, scrapes: str, rules: Mapping[str, str]) -> Iterator[Mapping[str, Engine]]:
    """Both engines, each scraping what ``scrapes`` says (the YAML of scrape_configs), Prometheus with these rules."""
    prometheus, victoria = command_of("prometheus"), command_of("victoria-metrics", "victoria-metrics-prod")
    for name, text in rules.items():
        (folder / f"rules-{name}.yml").write_text(text)
    head = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 5s}\n"
    (folder / "prometheus.yml").write_text(f"{head}rule_files: [rules-*.yml]\nscrape_configs:\n{scrapes}")
    (folder / "victoria.yml").write_text(
        f"global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{scrapes}"
    )
    ports = {"prometheus": free_port(), "victoria-metrics": free_port()}
    commands = {
        "prometheus": [
            prometheus, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}", "--log.level=error",
        ],
        "victoria-metrics": [
            victoria, f"-promscrape.config={folder / 'victoria.yml'}", f"-storageDataPath={folder / 'vm'}",
            f"-httpListenAddr=127.0.0.1:{ports['victoria-metrics']}", "-search.latencyOffset=0s", "-loggerLevel=ERROR",
        ],
    }  # fmt: skip
    with ExitStack() as stack:
        for name, command in commands.items():
            log = stack.enter_context(open(folder / f"{name}.log", "w"))
            stack.enter_context(started(command, log))
        yield {name: Engine(name, port) for name, port in ports.items() if _answers(port, folder / f"{name}.log")}


def _answers(port: int, log: Path) -> bool:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query=1", timeout=2):
                return True
        except (OSError, urllib.error.HTTPError):
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
