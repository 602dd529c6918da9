"""The queries to a fleet's Prometheus, as PromQL. Pure: names and labels in, text out.

Every question is one query over the names that exist, each name with its own selector: a regular expression over
eight names takes seconds at 8,000 GPUs, eight selectors do not. Always ``max by`` what identifies a GPU: that removes
the second of two replicas and keeps MIG instances apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from gputop.diagnosis.types import NOT_WORK
from gputop.features.fleet import promql
from gputop.features.fleet.exporter_names import DETAIL_KEYS, DIALECTS, STATE_KEYS, Dialect
from gputop.features.fleet.fleet_reading import WINDOW_S
from gputop.features.fleet.promql import any_of, max_by, over, selector, union

DIALECT_LABEL = "gputop_names"
"""The label that marks under which names a series was found, where there are several."""
QUIET_UTIL = 5.0
"""Below this 95th percentile of utilisation a GPU is idle, as on the node."""
JOB_LABELS = ("scheduler", "job_id", "user", "k8s_pod_uid", "container_id")
"""Labels of ``gputop_job_info``."""
HOST, JOB_ID, STEP, STEP_WAIT, AGE = "host", "jobstats job", "step", "step wait", "age"
"""Marks of series that give: the name of the host behind an address; a job's number as the value; the mean seconds of a
training step; when an address last gave values."""
LAST_SEEN_S = 600.0
"""How long the GPUs of a host that is gone still count."""
GONE = " gone"
"""After a dialect's id in its mark: a GPU that had values within ``LAST_SEEN_S`` and has none now."""

Wrap = Callable[[str], str]


class Known(Struct, frozen=True):
    """What discovery found: the dialects with data, and per dialect the labels that suffice to tell GPUs apart."""

    signals: Mapping[str, frozenset[str]]
    """Dialect → keys of the catalogue that it has series of."""
    labels: Mapping[str, tuple[str, ...]]
    scrape_s: float = 15.0

    def having(self, key: str) -> list[Dialect]:
        """The dialects that export a key."""
        return [
            dialect
            for dialect in DIALECTS.values()
            if dialect.id in self.labels and key in self.signals.get(dialect.id, ())
        ]

    @property
    def only(self) -> str:
        """The dialect of all series, where there is one alone: its series carry no mark."""
        return next(iter(self.labels)) if len(self.labels) == 1 else ""

    def marked(self, expr: str, dialect: str) -> str:
        """The series with their dialect, where it could be another one."""
        return expr if self.only else marked(expr, dialect)


def marked(expr: str, mark: str) -> str:
    """The series with a label for their origin or kind."""
    return promql.marked(expr, DIALECT_LABEL, mark)


def names_asked(select: str) -> str:
    """A selector of every series that a dialect could have."""
    asked = [
        dialect.signals[key].name
        for dialect in DIALECTS.values()
        for key in (*STATE_KEYS, *DETAIL_KEYS)
        if key in dialect.signals
    ]
    return promql.named(dict.fromkeys(asked), select)


def samples(select: str) -> str:
    """How often GPUs were scraped in five minutes, by dialect. One GPU of each host tells of all of them."""
    return union([
        marked(f"max({over('count_over_time', util.selector(first, select), WINDOW_S)})", dialect.id)
        for dialect in DIALECTS.values()
        for util in (dialect.signals["util_pct"],)
        for first in (f'{dialect.number[0]}="0"',)
    ])  # fmt: skip


def identities(dialects: Iterable[Dialect], select: str, *, gone: bool) -> str:
    """Every GPU with all its labels and its utilisation; under ``GONE`` those of the last ten minutes that are gone, if
    they are wanted: they double what an engine has to do."""
    parts = []
    for dialect in dialects:
        util = dialect.signals["util_pct"].selector(select)
        parts.append(marked(max_by(dialect.labels, util), dialect.id))
        if gone:
            same = ", ".join(("instance", *dialect.number, *dialect.instance, *dialect.uuid))
            before = f"{over('last_over_time', util, LAST_SEEN_S)} unless on ({same}) {util}"
            parts.append(marked(max_by(dialect.labels, before), f"{dialect.id}{GONE}"))
        if dialect.id == "gputop":
            hosts = over("last_over_time", selector("gputop_host_info", select), LAST_SEEN_S)
            parts.append(marked(max_by(("instance", "hostname"), hosts), HOST))
    return union(parts)


