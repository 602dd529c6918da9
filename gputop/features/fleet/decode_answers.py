"""A Prometheus' answers → readings of GPUs. Pure: rows in, values of the catalogue out.

Exporters disagree on labels and units; here they become one GPU each, by UUID where there is one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from gputop.diagnosis.types import STATES, State
from gputop.features.fleet import plan
from gputop.features.fleet.exporter_names import (
    BLANK,
    CLUSTER_LABELS,
    DIALECTS,
    GPU_KEYS,
    HOST_LABELS,
    RATIO_LIMIT,
    Dialect,
    first_of,
    host_of,
    plausible,
)
from gputop.features.fleet.fleet_reading import NO_JOB, NUMBER, FiringAlert, FleetError, GpuReading, JobName
from gputop.features.fleet.plan import FleetSchema
from gputop.features.fleet.promql import ENGINE
from gputop.model.cards import mig_share
from gputop.model.quantity import clean_text
from gputop.model.snapshot import POD

LONGEST_LABEL = 120
LONGEST_STEP_S, GREATEST_JOB = 1e6, 2.0**53
"""Training steps and job numbers beyond these are not meant."""


class SeriesKey(NamedTuple):
    """A GPU as one dialect's series name it."""

    dialect: str
    values: tuple[str, ...]


Place = tuple[str, ...]
"""The values of ``FleetSchema.place``: cluster, where there are several, and scraped address."""


class GpuIdentity(Struct, frozen=True):
    """What is known of a GPU besides its values. ``place`` is the scraped address, with its cluster where there are
    several; a GPU that is ``gone`` had values within the last day and has none now.

    Of a MIG instance ``uuid`` is that of its GPU where that is known, ``mig`` its number there, ``share`` its part of
    the GPU's slices.
    """

    host: str
    gpu: str
    uuid: str
    model: str
    place: Place
    job: JobName
    user: str
    gone: bool
    mig: str = ""
    share: float = 1.0

    @property
    def instance(self) -> str:
        """The scraped address."""
        return self.place[-1]

    @property
    def cluster(self) -> str:
        """Its cluster, where there are several."""
        return self.place[0] if len(self.place) > 1 else ""

    @property
    def id(self) -> tuple[str, ...]:
        """What it is, whichever exporters and addresses speak of it: by its UUID, else by its host and number."""
        return (self.cluster, self.uuid, self.mig) if self.uuid else (self.cluster, self.host, self.gpu)


Labels = Mapping[str, str]


def keys_by_dialect(names: Collection[str]) -> dict[str, frozenset[str]]:
    """Which keys each dialect can have series of, by the names that there are."""
    present, found = frozenset(names), {}
    for name, dialect in DIALECTS.items():
        keys = frozenset(key for key in GPU_KEYS if key in dialect.signals and dialect.signals[key].name in present)
        # A dialect without utilisation cannot be judged, and has nothing that another does not have better; MIG
        # instances have their engine's. Where gputop's exporter has no value at all, it says that the driver is late.
        is_late = name == "gputop" and "gputop_up" in present
        if "util_pct" in keys or (ENGINE in keys and dialect.instance) or is_late:
            found[name] = keys
    return found


def scrape_seconds(samples: Iterable[float], window_s: float) -> float:
    """The time between two scrapes, by their number in a window; 15 s where that is unknown."""
    most_samples = max(samples, default=0.0)
    return min(120.0, max(1.0, round(window_s / most_samples))) if most_samples > 1 else 15.0


def _cluster_label(rows: Sequence[Labels]) -> str:
    """The label by which several clusters in one engine are told apart; empty for one cluster."""
    values = {label: {row.get(label, "") for row in rows} for label in CLUSTER_LABELS}
    return next((label for label, several in values.items() if len(several) > 1), "")


