"""The scenarios in which each alert of a fleet must and must not fire, as unit tests for ``promtool test rules``.

Both scenarios of an alert are of the same series: they differ in numbers alone. GPUs are given by what they measure, in
base units, and become series under the names of any exporter.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from gputop.features.fleet.deploy.rules_file import alerts
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.promql import SIGNALS, Names, base_factor, selector

LEAD_MIN = 12
"""Minutes that a unit test runs beyond an alert's ``for``: longer than the ten in which an Xid is new."""


class Rises(Struct, frozen=True):
    """A value that begins at 0 and rises by so much a minute."""

    per_minute: float


class Stops(Struct, frozen=True):
    """A value that is there for so many minutes, and no longer."""

    value: float
    minutes: int


Level = float | Rises | Stops
Either = Level | tuple[Level, Level]
"""One value in both scenarios, or that at which an alert fires and that at which it is silent."""


class Planted(Struct, frozen=True):
    """GPUs, and other series. gputop's exporter names jobs by their processes, and pods that have none apart."""

    gpus: tuple[Mapping[str, Either], ...] = ()
    series: tuple[tuple[str, Either], ...] = ()
    has_job: bool = False
    has_process: bool = True


def _own(series: str, labels: str = "") -> str:
    """A series of gputop's exporter about the GPU of a scenario."""
    return selector(series, 'gpu="0",uuid="GPU-n1-0",instance="n1:9401"', labels)


_WAITING: Mapping[str, Either] = {"util": 0.98, "sm": (0.12, 0.62)}
PLANTED: Mapping[str, Planted] = {
    "GpuBusyNotWorking": Planted(
        ({"util": 0.97, "sm": (0.29, 0.31), "memory": 4e10},),
        ((_own("gputop_gpu_state", 'state="busy_not_working"'), (1.0, 0.0)),),
    ),
    "GpuPcieSaturated": Planted(
        ({"pcie_rx": (50e9, 20e9), "pcie_tx": 1e9, "pcie_gen": 5.0, "pcie_width": 16.0},)
    ),
    "GpuStuck": Planted(series=((_own("gputop_gpu_verdict", 'verdict="hang"'), (1.0, 0.0)),)),
    "GpuStarved": Planted(
        ({"util": (0.79, 0.81), "sm": 0.7, "memory": 4e10},),
        (
            (_own("gputop_gpu_idle_ratio"), (0.21, 0.19)),
            (_own("gputop_gpu_state", 'state="starved"'), 1.0),
        ),
        has_job=True,
    ),
    "GpuStragglerSlow": Planted(
        ({"util": (0.99, 0.98), "sm": (0.9, 0.62)}, *[_WAITING] * 7), has_job=True
    ),
    "GpuStragglerStarved": Planted(
        ({"util": (0.4, 0.98), "sm": (0.35, 0.62)}, *[_WAITING] * 7), has_job=True
    ),
    "GpuExporterDown": Planted(series=(("up{UP}", (0.0, 1.0)),)),
    "GpuExportersAbsent": Planted(series=(("up{UP}", (Stops(1.0, 3), 1.0)),)),
    "GpuExportersFewer": Planted(
        series=(("up{UP}", (1.0, 1.0)), ("up{UP2}", (Stops(1.0, 3), 1.0)))
    ),
    "GpuDriverLate": Planted(series=((_own("gputop_up"), (0.0, 1.0)),)),
    "GpuExporterDead": Planted(
        series=(
            (_own("gputop_last_sample_timestamp_seconds"), (0.0, Rises(60.0))),
            (_own("gputop_up"), 1.0),
        )
    ),
    "GpuVanished": Planted(({"util": 0.9}, {"util": (Stops(0.9, 6), Stops(0.9, 90))})),
    "GpuLost": Planted(series=((_own("gputop_gpu_lost"), (1.0, 0.0)),)),
    "GpuHot": Planted(({"temp": (86.0, 84.0)},)),
    "GpuThrottled": Planted(
        series=(
            (
                _own("gputop_gpu_throttle_seconds_total", 'reason="hardware_thermal"'),
                (Rises(7.0), Rises(5.0)),
            ),
        )
    ),
    "GpuUncorrectedEcc": Planted(({"ecc": (Rises(1.0), 3.0)},)),
    "GpuXid": Planted(
        series=(
            (_own("gputop_gpu_xid_errors_total", 'xid="79"'), (Rises(1.0), 4.0)),
            ('DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-0",HOST="n1"}', (Rises(1.0), 31.0)),
        )
    ),
    "GpuIdleWithMemory": Planted(
        ({"util": 0.0, "memory": (1.1e9, 1e9)},),
        ((_own("gputop_gpu_state", 'state="idle_allocated"'), (1.0, 0.0)),),
    ),
    "GpuAllocatedUnused": Planted(
        ({"util": (0.0, 0.06), "memory": 1e8},),
        ((_own("gputop_gpu_state", 'state="idle"'), (1.0, 0.0)),),
        has_job=True,
        has_process=False,
    ),
}


