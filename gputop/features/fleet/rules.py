"""Prometheus' rules made of the queries: what is recorded, what alerts, and the unit tests of every alert.

The YAML is written here without a library: the files are for people, and need none of its features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gputop.features.fleet.host_rules import HOST_LOST, host_rules
from gputop.features.fleet.questions import library
from gputop.features.fleet.state_rules import (
    BY_STATE,
    DCGM_OWNER,
    DCGM_STATE,
    HOST_GPUS,
    IN_STATE,
    JOB_LOST,
    LOST,
    NO_WORK,
    OWN_IN_STATE,
    OWN_OWNER,
    OWN_STATE,
    OWNER,
    OWNER_LABELS,
    STATE,
)
from gputop.features.fleet.template import (
    NAMES_LABEL,
    SIGNALS,
    AlertRule,
    FleetQuestion,
    Level,
    Names,
    Planted,
    RuleSetting,
    Stops,
    recorded_name,
    recorded_words,
    render,
    signal_name,
)
from gputop.model.prometheus_names import FB_FREE, NAMES

RECORDED = (
    "waste_share", "waste_by_job", "hours_busy_not_working", "hours_starved", "hours_idle_allocated",
    "hours_allocated_unused", "hours_idle", "hours_total", "cluster_power", "cost_no_work", "cost_by_state",
    "cost_by_job",
)  # fmt: skip
"""Queries over an hour or over all GPUs: dashboards of a large fleet ask for them again and again."""
_LEAD_MIN = 12
"""Minutes that a unit test runs beyond an alert's ``for``: longer than the ten in which an Xid is new."""


def alerts(names: Names) -> Iterator[tuple[FleetQuestion, AlertRule]]:
    """The alerts that can fire under these names."""
    for query in library().values():
        if query.alert is not None and query.template_for(names) is not None:
            yield query, query.alert