def _key_labels(rows: Sequence[Labels], cluster: str) -> dict[str, tuple[str, ...]]:
    """Per dialect the fewest labels that tell its GPUs apart: short answers are fast answers.

    Two UUIDs under one address and number are two GPUs, of two clusters, say: then the UUID is one of the labels.
    """
    by_dialect: dict[str, list[Labels]] = defaultdict(list)
    for row in rows:
        by_dialect[row.get(plan.DIALECT_LABEL, "").removesuffix(plan.GONE)].append(row)
    labels_of_dialect: dict[str, tuple[str, ...]] = {}
    for name in [name for name in by_dialect if name in DIALECTS]:
        dialect, all_labels = DIALECTS[name], by_dialect[name]
        used = {label for labels in all_labels for label in labels}
        hosts = {(labels.get(cluster, ""), labels.get("instance", ""), host_of(labels)) for labels in all_labels}
        places = {(of_cluster, instance) for of_cluster, instance, _ in hosts}
        told_by_address = len(places) == len(hosts) and all(instance for _, instance in places)
        number = () if dialect.facts else tuple(label for label in dialect.number if label in used)[:1]
        names = (
            *(("instance",) if told_by_address else sorted(used.intersection(HOST_LABELS))),
            *((cluster,) if cluster else ()),
            *(number or dialect.uuid),
            *(label for label in dialect.instance if label in used),
        )
        present = (labels for labels in all_labels if labels.get(plan.DIALECT_LABEL) == name)
        uuids = {(key_of(labels, name, names), first_of(labels, dialect.uuid)) for labels in present}
        if len({key for key, _ in uuids}) < len(uuids):
            names = tuple(dict.fromkeys((*names, *(label for label in dialect.uuid if label in used))))
        labels_of_dialect[name] = names
    return labels_of_dialect


def _exporters(rows: Sequence[Labels]) -> frozenset[str]:
    """Pods that export GPUs and work on none: those that are scraped, and what stands as ``pod`` of a GPU where others
    name theirs as ``exported_pod``."""
    is_named = any(row.get("exported_pod") for row in rows)
    return frozenset(
        row.get("pod", "")
        for row in rows
        if row.get(plan.DIALECT_LABEL) == plan.EXPORTER or (is_named and not row.get("exported_pod"))
    )


class Discovered(NamedTuple):
    """What the series of GPUs say: how to ask for each, what the hosts behind addresses are called, and every GPU by
    its key."""

    schema: FleetSchema
    host_names: Mapping[Place, str]
    identities: dict[SeriesKey, GpuIdentity]


def discovered(rows: Sequence[Labels], schema: FleetSchema) -> Discovered:
    """The GPUs that series name. One that several jobs share is in the first of them by name; one that is split into
    MIG instances is not among them."""
    cluster = _cluster_label([row for row in rows if row.get(plan.DIALECT_LABEL) in DIALECTS])
    schema = replace(schema, labels=_key_labels(rows, cluster), cluster=cluster)
    # As gputop's exporter gives them.
    names = {
        place_of(row, schema.place): label_text(name)
        for row in rows
        if row.get(plan.DIALECT_LABEL) == plan.HOST and (name := row.get("hostname", ""))
    }
    if names and "gputop" in schema.signals:
        # A driver that hangs has no GPU to tell its labels by.
        schema = replace(schema, labels={"gputop": (*schema.place, *DIALECTS["gputop"].number), **schema.labels})
    exporters = _exporters(rows)
    identities: dict[SeriesKey, GpuIdentity] = {}
    for row in rows:
        mark = row.get(plan.DIALECT_LABEL, "")
        name = mark.removesuffix(plan.GONE)
        if name not in schema.labels:
            continue
        dialect = DIALECTS[name]
        key = key_of(row, name, schema.labels[name])
        where = place_of(row, schema.place)
        hostname = names.get(where) if name == "gputop" else None
        job, user = owner_of(row, exporters) if dialect.job else (NO_JOB, "")
        parent, mig = row.get("parent", ""), label_text(first_of(row, dialect.instance))
        model = label_text(first_of(row, dialect.model))
        identity = GpuIdentity(
            hostname or label_text(host_of(row)) or "(no host label)",
            _number(dialect, row),
            label_text(parent or first_of(row, dialect.uuid)),
            model,
            where,
            job.within(label_text(where[0])) if schema.cluster else job,
            user,
            mark.endswith(plan.GONE),
            # The compute instance that an instance has alone is no part of its name elsewhere.
            mig.removesuffix("/0") if parent else mig,
            1.0 if not mig else mig_share(f"{model} {first_of(row, dialect.profile)}") or 0.0,
        )
        before = identities.get(key)
        if before is None or (before.gone, before.job or "~") > (identity.gone, identity.job or "~"):
            identities[key] = identity
    identities = _without_split(identities)
    return Discovered(schema, names, _named_apart(identities) if schema.cluster else identities)


