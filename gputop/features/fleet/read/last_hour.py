"""Read the GPU time without work of the last hour, as rules recorded it, else judged from samples.

Takes the time of the newest reading; returns the GPU-hours by GPU or host, owner and state. Records are read once
a minute. Where no rules record the hour it is judged from plain series at steps of a minute: utilisation, SM activity,
memory of idle GPUs, owners, and what gputop on the nodes counted. Each minute of a GPU is judged by
``gpu_state.judged``, as the present is. The hour of 1,000 hosts is one million values, so it is read every five
minutes, beside the screen and not before its first frame, and of ``MOST_GPUS`` at most.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import floor, inf, isnan, nan

from gputop.diagnosis.host.idle_runs import QUIET_UTIL
from gputop.diagnosis.thresholds import HELD_BYTES, SURELY_BUSY_UTIL
from gputop.diagnosis.types import State
from gputop.features.fleet.exporter_names import BLANK, DIALECTS, PERCENT_SLACK
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    MINUTES,
    NO_JOB,
    FleetError,
    GpuId,
    GpuReading,
    GpuState,
    JobName,
    LastHour,
    Lost,
    with_schedulers,
)
from gputop.features.fleet.judge import state_rules
from gputop.features.fleet.judge.gpu_state import judged, lost_hours
from gputop.features.fleet.promql import selector, union
from gputop.features.fleet.read import screen_queries
from gputop.features.fleet.read.decode_labels import (
    GpuIdentity,
    Labels,
    SeriesKey,
    gpu_of,
    identity_of,
    owner_of,
)
from gputop.features.fleet.read.decode_values import STATES_BY_NAME, first_owner, unit_factors
from gputop.features.fleet.read.engine import (
    Engine,
    FleetAnswers,
    LabelCache,
    PromQuery,
    SeriesRow,
    labels_of,
    values,
)
from gputop.features.fleet.read.gpu_inventory import FleetInventory
from gputop.features.fleet.read.recorded_hosts import (
    HostNames,
    RecordedHost,
    lost_of,
    recorded_host,
)
from gputop.model.quantity import count

RULES_EVERY_S, SAMPLES_EVERY_S = 60.0, 300.0
"""Seconds between two readings of the hour."""
MOST_GPUS = 16_000
"""2,000 hosts of 8."""
MINUTE_S = 60.0
WINDOW = 5
"""Minutes over which a state is judged, as everywhere in a fleet."""
COLUMNS = MINUTES + WINDOW - 1
"""Minutes that are read: the first judged one has a whole window."""
HELD_EVERY = 4
"""Minutes between two looks at the memory of idle GPUs: it changes seldom, and is asked for of all of them."""
PATIENCE = 3.0
"""These questions are asked beside the screen."""

Owner = tuple[JobName, str]
_NOBODY: Owner = (NO_JOB, "")
_SOME_JOB = JobName("job", "0")


def over_minutes(function: str, series: str) -> str:
    """A sum or count over an hour of a series recorded once a minute.

    Takes the last sample of each minute: two writers of one engine record each minute twice.
    """
    return f"{function}(last_over_time({series}[59999ms])[{1000.0 * HOUR_S - 1.0:.0f}ms:1m])"


def lost_hours_of(select: str) -> str:
    """GPU-hours of the last hour that were no work, by host, owner and state."""
    return f"{over_minutes('sum_over_time', selector(state_rules.HOST_LOST, select))} / 60"


class HourReader:
    """Keeps the newest reading of the last hour."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._recorded: LabelCache[RecordedHost] = LabelCache(recorded_host)
        self._end, self._hour, self._every_s = 0.0, LastHour(), 0.0

    def known(self, t: float) -> LastHour | None:
        """The hour before ``t`` if it was read."""
        return self._hour if 0.0 <= t - self._end < self._every_s + MINUTE_S else None

    def read(self, t: float, names: HostNames, inventory: FleetInventory) -> LastHour | None:
        """The hour before ``t``; None if it was not answered.

        ``inventory`` gives the GPUs whose samples are judged if no rules record the hour.
        """
        if (hour := self.known(t)) is not None:
            return hour
        end = floor(t / MINUTE_S) * MINUTE_S
        hour, every_s = self._by_rules(end, names), RULES_EVERY_S
        if hour is not None and not hour.span_s:
            every_s, gpus = SAMPLES_EVERY_S, len(inventory.identities)
            note = (
                f"the last hour of {count(gpus, 'GPU')} takes the rules of `gputop fleet deploy`: "
                "load them"
            )
            hour = (
                LastHour(note=note) if gpus > MOST_GPUS else read_hour(self._engine, inventory, end)
            )
        if hour is not None:
            self._end, self._hour, self._every_s = end, hour, every_s
        return hour

    def _by_rules(self, end: float, names: HostNames) -> LastHour | None:
        select = self._engine.select
        # Minutes in which the rules recorded GPUs, whether or not these lost any time.
        minutes = (
            f"max({over_minutes('count_over_time', selector(state_rules.HOST_ADDRESS, select))})"
        )
        questions = {"lost": lost_hours_of(select), "minutes": minutes}
        answers = self._engine.asked(questions, end)
        if len(answers.rows) < len(questions):
            return None
        self._recorded.turn()
        recorded = max(
            (value for _, value in values(answers.rows["minutes"], self._recorded)), default=0.0
        )
        lost = lost_of(list(values(answers.rows["lost"], self._recorded)), names)
        return LastHour(lost, min(HOUR_S, MINUTE_S * recorded), source="rules")


