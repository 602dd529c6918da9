"""Decode labels of series into GPU identities. Pure.

Takes the labels of all series of ``screen_queries.identities``, as old as the inventory; returns a ``GpuIdentity`` for
each series of a GPU: host, number, UUID, MIG instance, job and user, whatever its exporter calls them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet.exporter_names import (
    CLUSTER_LABELS,
    DIALECTS,
    HOST_LABELS,
    Dialect,
    first_of,
    host_of,
    known_uuid,
)
from gputop.features.fleet.fleet_reading import NO_JOB, NUMBER, GpuId, JobName, gpu_id
from gputop.features.fleet.read import screen_queries
from gputop.features.fleet.read.screen_queries import FleetSchema
from gputop.model.cards import mig_share
from gputop.model.clean_text import clean_text
from gputop.model.snapshot import POD

LONGEST_LABEL = 120


class SeriesKey(NamedTuple):
    """A GPU as one dialect's series name it."""

    dialect: str
    values: tuple[str, ...]


Place = tuple[str, ...]
"""The values of ``FleetSchema.place``: cluster, where there are several, and scraped address."""


class GpuIdentity(Struct, frozen=True):
    """Identity of a GPU, without its values.

    ``place`` is the scraped address, with the cluster if there are several. A ``gone`` GPU had values within the last
    day and has none now. Of a MIG instance ``uuid`` is the GPU's where known, ``mig`` its number there, ``share`` its
    part of the GPU's slices.
    """

    host: str
    gpu: str
    uuid: str
    model: str
    place: Place
    job: JobName = NO_JOB
    user: str = ""
    gone: bool = False
    mig: str = ""
    share: float = 1.0

    @property
    def instance(self) -> str:
        """The scraped address."""
        return self.place[-1]

    @property
    def cluster(self) -> str:
        """The cluster; empty if there is only one."""
        return self.place[0] if len(self.place) > 1 else ""

    @property
    def id(self) -> GpuId:
        """See ``gpu_id``."""
        return gpu_id(self.cluster, self.uuid, self.mig, self.host, self.gpu)


Labels = Mapping[str, str]


def _key_labels(rows: Sequence[Labels], cluster: str) -> dict[str, tuple[str, ...]]:
    """The fewest labels per dialect that tell its GPUs apart.

    Short answers are fast answers. Two UUIDs under one address and number are two GPUs, of two clusters, say: then the
    UUID is one of the labels.
    """
    rows_of: dict[str, list[Labels]] = defaultdict(list)
    for row in rows:
        rows_of[row.get(screen_queries.DIALECT_LABEL, "").removesuffix(screen_queries.GONE)].append(
            row
        )
    found: dict[str, tuple[str, ...]] = {}
    for name in [name for name in rows_of if name in DIALECTS]:
        dialect, used = DIALECTS[name], {label for labels in rows_of[name] for label in labels}
        hosts = {
            (labels.get(cluster, ""), labels.get("instance", ""), host_of(labels))
            for labels in rows_of[name]
        }
        places = {place[:2] for place in hosts}
        told_by_address = len(places) == len(hosts) and all(instance for _, instance in places)
        names = (
            *(("instance",) if told_by_address else sorted(used.intersection(HOST_LABELS))),
            *((cluster,) if cluster else ()),
            *_number_labels(dialect, used),
            *(label for label in dialect.instance if label in used),
        )
        present = (
            labels for labels in rows_of[name] if labels.get(screen_queries.DIALECT_LABEL) == name
        )
        uuids = {
            (key_of(labels, name, names), first_of(labels, dialect.uuid)) for labels in present
        }
        if len({key for key, _ in uuids}) < len(uuids):
            names = tuple(
                dict.fromkeys((*names, *(label for label in dialect.uuid if label in used)))
            )
        found[name] = names
    return found


