"""``python -m tests.bench.fleet_cost``: what a large fleet costs its screen, its engine and its rules.

A fleet of ``--hosts`` is written into one engine, Prometheus or VictoriaMetrics: every GPU's series as the exporters of
a simulated fleet name them, and with ``--summed`` what the rules record of each host. Then a process of its own asks as
the screen does. Wall time includes whatever else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

from gputop.features.fleet.address import address_of
from gputop.features.fleet.client import Answer, Client, PromQuery, QueryError
from gputop.features.fleet.fleet_frame import fleet_frame
from gputop.features.fleet.fleet_screen import fleet_screen
from gputop.features.fleet.fleet_view import FleetView, drawn_hosts
from gputop.features.fleet.judge import judged, lost_hours
from gputop.features.fleet.prometheus import MOST_GPUS, PrometheusFleet
from gputop.features.fleet.promql import ALL_NAMES
from gputop.features.fleet.rules import rules_yaml
from gputop.features.fleet.simulated_fleet import STARTED, SimulatedFleet
from gputop.features.fleet.state_rules import (
    CODES,
    HOST_ADDRESS,
    HOST_LOST,
    HOST_POWER,
    HOST_SM,
    HOST_STATES,
    HOST_UTIL,
)
from tests.support.engines import backfill, imported, prometheus, victoria
from tests.support.fleet_pages import host_lines

PAST_S, AHEAD_S = 420.0, 900.0
RULES_S, RULES_EVERY_S = 270.0, 20.0
"""For how long the rules are watched, and how often their times are looked at."""
"""How long every GPU's series reach back, and on: the measurement takes place in between."""
REFRESHES, ROWS = 5, 24
"""Refreshes after the first screen, and rows of hosts on it."""


class Timed(Client):
    """Adds up the time in which answers were waited for."""

    waited_s = 0.0

    def ask(self, queries: Sequence[PromQuery]) -> list[Answer | QueryError]:
        begun = time.perf_counter()
        try:
            return super().ask(queries)
        finally:
            self.waited_s += time.perf_counter() - begun


def raw(fleet: SimulatedFleet, now: float, step_s: float) -> Iterator[str]:
    """Every GPU's series around now, each with the value that it has in the simulation's first moment."""
    times = [f"{now - PAST_S + i * step_s:.0f}" for i in range(int((PAST_S + AHEAD_S) / step_s) + 1)]
    for host in range(fleet.hosts):
        found = [] if fleet.is_down(host) else host_lines(fleet, host, STARTED, STARTED)
        up = f'up{{instance="{fleet.host_name(host)}:9400",job="gpu"}}'
        for name, value in (*found, (up, float(not fleet.is_down(host)))):
            yield "".join(f"{name} {value:.6g} {t}\n" for t in times)


def summed(fleet: SimulatedFleet, now: float) -> Iterator[str]:
    """What the rules record of each host, an hour and more of it."""
    times = [f"{now + 60.0 * minute:.0f}" for minute in range(-65, int(AHEAD_S / 60.0) + 1)]
    for host in range(fleet.hosts):
        if not fleet.is_down(host) and host != fleet.late:
            for name, value in _recorded(fleet, host):
                yield "".join(f"{name} {value:.6g} {t}\n" for t in times)


def _recorded(fleet: SimulatedFleet, host: int) -> Iterator[tuple[str, float]]:
    reads = [fleet.gpu(host, number, STARTED) for number in range(fleet.gpus)]
    reads = [read for read in reads if not read.is_lost]
    name, names, job = fleet.host_name(host), fleet.names_of(host), reads[0].job
    label = {"gputop": "instance", "4.9": "hostname", "legacy": "Hostname"}[names]
    place = f'{label}="{name}{":9400" if names == "gputop" else ""}",names="{names}"'
    scheduler, _, number = job.partition(" ")
    namespace, _, pod = number.partition("/")
    owner = f'k8s_namespace="{namespace}",k8s_pod="{pod}"' if scheduler == "pod" else f'job_id="{number}"'
    user = f',user="{reads[0].user}",scheduler="slurm"' if names == "gputop" and scheduler == "slurm" else ""
    whose = f"{place},{owner}{user}" if job else place
    states = [judged(read)[0] for read in reads]
    for state in dict.fromkeys(states):
        yield f'{HOST_STATES}{{{whose},code="{CODES[state]}"}}', states.count(state)
        lost = sum(
            lost_hours(state, read.util_pct, 1.0) for read, its in zip(reads, states, strict=True) if its == state
        )
        if lost:
            yield f'{HOST_LOST}{{{whose},state="{state}"}}', lost
    utils = [read.util_pct or 0.0 for read in reads]
    sms = [read.sm_active_pct for read in reads if read.sm_active_pct is not None]
    yield f"{HOST_UTIL}{{{whose}}}", sum(utils) / len(utils) / 100.0
    if sms:
        yield f"{HOST_SM}{{{whose}}}", sum(sms) / len(sms) / 100.0
    yield f"{HOST_POWER}{{{whose}}}", sum(read.power_w or 0.0 for read in reads)
    address = place if names == "gputop" else f'{place},instance="{name}:9400"'
    yield f"{HOST_ADDRESS}{{{address}}}", len(reads)