def recorded(
    names: Names, price: float | None = None, scrape_s: float = 15.0
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Groups of recording rules: name, and the name and PromQL of each; later ones are made of earlier ones."""
    plain = RuleSetting(names, scrape_s=scrape_s)
    setting = RuleSetting(names, scrape_s=scrape_s, recorded=True, price=price)
    own = names == "gputop"
    by_gpu = (
        (OWNER, OWN_OWNER if own else DCGM_OWNER),
        (STATE, OWN_STATE if own else DCGM_STATE),
        (LOST, NO_WORK),
        (HOST_GPUS, "count by (cluster, {host}) (count by (cluster, {host}, gpu) ({util}))"),
        *host_rules(names),
        (JOB_LOST, f"sum by (cluster, {', '.join(OWNER_LABELS)}, state) ({{{HOST_LOST}}})"),
        (BY_STATE, library()["gpus_by_state"].template_for(names) or ""),
        (IN_STATE, OWN_IN_STATE if own else f"max by (cluster, state) ({{{BY_STATE}}})"),
    )
    words = {word for query, _ in alerts(names) for word in recorded_words(query.template_for(names) or "")}
    words |= {word for _, template in by_gpu for word in recorded_words(template)}
    yield "gputop_jobs", [(recorded_name(word), render(f"{{{word}}}", plain)) for word in sorted(words)]
    yield "gputop_gpus", [(name, render(template, setting)) for name, template in by_gpu]
    asked = [(record_of(id), library()[id].promql(setting)) for id in RECORDED]
    yield "gputop_fleet", [(name, expr) for name, expr in asked if expr is not None]


def rules_yaml(names: Names, price: float | None = None, *, scrape_s: float = 15.0) -> str:
    """The recording and alerting rules; those of cost only where there is a price of a GPU-hour."""
    lines = ["groups:"]
    for group, rows in recorded(names, price, scrape_s):
        lines += [f"  - name: {group}", "    interval: 1m", "    rules:"]
        for name, expr in rows:
            lines += [f"      - record: {name}", *_block(expr)]
            lines += ["        labels:", f"          {NAMES_LABEL}: {_quoted(names)}"]
    lines += ["  - name: gputop_alerts", "    rules:"]
    for query, alert in alerts(names):
        lines += [
            f"      - alert: {alert.name}",
            *_block(
                render(
                    alert_template(query, alert, names),
                    RuleSetting(names, scrape_s=scrape_s, recorded=True, price=price),
                )
            ),
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


def alert_template(query: FleetQuestion, alert: AlertRule, names: Names) -> str:
    """When an alert fires, as a template: the threshold compares the query's number, whatever the query ends with.

    Alerts about a GPU carry its owner, those about a host its name: of labels that collide with no target's.
    """
    template = query.recorded if names == "gputop" and query.recorded else query.template_for(names)
    fires = f"({template}){alert.when}"
    if alert.about == "fleet":
        return fires
    if alert.about == "host":
        return hostnamed(fires, names)
    owner = f"{{{OWNER}}}"
    # Of a GPU that cannot be read nothing is recorded: it is told without its owner.
    owned = f"({fires}) * on ({{by}}) group_left ({', '.join(OWNER_LABELS)}) {owner}"
    return hostnamed(f"({owned} or (({fires}) unless on ({{by}}) {owner}))", names)


def hostnamed(template: str, names: Names) -> str:
    """The series with a label ``hostname``: the exporter's own, or the address without its port."""
    if names == "legacy":
        template = f'label_replace({template}, "hostname", "$1", "Hostname", "(.+)")'
    if names == "gputop" or "{up}" in template:
        template = f'label_replace({template}, "hostname", "$1", "instance", "(.+?)(?::[0-9]+)?")'
    return template


def _summary(query: FleetQuestion, alert: AlertRule, names: Names) -> str:
    """What it is, and where."""
    where = {
        "gpu": "{{ $labels.hostname }} GPU {{ $labels.gpu }}", "host": "{{ $labels.hostname }}",
        "fleet": "{{ $labels.cluster }}",
    }[alert.about]  # fmt: skip
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
        for world, fires in ((alert.fires, True), (alert.silent, False)):
            lines += [f"  - name: {alert.name} {'fires' if fires else 'is silent'}", "    interval: 30s"]
            lines.append("    input_series:")
            for series, level in sorted(planted_series(world, names).items()):
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


def planted_series(world: Planted, names: Names) -> dict[str, Level]:
    """A scenario as series under these names."""
    setting = RuleSetting(names)
    found: dict[str, Level] = {}
    for index, gpu in enumerate(world.gpus):
        labels = gpu_labels(names, "n1", index, "4711" if world.has_job else "")
        for short, level in gpu.items():
            found.update(signal_series(names, short, level, labels))
        if names == "gputop" and world.has_job and not world.has_process:
            found[f'gputop_pod_info{{{labels},k8s_namespace_name="ml",k8s_pod_name="llm-0"}}'] = 1.0
        elif names == "gputop" and world.has_job:
            found[f'gputop_job_info{{{labels},scheduler="slurm",job_id="4711",user="ml"}}'] = 1.0
    own = "gputop_" if names == "gputop" else "DCGM_"
    for series, level in world.series:
        if series.startswith("up"):
            job = "gputop" if names == "gputop" else "dcgm-exporter"
            found[f'up{{job="{job}",instance="n1:9401"}}'] = level
        elif series.startswith(own):
            found[series.replace("HOST=", f"{setting.host}=")] = level
    return found


def gpu_labels(names: Names, host: str, index: int, job: str = "") -> str:
    """The labels under which an exporter gives a GPU of a host; ``job`` is a batch job's number."""
    if names == "gputop":
        return f'instance="{host}:9401",job="gputop",gpu="{index}",uuid="GPU-{host}-{index}"'
    labels = f'instance="{host}:9400",job="dcgm-exporter",{RuleSetting(names).host}="{host}",gpu="{index}"'
    return f'{labels},UUID="GPU-{host}-{index}"' + (f',hpc_job="{job}"' if job else "")


def signal_series(names: Names, short: str, level: Level, labels: str) -> Mapping[str, Level]:
    """A signal in base units as the series that an exporter gives: name and labels → value in its own unit."""
    if short == "ecc" and names == "gputop":
        labels = f'{labels},kind="uncorrected",counter="volatile"'
        return {f"gputop_gpu_ecc_errors_total{{{labels}}}": level}
    if short == "memory_total" and names != "gputop":
        used, free = NAMES[names]["mem_used_bytes"], FB_FREE[names]
        return {f"{free.name}{{{labels}}}": _scaled(level, 1.0 / used.divisor)}
    named = signal_name(names, SIGNALS[short])
    if named is None:
        return {}
    both = ",".join((*((labels,) if labels else ()), *named.matchers))
    return {f"{named.name}{{{both}}}": _scaled(level, 1.0 / named.factor)}


def _scaled(level: Level, factor: float) -> Level:
    if isinstance(level, Stops):
        return Stops(level.value * factor, level.minutes)
    return (level[0] * factor, level[1] * factor) if isinstance(level, tuple) else level * factor


def _values(level: Level, minutes: int) -> str:
    if isinstance(level, Stops):
        there = min(level.minutes, minutes)
        return f"{level.value:.12g}x{2 * there}" + (" stale" if there < minutes else "")
    begin, rise = level if isinstance(level, tuple) else (level, 0.0)
    return f"{begin:.12g}+{rise / 2:.12g}x{2 * minutes}"


def _block(expr: str) -> list[str]:
    return ["        expr: >-", f"          {expr}"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