def hour_questions(schema: screen_queries.FleetSchema, end: float) -> dict[str, PromQuery]:
    """The questions on the hour before ``end``, a whole minute in Unix seconds."""
    labels = dict.fromkeys(label for name in schema.labels for label in DIALECTS[name].labels)
    texts = {
        "util": screen_queries.metric(schema, "util_pct", by=labels),
        "sm": screen_queries.metric(schema, "sm_active_pct"),
        "held": union(_held(schema, name) for name in schema.labels),
    }
    if "gputop" in schema.labels:
        q = schema.scope("gputop")
        texts |= {
            "states": f"{q.per_gpu(q.series('gputop_gpu_state'), 'state')} == 1",
            "counted": state_rules.no_work_seconds(q, lambda series: series),
            "owners": q.per_gpu(q.series("gputop_job_info"), *screen_queries.JOB_LABELS),
            "pods": q.per_gpu(q.series("gputop_pod_info"), *screen_queries.POD_LABELS),
        }
    begin = end - (COLUMNS - 1) * MINUTE_S
    steps = {"held": MINUTE_S * HELD_EVERY}
    return {
        name: PromQuery(text, end, begin, steps.get(name, MINUTE_S), PATIENCE)
        for name, text in texts.items()
    }


def _held(schema: screen_queries.FleetSchema, name: str) -> str:
    """Memory of idle GPUs that hold some: a short answer."""
    signals = DIALECTS[name].signals
    memory, util = (
        screen_queries.of_dialect(schema, name, key) for key in ("mem_used_bytes", "util_pct")
    )
    held, quiet = (
        HELD_BYTES / signals["mem_used_bytes"].factor,
        QUIET_UTIL / signals["util_pct"].factor,
    )
    return f"(({memory}) >= {held:.0f}) and (({util}) < {quiet:g})"


def read_hour(engine: Engine, inventory: FleetInventory, end: float) -> LastHour:
    """Ask for the hour before ``end`` and judge it."""
    questions = hour_questions(inventory.schema, end)
    answers = engine.asked(questions)
    if answers.rows.keys() < questions.keys():
        return LastHour(note="the last hour could not be read from samples")
    lost: dict[tuple[str, str, JobName, str, GpuState], float] = defaultdict(float)
    sampled: set[int] = set()
    for hour in _SampledHour(inventory, end).gpus(answers):
        identity = hour.identity
        for column, (job, user), state, share in _judged_minutes(hour):
            sampled.add(column)
            if share > 0.0:
                lost[identity.host, identity.gpu, job, user, state] += (
                    share * identity.share / MINUTES
                )
    jobs = with_schedulers([job for _, _, job, _, _ in lost])
    rows = zip(lost.items(), jobs, strict=True)
    found = [
        Lost(host, gpu, job, user, state, hours)
        for ((host, gpu, _, user, state), hours), job in rows
    ]
    return LastHour(found, MINUTE_S * len(sampled), source="samples")