def _without_split(identities: dict[SeriesKey, GpuIdentity]) -> dict[SeriesKey, GpuIdentity]:
    """Without the GPUs that are split into instances; where no profile says an instance's share they are equal."""
    instances = Counter((identity.cluster, identity.uuid) for identity in identities.values() if identity.mig)
    if not instances:
        return identities
    kept = {}
    for key, identity in identities.items():
        gpu = (identity.cluster, identity.uuid)
        if identity.mig or not identity.uuid or not instances[gpu]:
            kept[key] = identity if identity.share else replace(identity, share=1.0 / instances[gpu])
    return kept


def place_of(labels: Labels, names: Sequence[str]) -> Place:
    """The scraped address of a series."""
    return tuple([labels.get(name, "") for name in names])


def recorded_place(labels: Labels) -> Place:
    """The same of a large fleet's hosts: always with its cluster, which may be empty."""
    return label_text(first_of(labels, CLUSTER_LABELS)), labels.get("instance", "")


def _named_apart(identities: Mapping[SeriesKey, GpuIdentity]) -> dict[SeriesKey, GpuIdentity]:
    """Hosts of one name in several clusters with their cluster's name before it."""
    clusters: dict[str, set[str]] = defaultdict(set)
    for identity in identities.values():
        clusters[identity.host].add(identity.place[0])
    return {
        key: replace(identity, host=label_text(f"{identity.place[0] or '-'}/{identity.host}"))
        if len(clusters[identity.host]) > 1
        else identity
        for key, identity in identities.items()
    }


def _number(dialect: Dialect, labels: Labels) -> str:
    number = first_of(labels, dialect.number) or first_of(labels, dialect.uuid)[:12] or "?"
    instance = first_of(labels, dialect.instance)
    return label_text(f"{number}/{instance}" if instance else number)


@lru_cache(maxsize=4096)
def label_text(text: str) -> str:
    """A label that can be shown."""
    return clean_text(text[:LONGEST_LABEL])


def key_of(labels: Labels, dialect: str, names: Sequence[str]) -> SeriesKey:
    """The key of a series by these labels."""
    return SeriesKey(dialect, place_of(labels, names))


def gpu_of(labels: Labels, schema: FleetSchema) -> SeriesKey | None:
    """The GPU that a series of a metric belongs to; None for a dialect that is not known."""
    dialect = labels.get(plan.DIALECT_LABEL, "") or schema.only
    names = schema.labels.get(dialect)
    return None if names is None else key_of(labels, dialect, names)


def in_units(values: Iterable[tuple[SeriesKey | None, float]], key: str) -> dict[SeriesKey, float]:
    """One metric in the catalogue's unit by GPU; DCGM's blanks and what cannot be are left out."""
    signals = {name: dialect.signals.get(key) for name, dialect in DIALECTS.items()}
    in_unit: dict[SeriesKey, float] = {}
    doubtful: dict[SeriesKey, float] = {}
    for gpu, value in values:
        signal = None if gpu is None else signals[gpu.dialect]
        if gpu is None or signal is None or value >= BLANK:
            continue
        if signal.doubtful:
            doubtful[gpu] = value
        else:
            in_unit[gpu] = value * signal.factor
    if doubtful:
        in_unit.update(_scaled(doubtful))
    return {gpu: possible for gpu, value in in_unit.items() if (possible := plausible(key, value)) is not None}


def _scaled(values: Mapping[SeriesKey, float]) -> dict[SeriesKey, float]:
    """Ratios as percent, and percent under a ratio's name unchanged; each host has one exporter, and so one of both."""
    highest_of_host: dict[str, float] = defaultdict(float)
    for key, value in values.items():
        host = key.values[0]
        highest_of_host[host] = max(highest_of_host[host], value)
    percent = {host for host, value in highest_of_host.items() if value > RATIO_LIMIT}
    if percent:
        # 0 and 1 may be either: beside hosts that give percent they are percent.
        ratio = {key.values[0] for key, value in values.items() if value % 1.0 and value <= RATIO_LIMIT} - percent
        percent |= set(highest_of_host) - ratio
    return {key: value if key.values[0] in percent else value * 100.0 for key, value in values.items()}


