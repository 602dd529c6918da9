"""The queries of the screen: what a fleet has, and what its GPUs do. Pure: names and labels in, PromQL out.

Every question is one query over the names that exist, each name with its own selector: a regular expression over
eight names takes seconds at 8,000 GPUs, eight selectors do not. Always ``max by`` what identifies a GPU: that removes
the second of two replicas and keeps MIG instances apart. Where there are such, their utilisation is their engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from gputop.diagnosis.idle_runs import QUIET_UTIL
from gputop.features.fleet import promql
from gputop.features.fleet.exporter_names import CLUSTER_LABELS, DIALECTS, GPU_KEYS, Dialect
from gputop.features.fleet.fleet_reading import WINDOW_S
from gputop.features.fleet.promql import ENGINE, Scope, max_by, mean_seconds, over, selector, union, unwritten, window

DIALECT_LABEL = "gputop_names"
"""The label that marks under which names a series was found, where there are several."""
JOB_LABELS = ("scheduler", "job_id", "user", "k8s_pod_uid", "container_id")
"""Labels of ``gputop_job_info``."""
POD_LABELS = ("k8s_namespace_name", "k8s_pod_name")
"""Labels of ``gputop_pod_info`` that name a pod."""
HOST, POD, JOB_ID, STEP, STEP_WAIT, AGE = "host", "pod", "jobstats job", "step", "step wait", "age"
LOST, LATE, DEAD, EXPORTER, UP = "lost", "late", "dead", "exporter", "up"
"""Marks of series that give: the name of the host behind an address; the pod that the kubelet gave a GPU to; a job's
number as the value; the mean seconds of a training step, and of what it waited; when an address last gave values; that
a driver cannot read a GPU; how long a driver is late, in seconds; how long ago the values of a file were written that
nobody renews; the pod in which an exporter runs; whether an address answers."""
LAST_SEEN_S = 600.0
"""How long a host counts as down of which nothing tells whether it is still scraped; from then on it is gone."""
LOOKBACKS_S = (1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 57600.0, 86400.0)
"""How long before now GPUs are looked for that are not there any more: a day, and in steps, since an engine reads
everything between for a window, and next to nothing for a moment."""
GONE = " gone"
"""After a dialect's id in its mark: a GPU that had values within the last day and has none now."""

Wrap = Callable[[str], str]


class FleetSchema(Struct, frozen=True):
    """What discovery found within ``select``: the dialects with data, and per dialect the labels that suffice to tell
    GPUs apart."""

    signals: Mapping[str, frozenset[str]] = {}
    """Dialect → keys of the catalogue that it has series of."""
    labels: Mapping[str, tuple[str, ...]] = {}
    scrape_s: float = 15.0
    cluster: str = ""
    """The label that tells clusters apart, where there are several."""
    select: str = ""

    def scope(self, dialect: str) -> Scope:
        """How the GPUs of one of the dialects are asked for."""
        return Scope(DIALECTS[dialect], self.labels[dialect], self.select)

    def has_instances(self, dialect: str) -> bool:
        """Whether there are MIG instances whose engine says how busy they are."""
        labels = DIALECTS[dialect].instance
        return bool(set(labels).intersection(self.labels[dialect])) and ENGINE in self.signals.get(dialect, ())

    @property
    def place(self) -> tuple[str, ...]:
        """The labels of a scraped address: the same one may be in several clusters."""
        return (self.cluster, "instance") if self.cluster else ("instance",)

    @property
    def only(self) -> str:
        """The dialect of all series, where there is one alone: its series carry no mark."""
        return next(iter(self.labels)) if len(self.labels) == 1 else ""

    def marked(self, expr: str, q: Scope) -> str:
        """The series with their dialect, where it could be another one."""
        return expr if self.only else marked(expr, q.dialect.id)


def marked(expr: str, mark: str) -> str:
    """The series with a label for their origin or kind."""
    return promql.marked(expr, DIALECT_LABEL, mark)


def names_selector(select: str) -> str:
    """A selector of every series that a dialect could have. ``gputop_up`` is there where a driver hangs, too."""
    names = ["gputop_up"] + [
        dialect.signals[key].name for dialect in DIALECTS.values() for key in GPU_KEYS if key in dialect.signals
    ]
    return promql.named(dict.fromkeys(names), select)


