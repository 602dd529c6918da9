"""What a remedy may stand on, asked of the engine: counts of memory errors, steps that ended, GPUs that idle.

Raw series alone, and only where they cover the whole time: a verdict, a mean or a gap is no reason to act.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from gputop.diagnosis.idle_runs import QUIET_UTIL
from gputop.features.fleet.client import SeriesRow
from gputop.features.fleet.decode_answers import GpuIdentity, Labels, Remembered, SeriesKey, gpu_of, place_of
from gputop.features.fleet.exporter_names import BLANK, DIALECTS, Dialect, first_of, pod_of
from gputop.features.fleet.fleet_inventory import Engine, FleetInventory, values
from gputop.features.fleet.plan import JOB_LABELS, POD_LABELS, FleetSchema
from gputop.features.fleet.promql import max_by, over, selector, union, window

ROSE_S = 3600.0
"""A count of memory errors that rose within this time is a reason."""
SILENT_S = 1800.0
"""A job is hung whose steps stopped so long ago; a GPU is idle that ran no kernel for so long."""
COVERED = 0.9
"""The part of that time of which there must be samples."""
STALE_S = 120.0
"""An exporter whose newest values are older says nothing of the present."""
_SLURM_JOB = re.compile(r"[1-9]\d{0,9}", re.ASCII)
_NAMESPACE, _POD = (
    re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"),
    re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"),
)


class SilentJob(Struct, frozen=True):
    """A Slurm job of which every GPU announced steps and none came for ``SILENT_S``: the newest came at Unix time
    ``last_t``, ``silent_s`` before its host's newest values."""

    job_id: str
    hosts: tuple[str, ...]
    gpus: int
    last_t: float
    silent_s: float


class JobOwner(Struct, frozen=True):
    """Whose GPU it is: the number of a Slurm job, or a pod and its namespace."""

    job_id: str = ""
    namespace: str = ""
    pod: str = ""

    def __str__(self) -> str:
        return f"job {self.job_id}" if self.job_id else f"pod {self.namespace}/{self.pod}"


class IdleGpu(Struct, frozen=True):
    """A GPU on which no kernel ran for ``SILENT_S``, all the time under the same owner."""

    owner: JobOwner
    host: str
    gpu: str


class Grounds(Struct, frozen=True):
    """All of these. ``counts`` are uncorrected memory errors since the driver was loaded, by UUID; ``risen`` are those
    that rose within ``ROSE_S``, by host and GPU: UUID and count."""

    counts: Mapping[str, int] = {}
    risen: Mapping[tuple[str, str], tuple[str, int]] = {}
    silent: Sequence[SilentJob] = ()
    idle: Sequence[IdleGpu] = ()


def grounds(engine: Engine, inventory: FleetInventory, *, silent: bool, idle: bool) -> Grounds:
    """What there is; jobs that are silent and GPUs that idle only where asked for. Raises FleetError."""
    schema = inventory.schema
    if schema is None:
        return Grounds()
    select = engine.select
    queries = {"counts": _counts(schema, select, risen=False), "risen": _counts(schema, select, risen=True)}
    if silent and "gputop" in schema.labels:
        place = schema.place
        queries["steps"] = max_by((*place, "gpu", "job_id"), selector("gputop_step_last_timestamp_seconds", select))
        queries["jobs"] = max_by((*place, "gpu", "job_id"), selector("gputop_job_info", 'scheduler="slurm"', select))
        queries["newest"] = max_by(place, selector("gputop_last_sample_timestamp_seconds", select))
    if idle:
        queries["idle"] = _idle(schema, select)
    answers = engine.all_of(queries, None)
    identities = inventory.identities
    risen = {
        (identity.host, identity.gpu): (identity.uuid, count)
        for identity, count in _counted(answers.of("risen"), inventory)
    }
    return Grounds(
        {identity.uuid: count for identity, count in _counted(answers.of("counts"), inventory) if identity.uuid},
        risen,
        silent_jobs(
            _labelled(answers.of("steps")), _labelled(answers.of("jobs")), _labelled(answers.of("newest")),
            schema.place, _hosts(identities, inventory), answers.t,
        ),
        idle_gpus((labels for labels, _ in _labelled(answers.of("idle"))), schema, identities, inventory.exporters),
    )  # fmt: skip


def _counts(schema: FleetSchema, select: str, *, risen: bool) -> str:
    """Counts of uncorrected memory errors since the driver was loaded. One that fell was reset with the driver: what
    it counts since then rose. One that is not there for a while did not."""
    parts = []
    for name in schema.labels:
        q = schema.scope(name, select)
        if "ecc_uncorrected_volatile" in q.dialect.signals:
            series = q.exported("ecc_uncorrected_volatile")
            # Not `increase`: a blank between two equal counts, as DCGM writes it, is no rise.
            rise = f"({series} and ({series} - {over('min_over_time', series, ROSE_S)} > 0))"
            parts.append(schema.marked(q.per_gpu(rise if risen else series), q))
    return union(parts)