def _number_labels(dialect: Dialect, used: Collection[str]) -> tuple[str, ...]:
    """The label that numbers a dialect's GPUs; its UUID where values have no number."""
    if dialect.is_own or dialect.job:
        return dialect.number
    names = dialect.uuid if dialect.facts else dialect.number + dialect.uuid
    return tuple([name for name in names if name in used][:1])


class Discovered(NamedTuple):
    """Schema, host names, GPUs, and pods that export GPUs and work on none."""

    schema: FleetSchema
    host_names: Mapping[Place, str]
    identities: dict[SeriesKey, GpuIdentity]
    exporters: frozenset[str] = frozenset()


def discovered(rows: Sequence[Labels], schema: FleetSchema) -> Discovered:
    """Decode the GPUs that series name.

    A GPU that several jobs share is in the first of them by name; a GPU that is split into MIG instances is left out.
    """
    # The label that tells clusters apart.
    told = {
        label: {
            row.get(label, "") for row in rows if row.get(screen_queries.DIALECT_LABEL) in DIALECTS
        }
        for label in CLUSTER_LABELS
    }
    cluster = next((label for label, several in told.items() if len(several) > 1), "")
    schema = replace(schema, labels=_key_labels(rows, cluster), cluster=cluster)
    names = {
        place_of(row, schema.place): label_text(name)
        for row in rows
        if row.get(screen_queries.DIALECT_LABEL) == screen_queries.HOST
        and (name := row.get("hostname", ""))
    }
    if names and "gputop" in schema.names:
        # A driver that hangs has no GPU to tell its labels by.
        schema = replace(
            schema, labels={"gputop": (*schema.place, *DIALECTS["gputop"].number), **schema.labels}
        )
    # Exporters' pods are scraped, or are the ``pod`` of a GPU where others name theirs as ``exported_pod``.
    is_named = any(row.get("exported_pod") for row in rows)
    exporters = frozenset(
        row.get("pod", "")
        for row in rows
        if row.get(screen_queries.DIALECT_LABEL) == screen_queries.EXPORTER
        or (is_named and not row.get("exported_pod"))
    )
    identities: dict[SeriesKey, GpuIdentity] = {}
    for row in rows:
        name = row.get(screen_queries.DIALECT_LABEL, "").removesuffix(screen_queries.GONE)
        if name not in schema.labels:
            continue
        key, identity = (
            key_of(row, name, schema.labels[name]),
            identity_of(row, name, schema, names, exporters),
        )
        before = identities.get(key)
        if before is None or (before.gone, before.job or "~") > (
            identity.gone,
            identity.job or "~",
        ):
            identities[key] = identity
    return Discovered(schema, names, _named_apart(_without_split(identities), schema), exporters)


def identity_of(
    row: Labels,
    dialect_id: str,
    schema: FleetSchema,
    host_names: Mapping[Place, str],
    exporters: Collection[str],
) -> GpuIdentity:
    """Decode one series of a GPU.

    The share of a MIG instance without a profile is 0.
    """
    dialect, place = DIALECTS[dialect_id], place_of(row, schema.place)
    hostname = host_names.get(place) if dialect.is_own else None
    job, user = owner_of(row, exporters) if dialect.job else (NO_JOB, "")
    parent, instance, uuid = (
        row.get("parent", ""),
        first_of(row, dialect.instance),
        first_of(row, dialect.uuid),
    )
    uuid = known_uuid(uuid)
    model = label_text(first_of(row, dialect.model))
    number = first_of(row, dialect.number) or uuid[-12:] or "?"
    mig = label_text(instance)
    return GpuIdentity(
        hostname or label_text(host_of(row)) or "(no host label)",
        label_text(f"{number}/{instance}" if instance else number),
        label_text(parent or uuid),
        model,
        place,
        job.within(label_text(place[0])) if schema.cluster else job,
        user,
        row.get(screen_queries.DIALECT_LABEL, "").endswith(screen_queries.GONE),
        # The compute instance that an instance has alone is no part of its name elsewhere.
        mig.removesuffix("/0") if parent else mig,
        1.0 if not mig else mig_share(f"{model} {first_of(row, dialect.profile)}") or 0.0,
    )


