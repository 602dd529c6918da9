"""What the rules record of each host: the questions, and their answers decoded. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gputop.features.fleet import promql
from gputop.features.fleet.decode_answers import Labels, Place, label_text, own_job
from gputop.features.fleet.exporter_names import CLUSTER_LABELS, DIALECTS, first_of, host_of, job_of_pod
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    NO_JOB,
    GpuState,
    HostShare,
    JobName,
    Lost,
    names_of_numbers,
    with_scheduler,
)
from gputop.features.fleet.judge import GPU_STATES
from gputop.features.fleet.plan import AGE, HOST, LATE, LOOKBACKS_S, UP, marked
from gputop.features.fleet.promql import ALL_NAMES, NAMES_LABEL, each_once, over, selector, window
from gputop.features.fleet.state_rules import (
    CODE,
    CODES,
    HOST_ADDRESS,
    HOST_LOST,
    HOST_POWER,
    HOST_SM,
    HOST_UTIL,
)

MEANS: Mapping[str, str] = {
    HOST_UTIL: "util_pct", HOST_SM: "sm_active_pct", HOST_POWER: "power_w",
}  # fmt: skip
"""Recorded series → what of ``HostShare`` it is."""
_PERCENT = frozenset(("util_pct", "sm_active_pct"))
_STATES: Mapping[str, GpuState] = {str(code): state for state, code in CODES.items()}


def size(select: str) -> str:
    """How many GPUs the rules record; nothing where there are no rules, or older ones."""
    return f"sum({selector(HOST_ADDRESS, select)})"


def lost(select: str) -> str:
    """GPU-hours of the last hour that were no work, by host, owner and state."""
    return f"{each_once('sum_over_time', selector(HOST_LOST, select), HOUR_S)} / 60"


def minutes(select: str) -> str:
    """For how many minutes of the last hour the rules recorded GPUs, whether or not these lost any time."""
    return f"max({each_once('count_over_time', selector(HOST_ADDRESS, select), HOUR_S)})"


def before(select: str) -> str:
    """The most GPUs that each address had at some moments of the last day."""
    series = selector(HOST_ADDRESS, select)
    past = [promql.marked(f"{series} offset {window(back_s)}", "back", f"{back_s:.0f}") for back_s in LOOKBACKS_S]
    return f"max without (back) ({promql.union(past)})"


def troubles(select: str, scrape_s: float) -> str:
    """Addresses that did not answer twice in a row, drivers that are late, alerts that fire, and when the rules were
    last evaluated, Unix seconds."""
    by = f"max by ({', '.join((*CLUSTER_LABELS, 'instance'))})"
    twice = over("max_over_time", selector("up", select), 2 * scrape_s)
    return promql.union([
        marked(f"{by} ({twice}) == 0", UP),
        marked(f"{by} ({selector('gputop_up', select)}) == 0", LATE),
        marked(f"max(timestamp({selector(HOST_ADDRESS, select)}))", AGE),
        selector("ALERTS", 'alertstate="firing"', select),
    ])  # fmt: skip


def answering(instances: Sequence[str], select: str) -> str:
    """Of these addresses those that are still scraped and answer, and under ``HOST`` those that give utilisation,
    recorded or not."""
    matchers = (promql.any_of("instance", instances), select)
    names = [DIALECTS[name].signals["util_pct"].name for name in ALL_NAMES]
    measured = f"count by (instance) ({promql.named(names, *matchers)})"
    return promql.union([marked(selector("up", *matchers), UP), marked(measured, HOST)])


def host_info(select: str) -> str:
    """The names of the hosts behind addresses, as gputop's exporter gives them."""
    labels = (*CLUSTER_LABELS, "instance", "hostname")
    return marked(promql.max_by(labels, selector("gputop_host_info", select)), HOST)


class RecordedHost(NamedTuple):
    """Which host a recorded series is of, under whose names, and whose GPUs they are. ``what`` is a state or a name."""

    names: str
    cluster: str
    host: str
    instance: str
    job: JobName = NO_JOB
    user: str = ""
    what: str = ""

    @property
    def place(self) -> Place:
        return self.cluster, self.instance


