"""Real engines for tests: Prometheus and VictoriaMetrics of the distribution, on free ports, with data of our own.

An hour of a fleet is written as OpenMetrics text and turned into blocks, or imported; nothing waits for scrapes.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import urlencode

from tests.support.started import started

START_S, VISIBLE_S = 60.0, 120.0
MOST_LINES = 200_000
"""Of one import."""
_NOT_A_CONFIG = "global: {scrape_interval: 15s}\nscrape_configs: []\n"


ALERTMANAGER = "prometheus-alertmanager"
"""As the distribution calls them."""
ALERTMANAGER_TEMPLATES = Path("/usr/share/prometheus/alertmanager")
"""Without them the distribution's Alertmanager does not start; their place is compiled in."""


def missing(program: str) -> str:
    """Why a test with this engine is skipped, or nothing."""
    if program == ALERTMANAGER and shutil.which(program) and not ALERTMANAGER_TEMPLATES.exists():
        return f"{program} without {ALERTMANAGER_TEMPLATES} on this machine"
    return "" if shutil.which(program) else f"no {program} on this machine"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _running(arguments: list[str], ready: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out, started(arguments, out) as process:
        deadline = time.monotonic() + START_S
        while True:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text(
                errors="replace"
            )[-2000:]
            with contextlib.suppress(OSError), urllib.request.urlopen(ready, timeout=2):
                break
            time.sleep(0.05)
        yield process


@contextlib.contextmanager
def prometheus(
    folder: Path, *, config: str = _NOT_A_CONFIG, port: int | None = None
) -> Iterator[str]:
    """A Prometheus on the data below ``folder``; gives its URL."""
    port = port or free_port()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(config)
    url = f"http://127.0.0.1:{port}"
    arguments = [
        "prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=50y", "--log.level=warn",
    ]  # fmt: skip
    with _running(arguments, f"{url}/-/ready", folder / "log"):
        yield url


def backfill(folder: Path, lines: Iterable[str]) -> None:
    """Turn OpenMetrics lines into blocks of a Prometheus that is not running."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "backfill.om"
    with page.open("w") as file:
        file.writelines(lines)
        file.write("# EOF\n")
    command = [
        "promtool",
        "tsdb",
        "create-blocks-from",
        "openmetrics",
        "--quiet",
        str(page),
        str(folder / "data"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    page.unlink()


@contextlib.contextmanager
def victoria(folder: Path, *, scrapes: str = "") -> Iterator[str]:
    """A VictoriaMetrics on the data below ``folder``, with a configuration of what it scrapes; gives its URL."""
    port = free_port()
    folder.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{port}"
    arguments = [
        "victoria-metrics", f"-storageDataPath={folder / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=50y", "-loggerLevel=ERROR", "-search.latencyOffset=0s",
    ]  # fmt: skip
    if scrapes:
        (folder / "victoria.yml").write_text(scrapes)
        arguments.append(f"-promscrape.config={folder / 'victoria.yml'}")
    with _running(arguments, f"{url}/health", folder / "log"):
        yield url


def imported(url: str, lines: Iterable[str]) -> None:
    """Give lines with times in seconds to a VictoriaMetrics, and wait until every sample of them can be asked for."""
    every = iter(lines)
    while batch := list(islice(every, MOST_LINES)):
        parts = [(line.rpartition(" ")[0], float(line.rpartition(" ")[2])) for line in batch]
        times = [at for _, at in parts]
        samples = Counter(line[: line.index("{")] for line in batch)
        before = {name: _samples(url, name, min(times), max(times)) for name in samples}
        body = "".join(f"{name_and_value} {at * 1000:.0f}\n" for name_and_value, at in parts)
        _fetched(f"{url}/api/v1/import/prometheus", body.encode())
        # Rows that the engine is just making a part of are passed over by this, and seen by no query until it has.
        _fetched(f"{url}/internal/force_flush")
        deadline = time.monotonic() + VISIBLE_S
        for name, more in samples.items():
            while (found := _samples(url, name, min(times), max(times))) < before[name] + more:
                assert time.monotonic() < deadline, (
                    f"{found} of {before[name]} and {more} samples of {name}"
                )
                time.sleep(0.05)


def _samples(url: str, name: str, begin: float, end: float) -> int:
    """How many samples of a name can be asked for in that time."""
    # The series that a selector found are its answer for ten seconds: each time it is another one.
    promql = (
        f'sum(count_over_time({name}{{asked!="{time.monotonic_ns()}"}}[{end - begin + 1.0:.0f}s]))'
    )
    answer = json.loads(_fetched(f"{url}/api/v1/query?{urlencode({'query': promql, 'time': end})}"))
    return sum(int(row["value"][1]) for row in answer["data"]["result"])


def _fetched(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, body, timeout=VISIBLE_S) as answer:
        return bytes(answer.read())


@contextlib.contextmanager
def alertmanager(folder: Path, config: str) -> Iterator[int]:
    """An Alertmanager with this configuration; gives its port."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(config)
    port = free_port()
    arguments = [
        ALERTMANAGER, f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=", "--log.level=warn",
    ]  # fmt: skip
    with _running(arguments, f"http://127.0.0.1:{port}/-/ready", folder / "log"):
        yield port
