"""The GPU time lost in the last hour, in bins of five minutes, each judged by the same rules as the present.

Bins lie on whole five minutes of Unix time, so that each is read once, whether the screen runs on or goes back. Within
a bin every job has the time in which the engine holds samples of it, and is judged by its own means; jobs that share a
GPU have equal parts. Nodes that run gputop count their own seconds by state, which survive gaps between scrapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor
from typing import NamedTuple, get_args

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.idle_runs import QUIET_UTIL
from gputop.diagnosis.types import State
from gputop.features.fleet import plan
from gputop.features.fleet.client import PromQuery, SeriesRow, number
from gputop.features.fleet.decode_answers import GpuIdentity, Remembered, SeriesKey, gpu_of, in_units, own_job, own_pod
from gputop.features.fleet.exporter_names import DETAIL_KEYS, DIALECTS, job_of
from gputop.features.fleet.fleet_inventory import Engine, FleetInventory, values
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    NO_JOB,
    FleetError,
    GpuReading,
    GpuState,
    JobName,
    Lost,
    names_of_numbers,
    with_scheduler,
)
from gputop.features.fleet.judge import judged, lost_hours
from gputop.features.fleet.plan import FleetSchema
from gputop.features.fleet.promql import any_of, over

BIN_S = 300.0
BINS = int(HOUR_S / BIN_S)
AT_ONCE = 4
"""Bins of one query: a whole hour of 8,000 GPUs would take the engine more than a second."""
MOST_KEPT = 60
SAMPLES, QUIET, OWN_STATES, OWN_JOBS, OWN_PODS, OWN_SAMPLES = (
    "samples", "quiet", "own states", "own jobs", "own pods", "own samples",
)  # fmt: skip
"""What a bin is made of beside the metrics: samples of a job on a GPU; whether it was quiet; and of nodes that run
gputop, seconds by state, samples of each job and of each pod, samples of each GPU."""


class Owned(NamedTuple):
    """A GPU with the job that it then had, as the labels of one series name it, and its state where that is told."""

    gpu: SeriesKey
    job: JobName = NO_JOB
    user: str = ""
    state: str = ""

    @property
    def dialect(self) -> str:
        return self.gpu.dialect

    @property
    def values(self) -> tuple[str, ...]:
        return self.gpu.values


Point = tuple[float, Owned, float]
"""Unix time, GPU, value as exported."""


class Bin(Struct, frozen=True):
    """GPU-hours that were no work by GPU, job, user and state, and for how many seconds there is anything."""

    lost: Mapping[tuple[SeriesKey, JobName, str, GpuState], float]
    covered_s: float


def bin_ends(t: float) -> list[float]:
    """The ends of the bins of the last hour, oldest first: only whole bins."""
    last = floor(t / BIN_S) * BIN_S
    return [last - i * BIN_S for i in reversed(range(BINS))]


class Hours:
    """Bins by the time at which they end."""

    def __init__(self) -> None:
        self._bins: dict[float, Bin] = {}

    def missing(self, t: float) -> list[float]:
        """The next bins to ask for, oldest first."""
        missing_ends = [end for end in bin_ends(t) if end not in self._bins]
        run = missing_ends[:1]
        for end in missing_ends[1:AT_ONCE]:
            if end - run[-1] == BIN_S:
                run.append(end)
        return run

    def take(self, ends: Sequence[float], points: Mapping[str, Iterable[Point]], scrape_s: Mapping[str, float]) -> None:
        """Judge these bins. ``points`` are those of each metric, see ``SAMPLES``; ``scrape_s`` the seconds between two
        scrapes by the values of a GPU's first label."""
        by_end: dict[float, dict[str, list[tuple[Owned, float]]]] = {end: defaultdict(list) for end in ends}
        for name, metric_points in points.items():
            for t, owned, value in metric_points:
                of_bin = by_end.get(round(t / BIN_S) * BIN_S)
                if of_bin is not None:
                    of_bin[name].append((owned, value))
        for end, of_bin in by_end.items():
            binned, own_bin = _binned(of_bin, scrape_s), _binned_by_nodes(of_bin, scrape_s)
            self._bins[end] = Bin({**binned.lost, **own_bin.lost}, max(binned.covered_s, own_bin.covered_s))
        for old in sorted(self._bins)[: max(0, len(self._bins) - MOST_KEPT)]:
            del self._bins[old]

    def span_s(self, t: float) -> float:
        """For how much of the hour there is anything, in seconds."""
        return sum(self._bins[end].covered_s for end in bin_ends(t) if end in self._bins)

    def lost(self, t: float, identities: Mapping[SeriesKey, GpuIdentity]) -> list[Lost] | None:
        """The last hour, summed by GPU, job and state; None until all of it was read, and where there is nothing."""
        ends = bin_ends(t)
        if any(end not in self._bins for end in ends) or not self.span_s(t):
            return None
        sums: dict[tuple[SeriesKey, JobName, str, GpuState], float] = defaultdict(float)
        for end in ends:
            for whose, gpu_h in self._bins[end].lost.items():
                sums[whose] += gpu_h
        return [
            Lost(identity.host, identity.gpu, job, user, state, gpu_h)
            for (key, job, user, state), gpu_h in sums.items()
            if (identity := identities.get(key)) is not None
        ]


