"""What a fleet's Prometheus is asked, as PromQL. Pure: names and labels in, text out.

Every question is one query over the names that are there, each name a selector of its own: a regular expression over
eight names takes seconds at 8,000 GPUs, eight selectors do not. Always ``max by`` what identifies a GPU: that removes
the second of two replicas and keeps MIG instances apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from gputop.fleet.names import DIALECTS, Dialect, Signal
from gputop.fleet.reading import WINDOW_S

DIALECT_LABEL = "gputop_names"
"""Marks under which names a series was found."""
WINDOW = f"{WINDOW_S:.0f}s"
QUIET_UTIL = 5.0
"""The 95th percentile of utilisation below this is idleness, as on the node."""
JOB_LABELS = ("scheduler", "job_id", "user", "k8s_pod_uid", "container_id")
"""Of ``gputop_job_info``."""
HOST = "host"
"""Marks a series that says how the host behind an address calls itself."""
JOB_ID = "jobstats job"
"""Marks a series whose value is the number of a job."""
LAST_SEEN = "10m"
"""How long a host that is gone still counts the GPUs that it had."""

GONE = " gone"
"""After a dialect's id in its mark: a GPU that had values within ``LAST_SEEN`` and has none now."""

Wrap = Callable[[str], str]


class Known(Struct, frozen=True):
    """What discovery found: the dialects with data, and per dialect the labels that suffice to tell GPUs apart."""

    signals: Mapping[str, frozenset[str]]
    """Dialect → keys of the catalogue that it has series of."""
    labels: Mapping[str, tuple[str, ...]]
    scrape_s: float = 15.0

    def having(self, key: str) -> list[Dialect]:
        """The dialects that export a key."""
        return [dialect for dialect in DIALECTS.values() if key in self.signals.get(dialect.id, ())]


def discovery(select: str) -> str:
    """How many series each name of each dialect has, and how often one is scraped in five minutes."""
    counts = [
        marked(f"count({signal.selector(select)})", f"{dialect.id} {key}")
        for dialect in DIALECTS.values()
        for key, signal in dialect.signals.items()
    ]
    samples = [
        marked(
            f"max(count_over_time({dialect.signals['util_pct'].selector(select)}[{WINDOW}]))", f"{dialect.id} samples"
        )
        for dialect in DIALECTS.values()
    ]
    return " or ".join((*counts, *samples))


def marked(promql: str, mark: str) -> str:
    """The series with a label that says where they come from."""
    return f'label_replace({promql}, "{DIALECT_LABEL}", "{mark}", "", "")'


def _by(labels: Iterable[str], promql: str) -> str:
    return f"max by ({', '.join(dict.fromkeys(labels))}) ({promql})"


def identities(dialects: Iterable[Dialect], select: str) -> str:
    """Every GPU with all its labels and its utilisation; under ``GONE`` those of the last ten minutes that are gone."""
    parts = []
    for dialect in dialects:
        selector = dialect.signals["util_pct"].selector(select)
        same = ", ".join(("instance", *dialect.number, *dialect.instance, *dialect.uuid))
        gone = f"last_over_time({selector}[{LAST_SEEN}]) unless on ({same}) {selector}"
        parts.append(marked(_by(dialect.labels, selector), dialect.id))
        parts.append(marked(_by(dialect.labels, gone), f"{dialect.id}{GONE}"))
        if dialect.id == "gputop":
            hosts = f"last_over_time({Signal('gputop_host_info').selector(select)}[{LAST_SEEN}])"
            parts.append(marked(_by(("instance", "hostname"), hosts), HOST))
    return " or ".join(parts)


def metric(
    known: Known, key: str, select: str, wrap: Wrap = str, labels: Mapping[str, Sequence[str]] | None = None
) -> str:
    """One key of the catalogue in every dialect that has it; empty where none has. Values are as exported."""
    parts = []
    for dialect in known.having(key):
        wrapped = wrap(dialect.signals[key].selector(select))
        parts.append(marked(_by((labels or known.labels)[dialect.id], wrapped), dialect.id))
    return " or ".join(parts)


def mean(selector: str) -> str:
    """Over the window of a state."""
    return f"avg_over_time({selector}[{WINDOW}])"


def quiet(known: Known, select: str, labels: Mapping[str, Sequence[str]] | None = None) -> str:
    """The 95th percentile of utilisation of the GPUs where it is idleness: an answer as small as they are few."""
    parts = []
    for dialect in known.having("util_pct"):
        signal = dialect.signals["util_pct"]
        inner = f"quantile_over_time(0.95, {signal.selector(select)}[{WINDOW}])"
        inner = _by((labels or known.labels)[dialect.id], inner)
        # Where it may be percent or a ratio, the answer tells which, and so all of it is wanted.
        limited = inner if signal.doubtful else f"({inner} < {QUIET_UTIL / signal.factor:g})"
        parts.append(marked(limited, dialect.id))
    return " or ".join(parts)


def ages(known: Known, select: str) -> str:
    """When each scraped address last gave utilisation, Unix seconds."""
    parts = [
        marked(f"max by (instance) (timestamp({dialect.signals['util_pct'].selector(select)}))", dialect.id)
        for dialect in known.having("util_pct")
    ]
    return " or ".join(parts)


def troubles(known: Known, select: str) -> str:
    """Addresses that do not answer (0: twice in a row, 1: once), and alerts that fire."""
    up, alerts = Signal("up").selector(select), Signal("ALERTS", labels=(("alertstate", "firing"),)).selector(select)
    return f"(max_over_time({up}[{2 * known.scrape_s:.0f}s]) and ({up} == 0)) or {alerts}"


def told(known: Known, select: str) -> str:
    """What gputop on the nodes concludes, whose job each GPU works for and how hosts call themselves, as far as series
    of their own say it; empty where none does."""
    parts: list[str] = []
    if (labels := known.labels.get("gputop")) is not None:
        parts += [
            f"({_by((*labels, 'state'), Signal('gputop_gpu_state').selector(select))} == 1)",
            f"({_by((*labels, 'verdict'), Signal('gputop_gpu_verdict').selector(select))} == 1)",
            _by((*labels, *JOB_LABELS), Signal("gputop_job_info").selector(select)),
        ]
    if (labels := known.labels.get("jobstats")) is not None:
        parts.append(marked(_by(labels, Signal("nvidia_gpu_jobId").selector(select)), JOB_ID))
    return " or ".join(parts)


def lost_by_own(known: Known, select: str, span_s: float) -> str:
    """Seconds of the last hour by state, of nodes that count them."""
    labels = known.labels.get("gputop")
    if labels is None:
        return ""
    states = "busy_not_working|starved|idle_allocated|idle"
    matchers = f'state=~"{states}"' + (f",{select}" if select else "")
    inner = f"increase(gputop_gpu_state_seconds_total{{{matchers}}}[{span_s:.0f}s])"
    return f"{_by((*labels, 'state'), inner)} > 1"