class _GpuHour:
    """The minutes of one GPU, oldest first; NaN where nothing was sampled."""

    def __init__(self, identity: GpuIdentity) -> None:
        self.identity = identity
        self.util, self.sm, self.counted_s = (array("d", [nan]) * COLUMNS for _ in range(3))
        """``counted_s`` are the seconds that gputop on the node counted as wasted or idle since it was started."""
        self.owners: list[Owner] = [_NOBODY] * COLUMNS
        self.pods: dict[int, Owner] = {}
        self.states: dict[int, State] = {}
        self.held: set[int] = set()
        """Minutes in which an idle GPU held memory."""

    def owned(self, labels: Labels, exporters: Iterable[str] = ()) -> Owner:
        """The owner that labels name."""
        job, user = owner_of(labels, frozenset(exporters))
        return job.within(self.identity.cluster), user


class _SampledHour:
    """The minutes of every GPU; of two exporters the preferred one's values count."""

    def __init__(self, inventory: FleetInventory, end: float) -> None:
        self._inventory, self._begin = inventory, end - (COLUMNS - 0.5) * MINUTE_S
        self._hours: dict[GpuId, _GpuHour] = {}
        self._by_key: dict[SeriesKey, _GpuHour] = {}
        self._split = {(one.cluster, one.uuid) for one in inventory.identities.values() if one.mig}

    def gpus(self, answers: FleetAnswers) -> Iterable[_GpuHour]:
        """The hour of each GPU.

        Where series of a GPU overlap, the one that began later counts: a job that ended leaves its series behind.
        """
        for gpu, labels, points in self._percents(answers.rows_of("util"), "util_pct"):
            if (hour := self._hour(gpu, labels)) is not None:
                owner = (
                    hour.owned(labels, self._inventory.exporters)
                    if DIALECTS[gpu.dialect].job
                    else _NOBODY
                )
                for column, value in points:
                    hour.util[column], hour.owners[column] = value, owner
        for gpu, _, points in self._percents(answers.rows_of("sm"), "sm_active_pct"):
            if (hour := self._hour(gpu)) is not None:
                for column, value in points:
                    hour.sm[column] = value
        for hour, _, column, _ in self._minutes(answers.rows_of("held")):
            hour.held.update(range(column, column + HELD_EVERY))
        for hour, labels, column, _ in self._minutes(answers.rows_of("states"), "gputop"):
            if (state := STATES_BY_NAME.get(labels.get("state", ""))) is not None:
                hour.states[column] = state
        for hour, _, column, value in self._minutes(answers.rows_of("counted"), "gputop"):
            hour.counted_s[column] = value
        for hour, labels, column, _ in self._minutes(answers.rows_of("owners"), "gputop"):
            hour.owners[column] = first_owner(hour.owners[column], hour.owned(labels))
        for hour, labels, column, _ in self._minutes(answers.rows_of("pods"), "gputop"):
            hour.pods[column] = first_owner(hour.pods.get(column, _NOBODY), hour.owned(labels))
        return self._hours.values()

    def _minutes(
        self, rows: Iterable[SeriesRow], dialect: str = ""
    ) -> Iterator[tuple[_GpuHour, Labels, int, float]]:
        """Yield GPU, labels, minute and value of other series, of GPUs that are known."""
        for row in rows:
            labels = labels_of(row.metric)
            gpu = gpu_of(
                {**labels, screen_queries.DIALECT_LABEL: dialect} if dialect else labels,
                self._inventory.schema,
            )
            if gpu is not None and (hour := self._hour(gpu)) is not None:
                for column, value in self._points(row):
                    yield hour, labels, column, value

    def _percents(
        self, rows: Iterable[SeriesRow], key: str
    ) -> list[tuple[SeriesKey, Labels, list[tuple[int, float]]]]:
        """Series with points in percent, in the order of overwriting."""
        found = []
        highest: dict[SeriesKey, float] = defaultdict(float)
        for row in rows:
            labels, points = labels_of(row.metric), self._points(row, below=BLANK)
            if points and (gpu := gpu_of(labels, self._inventory.schema)) is not None:
                found.append((gpu, labels, points))
                highest[gpu] = max(highest[gpu], max(value for _, value in points))
        factor_of, rank = (
            unit_factors(highest, key),
            {name: place for place, name in enumerate(DIALECTS)},
        )
        found.sort(key=lambda series: (-rank[series[0].dialect], series[2][0][0]))
        percents: list[tuple[SeriesKey, Labels, list[tuple[int, float]]]] = []
        for gpu, labels, points in found:
            factor = factor_of(gpu)
            most = (100.0 + PERCENT_SLACK) / factor
            percents.append(
                (
                    gpu,
                    labels,
                    [(at, min(100.0, value * factor)) for at, value in points if value <= most],
                )
            )
        return percents

    def _points(self, row: SeriesRow, below: float = inf) -> list[tuple[int, float]]:
        """Minutes and values of a series; without negative values and NaN."""
        try:
            numbers = [
                (int((t - self._begin) // MINUTE_S), float(text)) for t, text in row.points()
            ]
        except ValueError:
            raise FleetError(
                "an answer with values that are no numbers: is this Prometheus' address?"
            ) from None
        return [
            (column, value)
            for column, value in numbers
            if 0 <= column < COLUMNS and 0.0 <= value < below
        ]

    def _hour(self, gpu: SeriesKey, labels: Labels | None = None) -> _GpuHour | None:
        """The minutes of a GPU; None for an unknown or split one.

        ``labels`` identify one that was there within the hour and is not any more.
        """
        if gpu in self._by_key:
            return self._by_key[gpu]
        inventory = self._inventory
        identity = inventory.identities.get(gpu)
        if identity is None and labels is not None:
            identity = identity_of(
                labels, gpu.dialect, inventory.schema, inventory.host_names, inventory.exporters
            )
            identity = (
                None
                if not identity.mig and (identity.cluster, identity.uuid) in self._split
                else identity
            )
        if identity is None:
            return None
        hour = self._by_key[gpu] = self._hours.setdefault(identity.id, _GpuHour(identity))
        return hour


def _judged_minutes(hour: _GpuHour) -> Iterator[tuple[int, Owner, GpuState, float]]:
    """Yield minute, owner, state and the share without work of each sampled minute."""
    since, before = 0, None
    for column in range(COLUMNS):
        owner = process = hour.owners[column]
        if hour.pods and not process[0]:
            owner = hour.pods.get(column, process)
        if owner != before:
            since, before = column, owner
        util, own = hour.util[column], hour.states.get(column)
        if column < WINDOW - 1 or (isnan(util) and own is None):
            continue
        if own is not None:
            state: GpuState = (
                "allocated_unused" if own == "idle" and owner[0] and not process[0] else own
            )
        else:
            state = _state_of_window(
                hour, max(since, column - WINDOW + 1), column + 1, has_job=bool(owner[0])
            )
        share = lost_hours(state, None if isnan(util) else util, 1.0)
        counted_s = hour.counted_s[column] - hour.counted_s[column - 1]
        if own is not None and counted_s >= 0.0:
            share = min(1.0, counted_s / MINUTE_S)
        yield column, owner, state, share


def _state_of_window(hour: _GpuHour, begin: int, end: int, *, has_job: bool) -> GpuState:
    """The state over some minutes.

    The last one has a value of utilisation. By half percents: thousands of minutes then share one judgement.
    """
    utils, sms = (
        [value for value in line[begin:end] if value == value] for line in (hour.util, hour.sm)
    )
    util, sm = sum(utils) / len(utils), sum(sms) / len(sms) if sms else None
    is_quiet = util < SURELY_BUSY_UTIL and _percentile95(utils) < QUIET_UTIL
    halves = int(2.0 * util) / 2.0, None if sm is None else int(2.0 * sm) / 2.0
    return _state(*halves, is_quiet, end - 1 in hour.held, has_job)


def _percentile95(values: list[float]) -> float:
    """The 95th percentile, interpolated as PromQL's ``quantile_over_time`` does."""
    ranked, place = sorted(values), 0.95 * (len(values) - 1)
    low, high = ranked[int(place)], ranked[min(int(place) + 1, len(ranked) - 1)]
    return low + (high - low) * (place % 1.0)


@lru_cache(maxsize=1 << 16)
def _state(util: float, sm: float | None, is_quiet: bool, holds: bool, has_job: bool) -> GpuState:
    """The state of a GPU by the function that judges the present."""
    held_bytes, job = HELD_BYTES if holds else 0.0, _SOME_JOB if has_job else NO_JOB
    return judged(
        GpuReading(
            "",
            "",
            util_pct=util,
            sm_active_pct=sm,
            mem_used_bytes=held_bytes,
            is_quiet=is_quiet,
            job=job,
            is_allocated=has_job,
        )
    )[0]