class SeriesFacts(Struct):
    """What separate series say of a GPU. ``step_s`` is the mean training step of its ranks in seconds,
    ``step_wait_s`` what they waited for others in it; ``pod`` is what the kubelet gave the GPU to, in the words of
    ``owner``, job and user."""

    state: str | None = None
    verdict: str | None = None
    owner: tuple[JobName, str] = (NO_JOB, "")
    pod: tuple[JobName, str] = (NO_JOB, "")
    step_s: float | None = None
    step_wait_s: float | None = None
    is_lost: bool = False

    @property
    def whose(self) -> tuple[JobName, str]:
        """Job and user, as a process there has them, or else the pod that the GPU was given to."""
        return self.owner if self.owner[0] or not self.pod[0] else self.pod


class FactLabels(NamedTuple):
    """The labels of one of those series: which GPU, which fact, and what they say of it."""

    key: SeriesKey
    fact: str
    says: Any = None


_VALUES = {plan.JOB_ID: "owner", plan.STEP: "step_s", plan.STEP_WAIT: "step_wait_s", plan.LOST: "is_lost"}
"""Marks of series whose value says it → the fact."""


def fact_labels(labels: Labels, schema: FleetSchema) -> FactLabels | None:
    """A series of ``plan.node_facts``; None for one of a dialect that is not known."""
    mark = labels.get(plan.DIALECT_LABEL, "")
    dialect = "jobstats" if mark == plan.JOB_ID else "gputop"
    names = schema.labels.get(dialect)
    if names is None:
        return None
    key = key_of(labels, dialect, names)
    if mark in _VALUES:
        return FactLabels(key, _VALUES[mark])
    if mark == plan.POD:
        return FactLabels(key, "pod", owner_of(labels))
    if "state" in labels:
        return FactLabels(key, "state", labels["state"])
    if "verdict" in labels:
        return FactLabels(key, "verdict", label_text(labels["verdict"]))
    return FactLabels(key, "owner", owner_of(labels))


def series_facts(rows: Iterable[tuple[FactLabels | None, float]]) -> dict[SeriesKey, SeriesFacts]:
    """The answer to ``plan.node_facts`` by GPU. Of several jobs or pods on one it is the first by name."""
    facts_by_gpu: dict[SeriesKey, SeriesFacts] = defaultdict(SeriesFacts)
    for labels, value in rows:
        if labels is None:
            continue
        key, fact, says = labels
        facts = facts_by_gpu[key]
        if key.dialect == "jobstats":
            says = (JobName(NUMBER, f"{value:.0f}"), "") if 0 < value < GREATEST_JOB else (NO_JOB, "")
        if fact in ("owner", "pod"):
            says = min(getattr(facts, fact), says, key=lambda owner: (not owner[0], not owner[1], owner))
        elif fact == "is_lost":
            says = True
        elif fact in ("step_s", "step_wait_s"):
            least = math.ulp(0.0) if fact == "step_s" else 0.0
            says = value if least <= value < LONGEST_STEP_S else None
        setattr(facts, fact, says)
    return facts_by_gpu


_STATES: Mapping[str, State] = {state: state for state in STATES}


def reading_of(
    key: SeriesKey,
    identity: GpuIdentity,
    facts: SeriesFacts,
    values: Mapping[str, float],
    *,
    is_quiet: bool | None,
    unanswered: frozenset[str] = frozenset(),
) -> GpuReading:
    """A GPU from its identity, from what series say of it, and from its values by key of the catalogue."""
    own_state = _STATES.get(facts.state or "")
    # An instance has the power of its board.
    of_share = {"power_w": values["power_w"] * identity.share} if "power_w" in values else {}
    return GpuReading(
        identity.host, identity.gpu, identity.uuid, identity.model, key.dialect,
        is_quiet=is_quiet,
        job=identity.job,
        user=identity.user,
        own_state=own_state,
        own_verdict=facts.verdict if own_state else None,
        is_allocated=bool(identity.job) and (key.dialect != "gputop" or not facts.owner[0]),
        is_lost=facts.is_lost or (identity.gone and "util_pct" not in values),
        step_s=facts.step_s,
        step_wait_s=facts.step_wait_s,
        unanswered=unanswered,
        **{**values, **of_share},
    )  # fmt: skip