Points = Mapping[str, Sequence[tuple[Owned, float]]]


def _seconds(points: Points, name: str, scrape_s: Mapping[str, float]) -> dict[Owned, float]:
    """For how long there are samples of each job on a GPU: at most a bin on a GPU, of which jobs have parts."""
    raw = {owned: min(BIN_S, value * _every(owned, scrape_s)) for owned, value in points.get(name, ())}
    of_gpu: dict[SeriesKey, float] = defaultdict(float)
    for owned, seconds in raw.items():
        of_gpu[owned.gpu] += seconds
    return {owned: seconds * min(1.0, BIN_S / of_gpu[owned.gpu]) for owned, seconds in raw.items() if seconds > 0.0}


def _every(owned: Owned, scrape_s: Mapping[str, float]) -> float:
    return scrape_s.get(owned.values[0] if owned.values else "", scrape_s.get("", 15.0))


def _binned(points: Points, scrape_s: Mapping[str, float]) -> Bin:
    """GPUs that are judged here."""
    util, sm, used = (in_units(points.get(key, ()), key) for key in ("util_pct", "sm_active_pct", "mem_used_bytes"))
    quiet = in_units(points.get(QUIET, ()), "util_pct")
    seconds = _seconds(points, SAMPLES, scrape_s)
    lost: dict[tuple[SeriesKey, JobName, str, GpuState], float] = {}
    for owned, value in util.items():
        gpu = GpuReading(
            "",
            "",
            util_pct=value,
            sm_active_pct=sm.get(owned),
            mem_used_bytes=used.get(owned),
            is_quiet=quiet.get(owned, QUIET_UTIL) < QUIET_UTIL,
            job=owned.job,
            is_allocated=bool(owned.job),
        )
        state, _ = judged(gpu)
        gpu_h = lost_hours(state, value, seconds.get(owned, 0.0) / 3600.0)
        if gpu_h > 0.0:
            lost[owned.gpu, owned.job, owned.user, state] = gpu_h
    return Bin(lost, _longest(seconds))


def _binned_by_nodes(points: Points, scrape_s: Mapping[str, float]) -> Bin:
    """GPUs whose nodes count for themselves: their seconds by state, divided by the samples of each job in the bin."""
    samples = {owned.gpu: value for owned, value in points.get(OWN_SAMPLES, ())}
    jobs: dict[SeriesKey, list[tuple[Owned, float]]] = defaultdict(list)
    pods: dict[SeriesKey, list[tuple[Owned, float]]] = defaultdict(list)
    for owned, value in points.get(OWN_JOBS, ()):
        jobs[owned.gpu].append((owned, value))
    for owned, value in points.get(OWN_PODS, ()):
        pods[owned.gpu].append((owned, value))
    lost: dict[tuple[SeriesKey, JobName, str, GpuState], float] = defaultdict(float)
    for owned, value in points.get(OWN_STATES, ()):
        # Nothing counts more seconds than passed; two percent for what an engine extrapolates.
        if owned.state not in get_args(State) or not 0.0 <= value <= 1.02 * BIN_S:
            continue
        state: State = owned.state  # type: ignore[assignment]
        of_jobs = jobs.get(owned.gpu, [])
        counted = sum(n for _, n in of_jobs)
        whole = max(counted, samples.get(owned.gpu, 0.0), 1.0)
        for job, n in of_jobs:
            lost[owned.gpu, job.job, job.user, state] += value / 3600.0 * n / whole
        pods_of_gpu = pods.get(owned.gpu, [])
        unused = max(0.0, max((n for _, n in pods_of_gpu), default=0.0) - counted) / whole
        for pod, n in pods_of_gpu:
            # A pod had the GPU, and no process of a job was there.
            unused_state: GpuState = "allocated_unused" if state == "idle" else state
            part = unused * n / sum(n for _, n in pods_of_gpu)
            lost[owned.gpu, pod.job, pod.user, unused_state] += value / 3600.0 * part
        if (rest := 1.0 - counted / whole - unused) > 0.0:
            lost[owned.gpu, NO_JOB, "", state] += value / 3600.0 * rest
    seconds = {Owned(key): min(BIN_S, n * _every(Owned(key), scrape_s)) for key, n in samples.items()}
    return Bin(lost, _longest(seconds))