def metric(known: Known, key: str, select: str, wrap: Wrap = str) -> str:
    """One key of the catalogue in every dialect that has it; empty where none has. Values are as exported."""
    return union([
        known.marked(
            max_by(known.labels[dialect.id], wrap(dialect.signals[key].selector(select))), dialect.id
        )
        for dialect in known.having(key)
    ])  # fmt: skip


def mean(series: str) -> str:
    """The mean over the window of a state."""
    return over("avg_over_time", series, WINDOW_S)


def quiet(known: Known, select: str) -> str:
    """The 95th percentile of utilisation, only of GPUs where it means idle: the answer is as small as they are few."""
    parts = []
    for dialect in known.having("util_pct"):
        util = dialect.signals["util_pct"]
        inner = max_by(known.labels[dialect.id], over("quantile_over_time", util.selector(select), WINDOW_S, "0.95"))
        # Where it may be percent or a ratio, only the whole answer tells which.
        limited = inner if util.doubtful else f"({inner} < {QUIET_UTIL / util.factor:g})"
        parts.append(known.marked(limited, dialect.id))
    return union(parts)


def troubles(known: Known, select: str, *, ages: bool) -> str:
    """Addresses that do not answer (0: twice in a row, 1: once), and alerts that fire; with ``ages`` also when each
    address last gave utilisation, Unix seconds."""
    up, alerts = selector("up", select), selector("ALERTS", 'alertstate="firing"', select)
    last = [
        marked(f"max by (instance) (timestamp({dialect.signals['util_pct'].selector(select)}))", AGE)
        for dialect in known.having("util_pct")
        if ages
    ]
    return union((f"({over('max_over_time', up, 2 * known.scrape_s)} and ({up} == 0))", alerts, *last))


def told(known: Known, select: str) -> str:
    """What gputop on the nodes concludes, whose job each GPU works for and how long its steps take, as far as series of
    their own say it; empty where none does."""
    parts: list[str] = []
    if (labels := known.labels.get("gputop")) is not None:
        parts += [
            f"({max_by((*labels, 'state'), selector('gputop_gpu_state', select))} == 1)",
            f"({max_by((*labels, 'verdict'), selector('gputop_gpu_verdict', select))} == 1)",
            max_by((*labels, *JOB_LABELS), selector("gputop_job_info", select)),
            marked(_step_seconds("gputop_step_seconds", labels, select), STEP),
            marked(_step_seconds("gputop_step_wait_seconds", labels, select), STEP_WAIT),
        ]
    if (labels := known.labels.get("jobstats")) is not None:
        parts.append(marked(max_by(labels, selector("nvidia_gpu_jobId", select)), JOB_ID))
    return union(parts)


def _step_seconds(name: str, labels: Iterable[str], select: str) -> str:
    """The mean step of the ranks on each GPU over the window of a state, or what they waited in it. Ranks that announce
    none have no series."""
    by = ", ".join(label for label in labels if label != "mig")
    seconds, steps = (
        f"sum by ({by}) ({over('rate', selector(f'{name}_{part}', select), WINDOW_S)})" for part in ("sum", "count")
    )
    return f"({seconds} / ({steps} > 0))"


def lost_by_own(known: Known, select: str, span_s: float) -> str:
    """Seconds of the last hour by state, of nodes that count them."""
    labels = known.labels.get("gputop")
    if labels is None:
        return ""
    counted = selector("gputop_gpu_state_seconds_total", any_of("state", NOT_WORK), select)
    return f"{max_by((*labels, 'state'), over('increase', counted, span_s))} > 1"
