"""Write the screen's queries. Pure: a ``FleetSchema`` in, PromQL out.

Every question is one query over the names that exist, each name with its own selector: a regular expression over eight
names takes seconds at 8,000 GPUs, eight selectors do not. ``max by`` the labels that identify a GPU drops the second of
two replicas and keeps MIG instances apart. A MIG instance is as busy as its engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from gputop.diagnosis.host.idle_runs import QUIET_UTIL
from gputop.features.fleet import promql
from gputop.features.fleet.exporter_names import CLUSTER_LABELS, DIALECTS, Dialect
from gputop.features.fleet.fleet_reading import WINDOW_S
from gputop.features.fleet.promql import (
    ENGINE,
    Scope,
    max_by,
    mean_seconds,
    over,
    selector,
    union,
    unwritten,
    window,
)
from gputop.features.fleet.read import fabric_ports

DIALECT_LABEL = "gputop_names"
"""Label that carries a mark: the dialect of a series, or one of these:"""
HOST = "host"
"""The name of the host behind an address."""
POD = "pod"
"""The pod that the kubelet gave a GPU to."""
STEP, STEP_WAIT = "step", "step wait"
"""Mean seconds of a training step, and of the wait in it."""
LOST = "lost"
_TELLING_LEVELS = 'level!~"green|grey"'
"""The driver cannot read this GPU."""
AGE = "age"
"""Unix time at which an address last gave values."""
LATE, DEAD = "late", "dead"
"""Seconds for which a driver hangs, and since a file that nobody renews was written."""
EXPORTER = "exporter"
"""The pod in which an exporter runs."""
PORT_FAULT = "port fault"
"""A port of the fabric whose link is down or degraded."""
CLOCK = "clock"
"""Seconds by which a node's clock is ahead of the engine's."""
MOST_SKEW_S = 60.0
"""Difference of clocks that is told: two scrapes of the longest usual interval."""
USER = "user of "
"""Begins the mark of users of processes; the dialect follows."""
UP = "up"
"""Whether an address answers."""
JOB_LABELS = ("scheduler", "job_id", "user", "k8s_pod_uid", "container_id")
"""Labels of ``gputop_job_info``."""
POD_LABELS = ("k8s_namespace_name", "k8s_pod_name")
"""Labels of ``gputop_pod_info`` that name a pod."""
LAST_SEEN_S = 600.0
"""Time for which a host counts as down if nothing says whether it is still scraped; after it the host is gone."""
LOOKBACKS_S = (1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 57600.0, 86400.0)
"""Moments before now at which removed GPUs are looked for: an engine reads everything of a window, and next to nothing
of a moment."""
GONE = " gone"
"""Follows a dialect in a mark: a GPU that had values within the last day and has none now."""

Wrap = Callable[[str], str]


class FleetSchema(Struct, frozen=True):
    """The dialects that have series, and the labels of their GPUs.

    ``select`` narrows every query.
    """

    names: tuple[str, ...] = ()
    labels: dict[str, tuple[str, ...]] = {}
    """Dialect → labels; only dialects that have GPUs."""
    scrape_s: float = 15.0
    cluster: str = ""
    """The label that tells several clusters apart; empty for one cluster."""
    select: str = ""

    def scope(self, dialect: str) -> Scope:
        """The scope of one dialect's GPUs."""
        return Scope(DIALECTS[dialect], self.labels[dialect], self.select)

    def has_instances(self, dialect: str) -> bool:
        """Whether there are MIG instances whose engine gives their utilisation."""
        return bool(set(DIALECTS[dialect].instance).intersection(self.labels[dialect]))

    @property
    def place(self) -> tuple[str, ...]:
        """The labels of a scraped address; several clusters may have the same one."""
        return (self.cluster, "instance") if self.cluster else ("instance",)

    @property
    def only(self) -> str:
        """The dialect if there is only one: its series carry no mark."""
        return next(iter(self.labels)) if len(self.labels) == 1 else ""

    def marked(self, expr: str, q: Scope) -> str:
        """The series with their dialect as mark, if there are several."""
        return expr if self.only else marked(expr, q.dialect.id)


def marked(expr: str, mark: str) -> str:
    """The series with a mark."""
    return promql.marked(expr, DIALECT_LABEL, mark)


def names(select: str, *, is_past: bool = False) -> str:
    """Number of series by dialect.

    Counts utilisation, MIG engines, and gputop's exporters whose driver hangs. ``is_past`` looks at some moments of the
    last day instead.
    """

    def counts(series: str) -> str:
        moments = [f" offset {window(back_s)}" for back_s in LOOKBACKS_S] if is_past else [""]
        return union(f"count({series}{moment})" for moment in moments)

    parts = []
    for dialect in DIALECTS.values():
        q = Scope(dialect, (), select)
        series = [*_utils(q), *([q.series("gputop_up")] if q.is_own else ())]
        parts.append(marked(f"({union(map(counts, series))})", dialect.id))
    return union(parts)