def _longest(seconds: Mapping[Owned, float]) -> float:
    of_gpu: dict[SeriesKey, float] = defaultdict(float)
    for owned, value in seconds.items():
        of_gpu[owned.gpu] += value
    return min(BIN_S, max(of_gpu.values(), default=0.0))


# Reads the last hour in parts, beside what is shown: each part once, and none that would take an engine long.

BINNED = ("util_pct", "sm_active_pct", "mem_used_bytes")
"""What a bin's state follows from, beside the quiet GPUs."""


class LastHour:
    """The parts read so far. A part that failed is read again."""

    def __init__(self, engine: Engine, inventory: FleetInventory) -> None:
        self._engine, self._inventory = engine, inventory
        self._hours = Hours()
        self._owned_for: tuple[FleetSchema, frozenset[str]] | None = None
        self._owned: Remembered[Owned | None] = Remembered(lambda labels: None)
        self._scrape_s: dict[str, float] = {}

    def lost(self, t: float) -> list[Lost] | None:
        """The GPU time lost in the hour before ``t``, None until ``more`` has read it."""
        identities = self._inventory.identities
        lost_rows = self._hours.lost(t, identities)
        if lost_rows is None:
            return None
        names_by_number = names_of_numbers(identity.job for identity in identities.values())
        return [replace(lost, job=with_scheduler(lost.job, names_by_number)) for lost in lost_rows]

    def span_s(self, t: float) -> float:
        """For how much of the hour before ``t`` the engine holds anything, in seconds."""
        return self._hours.span_s(t)

    def more(self, t: float) -> bool:
        """Read the next part of the hour before ``t``; whether there was one. At most eight queries."""
        schema = self._inventory.schema
        if schema is None:
            return False
        ends = self._hours.missing(t)
        if not ends:
            return False
        try:
            self._ask_spacing(schema, bin_ends(t)[-1])
            rows = self._engine.all_answers(self._queries(schema, ends)).rows
            self._hours.take(
                ends, {name: self._points(rows_of_query) for name, rows_of_query in rows.items()}, self._scrape_s
            )
        except FleetError:
            return False
        return True

    def _ask_spacing(self, schema: FleetSchema, at: float) -> None:
        """The seconds between two scrapes by address: a sample stands for so long."""
        if self._scrape_s:
            return
        text = plan.spacing([DIALECTS[name] for name in schema.labels], self._engine.select)
        rows = self._engine.answers({"spacing": PromQuery(text, at)}).of("spacing")
        spacing_s = {
            labels.get("instance", ""): value
            for labels, value in values(rows, Remembered(dict))
            if labels.get(plan.DIALECT_LABEL) == plan.SPACING and 1.0 <= value <= BIN_S
        }
        self._scrape_s = {**spacing_s, "": min(spacing_s.values(), default=self._inventory.scrape_s)}

    def _queries(self, schema: FleetSchema, ends: Sequence[float]) -> dict[str, PromQuery]:
        """The questions of a run of bins: of GPUs whose nodes do not count for themselves, with their jobs; of the
        others their counters."""
        if (schema, self._inventory.exporters) != self._owned_for:
            self._owned_for = (schema, self._inventory.exporters)
            exporters = self._inventory.exporters
            self._owned = Remembered(lambda labels: _owned(labels, schema, exporters))
        self._owned.turn()
        select = self._engine.select
        with_jobs = {name: (*labels, *DIALECTS[name].job) for name, labels in schema.labels.items() if name != "gputop"}
        schema_with_jobs = schema.labelled(with_jobs)
        texts = {key: plan.metric(schema_with_jobs, key, select, plan.mean) for key in BINNED}
        texts[QUIET] = plan.quiet(schema_with_jobs, select)
        texts[SAMPLES] = plan.metric(schema_with_jobs, "util_pct", select, plan.counted)
        if "gputop" in schema.labels:
            texts[OWN_STATES] = plan.own_states(schema, select)
            texts[OWN_SAMPLES], texts[OWN_JOBS], texts[OWN_PODS] = plan.own_samples(schema, select)
        return {name: PromQuery(text, ends[-1], ends[0], BIN_S) for name, text in texts.items() if text}

    def _points(self, rows: Sequence[SeriesRow]) -> Iterator[Point]:
        for row in rows:
            owned = self._owned.of(row.metric)
            if owned is not None:
                for t, text in row.values:
                    if (value := number(text)) is not None:
                        yield t, owned, value


