"""Write Prometheus' recording and alerting rules."""

from __future__ import annotations

from collections.abc import Iterator

from gputop.features.fleet.deploy.questions import QUESTIONS, AlertRule, FleetQuestion
from gputop.features.fleet.fleet_reading import WINDOW_S
from gputop.features.fleet.judge.state_rules import OWNER, OWNER_LABELS, by_owner, of_gpus
from gputop.features.fleet.promql import NAMES_LABEL, Names, Scope, job_mean, renamed, rule_scope

RECORDED = (
    "waste_share", "waste_by_job", "hours_busy_not_working", "hours_starved", "hours_idle_allocated",
    "hours_allocated_unused", "hours_idle", "hours_total", "cluster_power", "cost_no_work", "cost_by_job",
)  # fmt: skip
"""Queries over an hour or over all GPUs: dashboards of a large fleet ask for them again and again."""
SUMS = tuple(id for id in RECORDED if id != "cluster_power")
"""Of these the sums over an hour, by cluster."""
JOB_MEANS: tuple[tuple[str, float | None], ...] = (("sm", None), ("util", WINDOW_S), ("util", None))
"""Signals of jobs that are recorded where a rule reads them: see ``Scope.of_jobs``."""


def alerts(names: Names) -> Iterator[tuple[FleetQuestion, AlertRule]]:
    """The alerts that can fire under these names."""
    for query in QUESTIONS.values():
        if query.alert is not None and query.is_answered(names):
            yield query, query.alert


def recorded(
    names: Names, price: float | None = None, scrape_s: float = 15.0
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Groups of recording rules: names with their PromQL, in order."""
    q = rule_scope(names, scrape_s=scrape_s, uses_records=True, price=price)
    by_gpu = of_gpus(q, QUESTIONS["gpus_by_state"].promql(q) or "")
    read = " ".join(
        (*(expr for _, expr in by_gpu), *(alert_promql(q, *row) for row in alerts(names)))
    )
    plain = rule_scope(names, scrape_s=scrape_s)
    yield (
        "gputop_jobs",
        [(name, plain.of_jobs(*of)) for of in JOB_MEANS if (name := job_mean(*of)) in read],
    )
    yield "gputop_gpus", list(by_gpu)
    exprs = [(record_of(id), QUESTIONS[id].promql(q)) for id in RECORDED]
    yield "gputop_fleet", [(name, expr) for name, expr in exprs if expr is not None]


def rules_yaml(names: Names, price: float | None = None, *, scrape_s: float = 15.0) -> str:
    """The recording and alerting rules as YAML.

    Rules of cost only with a price of a GPU-hour. Written without a library: the files are for people, and need none of
    its features.
    """
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
    """The condition of an alert in PromQL.

    Alerts about a GPU carry its owner, those about a host its name, in labels that collide with no target's.
    """
    expr = f"({query.promql(q)}){alert.when}"
    if alert.about == "fleet":
        return expr
    if alert.about == "gpu":
        # Of a GPU that cannot be read nothing is recorded: it is told without its owner. Another address of one that
        # can says nothing more.
        uuid = ", ".join((*q.dialect.uuid, *q.dialect.instance))
        unowned = (
            f"({expr}) unless on ({q.gpu_labels}) {q.record(OWNER)} unless on (cluster, {uuid}) "
            f"{q.record(OWNER)}"
        )
        expr = f"({by_owner(q, expr, *OWNER_LABELS)} or ({unowned}))"
    # The exporter's own label, or the address without its port.
    if q.dialect.hosts[0] == "Hostname":
        expr = renamed(expr, "hostname", "Hostname")
    if q.is_own or alert.about == "target":
        expr = renamed(expr, "hostname", "instance", "(.+?)(?::[0-9]+)?")
    return expr


def _summary(query: FleetQuestion, alert: AlertRule, names: Names) -> str:
    """Title and place of an alert, as Prometheus' template."""
    where = {
        "gpu": "{{ $labels.hostname }} GPU {{ $labels.gpu }}",
        "fleet": "{{ $labels.cluster }}",
    }.get(alert.about, "{{ $labels.hostname }}")
    number = (
        " {{ $value }}"
        if query.id == "xid" and names != "gputop"
        else " {{ $labels.xid }}" * (query.id == "xid")
    )
    return f"{query.title}{number}: {where}"


def record_of(id: str) -> str:
    """The name under which a query is recorded."""
    return f"gputop:fleet:{id}"


def _block(expr: str) -> list[str]:
    return ["        expr: >-", f"          {expr}"]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