def samples(select: str) -> str:
    """How often GPUs were scraped in five minutes, by dialect. One GPU of each host tells of all of them."""
    return union(
        marked(f"max({over('count_over_time', first, WINDOW_S)})", dialect.id)
        for dialect in DIALECTS.values()
        for first in (Scope(dialect, (), select).exported("util_pct", f'{dialect.number[0]}="0"'),)
    )


def identities(schema: FleetSchema) -> str:
    """Every GPU with all its labels, by any gauge of the moment.

    gputop's exporter counts on for a GPU that it cannot read: whom it counts for is known, measured or not. It says
    which GPUs are split into MIG instances, and whose part an instance is.
    """
    parts = []
    for name, keys in schema.signals.items():
        dialect = DIALECTS[name]
        q = Scope(dialect, dialect.labels, schema.select)
        utils = _utils(q, keys)
        now = union([*utils, q.exported("mem_used_bytes")]) if "mem_used_bytes" in keys else union(utils) or q.moment()
        known = f"({now})"
        if q.is_own:
            share = q.series("gputop_gpu_share")
            parts.append(marked(q.per_gpu(f"{share} > 0", "parent"), name))
            known = f"(({now} or {q.series('gputop_gpu_info')}) unless {_same(dialect)} ({share} == 0))"
            hosts = over("last_over_time", q.series("gputop_host_info"), LAST_SEEN_S)
            parts.append(marked(max_by(("instance", *CLUSTER_LABELS, "hostname"), hosts), HOST))
        elif dialect.facts:
            on, facts = f"on (instance, {dialect.uuid[0]})", q.series(dialect.facts)
            named = f"{on} group_left ({', '.join((*dialect.number, *dialect.model))}) {facts}"
            known = f"({known} * {named} or ({known} unless {on} {facts}))"
        parts.append(marked(q.per_gpu(known), name))
        if dialect.job and utils:
            scraped = q.series("up", 'pod!=""')
            parts.append(marked(f"max by (pod) ({scraped} and on (instance) ({union(utils)}))", EXPORTER))
    return union(parts)


def before(schema: FleetSchema) -> str:
    """Under ``GONE`` the GPUs that were there within the last day and are not now, with all their labels: seven looks
    back cost an engine more than all other questions of a refresh."""
    parts = []
    for name, keys in schema.signals.items():
        dialect = DIALECTS[name]
        q = Scope(dialect, dialect.labels, schema.select)
        utils = _utils(q, keys)
        past = [over("last_over_time", util, LAST_SEEN_S) for util in utils]
        past += [f"{util} offset {window(back_s)}" for back_s in LOOKBACKS_S for util in utils]
        if q.is_own:
            counted = q.series("gputop_gpu_state_seconds_total", state="working")
            past.append(f"({counted} unless {_same(dialect)} {q.series('gputop_gpu_share')})")
        # An engine reads a series once for each time that it is named.
        now = f" unless {_same(dialect)} ({union(utils)})" if utils else ""
        if past:
            parts.append(marked(q.per_gpu(f"({union(past)}){now}"), f"{name}{GONE}"))
    return union(parts)


def _utils(q: Scope, keys: frozenset[str]) -> list[str]:
    """The series that say how busy GPUs and MIG instances are, as far as they are there."""
    utils = [q.exported("util_pct")] if "util_pct" in keys else []
    return [*utils, *([q.exported(ENGINE, *q.instances)] if q.instances and ENGINE in keys else [])]


def _same(dialect: Dialect) -> str:
    """Joins series of one GPU."""
    return f"on ({', '.join(('instance', *dialect.number, *dialect.instance, *dialect.uuid))})"


def metric(schema: FleetSchema, key: str, wrap: Wrap = str) -> str:
    """One key of the catalogue in every dialect that has it; empty where none has. Values are as exported."""
    parts = (_of_dialect(schema, name, key, wrap) for name in DIALECTS if name in schema.labels)
    return union(filter(None, parts))


