"""A Prometheus' answers → readings of GPUs. Pure: rows in, values of the catalogue out.

Exporters disagree on labels and units; here they become one GPU each, by UUID where there is one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from gputop.features.fleet.exporter_names import (
    BLANK,
    DETAIL_KEYS,
    DIALECTS,
    HOST_LABELS,
    RATIO_LIMIT,
    STATE_KEYS,
    Dialect,
    Signal,
    first_of,
    host_of,
    job_of,
    plausible,
)
from gputop.features.fleet.fleet_reading import FleetError
from gputop.features.fleet.plan import DIALECT_LABEL, GONE, HOST, JOB_ID, STEP, STEP_WAIT, Known
from gputop.model.quantity import clean_text

LONGEST_LABEL = 120
LONGEST_STEP_S, GREATEST_JOB = 1e6, 2.0**53
"""Training steps and job numbers beyond these are not meant."""


class Key(NamedTuple):
    """A GPU as one dialect's series name it."""

    dialect: str
    values: tuple[str, ...]


class Identity(Struct, frozen=True):
    """What is known of a GPU besides its values. ``instance`` is the scraped address; a GPU that is ``gone`` had values
    in the last ten minutes and has none now."""

    host: str
    gpu: str
    uuid: str
    model: str
    instance: str
    job: str
    user: str
    gone: bool


Labels = Mapping[str, str]


def signals_found(names: Collection[str]) -> dict[str, frozenset[str]]:
    """Which keys each dialect can have series of, by the names that there are."""
    known = frozenset(names)
    found = {
        dialect.id: frozenset(
            key for key in (*STATE_KEYS, *DETAIL_KEYS) if key in dialect.signals and dialect.signals[key].name in known
        )
        for dialect in DIALECTS.values()
    }
    # A dialect without utilisation cannot be judged, and has nothing that another does not have better.
    return {name: keys for name, keys in found.items() if "util_pct" in keys}


def scrape_seconds(samples: Iterable[float], window_s: float) -> float:
    """The time between two scrapes, by their number in a window; 15 s where that is unknown."""
    most = max(samples, default=0.0)
    return min(120.0, max(1.0, round(window_s / most))) if most > 1 else 15.0


def key_labels(rows: Iterable[Labels]) -> dict[str, tuple[str, ...]]:
    """Per dialect the fewest labels that tell its GPUs apart: short answers are fast answers."""
    by_dialect: dict[str, list[Labels]] = defaultdict(list)
    for row in rows:
        by_dialect[row.get(DIALECT_LABEL, "").removesuffix(GONE)].append(row)
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


def identified(rows: Sequence[Labels], labels: Mapping[str, tuple[str, ...]]) -> dict[Key, Identity]:
    """Every GPU by its key. One that several jobs share is in the first of them by name."""
    names = {row.get("instance", ""): row.get("hostname", "") for row in rows if row.get(DIALECT_LABEL) == HOST}
    found: dict[Key, Identity] = {}
    for row in rows:
        mark = row.get(DIALECT_LABEL, "")
        name = mark.removesuffix(GONE)
        if name not in labels:
            continue
        dialect = DIALECTS[name]
        key = key_of(row, name, labels[name])
        own = names.get(row.get("instance", "")) if name == "gputop" else None
        job, user = job_of(row) if dialect.job else ("", "")
        identity = Identity(
            _text(own or host_of(row)) or "(no host label)",
            _number(dialect, row),
            _text(first_of(row, dialect.uuid)),
            _text(first_of(row, dialect.model)),
            row.get("instance", ""),
            _text(job),
            _text(user),
            mark.endswith(GONE),
        )
        before = found.get(key)
        if before is None or (before.gone, before.job or "~") > (identity.gone, identity.job or "~"):
            found[key] = identity
    return found


def _number(dialect: Dialect, labels: Labels) -> str:
    number = first_of(labels, dialect.number) or first_of(labels, dialect.uuid)[:12] or "?"
    instance = first_of(labels, dialect.instance)
    return _text(f"{number}/{instance}" if instance else number)


@lru_cache(maxsize=4096)
def _text(text: str) -> str:
    return clean_text(text[:LONGEST_LABEL])


def key_of(labels: Labels, dialect: str, names: Sequence[str]) -> Key:
    """The key of a series by these labels."""
    return Key(dialect, tuple([labels.get(name, "") for name in names]))


def gpu_of(labels: Labels, known: Known) -> Key | None:
    """The GPU that a series of a metric belongs to; None for a dialect that is not known."""
    dialect = known.only or labels.get(DIALECT_LABEL, "")
    names = known.labels.get(dialect)
    return None if names is None else key_of(labels, dialect, names)


