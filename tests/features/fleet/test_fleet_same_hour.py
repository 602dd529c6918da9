"""One fleet by pages, by Prometheus without rules and with rules: the same hours, charts and states."""

from __future__ import annotations

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp

import pytest

from gputop.features.fleet.deploy.rules_file import recorded
from gputop.features.fleet.fleet_reading import Lost
from gputop.features.fleet.judge.fleet_frame import FleetFrame, fleet_frame
from gputop.features.fleet.promql import NAMES_LABEL
from gputop.features.fleet.read.address import address_of
from gputop.features.fleet.read.engine import Client
from gputop.features.fleet.read.prometheus_fleet import PrometheusFleet
from gputop.features.fleet.read.scraped_host import ScrapedHost
from tests.features.fleet.test_fleet_histories import END, Series, dcgm, gpu_of, lines, merged, up
from tests.support.engines import backfill, missing, prometheus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing("prometheus")), reason="no prometheus"),
]
HOUR_S, WARM_S, STEP_S = 3600.0, 900.0, 15.0
WITHIN = 0.007
LEVELS_OF_RULES = 6
"""Rules that read what other rules record are evaluated after these."""


def _after(back_s: float, before: float, then: float) -> Callable[[float], float | None]:
    return lambda back: before if back > back_s else then


def _changing(labels: str, back_s: float) -> Series:
    """A GPU that did not work until so long ago, and works since."""
    series = dcgm(labels, 98.0, 9.0)
    series[f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}}"] = _after(back_s, 0.09, 0.9)
    return series


HOSTS: Mapping[str, Series] = {
    "a": merged(*(dcgm(gpu_of("a", gpu, ',hpc_job="1"'), 98.0, 9.0) for gpu in range(6)),
                *(_changing(gpu_of("a", gpu, ',hpc_job="1"'), 1200.0) for gpu in (6, 7))),
    "b": merged(*(dcgm(gpu_of("b", gpu, ',hpc_job="2"'), 60.0, 50.0) for gpu in range(4)),
                *(dcgm(gpu_of("b", gpu, ',hpc_job="2"'), 98.0, 90.0) for gpu in range(4, 8))),
    "c": merged(*(dcgm(gpu_of("c", gpu), 0.0, 0.0, 60.0) for gpu in range(4)),
                *(dcgm(gpu_of("c", gpu), 0.0, 0.0, 0.4) for gpu in range(4, 8))),
}  # fmt: skip


def _pages(series: Series) -> Iterator[tuple[str, float]]:
    """The pages of a host, as its exporter would give them every 15 s."""
    for step in range(int((HOUR_S + WARM_S) / STEP_S), -1, -1):
        back = step * STEP_S
        values = {name: value(back) for name, value in series.items()}
        told = [f"{name} {value:.9g}" for name, value in values.items() if value is not None]
        yield "\n".join((*told, "")), END - back


def by_state(lost: Iterable[Lost]) -> dict[str, float]:
    hours: dict[str, float] = defaultdict(float)
    for row in lost:
        hours[row.state] += row.gpu_h
    return {state: gpu_h for state, gpu_h in hours.items() if gpu_h > 0.05}


def states(frame: FleetFrame) -> dict[str, int]:
    return {state: n for state, n in frame.counts.items() if n}


@pytest.fixture(scope="module")
def scraped() -> dict[str, ScrapedHost]:
    hosts = {name: ScrapedHost(name) for name in HOSTS}
    for name, host in hosts.items():
        for page, t in _pages(HOSTS[name]):
            assert host.take(page, t) is None
    return hosts


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    backfill(folder, lines(merged(*HOSTS.values(), up(*HOSTS)), HOUR_S + WARM_S))
    return folder


def _asked(folder: Path) -> tuple[PrometheusFleet, FleetFrame]:
    with prometheus(folder) as url:
        fleet = PrometheusFleet(Client(address_of(url, {}), 60.0), url, "", lambda: END)
        fleet.ask(END)
        assert fleet.hour(END) is not None
        frame = fleet_frame(fleet.ask(END))
        charts = {host: fleet.history(host, END) for host in HOSTS}
        fleet.close()
    fleet.charts = charts  # type: ignore[attr-defined]
    return fleet, frame


def _evaluated(folder: Path) -> Path:
    """The same data with what the rules would have recorded in that hour."""
    ruled = Path(mkdtemp(prefix="ruled-", dir=folder.parent))
    shutil.copytree(folder, ruled, dirs_exist_ok=True)
    text = ["groups:"]
    for group, rows in recorded("legacy"):
        if group == "gputop_fleet":
            # Nothing reads these but people.
            continue
        text += [f"- name: {group}", "  interval: 1m", "  rules:"]
        for name, expr in rows:
            quoted = expr.replace("'", "''")
            text += [
                f"  - record: {name}",
                f"    expr: '{quoted}'",
                f"    labels: {{{NAMES_LABEL}: legacy}}",
            ]
    rules = ruled / "rules.yml"
    rules.write_text("\n".join(text) + "\n")
    for _ in range(LEVELS_OF_RULES):
        with prometheus(ruled) as url:
            command = [
                "promtool", "tsdb", "create-blocks-from", "rules", f"--url={url}", "--eval-interval=60s",
                f"--start={END - HOUR_S - 300:.0f}", f"--end={END:.0f}",
                f"--output-dir={ruled / 'made'}", str(rules),
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-2000:]
        for block in (ruled / "made").iterdir():
            shutil.move(block, ruled / "data" / block.name)
    return ruled


def test_hours_states_and_charts_are_the_same_by_pages_and_with_and_without_rules(
    scraped: Mapping[str, ScrapedHost], data: Path
) -> None:
    wanted = {"busy_not_working": 6.0 + 2.0 * (2400.0 + 150.0) / 3600.0, "starved": 4 * 0.4,
              "idle_allocated": 4.0, "idle": 4.0}  # fmt: skip
    pages = by_state(row for host in scraped.values() for row in host.lost(END))
    without, frame = _asked(data)
    assert frame.read.hour.source == "samples"
    samples = by_state(frame.read.hour.lost or ())
    _, ruled_frame = _asked(_evaluated(data))
    assert ruled_frame.read.hour.source == "rules"
    rules = by_state(ruled_frame.read.hour.lost or ())
    for told in (pages, samples, rules):
        assert told.keys() == wanted.keys()
    for state in wanted:
        for one, other in ((pages, samples), (pages, rules), (samples, rules)):
            assert one[state] == pytest.approx(other[state], rel=WITHIN), state
    assert states(frame) == states(ruled_frame)
    counted: dict[str, int] = defaultdict(int)
    for host in scraped.values():
        for gpu in fleet_frame_of(host).gpus:
            counted[gpu.state] += 1
    assert counted == states(frame)
    for name, host in scraped.items():
        for gpu, (util, sm) in host.history(END).items():
            other_util, other_sm = without.charts[name][gpu]  # type: ignore[attr-defined]
            assert util == pytest.approx(other_util, abs=0.5), (name, gpu)
            changes = [
                at
                for at, (one, other) in enumerate(zip(sm, other_sm, strict=True))
                if abs((one or 0.0) - (other or 0.0)) > 0.5
            ]
            assert len(changes) <= 1, (name, gpu, "but for the minute in which it changed")


def fleet_frame_of(host: ScrapedHost) -> FleetFrame:
    from gputop.features.fleet.fleet_reading import FleetReading

    return fleet_frame(FleetReading(END, "pages", host.gpus))
