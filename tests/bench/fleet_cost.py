"""``python -m tests.bench.fleet_cost``: what a large fleet costs its screen and its engine.

A fleet of ``--hosts`` is written into one engine, Prometheus or VictoriaMetrics, line by line and by nothing of
gputop's: every GPU under the names of dcgm-exporter's default file, and with ``--summed`` what the rules record of
each host. Then a process of its own asks as the screen does, with ``--summed`` another one for every GPU, and another
gives ``--json``. ``--hosts 10000 --summed --full 32`` is a large fleet without the hour that its GPUs take to be
written. Wall time includes whatever else the machine does.
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
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

from msgspec.structs import replace

from gputop.features.fleet.fleet_reading import FleetSource
from gputop.features.fleet.fleet_run import MOST_GPUS
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.judge.state_rules import (
    HOST_ADDRESS,
    HOST_LOST,
    HOST_POWER,
    HOST_SM,
    HOST_STATES,
    HOST_UTIL,
)
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.engine import Answer, Client, PromQuery, QueryError
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.sized_fleet import SizedFleet
from gputop.features.fleet.show.fleet_screen import fleet_screen
from gputop.features.fleet.show.fleet_view import FleetView, drawn_hosts
from tests.support.engines import backfill, imported, prometheus, victoria

PAST_S, AHEAD_S = 4560.0, 900.0
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


KINDS = (
    (98.0, 0.91, 60_000),
    (97.0, 0.09, 24_000),
    (38.0, 0.32, 38_000),
    (0.0, 0.0, 76_000),
    (0.0, 0.0, 400),
)
"""What the GPUs of a host do: utilisation in percent, SM activity, MiB held; a host in turn, the first half of them
twice."""
CODE_AND_LOST = (
    (1, ""),
    (2, "busy_not_working"),
    (3, "starved"),
    (4, "idle_allocated"),
    (5, "idle"),
)
"""What the rules would record of them: the state's number, and under which state time is lost."""


def _kind(host: int) -> int:
    return 0 if host % 2 else host // 2 % len(KINDS)


def raw(hosts: int, now: float, step_s: float) -> Iterator[str]:
    """Every GPU's series around now; each 97th host is down, and GPU 7 of host 5 is gone for half of an hour."""
    times = [now - PAST_S + i * step_s for i in range(int((PAST_S + AHEAD_S) / step_s) + 1)]
    for host in range(hosts):
        name, is_down = f"r{host // 40}-n{host % 40:02d}", host % 97 == 96
        target = f'instance="{name}:9400",job="dcgm-exporter"'
        yield "".join(f"up{{{target}}} {int(not is_down)} {t:.0f}\n" for t in times)
        util, sm, used = KINDS[_kind(host)]
        job = f',hpc_job="{9000 + host // 8}"' if _kind(host) < 4 else ""
        for gpu in range(8):
            ends = (
                now - 1800.0
                if (host, gpu) == (5, 7)
                else now - PAST_S
                if is_down
                else now + AHEAD_S
            )
            labels = (f'gpu="{gpu}",UUID="GPU-{host:08x}-{gpu:04x}",device="nvidia{gpu}",'
                      f'modelName="NVIDIA H100 80GB HBM3",Hostname="{name}"{job},{target}')  # fmt: skip
            for metric, value in (
                ("DCGM_FI_DEV_GPU_UTIL", util), ("DCGM_FI_PROF_SM_ACTIVE", sm), ("DCGM_FI_DEV_FB_USED", used),
                ("DCGM_FI_DEV_POWER_USAGE", 90.0 + 6.0 * util), ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", util / 100.0),
            ):  # fmt: skip
                yield "".join(
                    f"{metric}{{{labels}}} {value:.6g} {t:.0f}\n" for t in times if t <= ends
                )


def summed(hosts: int, now: float) -> Iterator[str]:
    """What the rules record of each host, an hour and more of it."""
    times = [f"{now + 60.0 * minute:.0f}" for minute in range(-65, int(AHEAD_S / 60.0) + 1)]
    for host in (host for host in range(hosts) if host % 97 != 96):
        name, (util, sm, _), (code, lost) = (
            f"r{host // 40}-n{host % 40:02d}",
            KINDS[_kind(host)],
            CODE_AND_LOST[_kind(host)],
        )
        place = f'Hostname="{name}",names="legacy"'
        whose = f'{place},job_id="{9000 + host // 8}"' if _kind(host) < 4 else place
        rows = [(f'{HOST_STATES}{{{whose},code="{code}"}}', 8.0), (f"{HOST_UTIL}{{{whose}}}", util / 100.0),
                (f"{HOST_SM}{{{whose}}}", sm), (f"{HOST_POWER}{{{whose}}}", 8.0 * (90.0 + 6.0 * util)),
                (f'{HOST_ADDRESS}{{{place},instance="{name}:9400"}}', 8.0)]  # fmt: skip
        if lost:
            rows.append(
                (
                    f'{HOST_LOST}{{{whose},state="{lost}"}}',
                    8.0 if code == 2 else 8.0 * (1.0 - util / 100.0),
                )
            )
        for series, value in rows:
            yield "".join(f"{series} {value:.6g} {t}\n" for t in times)


