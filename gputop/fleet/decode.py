"""A Prometheus' answers → readings of GPUs. Pure: rows in, values of the catalogue out.

Exporters disagree on labels and units; here they become one GPU each, by UUID where there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from gputop.fleet.names import BLANK, DIALECTS, HOST_LABELS, RATIO_LIMIT, Dialect, Signal, first_of, host_of, job_of
from gputop.fleet.plan import DIALECT_LABEL, GONE, HOST, JOB_ID
from gputop.model.text import clean_text

LONGEST_LABEL = 120


class Key(NamedTuple):
    """A GPU as one dialect's series name it."""

    dialect: str
    values: tuple[str, ...]


class Identity(Struct, frozen=True):
    """What is known of a GPU beside its values. ``instance`` is the scraped address; a GPU that is ``gone`` had values
    in the last ten minutes and has none now."""

    host: str
    gpu: str
    uuid: str
    model: str
    instance: str
    job: str
    user: str
    gone: bool
    util: float | None


class Answered(NamedTuple):
    """One series with a value: its labels, its mark, the number."""

    labels: Mapping[str, str]
    mark: str
    value: float


def signals_found(rows: Iterable[Answered]) -> tuple[dict[str, frozenset[str]], float]:
    """Which keys each dialect has series of, and the scrape interval in seconds, from the answer to ``discovery``."""
    found: dict[str, set[str]] = defaultdict(set)
    samples: list[float] = []
    for row in rows:
        dialect, _, key = row.mark.partition(" ")
        if key == "samples":
            samples.append(row.value)
        elif dialect in DIALECTS and row.value > 0:
            found[dialect].add(key)
    most = max(samples, default=0.0)
    scrape_s = min(120.0, max(1.0, round(300.0 / most))) if most > 1 else 15.0
    # A dialect without utilisation cannot be judged, and says nothing that another does not say better.
    return {name: frozenset(keys) for name, keys in found.items() if "util_pct" in keys}, scrape_s


def key_labels(rows: Iterable[Answered]) -> dict[str, tuple[str, ...]]:
    """Per dialect the fewest labels that tell its GPUs apart: short answers are fast answers."""
    by_dialect: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for row in rows:
        by_dialect[row.mark.removesuffix(GONE)].append(row.labels)
    found = {}
    for name, all_labels in by_dialect.items():
        dialect = DIALECTS.get(name)
        if dialect is None:
            continue
        used = {label for labels in all_labels for label in labels}
        hosts: dict[str, set[str]] = defaultdict(set)
        for labels in all_labels:
            hosts[labels.get("instance", "")].add(host_of(labels))
        told_by_address = "" not in hosts and all(len(names) == 1 for names in hosts.values())
        host_labels = ("instance",) if told_by_address else tuple(sorted(used.intersection(HOST_LABELS)))
        numbered = used.intersection(dialect.number)
        gpu = [label for label in dialect.number if label in numbered][:1] or list(dialect.uuid)
        found[name] = (*host_labels, *gpu, *(label for label in dialect.instance if label in used))
    return found


def identified(rows: Sequence[Answered], labels: Mapping[str, tuple[str, ...]]) -> dict[Key, Identity]:
    """Every GPU by its key. One that several jobs share is in the first of them by name."""
    names = {row.labels.get("instance", ""): row.labels.get("hostname", "") for row in rows if row.mark == HOST}
    found: dict[Key, Identity] = {}
    for row in rows:
        name = row.mark.removesuffix(GONE)
        if name not in labels:
            continue
        dialect = DIALECTS[name]
        key = key_of(row.labels, name, labels[name])
        own = names.get(row.labels.get("instance", "")) if name == "gputop" else None
        job, user = job_of(row.labels) if dialect.job else ("", "")
        identity = Identity(
            _text(own or host_of(row.labels)) or "(no host label)",
            _number(dialect, row.labels),
            _text(first_of(row.labels, dialect.uuid)),
            _text(first_of(row.labels, dialect.model)),
            row.labels.get("instance", ""),
            _text(job),
            _text(user),
            row.mark.endswith(GONE),
            row.value,
        )
        before = found.get(key)
        if before is None or (before.gone, before.job or "~") > (identity.gone, identity.job or "~"):
            found[key] = identity
    return found