def in_units(values: Iterable[tuple[Key | None, float]], key: str) -> dict[Key, float]:
    """One metric in the catalogue's unit by GPU; DCGM's blanks are left out."""
    signals = {name: dialect.signals.get(key) for name, dialect in DIALECTS.items()}
    found: dict[Key, float] = {}
    doubtful: dict[Key, float] = {}
    for gpu, value in values:
        signal = None if gpu is None else signals[gpu.dialect]
        if gpu is None or signal is None or value >= BLANK:
            continue
        if signal.doubtful:
            doubtful[gpu] = value
        else:
            found[gpu] = value * signal.factor
    if doubtful:
        # All of one dialect: no other has such a name.
        (signal,) = {signals[gpu.dialect] for gpu in doubtful}
        assert signal is not None, "what is doubtful has a signal"
        found.update(_scaled(doubtful, signal))
    return {gpu: kept for gpu, value in found.items() if (kept := plausible(key, value)) is not None}


def _scaled(values: Mapping[Key, float], signal: Signal) -> dict[Key, float]:
    """Ratios as percent, and percent under a ratio's name unchanged; each host has one exporter, and so one of both."""
    most: dict[str, float] = defaultdict(float)
    for key, value in values.items():
        host = key.values[0]
        most[host] = max(most[host], value)
    percent = {host for host, value in most.items() if value > RATIO_LIMIT}
    if percent:
        # 0 and 1 may be either: beside hosts that give percent they are percent.
        ratio = {key.values[0] for key, value in values.items() if value % 1.0 and value <= RATIO_LIMIT} - percent
        percent |= set(most) - ratio
    return {key: value if key.values[0] in percent else value * signal.factor for key, value in values.items()}


class Told(Struct):
    """What separate series say of a GPU. ``step_s`` is the mean training step of its ranks in seconds,
    ``step_wait_s`` what they waited for others in it."""

    state: str | None = None
    verdict: str | None = None
    job: str = ""
    user: str = ""
    step_s: float | None = None
    step_wait_s: float | None = None


class Said(NamedTuple):
    """The labels of one of those series: which GPU, what kind of fact, and its words."""

    key: Key
    kind: str
    text: str = ""
    user: str = ""


def said_by(labels: Labels, known: Known) -> Said | None:
    """A series of ``plan.told``; None for one of a dialect that is not known."""
    mark = labels.get(DIALECT_LABEL, "")
    dialect = "jobstats" if mark == JOB_ID else "gputop"
    names = known.labels.get(dialect)
    if names is None:
        return None
    key = key_of(labels, dialect, names)
    if mark in (JOB_ID, STEP, STEP_WAIT):
        return Said(key, mark)
    if "state" in labels:
        return Said(key, "state", labels["state"])
    if "verdict" in labels:
        return Said(key, "verdict", _text(labels["verdict"]))
    return Said(key, "job", *_own_job(labels))


def told_of(rows: Iterable[tuple[Said | None, float]]) -> dict[Key, Told]:
    """The answer to ``plan.told`` by GPU."""
    found: dict[Key, Told] = {}
    for said, value in rows:
        if said is None:
            continue
        one = found.get(said.key)
        if one is None:
            one = found[said.key] = Told()
        if said.kind == "state":
            one.state = said.text
        elif said.kind == "verdict":
            one.verdict = said.text
        elif said.kind == STEP:
            one.step_s = value if 0.0 < value < LONGEST_STEP_S else None
        elif said.kind == STEP_WAIT:
            one.step_wait_s = value if 0.0 <= value < LONGEST_STEP_S else None
        elif said.kind == JOB_ID:
            if 0 < value < GREATEST_JOB:
                one.job = f"job {value:.0f}"
        elif not one.job or said.text < one.job:
            one.job, one.user = said.text, said.user
    return found


def _own_job(labels: Mapping[str, str]) -> tuple[str, str]:
    user = _text(labels.get("user", ""))
    if job := labels.get("job_id"):
        return _text(f"{labels.get('scheduler', 'job')} {job}"), user
    if pod := labels.get("k8s_pod_uid"):
        return _text(f"pod {pod}"), user
    container = labels.get("container_id", "")
    return (_text(f"container {container[:12]}") if container else "", user)


# The owner of a series, looked up by its labels as they came over the wire.
#
# Thousands of series have the same labels at every refresh: they are parsed once and then known by their bytes. Those
# of
# hosts and jobs that are gone are forgotten: an autoscaled cluster has new names all the time.

MOST_KEPT = 200_000
T = TypeVar("T")
_LABELS = msgspec.json.Decoder(dict[str, str])


class Remembered(Generic[T]):
    """Caches what ``read`` makes of labels. ``of`` raises FleetError for invalid labels."""

    def __init__(self, read: Callable[[Mapping[str, str]], T]) -> None:
        self._read = read
        self._found: dict[bytes, T] = {}
        self._before: dict[bytes, T] = {}
        """Entries from before the last turn that have not been looked up since."""

    def of(self, metric: Raw) -> T:
        """The value for these labels."""
        raw = bytes(metric)
        try:
            return self._found[raw]
        except KeyError:
            pass
        if len(self._found) >= MOST_KEPT:
            self.turn()
        found = self._found[raw] = self._before.pop(raw) if raw in self._before else self._read(labels_of(metric))
        return found

    def turn(self) -> None:
        """Forget what was not looked up since the last turn."""
        self._found, self._before = {}, self._found

    def __len__(self) -> int:
        return len(self._found) + len(self._before)


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