@contextlib.contextmanager
def engine(name: str, folder: Path, lines: Iterator[str]) -> Iterator[str]:
    """The engine with these lines in it; gives its URL."""
    if name == "prometheus":
        backfill(folder, lines)
    with (prometheus if name == "prometheus" else victoria)(folder) as url:
        if name != "prometheus":
            imported(url, (line for chunk in lines for line in chunk.splitlines(keepends=True)))
        yield url


def ask(url: str, most_gpus: int | None) -> dict[str, Any]:
    """What the screen asks, in this process: a first screen, then refreshes."""
    client = Timed(address_of(url, {}))
    fleet: FleetSource = (
        PrometheusFleet(client, url, "", time.time)
        if most_gpus is None
        else SizedFleet(client, url, "", time.time, most_gpus=most_gpus)
    )
    view, walls, waits, cpus, looks = FleetView(), [], [], [], []
    frame: FleetFrame | None = None
    for _ in range(1 + REFRESHES):
        begun, used, client.waited_s = time.perf_counter(), time.process_time(), 0.0
        frame = fleet_frame(fleet.ask(), frame)
        fleet_screen(frame, view, 160, 48)
        walls.append(time.perf_counter() - begun)
        gpus_in_sight = fleet.look(drawn_hosts(frame, view, ROWS), None)
        if gpus_in_sight is not None:
            frame = fleet_frame(replace(frame.read, gpus=gpus_in_sight), frame)
            fleet_screen(frame, view, 160, 48)
        looks.append(time.perf_counter() - begun)
        cpus.append(time.process_time() - used)
        waits.append(client.waited_s)
    begun, used, client.waited_s = time.perf_counter(), time.process_time(), 0.0
    assert frame is not None
    hour = fleet.hour(frame.t)
    hour_s, hour_cpu_s = time.perf_counter() - begun, time.process_time() - used
    fleet.close()
    return {
        "last_hour_s": hour_s, "last_hour_cpu_s": hour_cpu_s, "last_hour_engine_s": client.waited_s,
        "last_hour_by": None if hour is None else hour.note or hour.source,
        "no_work_gpu_h": sum(lost.gpu_h for lost in (hour and hour.lost) or ()),
        "first_with_cells_s": looks[0], "refresh_with_cells_s": median(looks[1:]),
        "hosts": len(frame.hosts), "gpus": frame.total, "problems": frame.problems,
        "first_s": walls[0], "first_engine_s": waits[0], "first_cpu_s": cpus[0],
        "refresh_s": median(walls[1:]), "refresh_most_s": max(walls[1:]), "refresh_engine_s": median(waits[1:]),
        "refresh_cpu_s": median(cpus[1:]), "rss_mb": peak_mb(),
    }  # fmt: skip


def peak_mb() -> float:
    """The most memory that this program had. The kernel's other figure begins with what its parent had."""
    status = Path("/proc/self/status").read_text()
    return next(
        int(line.split()[1]) / 1024.0 for line in status.splitlines() if line.startswith("VmHWM")
    )


def as_json(url: str) -> dict[str, Any]:
    """What one ``gputop fleet --json`` takes."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "gputop", "fleet", "--prom", url, "--json"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"json_s": time.perf_counter() - begun, "json_cpu_s": cpu_s}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet_cost", description=__doc__)
    add = parser.add_argument
    add("--hosts", type=int, default=1000, help="hosts of 8 GPUs (default 1000)")
    add(
        "--full",
        type=int,
        metavar="N",
        help="with --summed only so many hosts have GPUs of their own (default all)",
    )
    add("--engine", choices=("prometheus", "victoria-metrics"), default="prometheus")
    add(
        "--step",
        type=float,
        default=60.0,
        metavar="S",
        help="seconds between two samples (default 60)",
    )
    add("--summed", action="store_true", help="with what the rules record of each host")
    add("--ask", nargs=2, metavar="URL", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.ask:
        url, most_gpus = options.ask
        print(json.dumps(ask(url, int(most_gpus) or None)))
        return
    with tempfile.TemporaryDirectory(prefix="gputop-fleet-") as name:
        folder, now = Path(name), time.time()
        lines = raw(options.full or options.hosts, now, options.step)
        lines = chain(lines, summed(options.hosts, now)) if options.summed else lines
        with engine(options.engine, folder, lines) as url:
            print(f"loaded in {time.time() - now:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
            for most_gpus in (MOST_GPUS, 0)[: 1 + options.summed]:
                command = [
                    sys.executable,
                    "-m",
                    "tests.bench.fleet_cost",
                    "--ask",
                    url,
                    str(most_gpus),
                ]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                print("every GPU" if most_gpus == 0 else "as the screen asks")
                shown(json.loads(done.stdout))
            shown(as_json(url))


def shown(figures: dict[str, Any]) -> None:
    """Print one figure a line."""
    for key, value in figures.items():
        print(
            f"{key:>20} {value:.3f}" if isinstance(value, float) else f"{key:>20} {value}",
            flush=True,
        )


if __name__ == "__main__":
    main()