def _number(dialect: Dialect, labels: Mapping[str, str]) -> str:
    number = first_of(labels, dialect.number) or first_of(labels, dialect.uuid)[:12] or "?"
    instance = first_of(labels, dialect.instance)
    return _text(f"{number}/{instance}" if instance else number)


def _text(text: str) -> str:
    return clean_text(text[:LONGEST_LABEL])


def key_of(labels: Mapping[str, str], dialect: str, names: Sequence[str]) -> Key:
    """The key of a series by these labels."""
    return Key(dialect, tuple([labels.get(name, "") for name in names]))


_UNKNOWN: tuple[tuple[str, ...], Signal | None] = ((), None)


def values_of(rows: Iterable[Answered], key: str, labels: Mapping[str, tuple[str, ...]]) -> dict[Key, float]:
    """One metric of the catalogue in its unit by GPU; DCGM's blanks are left out."""
    found: dict[Key, float] = {}
    doubtful: dict[Key, float] = {}
    # Looked up once for each dialect: a fleet of 8,000 GPUs is read here six times a refresh.
    known = {name: (own, DIALECTS[name].signals.get(key)) for name, own in labels.items()}
    for own_labels, mark, value in rows:
        names, signal = known.get(mark, _UNKNOWN)
        if signal is None or value >= BLANK:
            continue
        gpu = Key(mark, tuple([own_labels.get(name, "") for name in names]))
        if signal.doubtful:
            doubtful[gpu] = value
        else:
            found[gpu] = value * signal.factor
    if doubtful:
        found.update(_scaled(doubtful, DIALECTS[next(iter(doubtful)).dialect].signals[key]))
    return found


def _scaled(values: Mapping[Key, float], signal: Signal) -> dict[Key, float]:
    """Ratios as percent, and percent under a ratio's name as it is; each host has one exporter, and so one of them."""
    most: dict[tuple[str, ...], float] = defaultdict(float)
    for key, value in values.items():
        most[key.values[:1]] = max(most[key.values[:1]], value)
    percent = {host for host, value in most.items() if value > RATIO_LIMIT}
    if percent:
        # 0 and 1 are both: beside hosts that give percent they are percent.
        ratio = {key.values[:1] for key, value in values.items() if value % 1.0 and value <= RATIO_LIMIT} - percent
        percent |= set(most) - ratio
    return {key: value if key.values[:1] in percent else value * signal.factor for key, value in values.items()}


class Told(Struct):
    """What series of their own say of a GPU."""

    state: str | None = None
    verdict: str | None = None
    job: str = ""
    user: str = ""


def told_of(rows: Iterable[Answered], labels: Mapping[str, tuple[str, ...]]) -> dict[Key, Told]:
    """The answer to ``plan.told`` by GPU."""
    found: dict[Key, Told] = defaultdict(Told)
    for row in rows:
        if row.mark == JOB_ID:
            if row.value > 0 and "jobstats" in labels:
                found[key_of(row.labels, "jobstats", labels["jobstats"])].job = f"job {row.value:.0f}"
            continue
        if "gputop" not in labels:
            continue
        one = found[key_of(row.labels, "gputop", labels["gputop"])]
        if "state" in row.labels:
            one.state = row.labels["state"]
        elif "verdict" in row.labels:
            one.verdict = _text(row.labels["verdict"])
        else:
            job, user = _own_job(row.labels)
            if not one.job or job < one.job:
                one.job, one.user = job, user
    return found


def _own_job(labels: Mapping[str, str]) -> tuple[str, str]:
    user = _text(labels.get("user", ""))
    if job := labels.get("job_id"):
        return _text(f"{labels.get('scheduler', 'job')} {job}"), user
    if pod := labels.get("k8s_pod_uid"):
        return _text(f"pod {pod}"), user
    container = labels.get("container_id", "")
    return (_text(f"container {container[:12]}") if container else "", user)


def answered(metric: Mapping[str, str], value: float) -> Answered:
    """A row's labels, its mark and its number."""
    return Answered(metric, metric.get(DIALECT_LABEL, ""), value)
