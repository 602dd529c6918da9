"""Prometheus and VictoriaMetrics on free loopback ports, started for a test and stopped after it."""

from __future__ import annotations

import json
import os
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines import missing, prometheus, victoria


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
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}/api/v1/query", body, timeout=120
            ) as answer:
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


@contextmanager
def engines(folder: Path, scrapes: str, rules: Mapping[str, str]) -> Iterator[Mapping[str, Engine]]:
    """Both engines, each scraping what ``scrapes`` says (the YAML of scrape_configs), Prometheus with these rules."""
    for reason in filter(None, map(missing, ("prometheus", "victoria-metrics"))):
        pytest.fail(reason) if os.environ.get("GPUTOP_TEST_EVERYTHING") else pytest.skip(reason)
    for name, text in rules.items():
        (folder / f"rules-{name}.yml").write_text(text)
    head = "scrape_interval: 1s, scrape_timeout: 1s"
    tail = f"scrape_configs:\n{scrapes}"
    config = (
        f"global: {{{head}, evaluation_interval: 5s}}\nrule_files: [{folder}/rules-*.yml]\n{tail}"
    )
    with (
        prometheus(folder / "prometheus", config=config) as first,
        victoria(folder / "victoria", scrapes=f"global: {{{head}}}\n{tail}") as second,
    ):
        urls = {"prometheus": first, "victoria-metrics": second}
        yield {name: Engine(name, int(url.rpartition(":")[2])) for name, url in urls.items()}
