"""The queries to a fleet's Prometheus, as PromQL. Pure: names and labels in, text out.

Every question is one query over the names that exist, each name with its own selector: a regular expression over
eight names takes seconds at 8,000 GPUs, eight selectors do not. Always ``max by`` what identifies a GPU: that removes
the second of two replicas and keeps MIG instances apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from gputop.diagnosis.idle_runs import QUIET_UTIL
from gputop.diagnosis.types import NOT_WORK
from gputop.features.fleet import promql
from gputop.features.fleet.exporter_names import CLUSTER_LABELS, DETAIL_KEYS, DIALECTS, STATE_KEYS, Dialect
from gputop.features.fleet.fleet_reading import WINDOW_S
from gputop.features.fleet.promql import any_of, max_by, over, selector, union, window

DIALECT_LABEL = "gputop_names"
"""The label that marks under which names a series was found, where there are several."""
JOB_LABELS = ("scheduler", "job_id", "user", "k8s_pod_uid", "container_id")
"""Labels of ``gputop_job_info``."""
POD_LABELS = ("k8s_namespace_name", "k8s_pod_name")
"""Labels of ``gputop_pod_info`` that name a pod."""
HOST, POD, JOB_ID, STEP, STEP_WAIT, AGE = "host", "pod", "jobstats job", "step", "step wait", "age"
LOST, LATE, DEAD, EXPORTER, SPACING = "lost", "late", "dead", "exporter", "spacing"
"""Marks of series that give: the name of the host behind an address; the pod that the kubelet gave a GPU to; a
job's number as the value; the mean seconds of a
training step; when an address last gave values; that a driver cannot read a GPU; how long a driver is late, in seconds;
how long ago the values of a file were written that nobody renews; the pod in which an exporter runs; the seconds
between two scrapes."""
LAST_SEEN_S = 600.0
"""How long a host counts as down of which nothing tells whether it is still scraped; from then on it is gone."""
LOOKBACKS_S = (1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 57600.0, 86400.0)
"""How long before now GPUs are looked for that are not there any more: a day, and in steps, since an engine reads
everything between for a window, and next to nothing for a moment."""
DEAD_S, DEAD_SCRAPES = 120.0, 4
"""A file's values that did not change for so long, and over so many scrapes, are those of an exporter that has ended.
The file's own time is compared with itself: a node's clock may be wrong."""
GONE = " gone"
"""After a dialect's id in its mark: a GPU that had values within the last day and has none now."""

Wrap = Callable[[str], str]


class Known(Struct, frozen=True):
    """What discovery found: the dialects with data, and per dialect the labels that suffice to tell GPUs apart."""

    signals: Mapping[str, frozenset[str]]
    """Dialect → keys of the catalogue that it has series of."""
    labels: Mapping[str, tuple[str, ...]]
    scrape_s: float = 15.0
    cluster: str = ""
    """The label that tells clusters apart, where there are several."""
    marks: bool = False
    """Whether series carry their dialect though it is the only one."""

    def having(self, key: str) -> list[Dialect]:
        """The dialects that export a key."""
        return [
            dialect
            for dialect in DIALECTS.values()
            if dialect.id in self.labels and key in self.signals.get(dialect.id, ())
        ]

    @property
    def place(self) -> tuple[str, ...]:
        """The labels of a scraped address: the same one may be in several clusters."""
        return (self.cluster, "instance") if self.cluster else ("instance",)

    @property
    def only(self) -> str:
        """The dialect of all series, where there is one alone: its series carry no mark."""
        return next(iter(self.labels)) if len(self.labels) == 1 else ""

    def labelled(self, labels: Mapping[str, tuple[str, ...]]) -> Known:
        """The same with other labels, of some of the dialects; a dialect that was marked stays so."""
        return Known(self.signals, labels, self.scrape_s, self.cluster, marks=not self.only)

    def marked(self, expr: str, dialect: str) -> str:
        """The series with their dialect, where it could be another one."""
        return expr if self.only and not self.marks else marked(expr, dialect)


def marked(expr: str, mark: str) -> str:
    """The series with a label for their origin or kind."""
    return promql.marked(expr, DIALECT_LABEL, mark)


def names_asked(select: str) -> str:
    """A selector of every series that a dialect could have. ``gputop_up`` is there where a driver hangs, too."""
    asked = ["gputop_up"] + [
        dialect.signals[key].name
        for dialect in DIALECTS.values()
        for key in (*STATE_KEYS, *DETAIL_KEYS)
        if key in dialect.signals
    ]
    return promql.named(dict.fromkeys(asked), select)


def samples(select: str) -> str:
    """How often GPUs were scraped in five minutes, by dialect. One GPU of each host tells of all of them."""
    return union([
        marked(f"max({over('count_over_time', _first(dialect, select), WINDOW_S)})", dialect.id)
        for dialect in DIALECTS.values()
    ])  # fmt: skip


def spacing(dialects: Iterable[Dialect], select: str) -> str:
    """The seconds between two scrapes by address, from the times of samples: right where an engine has but a minute of
    data."""
    parts = []
    for dialect in dialects:
        times = f"timestamp({_first(dialect, select)})[{window(WINDOW_S)}:5s]"
        spread = f"max_over_time({times}) - min_over_time({times})"
        parts.append(marked(f"min by (instance) (({spread}) / (changes({times}) > 0))", SPACING))
    return union(parts)


def _first(dialect: Dialect, select: str) -> str:
    return dialect.signals["util_pct"].selector(f'{dialect.number[0]}="0"', select)