def _without_split(identities: dict[SeriesKey, GpuIdentity]) -> dict[SeriesKey, GpuIdentity]:
    """Remove GPUs that are split into instances.

    Instances without a profile get equal shares.
    """
    instances = Counter(
        (identity.cluster, identity.uuid) for identity in identities.values() if identity.mig
    )
    return {
        key: identity
        if identity.share
        else replace(identity, share=1.0 / instances[identity.cluster, identity.uuid])
        for key, identity in identities.items()
        if identity.mig or not identity.uuid or not instances[identity.cluster, identity.uuid]
    }


def place_of(labels: Labels, names: Sequence[str]) -> Place:
    """The scraped address of a series."""
    return tuple([labels.get(name, "") for name in names])


def recorded_place(labels: Labels) -> Place:
    """The scraped address in a recorded series: cluster, which may be empty, and instance."""
    return label_text(first_of(labels, CLUSTER_LABELS)), labels.get("instance", "")


def _named_apart(
    identities: dict[SeriesKey, GpuIdentity], schema: FleetSchema
) -> dict[SeriesKey, GpuIdentity]:
    """Hosts of one name in several clusters with their cluster's name before it."""
    clusters: dict[str, set[str]] = defaultdict(set)
    for identity in identities.values() if schema.cluster else ():
        clusters[identity.host].add(identity.cluster)
    return {
        key: replace(identity, host=label_text(f"{identity.cluster or '-'}/{identity.host}"))
        if len(clusters[identity.host]) > 1
        else identity
        for key, identity in identities.items()
    }


@lru_cache(maxsize=4096)
def label_text(text: str) -> str:
    """A label that can be shown."""
    return clean_text(text[:LONGEST_LABEL])


def key_of(labels: Labels, dialect: str, names: Sequence[str]) -> SeriesKey:
    """The key of a series by these labels."""
    return SeriesKey(dialect, place_of(labels, names))


def gpu_of(labels: Labels, schema: FleetSchema) -> SeriesKey | None:
    """The GPU of a series; None for an unknown dialect."""
    dialect = labels.get(screen_queries.DIALECT_LABEL, "") or schema.only
    names = schema.labels.get(dialect)
    return None if names is None else key_of(labels, dialect, names)


_PODS = (
    ("k8s_pod_name", "k8s_namespace_name"), ("k8s_pod", "k8s_namespace"), ("exported_pod", "exported_namespace"),
    ("pod", "namespace"),
)  # fmt: skip
"""Labels of a pod and its namespace: the kubelet's by gputop, those that rules record, dcgm-exporter's two."""


def owner_of(labels: Labels, exporters: Collection[str] = ()) -> tuple[JobName, str]:
    """Read job and user from labels; empty if they name none.

    The labels are an exporter's, gputop's or recorded ones. A pod's user is its namespace. ``exporters`` are pods that
    are scraped: an exporter that names no pods still has its own as ``pod``, as Prometheus' operator adds it to
    everything that it scrapes.
    """

    def said(name: str) -> str:
        return label_text(labels.get(name, ""))

    user = said("user")
    if job := said("job_id"):
        return JobName(said("scheduler") or NUMBER, job), user
    if job := said("hpc_job"):
        return JobName(NUMBER, job), user
    for label, namespace_label in _PODS:
        pod, namespace = said(label), said(namespace_label)
        if pod and not (label == "pod" and (pod in exporters or "exporter" in said("container"))):
            return JobName(POD, f"{namespace}/{pod}" if namespace else pod), namespace or user
    if pod := said("k8s_pod_uid"):
        return JobName(POD, pod), user
    container = said("container_id")
    return (JobName("container", container[:12]) if container else NO_JOB), user