def unit_tests_yaml(names: Names, rules_file: str) -> str:
    """The unit tests for ``promtool test rules``: each alert in a firing and a silent scenario."""
    lines = ["rule_files:", f"  - {rules_file}", "evaluation_interval: 1m", "tests:"]
    for _, alert in alerts(names):
        minutes = int(alert.lasts[:-1]) * (60 if alert.lasts.endswith("h") else 1) + LEAD_MIN
        world = PLANTED[alert.name]
        for fires in (True, False):
            lines += [
                f"  - name: {alert.name} {'fires' if fires else 'is silent'}",
                "    interval: 30s",
            ]
            lines.append("    input_series:")
            for series, level in sorted(planted_series(world, names, fires=fires).items()):
                lines += [
                    f"      - series: {_quoted(series)}",
                    f"        values: {_values(level, minutes)}",
                ]
            matchers = [f'alertname="{alert.name}"', 'alertstate="firing"']
            if fires and alert.about != "fleet":
                matchers.append('hostname="n1"')
            if fires and alert.about == "gpu" and world.has_job:
                is_pod = names == "gputop" and not world.has_process
                matchers.append('k8s_pod="llm-0"' if is_pod else 'job_id="4711"')
            expr = f"count(ALERTS{{{','.join(matchers)}}})"
            lines += [
                "    promql_expr_test:",
                f"      - expr: {_quoted(expr)}",
                f"        eval_time: {minutes}m",
            ]
            lines += (
                ["        exp_samples:", "          - value: 1", '            labels: "{}"']
                if fires
                else ["        exp_samples: []"]
            )
    return "\n".join(lines) + "\n"


def planted_series(world: Planted, names: Names, *, fires: bool) -> dict[str, Level]:
    """The scenario in which an alert fires, or is silent, as series under these names."""

    def chosen(level: Either) -> Level:
        return level[0 if fires else 1] if isinstance(level, tuple) else level

    levels: dict[str, Level] = {}
    for index, gpu in enumerate(world.gpus):
        labels = gpu_labels(names, "n1", index, "4711" if world.has_job else "")
        for word, level in gpu.items():
            levels.update(signal_series(names, word, chosen(level), labels))
        if names == "gputop" and world.has_job and not world.has_process:
            levels[f'gputop_pod_info{{{labels},k8s_namespace_name="ml",k8s_pod_name="llm-0"}}'] = (
                1.0
            )
        elif names == "gputop" and world.has_job:
            levels[f'gputop_job_info{{{labels},scheduler="slurm",job_id="4711",user="ml"}}'] = 1.0
    prefix = "gputop_" if names == "gputop" else "DCGM_"
    for series, level in world.series:
        if series.startswith("up"):
            job = "gputop" if names == "gputop" else "dcgm-exporter"
            address = "n2:9401" if "UP2" in series else "n1:9401"
            levels[f'up{{job="{job}",instance="{address}"}}'] = chosen(level)
        elif series.startswith(prefix):
            levels[series.replace("HOST=", f"{DIALECTS[names].hosts[0]}=")] = chosen(level)
    return levels


def gpu_labels(names: Names, host: str, index: int, job: str = "") -> str:
    """The labels under which an exporter gives a GPU of a host; ``job`` is a batch job's number."""
    if names == "gputop":
        return f'instance="{host}:9401",job="gputop",gpu="{index}",uuid="GPU-{host}-{index}"'
    labels = f'instance="{host}:9400",job="dcgm-exporter",{DIALECTS[names].hosts[0]}="{host}",gpu="{index}"'
    return f'{labels},UUID="GPU-{host}-{index}"' + (f',hpc_job="{job}"' if job else "")


def signal_series(names: Names, word: str, level: Level, labels: str) -> Mapping[str, Level]:
    """A signal in base units as the series that an exporter gives: name and labels → value in its own unit."""
    key, dialect = SIGNALS[word], DIALECTS[names]
    if (signal := dialect.signals.get(key)) is None:
        return {}
    # Of a sum the part that is not a signal of its own.
    series = selector(signal.plus or signal.name, labels, *signal.matchers)
    return {series: _scaled(level, 1.0 / base_factor(dialect, key))}


def _scaled(level: Level, factor: float) -> Level:
    if isinstance(level, Stops):
        return Stops(level.value * factor, level.minutes)
    return Rises(level.per_minute * factor) if isinstance(level, Rises) else level * factor


def _values(level: Level, minutes: int) -> str:
    if isinstance(level, Stops):
        there = min(level.minutes, minutes)
        return f"{level.value:.12g}x{2 * there}" + (" stale" if there < minutes else "")
    begin, rise = (0.0, level.per_minute) if isinstance(level, Rises) else (level, 0.0)
    return f"{begin:.12g}+{rise / 2:.12g}x{2 * minutes}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