def scrapes(select: str) -> str:
    """Samples in five minutes by dialect, of each host's first GPU."""
    parts = []
    for dialect in DIALECTS.values():
        # Where the number has no label of its own, or one of several, every GPU is asked for.
        is_numbered = not dialect.facts and len(dialect.number) == 1
        first = f'{dialect.number[0]}="0"' if is_numbered else ""
        series = Scope(dialect, (), select).exported("util_pct", first)
        parts.append(marked(f"max({over('count_over_time', series, WINDOW_S)})", dialect.id))
    return union(parts)


def identities(schema: FleetSchema) -> str:
    """Every GPU with all its labels, by any gauge of the moment.

    gputop's exporter also names GPUs that it cannot read, GPUs that are split into MIG instances, and the GPU of each
    instance.
    """
    parts = []
    for name in schema.names:
        dialect = DIALECTS[name]
        q = Scope(dialect, dialect.labels, schema.select)
        utils = _utils(q)
        now = union([*utils, q.exported("mem_used_bytes")])
        known = f"({now})"
        if q.is_own:
            share = q.series("gputop_gpu_share")
            parts.append(marked(q.per_gpu(f"{share} > 0", "parent"), name))
            known = (
                f"(({now} or {q.series('gputop_gpu_info')}) unless {_same(dialect)} ({share} == 0))"
            )
            hosts = over("last_over_time", q.series("gputop_host_info"), LAST_SEEN_S)
            parts.append(marked(max_by(("instance", *CLUSTER_LABELS, "hostname"), hosts), HOST))
        elif dialect.facts:
            on, facts = f"on (instance, {dialect.uuid[0]})", q.series(dialect.facts)
            described = f"{on} group_left ({', '.join((*dialect.number, *dialect.model))}) {facts}"
            known = f"({known} * {described} or ({known} unless {on} {facts}))"
        parts.append(marked(q.per_gpu(known), name))
        if dialect.job:
            scraped = q.series("up", 'pod!=""')
            parts.append(
                marked(f"max by (pod) ({scraped} and on (instance) ({union(utils)}))", EXPORTER)
            )
    return union(parts)


def removed(schema: FleetSchema) -> str:
    """GPUs that were there within the last day and are not now, under ``GONE``.

    These seven looks back cost an engine more than all other questions of a refresh.
    """
    parts = []
    for name in schema.names:
        dialect = DIALECTS[name]
        q = Scope(dialect, dialect.labels, schema.select)
        utils = _utils(q)
        past = [over("last_over_time", util, LAST_SEEN_S) for util in utils]
        past += [f"{util} offset {window(back_s)}" for back_s in LOOKBACKS_S for util in utils]
        if q.is_own:
            counted = q.series("gputop_gpu_state_seconds_total", state="working")
            past.append(f"({counted} unless {_same(dialect)} {q.series('gputop_gpu_share')})")
        parts.append(
            marked(
                q.per_gpu(f"({union(past)}) unless {_same(dialect)} ({union(utils)})"),
                f"{name}{GONE}",
            )
        )
    return union(parts)


def _utils(q: Scope) -> list[str]:
    """Series of the utilisation of GPUs, and of the engines of MIG instances."""
    utils = [q.exported("util_pct")]
    if ENGINE in q.dialect.signals:
        utils.append(q.exported(ENGINE, *q.instances))
    return utils


def _same(dialect: Dialect) -> str:
    """Joins series of one GPU."""
    return f"on ({', '.join(('instance', *dialect.number, *dialect.instance, *dialect.uuid))})"


def metric(schema: FleetSchema, key: str, wrap: Wrap = str, *, by: Iterable[str] = ()) -> str:
    """One key in every dialect that has it; empty if none has.

    Values are as exported. ``by`` are further labels to keep, of those that a dialect has.
    """
    having = [name for name in DIALECTS if key in DIALECTS[name].signals]
    return union(
        of_dialect(schema, name, key, wrap, by) for name in having if name in schema.labels
    )


def of_dialect(
    schema: FleetSchema, name: str, key: str, wrap: Wrap = str, by: Iterable[str] = ()
) -> str:
    """One key in one dialect.

    Engines of MIG instances are in the unit of utilisation.
    """
    q, has_instances = schema.scope(name), key == "util_pct" and schema.has_instances(name)
    kept = [label for label in by if label in q.dialect.labels]
    parts = [q.per_gpu(wrap(q.exported(key, *q.whole * has_instances)), *kept)]
    if has_instances:
        factor = q.dialect.signals[ENGINE].factor / q.dialect.signals["util_pct"].factor
        parts.append(f"({q.per_gpu(wrap(q.exported(ENGINE, *q.instances)), *kept)} * {factor:g})")
    return union(schema.marked(part, q) for part in parts)


def mean(series: str) -> str:
    """The mean over the window of a state."""
    return over("avg_over_time", series, WINDOW_S)


def quiet(schema: FleetSchema) -> str:
    """GPUs whose 95th percentile of utilisation means idle."""
    parts = []

    def percentile(series: str) -> str:
        return over("quantile_over_time", series, WINDOW_S, "0.95")

    for name in schema.labels:
        util, inner = (
            DIALECTS[name].signals["util_pct"],
            of_dialect(schema, name, "util_pct", percentile),
        )
        # Where it may be percent or a ratio, only the whole answer tells which.
        parts.append(inner if util.doubtful else f"(({inner}) < {QUIET_UTIL / util.factor:g})")
    return union(parts)


