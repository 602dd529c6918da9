"""Decode values and facts of series into GPU readings in the catalogue's units. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from gputop.diagnosis.types import STATES, State
from gputop.features.fleet import queries
from gputop.features.fleet.decode_labels import GpuIdentity, Labels, SeriesKey, key_of, label_text, owner_of
from gputop.features.fleet.exporter_names import BLANK, DIALECTS, RATIO_LIMIT, plausible
from gputop.features.fleet.fleet_reading import NO_JOB, GpuReading, JobName
from gputop.features.fleet.queries import FleetSchema

LONGEST_STEP_S = 1e6
"""Longest believable training step."""


def in_units(values: Iterable[tuple[SeriesKey | None, float]], key: str) -> dict[SeriesKey, float]:
    """One metric in the catalogue's unit by GPU, without DCGM's blanks and impossible values."""
    raw = {gpu: value for gpu, value in values if gpu is not None and value < BLANK}
    factors = unit_factors(raw, key)
    found = {}
    for gpu, value in raw.items():
        factor = factors.get(gpu.dialect) or factors.get(gpu)
        if factor is not None and (possible := plausible(key, value * factor)) is not None:
            found[gpu] = possible
    return found


def unit_factors(highest: Mapping[SeriesKey, float], key: str) -> dict[str | SeriesKey, float]:
    """Factors to the catalogue's unit, by dialect or GPU.

    ``highest`` are each GPU's values: each host has one exporter, and so percent or ratios.
    """
    signals = {name: dialect.signals.get(key) for name, dialect in DIALECTS.items()}
    factors: dict[str | SeriesKey, float] = {
        name: signal.factor for name, signal in signals.items() if signal is not None and not signal.doubtful
    }
    doubtful = {gpu: value for gpu, value in highest.items() if (signal := signals[gpu.dialect]) and signal.doubtful}
    if not doubtful:
        return factors
    highest_of_host: dict[str, float] = defaultdict(float)
    for gpu, value in doubtful.items():
        highest_of_host[gpu.values[0]] = max(highest_of_host[gpu.values[0]], value)
    percent = {host for host, value in highest_of_host.items() if value > RATIO_LIMIT}
    if percent:
        # 0 and 1 may be either: beside hosts that give percent they are percent.
        ratio = {gpu.values[0] for gpu, value in doubtful.items() if value % 1.0 and value <= RATIO_LIMIT} - percent
        percent |= set(highest_of_host) - ratio
    return factors | {gpu: 1.0 if gpu.values[0] in percent else 100.0 for gpu in doubtful}


class SeriesFacts(Struct):
    """Facts of one GPU from series of their own.

    ``owner`` is job and user of a process, ``pod`` the pod that the kubelet gave the GPU. ``step_s`` is the mean
    training step of its ranks, ``step_wait_s`` their wait for others in it.
    """

    state: str | None = None
    verdict: str | None = None
    owner: tuple[JobName, str] = (NO_JOB, "")
    pod: tuple[JobName, str] = (NO_JOB, "")
    step_s: float | None = None
    step_wait_s: float | None = None
    is_lost: bool = False

    @property
    def job_and_user(self) -> tuple[JobName, str]:
        """Job and user: of a process, else of the pod."""
        return self.owner if self.owner[0] or not self.pod[0] else self.pod


class FactLabels(NamedTuple):
    """A GPU, a field of ``SeriesFacts``, and the value that the labels give it."""

    key: SeriesKey
    field: str
    value: Any = None


_BY_VALUE = {queries.STEP: "step_s", queries.STEP_WAIT: "step_wait_s", queries.LOST: "is_lost"}
"""Mark → field, for facts that are the value of a series."""


def fact_labels(labels: Labels, schema: FleetSchema) -> FactLabels | None:
    """Decode a series of ``queries.node_facts``; None without gputop's exporter."""
    names = schema.labels.get("gputop")
    if names is None:
        return None
    key, mark = key_of(labels, "gputop", names), labels.get(queries.DIALECT_LABEL, "")
    if mark in _BY_VALUE:
        return FactLabels(key, _BY_VALUE[mark])
    if mark == queries.POD:
        return FactLabels(key, "pod", owner_of(labels))
    if "state" in labels:
        return FactLabels(key, "state", labels["state"])
    if "verdict" in labels:
        return FactLabels(key, "verdict", label_text(labels["verdict"]))
    return FactLabels(key, "owner", owner_of(labels))


def series_facts(rows: Iterable[tuple[FactLabels | None, float]]) -> dict[SeriesKey, SeriesFacts]:
    """Facts by GPU; of several jobs or pods the first by name."""
    facts_by_gpu: dict[SeriesKey, SeriesFacts] = defaultdict(SeriesFacts)
    for labels, number in rows:
        if labels is None:
            continue
        key, field, value = labels
        facts = facts_by_gpu[key]
        if field in ("owner", "pod"):
            value = first_owner(getattr(facts, field), value)
        elif field == "is_lost":
            value = True
        elif field in ("step_s", "step_wait_s"):
            least = math.ulp(0.0) if field == "step_s" else 0.0
            value = number if least <= number < LONGEST_STEP_S else None
        setattr(facts, field, value)
    return facts_by_gpu


def first_owner(*owners: tuple[JobName, str]) -> tuple[JobName, str]:
    """The best known of several owners, by name."""
    return min(owners, key=lambda owner: (not owner[0], not owner[1], owner))


STATES_BY_NAME: Mapping[str, State] = {state: state for state in STATES}


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
        cluster=identity.cluster,
        mig=identity.mig,
        **{**values, **of_share},
    )  # fmt: skip