def _counted(rows: Sequence[SeriesRow], inventory: FleetInventory) -> list[tuple[GpuIdentity, int]]:
    return [
        (identity, round(value))
        for key, value in values(rows, inventory.gpus)
        if key is not None and (identity := inventory.identities.get(key)) is not None and 0.0 <= value < BLANK
    ]


def _idle(schema: FleetSchema, select: str) -> str:
    """GPUs that ran no kernel for ``SILENT_S`` and belonged to the same owner then and now, with its labels."""
    least = f"{COVERED * SILENT_S / schema.scrape_s:.0f}"
    parts = []
    for q in (schema.scope(name, select) for name in ("gputop", "4.9", "legacy") if name in schema.labels):
        series = q.exported("util_pct")
        # A ratio that may be percent is taken for one: percent below 5 look busy then, and their owner is not told.
        highest, samples = over("max_over_time", series, SILENT_S), over("count_over_time", series, SILENT_S)
        quiet = f"({highest} < {QUIET_UTIL / q.dialect.signals['util_pct'].factor:g} and {samples} >= {least})"
        if not q.is_own:
            parts.append(schema.marked(q.per_gpu(quiet, *q.dialect.job), q))
            continue
        for info, owner_labels in (("gputop_job_info", JOB_LABELS), ("gputop_pod_info", POD_LABELS)):
            now = q.per_gpu(q.series(info), *owner_labels)
            before = q.per_gpu(f"{q.series(info)} offset {window(SILENT_S)}", *owner_labels)
            parts.append(schema.marked(f"({now} and {before} and on ({q.by}) {q.per_gpu(quiet)})", q))
    return union(parts)


def _labelled(rows: Sequence[SeriesRow]) -> list[tuple[Labels, float]]:
    return list(values(rows, Remembered(dict)))


def _hosts(identities: Mapping[SeriesKey, GpuIdentity], inventory: FleetInventory) -> dict[tuple[str, ...], str]:
    return {**inventory.host_names, **{identity.place: identity.host for identity in identities.values()}}


def silent_jobs(
    steps: Iterable[tuple[Labels, float]],
    jobs: Iterable[tuple[Labels, float]],
    newest: Iterable[tuple[Labels, float]],
    place: Sequence[str],
    hosts: Mapping[tuple[str, ...], str],
    now: float | None,
) -> list[SilentJob]:
    """Jobs of which every GPU announced steps and all are silent. Times are compared on the clock of their own host."""
    if now is None:
        return []
    last = {(place_of(labels, place), labels.get("gpu", ""), labels.get("job_id", "")): t for labels, t in steps}
    fresh = {place_of(labels, place): t for labels, t in newest if abs(now - t) < STALE_S}
    gpus: dict[str, list[tuple[tuple[str, ...], str]]] = defaultdict(list)
    for labels, _ in jobs:
        gpus[labels.get("job_id", "")].append((place_of(labels, place), labels.get("gpu", "")))
    silent = []
    for job_id, members in sorted(gpus.items()):
        if _SLURM_JOB.fullmatch(job_id) is None:
            continue
        ended = [(last.get((where, gpu, job_id)), fresh.get(where)) for where, gpu in members]
        silences = [t - end for end, t in ended if end is not None and t is not None]
        if len(silences) < len(members) or min(silences) < SILENT_S or not all(where in hosts for where, _ in members):
            continue
        names = tuple(sorted({hosts[where] for where, _ in members}))
        newest_step = max(end for end, _ in ended if end is not None)
        silent.append(SilentJob(job_id, names, len(members), newest_step, min(silences)))
    return silent


def idle_gpus(
    rows: Iterable[Labels], schema: FleetSchema, identities: Mapping[SeriesKey, GpuIdentity], exporters: Collection[str]
) -> list[IdleGpu]:
    """Each of these GPUs with its owner, where a scheduler can be told of it."""
    idle: dict[IdleGpu, None] = {}
    for labels in rows:
        key = gpu_of(labels, schema)
        identity = None if key is None else identities.get(key)
        if key is None or identity is None or identity.gone:
            continue
        owner = owner_of(labels, DIALECTS[key.dialect], exporters)
        if owner is not None:
            idle[IdleGpu(owner, identity.host, identity.gpu)] = None
    return list(idle)


def owner_of(labels: Labels, dialect: Dialect, exporters: Collection[str]) -> JobOwner | None:
    """The Slurm job or the pod that these labels name; None where they name neither."""
    if dialect.job:
        job = labels.get("hpc_job", "")
        namespace, pod = pod_of(labels, exporters)
    else:
        job = labels.get("job_id", "") if labels.get("scheduler") == "slurm" else ""
        namespace, pod = (first_of(labels, (name,)) for name in POD_LABELS)
    if _SLURM_JOB.fullmatch(job):
        return JobOwner(job_id=job)
    if _NAMESPACE.fullmatch(namespace) and _POD.fullmatch(pod):
        return JobOwner(namespace=namespace, pod=pod)
    return None