def recorded_host(labels: Labels) -> RecordedHost:
    """The labels of a recorded series of a host."""
    quantity: str = labels.get("state") or _STATES.get(labels.get(CODE, "")) or labels.get("__name__", "")
    return RecordedHost(
        labels.get(NAMES_LABEL, ""), label_text(first_of(labels, CLUSTER_LABELS)), label_text(host_of(labels)),
        labels.get("instance", ""), *owner_of(labels), quantity,
    )  # fmt: skip


def owner_of(labels: Labels) -> tuple[JobName, str]:
    """(job, user) of recorded labels, in the words of the exporters' own."""
    user, pod = label_text(labels.get("user", "")), label_text(labels.get("k8s_pod", ""))
    if labels.get("job_id") or not pod:
        return own_job(labels)
    namespace = label_text(labels.get("k8s_namespace", ""))
    return job_of_pod(namespace, pod), namespace or user


class HostNames:
    """What hosts are called: by gputop's exporter where it says so, with the cluster where several have one name."""

    def __init__(self, names_by_place: Mapping[Place, str], present: Iterable[RecordedHost]) -> None:
        self._names_by_place = names_by_place
        clusters: dict[str, set[str]] = defaultdict(set)
        for recorded in present:
            clusters[self._plain(recorded)].add(recorded.cluster)
        self._ambiguous = {host for host, clusters_of_host in clusters.items() if len(clusters_of_host) > 1}
        self.several = len({cluster for clusters_of_host in clusters.values() for cluster in clusters_of_host}) > 1

    def of(self, recorded: RecordedHost) -> str:
        host = self._plain(recorded)
        return f"{recorded.cluster or '-'}/{host}" if host in self._ambiguous else host

    def job(self, recorded: RecordedHost) -> JobName:
        """Whose GPUs these are."""
        return recorded.job.within(recorded.cluster) if self.several else recorded.job

    def _plain(self, recorded: RecordedHost) -> str:
        return self._names_by_place.get(recorded.place, recorded.host) if recorded.instance else recorded.host


def shares_of(
    states: Sequence[tuple[RecordedHost, float]], means: Iterable[tuple[RecordedHost, float]], names: HostNames
) -> list[HostShare]:
    """The shares that jobs have of hosts."""
    jobs = names_of_numbers(names.job(recorded) for recorded, _ in states)

    def owner(recorded: RecordedHost) -> tuple[str, JobName, str]:
        return names.of(recorded), with_scheduler(names.job(recorded), jobs), recorded.user

    counts: dict[tuple[str, JobName, str], Counter[GpuState]] = defaultdict(Counter)
    for recorded, value in states:
        if recorded.what in GPU_STATES and 0 < value < 1e6:
            counts[owner(recorded)][recorded.what] += round(value)
    values: dict[tuple[str, JobName, str], dict[str, float]] = defaultdict(dict)
    for recorded, value in means:
        word = MEANS.get(recorded.what)
        if word is not None and (key := owner(recorded)) in counts and 0.0 <= value < 1e7:
            values[key][word] = min(100.0, 100.0 * value) if word in _PERCENT else value
    return [
        HostShare(host, job, user, states_of_share, **values.get((host, job, user), {}))
        for (host, job, user), states_of_share in counts.items()
    ]


def lost_of(
    rows: Sequence[tuple[RecordedHost, float]], name: Callable[[RecordedHost], str], *, several: bool
) -> list[Lost]:
    """The last hour by host, owner and state; ``several`` says whether jobs are those of several clusters."""
    owners = [recorded.job.within(recorded.cluster) if several else recorded.job for recorded, _ in rows]
    jobs = names_of_numbers(owners)
    return [
        Lost(name(recorded), "", with_scheduler(job, jobs), recorded.user, recorded.what, value)
        for (recorded, value), job in zip(rows, owners, strict=True)
        if recorded.what in GPU_STATES and 0.0 < value < 1e6
    ]