def identities(dialects: Iterable[Dialect], select: str, *, gone: bool) -> str:
    """Every GPU with all its labels; under ``GONE`` those that were there within the last day, if they are wanted.

    gputop's exporter counts on for a GPU that it cannot read: whom it counts for is known, measured or not.
    """
    parts = []
    for dialect in dialects:
        util = dialect.signals["util_pct"].selector(select)
        same = f"unless on ({', '.join(('instance', *dialect.number, *dialect.instance, *dialect.uuid))}) {util}"
        before = []
        parts.append(marked(max_by(dialect.labels, util), dialect.id))
        if dialect.id == "gputop":
            parts.append(marked(max_by(dialect.labels, selector("gputop_gpu_info", select)), dialect.id))
            before.append(selector("gputop_gpu_state_seconds_total", 'state="working"', select))
            hosts = over("last_over_time", selector("gputop_host_info", select), LAST_SEEN_S)
            parts.append(marked(max_by(("instance", *CLUSTER_LABELS, "hostname"), hosts), HOST))
        if gone:
            before.append(over("last_over_time", util, LAST_SEEN_S))
            before += [f"{util} offset {window(back_s)}" for back_s in LOOKBACKS_S]
        if before:
            # An engine reads a series once for each time that it is named.
            known = f"({union(before)}) {same}"
            parts.append(marked(max_by(dialect.labels, known), f"{dialect.id}{GONE}"))
        if dialect.job:
            scraped = selector("up", 'pod!=""', select)
            parts.append(marked(f"max by (pod) ({scraped} and on (instance) {util})", EXPORTER))
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


def current(known: Known, series: str) -> str:
    """The newest value of two scrapes: one that failed once does not make a GPU vanish from a sum."""
    return over("last_over_time", series, 2 * known.scrape_s + SCRAPE_SLACK_S)


SCRAPE_SLACK_S = 5.0


def troubles(known: Known, select: str, *, ages: bool) -> str:
    """Whether scraped addresses answer (0: not twice in a row), of all jobs that export GPUs; drivers that are late and
    files that nobody writes any more; alerts that fire; with ``ages`` also when each address last gave utilisation,
    Unix seconds."""
    by = f"max by ({', '.join(known.place)})"
    utils = [dialect.signals["util_pct"].selector(select) for dialect in known.having("util_pct")]
    alerts = selector("ALERTS", 'alertstate="firing"', select)
    parts = []
    own, stamp = selector("gputop_up", select), selector("gputop_last_sample_timestamp_seconds", select)
    jobs = [f"count by (job) ({series})" for series in (*utils, *([own] if "gputop" in known.labels else ()))]
    up = selector("up", select)
    twice = over("max_over_time", up, 2 * known.scrape_s)
    if jobs:
        # After a pause of the engine itself there is nothing in that window yet, but a value from before.
        parts.append(marked(f"{by} (({twice} or {up}) and on (job) ({union(jobs)}))", UP))
    parts.append(alerts)
    if "gputop" in known.labels:
        silent_s = max(DEAD_S, DEAD_SCRAPES * known.scrape_s)
        age, window_of = f"time() - {stamp}", window(silent_s)
        same = f"max_over_time({stamp}[{window_of}]) == min_over_time({stamp}[{window_of}])"
        old = f"({same} and count_over_time({stamp}[{window_of}]) >= {DEAD_SCRAPES - 1})"
        parts += [
            marked(f"{by} ({age} and on (instance) ({own} == 0))", LATE),
            marked(f"{by} ({own} == 0)", LATE),
            marked(f"{by} ({age} and on (instance) ({own} == 1) and on (instance) {old})", DEAD),
        ]
    if ages:
        parts += [marked(f"{by} (timestamp({series}))", AGE) for series in utils]
    return union(parts)


UP = "up"
"""The mark of whether an address answers."""


def told(known: Known, select: str) -> str:
    """What gputop on the nodes concludes, whose job each GPU works for and how long its steps take, as far as series of
    their own say it; empty where none does."""
    parts: list[str] = []
    if (labels := known.labels.get("gputop")) is not None:
        parts += [
            f"({max_by((*labels, 'state'), selector('gputop_gpu_state', select))} == 1)",
            f"({max_by((*labels, 'verdict'), selector('gputop_gpu_verdict', select))} == 1)",
            max_by((*labels, *JOB_LABELS), selector("gputop_job_info", select)),
            marked(f"{max_by(labels, selector('gputop_gpu_lost', select))} == 1", LOST),
            marked(max_by((*labels, *POD_LABELS), selector("gputop_pod_info", select)), POD),
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


def counted(series: str) -> str:
    """How many samples a window has. Older engines count those on both of its edges: one second less leaves out the
    first of them, which is the last one of the window before."""
    return over("count_over_time", series, WINDOW_S - 1.0)


def own_states(known: Known, select: str) -> str:
    """Seconds by state of a window, of nodes that count them."""
    labels = known.labels["gputop"]
    series = selector("gputop_gpu_state_seconds_total", any_of("state", NOT_WORK), select)
    return _own(known, f"{max_by((*labels, 'state'), over('increase', series, WINDOW_S))} > 0.5")


def own_jobs(known: Known, select: str) -> str:
    """How many samples of a window name each job of a GPU."""
    series = selector("gputop_job_info", select)
    return _own(known, max_by((*known.labels["gputop"], *JOB_LABELS), counted(series)))


def own_pods(known: Known, select: str) -> str:
    """How many samples of a window name each pod that the kubelet gave a GPU to."""
    series = selector("gputop_pod_info", select)
    return _own(known, max_by((*known.labels["gputop"], *POD_LABELS), counted(series)))


def own_samples(known: Known, select: str) -> str:
    """How many samples of a window there are of each GPU."""
    series = DIALECTS["gputop"].signals["util_pct"].selector(select)
    return _own(known, max_by(known.labels["gputop"], counted(series)))


def _own(known: Known, expr: str) -> str:
    return known.marked(expr, "gputop")