def marks(schema: FleetSchema, *, ages: bool) -> str:
    """Marks of scraped addresses, and the alerts that fire.

    With ``ages`` also ``AGE``. An address is up unless it failed twice in a row; only jobs that export GPUs are asked
    for.
    """
    utils = [
        series
        for name in schema.labels
        for series in _utils(schema.scope(name))[: 1 + schema.has_instances(name)]
    ]
    own = [schema.scope("gputop")] if "gputop" in schema.labels else []
    jobs = [
        f"count by (job) ({series})" for series in (*utils, *(q.series("gputop_up") for q in own))
    ]
    up, of_places = (
        selector("up", schema.select),
        [(selector("ALERTS", 'alertstate="firing"', schema.select), "")],
    )
    if jobs:
        # After a pause of the engine itself there is nothing in that window yet, but a value from before.
        twice = over("max_over_time", up, 2 * schema.scrape_s)
        of_places.append((f"({twice} or {up}) and on (job) ({union(jobs)})", UP))
    for q in own:
        late, stamp = (
            f"{q.series('gputop_up')} == 0",
            q.series("gputop_last_sample_timestamp_seconds"),
        )
        of_places += [
            (f"time() - {stamp} and on (instance) ({late})", LATE),
            (late, LATE),
            (unwritten(q, schema.scrape_s), DEAD),
        ]
    of_places += [(f"timestamp({series})", AGE) for series in utils if ages]
    return union(
        marked(max_by(schema.place, expr), mark) if mark else expr for expr, mark in of_places
    )


def ports(schema: FleetSchema) -> str:
    """Ports of the fabric with a fault, what ports lost in five minutes, and wrong clocks.

    Empty where gputop runs on no node.
    """
    if "gputop" not in schema.labels:
        return ""
    q = schema.scope("gputop")
    by = (*schema.place, fabric_ports.PORT)
    parts = [marked(f"{max_by((*by, 'fault'), q.series(fabric_ports.FAULT))} == 1", PORT_FAULT)]
    parts.append(marked(_wrong_clocks(q, schema.place), CLOCK))
    for name, count in fabric_ports.COUNTS.items():
        increase = max_by(by, over("increase", q.series(name), WINDOW_S))
        parts.append(marked(f"({increase} >= {count.least:g})", name))
    return union(parts)


def _wrong_clocks(q: Scope, place: Iterable[str]) -> str:
    """Seconds by which nodes' clocks are ahead of the engine's, beyond a minute.

    A node that measures renews its stamp; one that hangs or has ended does not.
    """
    stamp = q.series("gputop_last_sample_timestamp_seconds")
    renewed = over("changes", stamp, WINDOW_S)
    ahead = f"({max_by(place, f'{stamp} - timestamp({stamp})')})"
    measuring = f"{max_by(place, f'{renewed} > 0')}"
    wrong = f"({ahead} > {MOST_SKEW_S:g} or {ahead} < -{MOST_SKEW_S:g})"
    return f"({wrong} and {measuring})"


def node_facts(schema: FleetSchema) -> str:
    """States, verdicts, owners and steps from gputop on the nodes, users from others.

    Empty if no exporter tells any of these.
    """
    own = [_own_facts(schema)] if "gputop" in schema.labels else []
    return union(own + _users(schema))


def _users(schema: FleetSchema) -> list[str]:
    """Users or programs of processes, under ``USER`` and the dialect."""
    parts = []
    for name in schema.labels:
        dialect = DIALECTS[name]
        if dialect.processes:
            q = schema.scope(name)
            series = q.series(dialect.processes)
            for to, label in dialect.renamed:
                if to in q.labels:
                    series = promql.renamed(series, to, label)
            processes = q.per_gpu(series, dialect.user or dialect.process)
            parts.append(marked(processes, f"{USER}{name}"))
    return parts


def _own_facts(schema: FleetSchema) -> str:
    q = schema.scope("gputop")
    # Ranks that announce no steps have no series.
    ranks = ", ".join(label for label in q.labels if label != "mig")
    return union(
        [
            f"({q.per_gpu(q.series('gputop_gpu_state'), 'state')} == 1)",
            # Green and grey are what a state without a level gives: a series less for most GPUs.
            f"({q.per_gpu(q.series('gputop_gpu_level', _TELLING_LEVELS), 'level')} == 1)",
            f"({q.per_gpu(q.series('gputop_gpu_verdict'), 'verdict')} == 1)",
            q.per_gpu(q.series("gputop_job_info"), *JOB_LABELS),
            marked(q.says("gputop_gpu_lost"), LOST),
            marked(q.per_gpu(q.series("gputop_pod_info"), *POD_LABELS), POD),
            marked(f"({mean_seconds(q, 'gputop_step_seconds', ranks)})", STEP),
            marked(f"({mean_seconds(q, 'gputop_step_wait_seconds', ranks)})", STEP_WAIT),
        ]
    )