def _owned(labels: Mapping[str, str], schema: FleetSchema, exporters: frozenset[str]) -> Owned | None:
    gpu = gpu_of(labels, schema)
    if gpu is None:
        return None
    if gpu.dialect == "gputop":
        return Owned(gpu, *(own_pod(labels) if "k8s_pod_name" in labels else own_job(labels)), labels.get("state", ""))
    return Owned(gpu, *(job_of(labels, exporters) if DIALECTS[gpu.dialect].job else (NO_JOB, "")))


# A host's GPUs over time, in columns of a chart. Pure.

History = Mapping[str, tuple[Sequence[float | None], Sequence[float | None]]]
"""GPU → utilisation and SM activity in percent, a value a column, the oldest first; None where nothing was measured."""


def columns_of(
    points: Iterable[tuple[float, GpuIdentity | None, float]], t: float, span_s: float, columns: int
) -> dict[str, list[float | None]]:
    """(Unix time, GPU, value) in so many columns of the ``span_s`` seconds before ``t``."""
    step = span_s / columns
    columns_by_gpu: dict[str, list[float | None]] = {}
    for moment, identity, value in points:
        if identity is None:
            continue
        at = round((moment - (t - span_s)) / step) - 1
        if 0 <= at < columns:
            columns_by_gpu.setdefault(identity.gpu, [None] * columns)[at] = value
    return columns_by_gpu


# What is queried only for the hosts on screen: their last hour in columns, and metrics that no state needs.

DRAWN = ("util_pct", "sm_active_pct")


def _narrowed(engine: Engine, instances: Sequence[str]) -> str:
    """Matchers of these addresses within what is selected."""
    return ",".join(part for part in (any_of("instance", instances), engine.select) if part)


def history(engine: Engine, inventory: FleetInventory, host: str, t: float, span_s: float, columns: int) -> History:
    """Utilisation and SM activity of a host's GPUs over the time before ``t``. Raises FleetError."""
    schema, instances = inventory.schema, inventory.instances(frozenset((host,)))
    if schema is None or not instances:
        return {}
    select, step = _narrowed(engine, instances), span_s / columns
    width = max(step, 2 * schema.scrape_s)
    texts = {
        key: plan.metric(schema, key, select, lambda series: over("avg_over_time", series, width)) for key in DRAWN
    }
    queries = {key: PromQuery(text, t, t - span_s + step, step) for key, text in texts.items() if text}
    answers = engine.all_answers(queries)

    def points(key: str) -> Iterator[tuple[float, SeriesKey | None, float]]:
        for row in answers.of(key):
            gpu = inventory.gpus.of(row.metric)
            for moment, text in row.values:
                if (value := number(text)) is not None:
                    yield moment, gpu, value

    columns_by_key: dict[str, dict[str, list[float | None]]] = {}
    for key in queries:
        moments: dict[float, list[tuple[SeriesKey | None, float]]] = {}
        for moment, gpu, value in points(key):
            moments.setdefault(moment, []).append((gpu, value))
        columns_by_key[key] = columns_of(
            ((moment, inventory.identities.get(gpu), value)
             for moment, of_moment in moments.items()
             for gpu, value in in_units(of_moment, key).items()),
            t, span_s, columns,
        )  # fmt: skip
    empty: list[float | None] = [None] * columns
    utils, sms = columns_by_key.get("util_pct", {}), columns_by_key.get("sm_active_pct", {})
    return {gpu: (util, sms.get(gpu, empty)) for gpu, util in utils.items()}


def details(
    engine: Engine, inventory: FleetInventory, hosts: Sequence[str], at: float | None
) -> dict[tuple[str, str], dict[str, float]]:
    """The further metrics of these hosts' GPUs, by host and GPU. Raises FleetError."""
    schema, instances = inventory.schema, inventory.instances(frozenset(hosts))
    if schema is None or not instances:
        return {}
    select = _narrowed(engine, instances)
    answers = engine.all_of({key: plan.metric(schema, key, select) for key in DETAIL_KEYS}, at)
    values_by_gpu: dict[tuple[str, str], dict[str, float]] = {}
    for key in answers.rows:
        for gpu, value in in_units(values(answers.of(key), inventory.gpus), key).items():
            if (identity := inventory.identities.get(gpu)) is not None:
                values_by_gpu.setdefault((identity.host, identity.gpu), {}).setdefault(key, value)
    return values_by_gpu