@contextlib.contextmanager
def engine(name: str, folder: Path, lines: Iterator[str], *, with_rules: bool = False) -> Iterator[str]:
    """The engine with these lines in it; gives its URL."""
    if name == "prometheus":
        backfill(folder, lines)
        config = "global: {evaluation_interval: 1m}\n"
        if with_rules:
            for names in ALL_NAMES:
                (folder / f"{names}.yml").write_text(rules_yaml(names))
            config += "rule_files: [" + ", ".join(f"{folder / names}.yml" for names in ALL_NAMES) + "]\n"
        with prometheus(folder, config=config) as url:
            yield url
        return
    with victoria(folder) as url:
        batch: list[str] = []
        for chunk in lines:
            batch += chunk.splitlines(keepends=True)
            if len(batch) > 200_000:
                imported(url, batch)
                batch = []
        imported(url, batch)
        yield url


def ask(url: str) -> dict[str, Any]:
    """What the screen asks, in this process: a first screen, then refreshes."""
    client = Timed(address_of(url, {}))
    fleet = PrometheusFleet(client, url, "", time.time, most_gpus=MOST_GPUS)
    view, walls, waits, cpus = FleetView(), [], [], []
    looks: list[float] = []
    gpus = hosts = 0
    problems: tuple[str, ...] = ()
    for _ in range(1 + REFRESHES):
        begun, used, client.waited_s = time.perf_counter(), time.process_time(), 0.0
        frame = fleet_frame(fleet.ask())
        fleet_screen(frame, view, 160, 48)
        walls.append(time.perf_counter() - begun)
        gpus_in_sight = fleet.look(drawn_hosts(frame, view, ROWS), None)
        if gpus_in_sight is not None:
            fleet_screen(fleet_frame(replace(frame.read, gpus=gpus_in_sight)), view, 160, 48)
        looks.append(time.perf_counter() - begun)
        cpus.append(time.process_time() - used)
        waits.append(client.waited_s)
        gpus, hosts, problems = frame.total, len(frame.hosts), frame.problems
    begun = time.perf_counter()
    fleet.hour(frame.t)
    hour_s = time.perf_counter() - begun
    fleet.close()
    return {
        "last_hour_s": hour_s, "first_with_cells_s": looks[0], "refresh_with_cells_s": median(looks[1:]),
        "hosts": hosts, "gpus": gpus, "problems": problems,
        "first_s": walls[0], "first_engine_s": waits[0], "first_cpu_s": cpus[0],
        "refresh_s": median(walls[1:]), "refresh_most_s": max(walls[1:]), "refresh_engine_s": median(waits[1:]),
        "refresh_cpu_s": median(cpus[1:]), "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0,
    }  # fmt: skip


def rule_groups(url: str) -> dict[str, float]:
    """Seconds that each group of rules took when the engine last evaluated it, after each was evaluated some times."""
    found: dict[str, list[float]] = {}
    begun = time.monotonic()
    while time.monotonic() < begun + RULES_S:
        time.sleep(RULES_EVERY_S)
        with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=60) as answer:
            groups = json.load(answer)["data"]["groups"]
        for group in groups:
            if group["evaluationTime"]:
                found.setdefault(f"{Path(group['file']).stem} {group['name']}", []).append(group["evaluationTime"])
    return {name: median(seconds[1:] or seconds) for name, seconds in found.items()}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet_cost", description=__doc__)
    add = parser.add_argument
    add("--hosts", type=int, default=1000, help="hosts of 8 GPUs (default 1000)")
    add("--engine", choices=("prometheus", "victoria-metrics"), default="prometheus")
    add("--step", type=float, default=15.0, metavar="S", help="seconds between two samples (default 15)")
    add("--summed", action="store_true", help="with what the rules record of each host")
    add("--rules", action="store_true", help="also how long Prometheus takes for the rules each minute")
    add("--ask", metavar="URL", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.ask:
        print(json.dumps(ask(options.ask)))
        return
    fleet = SimulatedFleet(options.hosts)
    with tempfile.TemporaryDirectory(prefix="gputop-fleet-") as name:
        folder, now = Path(name), time.time()
        lines = raw(fleet, now, options.step)
        lines = chain(lines, summed(fleet, now)) if options.summed else lines
        with engine(options.engine, folder, lines, with_rules=options.rules) as url:
            print(f"loaded in {time.time() - now:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
            command = [sys.executable, "-m", "tests.bench.fleet_cost", "--ask", url]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            for key, value in json.loads(done.stdout).items():
                print(f"{key:>20} {value:.3f}" if isinstance(value, float) else f"{key:>20} {value}")
            if options.rules:
                took = rule_groups(url)
                for group, seconds in sorted(took.items(), key=lambda pair: -pair[1]):
                    print(f"{seconds:9.3f} s  {group}")
                print(f"{sum(took.values()):9.3f} s  all rules, each minute")


if __name__ == "__main__":
    main()
