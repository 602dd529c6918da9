"""Prometheus' rules made of the queries: what is recorded, what alerts, and the unit tests of every alert.

The YAML is written here without a library: the files are for people, and need none of its features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gputop.features.fleet.questions import library
from gputop.features.fleet.template import (
    SIGNALS,
    Alert,
    Level,
    Names,
    Planted,
    Query,
    Setting,
    recorded_name,
    recorded_words,
    render,
    signal_name,
)
from gputop.model.prometheus_names import FB_FREE, NAMES

RECORDED = (
    "gpus_by_state", "waste_share", "waste_by_job", "hours_busy_not_working", "hours_starved", "hours_idle_allocated",
    "hours_idle", "hours_total", "cluster_power", "cost_no_work", "cost_by_state", "cost_by_job",
)  # fmt: skip
"""Queries over an hour or over all GPUs: dashboards of a large fleet ask for them again and again."""
_LEAD_MIN = 12
"""Minutes that a unit test runs beyond an alert's ``for``: longer than the ten in which an Xid is new."""


def alerts(names: Names) -> Iterator[tuple[Query, Alert]]:
    """The alerts that can fire under these names."""
    for query in library().values():
        if query.alert is not None and query.template_for(names) is not None:
            yield query, query.alert


def rules_yaml(names: Names, price: float | None = None) -> str:
    """The recording and alerting rules; those of cost only where there is a price of a GPU-hour."""
    setting = Setting(names, recorded=True, price=price)
    lines = ["groups:", "  - name: gputop_jobs", "    rules:"]
    words = sorted({word for query, _ in alerts(names) for word in recorded_words(query.template_for(names) or "")})
    for word in words:
        expr = render(f"{{{word}}}", Setting(names))
        lines += [f"      - record: {recorded_name(word)}", *_block(expr)]
    lines += ["  - name: gputop_fleet", "    interval: 1m", "    rules:"]
    for id in RECORDED:
        asked = library()[id].promql(setting)
        if asked is not None:
            lines += [f"      - record: {record_of(id)}", *_block(asked)]
    lines += ["  - name: gputop_alerts", "    rules:"]
    for query, alert in alerts(names):
        lines += [
            f"      - alert: {alert.name}",
            *_block((query.promql(setting) or "") + alert.when),
            f"        for: {alert.lasts}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {_quoted(query.title)}",
            f"          description: {_quoted(query.meaning)}",
            f"          action: {_quoted(query.advice)}",
            f"          query: {query.id}",
        ]
    return "\n".join(lines) + "\n"


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
            for series, level in sorted(_series(world, names).items()):
                lines += [f"      - series: {_quoted(series)}", f"        values: {_values(level, minutes)}"]
            # Only whether the alert is in this metric counts, not its labels and words.
            expr = f'count(ALERTS{{alertname="{alert.name}",alertstate="firing"}})'
            lines += ["    promql_expr_test:", f"      - expr: {_quoted(expr)}", f"        eval_time: {minutes}m"]
            lines += (
                ["        exp_samples:", "          - value: 1", '            labels: "{}"']
                if fires
                else ["        exp_samples: []"]
            )
    return "\n".join(lines) + "\n"


def _series(world: Planted, names: Names) -> dict[str, Level]:
    """A scenario as series under these names."""
    setting = Setting(names)
    found: dict[str, Level] = {}
    for index, gpu in enumerate(world.gpus):
        labels = gpu_labels(names, "n1", index, "4711" if world.has_job else "")
        for short, level in gpu.items():
            found.update(signal_series(names, short, level, labels))
        if names == "gputop" and world.has_job:
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
    labels = f'instance="{host}:9400",job="dcgm-exporter",{Setting(names).host}="{host}",gpu="{index}"'
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
    return (level[0] * factor, level[1] * factor) if isinstance(level, tuple) else level * factor


def _values(level: Level, minutes: int) -> str:
    begin, rise = level if isinstance(level, tuple) else (level, 0.0)
    return f"{begin:.12g}+{rise / 2:.12g}x{2 * minutes}"


def _block(expr: str) -> list[str]:
    return ["        expr: >-", f"          {expr}"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
