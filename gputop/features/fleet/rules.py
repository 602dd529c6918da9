"""Prometheus' rules made of the queries: what is recorded, what alerts, and the unit tests of every alert.

The YAML is written here without a library: the files are for people, and need none of its features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_question import AlertRule, Either, FleetQuestion, Level, Planted, Rises, Stops
from gputop.features.fleet.fleet_reading import WINDOW_S
from gputop.features.fleet.promql import (
    NAMES_LABEL,
    SIGNALS,
    Names,
    Scope,
    base_factor,
    job_mean,
    renamed,
    rule_scope,
    selector,
)
from gputop.features.fleet.questions import library
from gputop.features.fleet.state_rules import OWNER, OWNER_LABELS, by_owner, of_gpus

RECORDED = (
    "waste_share", "waste_by_job", "hours_busy_not_working", "hours_starved", "hours_idle_allocated",
    "hours_allocated_unused", "hours_idle", "hours_total", "cluster_power", "cost_no_work", "cost_by_job",
)  # fmt: skip
"""Queries over an hour or over all GPUs: dashboards of a large fleet ask for them again and again."""
SUMS = tuple(id for id in RECORDED if id != "cluster_power")
"""Of these the sums over an hour, by cluster."""
JOB_MEANS: tuple[tuple[str, float | None], ...] = (("sm", None), ("util", WINDOW_S), ("util", None))
"""Signals of jobs that are recorded where a rule reads them: see ``Scope.of_jobs``."""
_LEAD_MIN = 12
"""Minutes that a unit test runs beyond an alert's ``for``: longer than the ten in which an Xid is new."""


def alerts(names: Names) -> Iterator[tuple[FleetQuestion, AlertRule]]:
    """The alerts that can fire under these names."""
    for query in library().values():
        if query.alert is not None and query.is_answered(names):
            yield query, query.alert


def recorded(
    names: Names, price: float | None = None, scrape_s: float = 15.0
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Groups of recording rules: name, and the name and PromQL of each; later ones are made of earlier ones."""
    q = rule_scope(names, scrape_s=scrape_s, uses_records=True, price=price)
    by_gpu = of_gpus(q, library()["gpus_by_state"].promql(q) or "")
    read = " ".join((*(expr for _, expr in by_gpu), *(alert_promql(q, *row) for row in alerts(names))))
    plain = rule_scope(names, scrape_s=scrape_s)
    yield "gputop_jobs", [(name, plain.of_jobs(*of)) for of in JOB_MEANS if (name := job_mean(*of)) in read]
    yield "gputop_gpus", list(by_gpu)
    exprs = [(record_of(id), library()[id].promql(q)) for id in RECORDED]
    yield "gputop_fleet", [(name, expr) for name, expr in exprs if expr is not None]


def rules_yaml(names: Names, price: float | None = None, *, scrape_s: float = 15.0) -> str:
    """The recording and alerting rules; those of cost only where there is a price of a GPU-hour."""
    lines = ["groups:"]
    for group, rows in recorded(names, price, scrape_s):
        lines += [f"  - name: {group}", "    interval: 1m", "    rules:"]
        for name, expr in rows:
            lines += [f"      - record: {name}", *_block(expr)]
            lines += ["        labels:", f"          {NAMES_LABEL}: {_quoted(names)}"]
    q = rule_scope(names, scrape_s=scrape_s, uses_records=True, price=price)
    lines += ["  - name: gputop_alerts", "    rules:"]
    for query, alert in alerts(names):
        lines += [
            f"      - alert: {alert.name}",
            *_block(alert_promql(q, query, alert)),
            f"        for: {alert.lasts}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {_quoted(_summary(query, alert, names))}",
            f"          description: {_quoted(query.meaning)}",
            f"          action: {_quoted(query.advice)}",
            f"          query: {query.id}",
        ]
    return "\n".join(lines) + "\n"


def alert_promql(q: Scope, query: FleetQuestion, alert: AlertRule) -> str:
    """When an alert fires, in PromQL: the threshold compares the query's number, whatever the query ends with.

    Alerts about a GPU carry its owner, those about a host its name: of labels that collide with no target's.
    """
    expr = f"({query.promql(q)}){alert.when}"
    if alert.about == "fleet":
        return expr
    if alert.about == "gpu":
        # Of a GPU that cannot be read nothing is recorded: it is told without its owner. Another address of one that
        # can says nothing more.
        uuid = ", ".join((*q.dialect.uuid, *q.dialect.instance))
        unowned = f"({expr}) unless on ({q.by}) {q.record(OWNER)} unless on (cluster, {uuid}) {q.record(OWNER)}"
        expr = f"({by_owner(q, expr, *OWNER_LABELS)} or ({unowned}))"
    # The exporter's own label, or the address without its port.
    if q.dialect.hosts[0] == "Hostname":
        expr = renamed(expr, "hostname", "Hostname")
    if q.is_own or alert.about == "target":
        expr = renamed(expr, "hostname", "instance", "(.+?)(?::[0-9]+)?")
    return expr


def _summary(query: FleetQuestion, alert: AlertRule, names: Names) -> str:
    """What it is, and where."""
    where = {
        "gpu": "{{ $labels.hostname }} GPU {{ $labels.gpu }}", "fleet": "{{ $labels.cluster }}",
    }.get(alert.about, "{{ $labels.hostname }}")  # fmt: skip
    number = " {{ $value }}" if query.id == "xid" and names != "gputop" else " {{ $labels.xid }}" * (query.id == "xid")
    return f"{query.title}{number}: {where}"


def record_of(id: str) -> str:
    """The name under which a query is recorded."""
    return f"gputop:fleet:{id}"


def unit_tests_yaml(names: Names, rules_file: str) -> str:
    """The unit tests for ``promtool test rules``: each alert in a firing and a silent scenario."""
    lines = ["rule_files:", f"  - {rules_file}", "evaluation_interval: 1m", "tests:"]
    for _, alert in alerts(names):
        minutes = int(alert.lasts[:-1]) * (60 if alert.lasts.endswith("h") else 1) + _LEAD_MIN
        world = alert.planted
        for fires in (True, False):
            lines += [f"  - name: {alert.name} {'fires' if fires else 'is silent'}", "    interval: 30s"]
            lines.append("    input_series:")
            for series, level in sorted(planted_series(world, names, fires=fires).items()):
                lines += [f"      - series: {_quoted(series)}", f"        values: {_values(level, minutes)}"]
            matchers = [f'alertname="{alert.name}"', 'alertstate="firing"']
            if fires and alert.about != "fleet":
                matchers.append('hostname="n1"')
            if fires and alert.about == "gpu" and world.has_job:
                is_pod = names == "gputop" and not world.has_process
                matchers.append('k8s_pod="llm-0"' if is_pod else 'job_id="4711"')
            expr = f"count(ALERTS{{{','.join(matchers)}}})"
            lines += ["    promql_expr_test:", f"      - expr: {_quoted(expr)}", f"        eval_time: {minutes}m"]
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
            levels[f'gputop_pod_info{{{labels},k8s_namespace_name="ml",k8s_pod_name="llm-0"}}'] = 1.0
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


def _block(expr: str) -> list[str]:
    return ["        expr: >-", f"          {expr}"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
