"""Decode values and facts of series into GPU readings in the catalogue's units. Pure.

Takes values by ``SeriesKey`` as they were exported, and a GPU's identity; returns its ``GpuReading``. Values are as old
as the answers that they come from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from math import nan
from typing import Any, NamedTuple, get_args

from msgspec import Struct

from gputop.diagnosis.types import STATES, Level, State
from gputop.features.fleet.exporter_names import (
    BLANK,
    DIALECTS,
    RATIO_LIMIT,
    Dialect,
    plausible,
)
from gputop.features.fleet.fleet_reading import NO_JOB, GpuReading, JobName
from gputop.features.fleet.read import screen_queries
from gputop.features.fleet.read.decode_labels import (
    GpuIdentity,
    Labels,
    SeriesKey,
    key_of,
    label_text,
    owner_of,
)
from gputop.features.fleet.read.screen_queries import FleetSchema

LONGEST_STEP_S = 1e6
"""Longest believable training step."""


def in_units(values: Iterable[tuple[SeriesKey | None, float]], key: str) -> dict[SeriesKey, float]:
    """One metric in the catalogue's unit by GPU, without DCGM's blanks and impossible values."""
    raw = {gpu: value for gpu, value in values if gpu is not None and value < BLANK}
    factor = unit_factors(raw, key)
    possible = {gpu: plausible(key, value * factor(gpu)) for gpu, value in raw.items()}
    return {gpu: value for gpu, value in possible.items() if value is not None}


def unit_factors(highest: Mapping[SeriesKey, float], key: str) -> Callable[[SeriesKey], float]:
    """The factor to the catalogue's unit, by GPU; NaN where its dialect lacks the metric.

    ``highest`` are each GPU's values: each host has one exporter, and so percent or ratios.
    """
    signals = {name: dialect.signals.get(key) for name, dialect in DIALECTS.items()}
    factors = {name: signal.factor if signal else nan for name, signal in signals.items()}
    in_doubt = {name for name, signal in signals.items() if signal and signal.doubtful}
    highest_of_host: dict[str, float] = defaultdict(float)
    ratios = set()
    for gpu, value in highest.items() if in_doubt else ():
        if gpu.dialect in in_doubt:
            host = gpu.values[0]
            highest_of_host[host] = max(highest_of_host[host], value)
            if value % 1.0 and value <= RATIO_LIMIT:
                ratios.add(host)
    percent = {host for host, value in highest_of_host.items() if value > RATIO_LIMIT}
    if percent:
        # 0 and 1 may be either: beside hosts that give percent they are percent.
        percent |= highest_of_host.keys() - ratios
    return lambda gpu: (
        1.0 if gpu.dialect in in_doubt and gpu.values[0] in percent else factors[gpu.dialect]
    )


class Fact(NamedTuple):
    """A field of ``SeriesFacts``, and its value where the labels of a series give it."""

    field: str
    value: Any = None


class SeriesFacts(Struct):
    """Facts of one GPU from series of their own.

    ``owner`` is job and user of a process, ``pod`` the pod that the kubelet gave the GPU. ``step_s`` is the mean
    training step of its ranks, ``step_wait_s`` their wait for others in it.
    """

    state: str | None = None
    level: str | None = None
    verdict: str | None = None
    owner: tuple[JobName, str] = (NO_JOB, "")
    pod: tuple[JobName, str] = (NO_JOB, "")
    step_s: float | None = None
    step_wait_s: float | None = None
    is_lost: bool = False
    process: str = ""

    @property
    def job_and_user(self) -> tuple[JobName, str]:
        """Job and user: of a process, else of the pod."""
        return self.owner if self.owner[0] or not self.pod[0] else self.pod

    def take(self, fact: Fact, number: float) -> None:
        """Add a fact, or the number of its series.

        Of several jobs or pods the first by name counts.
        """
        value: Any = fact.value
        if fact.field in ("owner", "pod"):
            value = first_owner(getattr(self, fact.field), value)
        elif fact.field == "process" and self.process:
            value = min(self.process, value)
        elif fact.field.startswith("step"):
            value = number if 0.0 <= number < LONGEST_STEP_S else None
        setattr(self, fact.field, value)


_BY_MARK = {
    screen_queries.STEP: Fact("step_s"),
    screen_queries.STEP_WAIT: Fact("step_wait_s"),
    screen_queries.LOST: Fact("is_lost", True),
}


def fact_of(labels: Labels, mark: str) -> Fact:
    """The fact that a series of ``screen_queries.node_facts`` gives."""
    if mark in _BY_MARK:
        return _BY_MARK[mark]
    if mark != screen_queries.POD and "state" in labels:
        return Fact("state", labels["state"])
    if mark != screen_queries.POD and "level" in labels:
        return Fact("level", labels["level"])
    if mark != screen_queries.POD and "verdict" in labels:
        return Fact("verdict", label_text(labels["verdict"]))
    return Fact("pod" if mark == screen_queries.POD else "owner", owner_of(labels))


def fact_labels(labels: Labels, schema: FleetSchema) -> tuple[SeriesKey, Fact] | None:
    """GPU and fact of a series of ``screen_queries.node_facts``; None of an unknown dialect."""
    mark = labels.get(screen_queries.DIALECT_LABEL, "")
    is_of_other = mark.startswith(screen_queries.USER)
    dialect = mark.removeprefix(screen_queries.USER) if is_of_other else "gputop"
    names = schema.labels.get(dialect)
    if names is None:
        return None
    fact = user_of(labels, DIALECTS[dialect]) if is_of_other else fact_of(labels, mark)
    return key_of(labels, dialect, names), fact


def user_of(labels: Labels, dialect: Dialect) -> Fact:
    """The user that a process's series names, as its GPU's owner; else the program."""
    if dialect.user:
        return Fact("owner", (NO_JOB, label_text(labels.get(dialect.user, ""))))
    name = label_text(labels.get(dialect.process, ""))
    # A path says more of its user's folders than of the program; Windows has its own separator.
    return Fact("process", name.replace("\\", "/").rpartition("/")[2])


def with_gpu_labels(labels: Labels, dialect: Dialect) -> Labels:
    """The labels of a process's series under the names that its GPU's other series have."""
    if not dialect.renamed:
        return labels
    named = {to: labels[label] for to, label in dialect.renamed if label in labels}
    return {**named, **labels}


def series_facts(
    rows: Iterable[tuple[tuple[SeriesKey, Fact] | None, float]],
) -> dict[SeriesKey, SeriesFacts]:
    """Facts by GPU."""
    facts_by_gpu: dict[SeriesKey, SeriesFacts] = defaultdict(SeriesFacts)
    for found, number in rows:
        if found is not None:
            facts_by_gpu[found[0]].take(found[1], number)
    return facts_by_gpu


def first_owner(*owners: tuple[JobName, str]) -> tuple[JobName, str]:
    """The best known of several owners, by name."""
    return min(owners, key=lambda owner: (not owner[0], not owner[1], owner))


STATES_BY_NAME: Mapping[str, State] = {state: state for state in STATES}
LEVELS_BY_NAME: Mapping[str, Level] = {level: level for level in get_args(Level)}


def reading_of(
    key: SeriesKey,
    identity: GpuIdentity,
    facts: SeriesFacts,
    values: Mapping[str, float],
    *,
    is_quiet: bool | None,
    unanswered: frozenset[str] = frozenset(),
) -> GpuReading:
    """Make a reading of a GPU's identity, facts and values."""
    own_state = STATES_BY_NAME.get(facts.state or "")
    if "power_w" in values:
        # An instance has the power of its board.
        values = {**values, "power_w": values["power_w"] * identity.share}
    told_by_others = key.dialect != "gputop" or not facts.owner[0]
    return GpuReading(
        identity.host,
        identity.gpu,
        identity.uuid,
        identity.model,
        key.dialect,
        is_quiet=is_quiet,
        job=identity.job,
        user=identity.user,
        own_state=own_state,
        own_level=LEVELS_BY_NAME.get(facts.level or ""),
        own_verdict=facts.verdict if own_state else None,
        is_allocated=bool(identity.job) and told_by_others,
        is_lost=facts.is_lost or (identity.gone and "util_pct" not in values),
        step_s=facts.step_s,
        step_wait_s=facts.step_wait_s,
        unanswered=unanswered,
        cluster=identity.cluster,
        mig=identity.mig,
        process=facts.process,
        **values,
    )