_PODS = (
    ("k8s_pod_name", "k8s_namespace_name"), ("k8s_pod", "k8s_namespace"), ("exported_pod", "exported_namespace"),
    ("pod", "namespace"),
)  # fmt: skip
"""Labels of a pod and its namespace: the kubelet's by gputop, those that rules record, dcgm-exporter's two."""


def owner_of(labels: Labels, exporters: Collection[str] = ()) -> tuple[JobName, str]:
    """(job, user) that labels name, an exporter's, gputop's or recorded ones; empty where they name none. A pod's user
    is its namespace.

    ``exporters`` are pods that are scraped: an exporter that names no pods still has its own as ``pod``, as Prometheus'
    operator adds it to everything that it scrapes.
    """

    def said(name: str) -> str:
        return label_text(labels.get(name, ""))

    user = said("user")
    if job := said("job_id"):
        return JobName(said("scheduler") or NUMBER, job), user
    if job := said("hpc_job"):
        return JobName(NUMBER, job), user
    if (job := said("jobid")) and job != "0":
        return JobName(NUMBER, job), f"uid {said('userid')}" if said("userid") else ""
    for label, namespace_label in _PODS:
        pod, namespace = said(label), said(namespace_label)
        if pod and not (label == "pod" and (pod in exporters or "exporter" in said("container"))):
            return JobName(POD, f"{namespace}/{pod}" if namespace else pod), namespace or user
    if pod := said("k8s_pod_uid"):
        return JobName(POD, pod), user
    container = said("container_id")
    return (JobName("container", container[:12]) if container else NO_JOB), user


T = TypeVar("T")
_LABELS = msgspec.json.Decoder(dict[str, str])


class Remembered(Generic[T]):
    """Caches what ``read`` makes of labels as they came over the wire: thousands of series have the same ones at every
    refresh. Those that are gone are forgotten: an autoscaled cluster has new names all the time. ``of`` raises
    FleetError for invalid labels."""

    def __init__(self, read: Callable[[Mapping[str, str]], T]) -> None:
        self._read = read
        self._value_of_labels: dict[bytes, T] = {}
        self._before: dict[bytes, T] = {}
        """Entries from before the last turn that have not been looked up since."""

    def of(self, metric: Raw) -> T:
        """The value for these labels."""
        raw = bytes(metric)
        if raw in self._value_of_labels:
            return self._value_of_labels[raw]
        known = self._before.pop(raw, None)
        value = self._value_of_labels[raw] = self._read(labels_of(metric)) if known is None else known
        return value

    def turn(self) -> None:
        """Forget what was not looked up since the last turn."""
        self._value_of_labels, self._before = {}, self._value_of_labels


def labels_of(metric: Raw) -> dict[str, str]:
    """The labels of a series. Raises FleetError."""
    try:
        try:
            return _LABELS.decode(metric)
        except UnicodeDecodeError:
            # Some engines pass on an exporter's text that is not UTF-8: one such label must not hide a fleet.
            return _LABELS.decode(bytes(metric).decode(errors="replace"))
    except (msgspec.DecodeError, RecursionError):
        raise FleetError("an answer with labels that are not Prometheus': is this its address?") from None


MOST_ALERTS = 500
_NO_SUBJECT = ("__name__", "alertname", "alertstate", "severity")
"""Labels that do not say what an alert is about."""


def marked_places(
    rows: Iterable[tuple[Labels, float]], place: Sequence[str]
) -> tuple[dict[str, dict[Place, float]], tuple[FiringAlert, ...]]:
    """What is said of scraped addresses, by mark, of several values the greatest; and the alerts that fire, by name and
    host."""
    marked: dict[str, dict[Place, float]] = {plan.UP: {}, plan.LATE: {}, plan.DEAD: {}, plan.AGE: {}}
    alerts = []
    for row, value in rows:
        if (of_mark := marked.get(row.get(plan.DIALECT_LABEL, ""))) is not None:
            where = place_of(row, place)
            of_mark[where] = max(value, of_mark.get(where, value))
        elif name := row.get("alertname"):
            labels = {
                clean_text(key): clean_text(value) for key, value in sorted(row.items()) if key not in _NO_SUBJECT
            }
            severity = clean_text(row.get("severity", ""))
            alerts.append(FiringAlert(clean_text(name), severity, clean_text(host_of(row)), labels))
    return marked, tuple(sorted(alerts, key=lambda alert: (alert.name, alert.host))[:MOST_ALERTS])