def _of_dialect(schema: FleetSchema, name: str, key: str, wrap: Wrap) -> str:
    """The same in one dialect; how busy MIG instances are is in the unit of utilisation."""
    q, has_instances, parts = schema.scope(name), key == "util_pct" and schema.has_instances(name), []
    if key in schema.signals.get(name, ()):
        parts.append(q.per_gpu(wrap(q.exported(key, *q.whole * has_instances))))
    if has_instances:
        factor = q.dialect.signals[ENGINE].factor / q.dialect.signals["util_pct"].factor
        parts.append(f"({q.per_gpu(wrap(q.exported(ENGINE, *q.instances)))} * {factor:g})")
    return union(schema.marked(part, q) for part in parts)


def mean(series: str) -> str:
    """The mean over the window of a state."""
    return over("avg_over_time", series, WINDOW_S)


def quiet(schema: FleetSchema) -> str:
    """The 95th percentile of utilisation, only of GPUs where it means idle: the answer is as small as they are few."""
    parts = []

    def percentile(series: str) -> str:
        return over("quantile_over_time", series, WINDOW_S, "0.95")

    for name in schema.labels:
        util, inner = DIALECTS[name].signals["util_pct"], _of_dialect(schema, name, "util_pct", percentile)
        # Where it may be percent or a ratio, only the whole answer tells which.
        parts.append(inner if util.doubtful or not inner else f"(({inner}) < {QUIET_UTIL / util.factor:g})")
    return union(part for part in parts if part)


def troubles(schema: FleetSchema, *, ages: bool) -> str:
    """Whether scraped addresses answer (0: not twice in a row), of all jobs that export GPUs; drivers that are late and
    files that are no longer written; alerts that fire; with ``ages`` also when each address last gave utilisation, Unix
    seconds."""
    utils = [
        series
        for name, keys in schema.signals.items()
        if name in schema.labels
        for series in _utils(schema.scope(name), keys if schema.has_instances(name) else keys - {ENGINE})
    ]
    own = [schema.scope("gputop")] if "gputop" in schema.labels else []
    jobs = [f"count by (job) ({series})" for series in (*utils, *(q.series("gputop_up") for q in own))]
    up, of_places = selector("up", schema.select), [(selector("ALERTS", 'alertstate="firing"', schema.select), "")]
    if jobs:
        # After a pause of the engine itself there is nothing in that window yet, but a value from before.
        twice = over("max_over_time", up, 2 * schema.scrape_s)
        of_places.append((f"({twice} or {up}) and on (job) ({union(jobs)})", UP))
    for q in own:
        late, stamp = f"{q.series('gputop_up')} == 0", q.series("gputop_last_sample_timestamp_seconds")
        of_places += [(f"time() - {stamp} and on (instance) ({late})", LATE), (late, LATE),
                      (unwritten(q, schema.scrape_s), DEAD)]  # fmt: skip
    of_places += [(f"timestamp({series})", AGE) for series in utils if ages]
    return union(marked(max_by(schema.place, expr), mark) if mark else expr for expr, mark in of_places)


def node_facts(schema: FleetSchema) -> str:
    """What gputop on the nodes concludes, whose job each GPU works for and how long its steps take, as far as series of
    their own say it; empty where none does."""
    parts: list[str] = []
    if "gputop" in schema.labels:
        q = schema.scope("gputop")
        # Ranks that announce no steps have no series.
        ranks = ", ".join(label for label in q.labels if label != "mig")
        parts += [
            f"({q.per_gpu(q.series('gputop_gpu_state'), 'state')} == 1)",
            f"({q.per_gpu(q.series('gputop_gpu_verdict'), 'verdict')} == 1)",
            q.per_gpu(q.series("gputop_job_info"), *JOB_LABELS),
            marked(q.says("gputop_gpu_lost"), LOST),
            marked(q.per_gpu(q.series("gputop_pod_info"), *POD_LABELS), POD),
            marked(f"({mean_seconds(q, 'gputop_step_seconds', ranks)})", STEP),
            marked(f"({mean_seconds(q, 'gputop_step_wait_seconds', ranks)})", STEP_WAIT),
        ]
    if "jobstats" in schema.labels:
        q = schema.scope("jobstats")
        parts.append(marked(q.per_gpu(q.series("nvidia_gpu_jobId")), JOB_ID))
    return union(parts)
