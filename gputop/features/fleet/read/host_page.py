"""Decode the page of a host's exporter, whichever it is. Pure.

Takes the text; returns the host's GPUs with identity, values in the catalogue's units and facts, by the table of
``exporter_names`` and the decoders that answers of Prometheus go through. A page may have several dialects.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet.exporter_names import (
    DIALECTS,
    GPU_KEYS,
    Dialect,
    first_of,
    host_of,
    plausible,
)
from gputop.features.fleet.fleet_reading import GpuId
from gputop.features.fleet.promql import ENGINE
from gputop.features.fleet.read import screen_queries
from gputop.features.fleet.read.decode_labels import (
    GpuIdentity,
    SeriesKey,
    discovered,
    gpu_of,
    label_text,
)
from gputop.features.fleet.read.decode_values import (
    SeriesFacts,
    fact_of,
    in_units,
    user_of,
    with_gpu_labels,
)
from gputop.features.fleet.read.fabric_ports import COUNTS, FAULT, PORT, fault_line
from gputop.features.fleet.read.screen_queries import DIALECT_LABEL, FleetSchema
from gputop.model.exposition import Labels, PageLimitError, parse_page

STEPS: Mapping[str, str] = {
    "step_s": "gputop_step_seconds_",
    "step_wait_s": "gputop_step_wait_seconds_",
}
"""Fields of a reading → the summaries of announced steps that give them."""
_STEP_NAMES = tuple(f"{name}{part}" for name in STEPS.values() for part in ("sum", "count"))
_MARKS = {
    "gputop_gpu_state": "", "gputop_gpu_level": "", "gputop_gpu_verdict": "", "gputop_job_info": "",
    "gputop_gpu_lost": screen_queries.LOST, "gputop_pod_info": screen_queries.POD,
}  # fmt: skip
"""Series that hold where they are 1 → their mark among the facts of a node."""
_INFO, _SHARE, _UP, _HOST = "gputop_gpu_info", "gputop_gpu_share", "gputop_up", "gputop_host_info"
_LOST = "gputop_gpu_lost_seconds_total"
_STATES = "gputop_gpu_state_seconds_total"
_STAMP = "gputop_last_sample_timestamp_seconds"
_OWN = DIALECTS["gputop"]
_OWN_NAMES = (*_OWN.moments, _INFO)
_OTHERS = tuple(dialect for dialect in DIALECTS.values() if not dialect.is_own)
_GPU_NAMES = (_INFO, *(name for dialect in DIALECTS.values() for name in dialect.moments))
"""Series of which each GPU has one at most."""
MOST_GPUS = 4096
"""GPUs of one page: sixteen times as many as MIG makes of the largest host."""
TOO_MANY_GPUS = f"its page has more than {MOST_GPUS:,} GPUs"


def _wanted_names() -> frozenset[str]:
    names = {_INFO, _SHARE, _UP, _HOST, _LOST, _STATES, _STAMP, *_MARKS, *_STEP_NAMES}
    names |= {FAULT, *COUNTS}
    for dialect in DIALECTS.values():
        names |= {dialect.signals[key].name for key in GPU_KEYS if key in dialect.signals}
        names |= {dialect.facts, dialect.processes}
    return frozenset(filter(None, names))


NAMES = _wanted_names()
Rows = Mapping[str, Sequence[tuple[Labels, float]]]
"""Name of a series → the labels and value of each line."""


class PageGpu(Struct, frozen=True):
    """A GPU as one dialect of a page tells of it."""

    key: SeriesKey
    identity: GpuIdentity
    values: Mapping[str, float]
    facts: SeriesFacts


class PageRank(Struct, frozen=True):
    """A rank that announces steps: the number of its GPU, and its labels as text."""

    gpu: str
    labels: str


class HostPage(Struct, frozen=True):
    """One page, decoded.

    ``own_names`` are what the host calls itself, by dialect. ``is_late``: the exporter said that its driver does not
    answer. ``steps`` are counters of announced steps by name and rank, ``lost_s`` the seconds that a node counted as
    wasted or idle. ``port_faults`` are faults of the fabric in words, ``port_counts`` counters by name and port.
    ``left_out`` names series beyond a limit. ``sampled_at`` is when the node measured, Unix seconds by its own clock;
    ``is_cut``: the page ends in the middle of a line.
    """

    gpus: Sequence[PageGpu] = ()
    own_names: Mapping[str, str] = {}
    is_late: bool = False
    steps: Mapping[tuple[str, str], float] = {}
    ranks: Sequence[PageRank] = ()
    lost_s: Mapping[GpuId, float] = {}
    port_faults: Sequence[str] = ()
    port_counts: Mapping[tuple[str, str], float] = {}
    left_out: tuple[str, ...] = ()
    sampled_at: float | None = None
    is_cut: bool = False


WEB_PAGE = "answers with a web page, not with metrics: a login page, or another service"
EMPTY_PAGE = "its page is empty"
NO_GPU = "its page has no GPU"


def why_no_gpu(text: str) -> str:
    """The reason why a page tells of no GPU."""
    begin = text[:512].lstrip()
    if not begin:
        return EMPTY_PAGE
    return WEB_PAGE if begin.startswith("<") else NO_GPU


def read_host_page(text: str, host: str) -> HostPage:
    """Decode a page of this host. Raises PageLimitError."""
    # Counted before they are read, which takes seconds where there are hundreds of thousands.
    if any(text.count(f"\n{name}{{") > MOST_GPUS for name in _GPU_NAMES):
        raise PageLimitError(TOO_MANY_GPUS)
    read = parse_page(text, NAMES.__contains__)
    rows: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
    for sample in read.samples:
        if isfinite(sample.value):
            rows[sample.name].append((sample.labels, sample.value))
    own = _own_gpus(rows, host)
    others = [gpu for dialect in _OTHERS for gpu in _gpus_of(dialect, rows, host)]
    if len(own) > MOST_GPUS or len(others) > MOST_GPUS:
        raise PageLimitError(TOO_MANY_GPUS)
    identities = {gpu.key: gpu.identity for gpu in own}
    lost_s: dict[GpuId, float] = defaultdict(float)
    for labels, value in _no_work_seconds(rows):
        identity = identities.get(_own_key(labels))
        if identity is not None:
            lost_s[identity.id] += value
    steps: dict[tuple[str, str], float] = {}
    ranks: dict[PageRank, None] = {}
    for name in _STEP_NAMES:
        for labels, value in rows[name]:
            rank = PageRank(labels.get("gpu", ""), str(labels))
            steps[name, rank.labels], ranks[rank] = value, None
    return HostPage(
        gpus=own + others,
        own_names=_own_names(rows),
        is_late=any(value == 0.0 for _, value in rows[_UP]),
        steps=steps,
        ranks=list(ranks),
        lost_s=lost_s,
        port_faults=[
            label_text(fault_line(labels)) for labels, value in rows[FAULT] if value == 1.0
        ],
        port_counts=_port_counts(rows),
        left_out=tuple(map(str, read.left_out)),
        sampled_at=_sampled_at(rows),
        is_cut=not text.endswith("\n"),
    )


def _sampled_at(rows: Rows) -> float | None:
    """When the node measured, by its clock; None where the page does not say."""
    times = [value for _, value in rows.get(_STAMP, ()) if value > 0.0]
    return max(times, default=None)


def _port_counts(rows: Rows) -> dict[tuple[str, str], float]:
    counts: dict[tuple[str, str], float] = {}
    for name in COUNTS:
        for labels, value in rows.get(name, ()):
            counts[name, label_text(labels.get(PORT, ""))] = value
    return counts


def _own_names(rows: Rows) -> dict[str, str]:
    """What a host calls itself, by dialect."""
    names: dict[str, str] = {}
    for labels, _ in rows.get(_HOST, ())[:1]:
        names[_OWN.id] = label_text(labels.get("hostname", ""))
    for dialect in _OTHERS:
        for name in dialect.moments:
            for labels, _ in rows.get(name, ())[:1]:
                names.setdefault(dialect.id, label_text(host_of(labels)))
    return {dialect: name for dialect, name in names.items() if name}


# gputop's own page: identities, shares and facts have series of their own.


def _own_key(labels: Labels) -> SeriesKey:
    named = (labels.get("gpu", ""), labels.get("uuid", ""), labels.get("mig", ""))
    return SeriesKey(_OWN.id, named)


def _own_gpus(rows: Rows, host: str) -> list[PageGpu]:
    identities = _own_identities(rows, host)
    values: dict[SeriesKey, dict[str, float]] = defaultdict(dict)
    for key in GPU_KEYS:
        signal = _OWN.signals[key]
        for labels, value in rows.get(signal.name, ()):
            possible = plausible(key, value * signal.factor)
            is_selected = all(labels.get(label) == wanted for label, wanted in signal.labels)
            if possible is not None and is_selected:
                values[_own_key(labels)][key] = possible
    facts: dict[SeriesKey, SeriesFacts] = defaultdict(SeriesFacts)
    for name, mark in _MARKS.items():
        for labels, value in rows.get(name, ()):
            if value == 1.0:
                facts[_own_key(labels)].take(fact_of(labels, mark), value)
    return [
        PageGpu(key, identity, _as_busy_as_its_engine(identity, values[key]), facts[key])
        for key, identity in identities.items()
    ]


def _own_identities(rows: Rows, host: str) -> dict[SeriesKey, GpuIdentity]:
    """The GPUs and MIG instances on a page; one that is split is left out."""
    shares = {
        _own_key(labels): (value, labels.get("parent", ""))
        for labels, value in rows.get(_SHARE, ())
    }
    keys: dict[SeriesKey, None] = {}
    for name in _OWN_NAMES:
        for labels, _ in rows.get(name, ()):
            keys[_own_key(labels)] = None
    found: dict[SeriesKey, GpuIdentity] = {}
    for key in keys:
        gpu, uuid, mig = map(label_text, key.values)
        share, parent = shares.get(key, (1.0, ""))
        if not 0.0 <= share <= 1.0:
            # No part of a card is larger than the card.
            share = 1.0
        if share > 0.0:
            number, instance = gpu or uuid[:12] or "?", mig.removesuffix("/0") if parent else mig
            number, uuid = f"{number}/{mig}" if mig else number, label_text(parent) or uuid
            found[key] = GpuIdentity(host, number, uuid, "", (host,), share=share, mig=instance)
    return found


def _no_work_seconds(rows: Rows) -> list[tuple[Labels, float]]:
    """Seconds that GPUs wasted or were idle, as the node counts them.

    Idle time is a state's alone; nodes of an older version count it under a cause of its own, too.
    """
    wasted = [row for row in rows.get(_LOST, ()) if row[0].get("cause") != "idle"]
    idle = [row for row in rows.get(_STATES, ()) if row[0].get("state") == "idle"]
    return wasted + idle


# Pages of other exporters, by the decoders of Prometheus' answers.


def _gpus_of(dialect: Dialect, rows: Rows, host: str) -> list[PageGpu]:
    """The GPUs of another exporter, by the labels of any gauge of the moment."""
    facts_of_uuid = {
        first_of(labels, dialect.uuid): labels
        for labels, _ in (rows.get(dialect.facts, ()) if dialect.facts else ())
    }
    mark = {DIALECT_LABEL: dialect.id, "instance": host}
    marked: list[Labels] = []
    for name in dialect.moments:
        for labels, _ in rows.get(name, ()):
            facts = facts_of_uuid.get(first_of(labels, dialect.uuid), {})
            marked.append({**facts, **labels, **mark})
    if not marked:
        return []
    found = discovered(marked, FleetSchema((dialect.id,)))
    by_key: dict[SeriesKey, dict[str, float]] = defaultdict(dict)
    for key, signal in dialect.signals.items():
        if key in GPU_KEYS:
            series = [
                (gpu_of({**labels, **mark}, found.schema), value)
                for labels, value in rows.get(signal.name, ())
            ]
            for gpu, possible in in_units(series, key).items():
                by_key[gpu][key] = possible
    users: dict[SeriesKey, SeriesFacts] = defaultdict(SeriesFacts)
    for labels, value in rows.get(dialect.processes, ()) if dialect.processes else ():
        gpu_key = gpu_of({**with_gpu_labels(labels, dialect), **mark}, found.schema)
        if gpu_key is not None:
            users[gpu_key].take(user_of(labels, dialect), value)
    gpus = []
    for gpu, identity in found.identities.items():
        of_host = replace(identity, host=host, place=(host,))
        values = _as_busy_as_its_engine(of_host, by_key[gpu])
        gpus.append(PageGpu(gpu, of_host, values, users[gpu]))
    return gpus


def _as_busy_as_its_engine(identity: GpuIdentity, values: dict[str, float]) -> dict[str, float]:
    """Values of a GPU; a MIG instance is as busy as its engine."""
    if identity.mig and ENGINE in values:
        return {**values, "util_pct": values[ENGINE]}
    return values
