"""What pages of one host say of its GPUs, and what is remembered of them: five minutes for a state, an hour for the
rest. Pure: time is passed in; nothing on a page is believed or can hurt.

A page of gputop's carries the node's own states and verdicts; of another exporter's the state follows from five minutes
of values, as it does with an engine. Nothing is known of the time before gputop was started.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from statistics import fmean, quantiles
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from gputop.diagnosis.idle_runs import QUIET_UTIL
from gputop.features.fleet import decode_answers as decode
from gputop.features.fleet import plan
from gputop.features.fleet.client import number
from gputop.features.fleet.decode_answers import GpuIdentity, SeriesFacts, SeriesKey
from gputop.features.fleet.exporter_names import DIALECTS, GPU_KEYS, MOMENT_KEYS
from gputop.features.fleet.fleet_reading import HOUR_S, MINUTES, WINDOW_S, GpuReading, GpuState, JobName, Lost, filled
from gputop.features.fleet.judge import judged, lost_hours
from gputop.features.fleet.plan import DIALECT_LABEL, FleetSchema
from gputop.features.fleet.promql import ENGINE

# A page, read: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format

LONGEST_LINE = 4096
_LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")


def samples(page: str, wanted: Collection[str]) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Name, labels and value of the series of these names, in their order. Lines that are none are left out, values
    that are no numbers too: login noise before a page says nothing."""
    for line in page.splitlines():
        # A page has hundreds of lines of other names.
        if line[: line.find("{")].rstrip() not in wanted and line.partition(" ")[0] not in wanted:
            continue
        match = _LINE.match(line) if len(line) <= LONGEST_LINE else None
        if match is None or match[1] not in wanted or (value := number(match[3])) is None:
            continue
        labels = _labels(match[2] or "")
        if labels is not None:
            yield match[1], labels, value


@lru_cache(maxsize=50_000)
def _labels(text: str) -> Mapping[str, str] | None:
    """The labels between the braces; None where they are none. Kept: they are the same on the next page."""
    labels, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            return None
        labels[match[1]] = _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], match[2])
        at = match.end()
    return MappingProxyType(labels)


# What is remembered of a host's pages.

_STEPS = {
    f"gputop_{name}_seconds_{part}": (mark, part)
    for name, mark in (("step", plan.STEP), ("step_wait", plan.STEP_WAIT))
    for part in ("sum", "count")
}
_MARKED = {"gputop_gpu_lost": plan.LOST, "gputop_pod_info": plan.POD, "nvidia_gpu_jobId": plan.JOB_ID}
_TOLD = {"gputop_gpu_state": "state", "gputop_gpu_verdict": "verdict", "gputop_job_info": ""}
_INFO, _SHARE, _UP, _HOST = "gputop_gpu_info", "gputop_gpu_share", "gputop_up", "gputop_host_info"
_LOST = "gputop_gpu_lost_seconds_total"
WANTED = frozenset((
    _INFO, _SHARE, _UP, _HOST, _LOST, *_STEPS, *_MARKED, *_TOLD, *(row.facts for row in DIALECTS.values() if row.facts),
    *(row.signals[key].name for row in DIALECTS.values() for key in GPU_KEYS if key in row.signals),
))  # fmt: skip
LONGEST_PAUSE_S = 15.0
"""Between two pages: what lies between those that are farther apart is not known."""
MINUTE_S = 60.0
MOST_SAMPLES = 20_000
"""Of one page: one of 8 GPUs has some 300 that are read."""
MOST_MISSING = 64
"""GPUs that are not there any more."""

Rows = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]
Id = tuple[str, ...]
Counted = tuple[str, str, tuple[tuple[str, str], ...]]
"""A mark of steps, sum or count, and the labels of a rank."""
Owned = tuple[str, JobName, str, GpuState]
"""A GPU's number, its job, its user and its state."""


class _Page(Struct, frozen=True):
    """Values by GPU and key, what ranks counted, and the seconds that nodes count as lost, by GPU."""

    t: float
    values: Mapping[Id, Mapping[str, float]]
    steps: Mapping[Counted, float]
    lost_s: Mapping[Id, float]


class _Minute(Struct, frozen=True):
    """What was lost, and each GPU's utilisation and SM activity."""

    begun: float
    lost: dict[Owned, float]
    drawn: dict[str, list[tuple[float | None, float | None]]]


class SeenHost:
    """One host. ``take`` its pages in their order."""

    def __init__(self, name: str) -> None:
        self.name, self.own_name = name, ""
        """What it was called by whoever asks for it, and what it calls itself."""
        self.gpus: Sequence[GpuReading] = ()
        self.is_late = False
        """Whether its exporter said that it has no current values."""
        self.dialects: frozenset[str] = frozenset()
        self._pages: deque[_Page] = deque()
        """Those of the last five minutes."""
        self._minutes: deque[_Minute] = deque(maxlen=MINUTES)
        self._known: dict[Id, tuple[GpuIdentity, GpuReading]] = {}

    def take(self, page: str, t: float) -> bool:
        """Read a page that came at that time, in seconds; False for one that speaks of no GPU, as an exporter's first
        may, unless it says that its driver is late."""
        rows: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
        for name, labels, value in islice(samples(page, WANTED), MOST_SAMPLES):
            rows[name].append((labels, value))
        signals = decode.keys_by_dialect(rows)
        if not signals:
            return False
        self.own_name = next(
            (decode.label_text(labels.get("hostname", "")) for labels, _ in rows[_HOST]), self.own_name
        )
        self.is_late = any(value == 0.0 for _, value in rows[_UP])
        if not self.is_late:
            self.dialects = frozenset(signals)
            self._take_values(rows, signals, t)
        return self.is_late or bool(self.gpus)

    def lost(self, t: float) -> list[Lost]:
        """The GPU time of the hour before ``t`` that was no work, as far as it was seen."""
        hours: dict[Owned, float] = defaultdict(float)
        for minute in self._minutes:
            for owned, gpu_h in minute.lost.items() if t - minute.begun < HOUR_S else ():
                hours[owned] += gpu_h
        return [Lost(self.name, *owned, gpu_h) for owned, gpu_h in hours.items()]

    def history(self, t: float) -> dict[str, tuple[list[float | None], list[float | None]]]:
        """Utilisation and SM activity of its GPUs in the hour before ``t``."""
        lines: dict[str, tuple[list[float | None], list[float | None]]] = {}
        for minute in self._minutes:
            column = MINUTES - 1 - int((t - minute.begun - MINUTE_S / 2.0) / MINUTE_S)
            for gpu, pairs in minute.drawn.items() if 0 <= column < MINUTES else ():
                line = lines.setdefault(gpu, ([None] * MINUTES, [None] * MINUTES))
                for at in (0, 1):
                    values = [value for pair in pairs if (value := pair[at]) is not None]
                    line[at][column] = fmean(values) if values else None
        return lines

    def _take_values(self, rows: Rows, signals: Mapping[str, frozenset[str]], t: float) -> None:
        named = _named(rows, signals, self.name)
        schema, _, identities = decode.discovered(named, FleetSchema(signals))
        values = _values(rows, schema, self.name)
        instances = {key for key, identity in identities.items() if identity.mig}
        utils = {key: value for key, value in values["util_pct"].items() if key not in instances}
        values["util_pct"] = utils | {key: value for key, value in values[ENGINE].items() if key in instances}
        lost_s: dict[Id, float] = defaultdict(float)
        for labels, value in rows.get(_LOST, ()):
            series = decode.gpu_of({**labels, "instance": self.name, DIALECT_LABEL: "gputop"}, schema)
            if series in identities:
                lost_s[identities[series].id] += value
        of_gpus = {
            identity.id: {key: of_key[series] for key, of_key in values.items() if series in of_key}
            for series, identity in identities.items()
        }
        counted = {
            (*_STEPS[name], tuple(labels.items())): value for name in _STEPS for labels, value in rows.get(name, ())
        }
        self._pages.append(_Page(t, of_gpus, counted, lost_s))
        while t - self._pages[0].t > WINDOW_S:
            self._pages.popleft()
        facts = decode.series_facts(self._facts(rows, schema))
        order = list(DIALECTS)
        gpus: dict[Id, tuple[GpuIdentity, GpuReading]] = {}
        for series in sorted(identities, key=lambda series: order.index(series.dialect)):
            identity = replace(identities[series], host=self.name)
            reading = self._gpu(series, identity, values, facts.get(series, SeriesFacts()))
            before = gpus.get(identity.id)
            gpus[identity.id] = (identity, reading if before is None else filled(before[1], reading))
        self._count(gpus)
        uuids = {identity.uuid for identity, _ in gpus.values()}
        numbers = {identity.gpu.partition("/")[0] for identity, _ in gpus.values()}
        missing = [
            (id, (identity, replace(reading, is_lost=True)))
            for id, (identity, reading) in self._known.items()
            if id not in gpus and not identity.mig and identity.uuid not in uuids and identity.gpu not in numbers
        ][-MOST_MISSING:]
        self._known = {**gpus, **dict(missing)}
        self.gpus = [reading for _, reading in self._known.values()]

    def _gpu(
        self, series: SeriesKey, identity: GpuIdentity, values: Mapping[str, Mapping[SeriesKey, float]],
        facts: SeriesFacts,
    ) -> GpuReading:  # fmt: skip
        present = {key: of_key[series] for key, of_key in values.items() if series in of_key}
        past = [page.values[identity.id] for page in self._pages if identity.id in page.values]
        for key in ("util_pct", "sm_active_pct"):
            if key in present:
                present[key] = fmean(of_page[key] for of_page in past if key in of_page)
        utils = [of_page["util_pct"] for of_page in past if "util_pct" in of_page]
        high = quantiles(utils, n=20, method="inclusive")[-1] if len(utils) > 1 else max(utils, default=QUIET_UTIL)
        job, user = facts.whose
        owned = replace(identity, job=job, user=user) if job else identity
        return decode.reading_of(series, owned, facts, present, is_quiet=high < QUIET_UTIL)

    def _facts(self, rows: Rows, schema: FleetSchema) -> list[tuple[decode.FactLabels | None, float]]:
        """The series that say something of a GPU besides its values; of steps the mean of five minutes."""
        found = []
        for name, label in (*_TOLD.items(), *((name, "") for name in _MARKED)):
            for labels, value in rows.get(name, ()):
                if (value == 1.0 or name == "nvidia_gpu_jobId") and (not label or label in labels):
                    marked = {**labels, "instance": self.name, DIALECT_LABEL: _MARKED.get(name, "")}
                    found.append((decode.fact_labels(marked, schema), value))
        counted, before = self._pages[-1].steps, self._pages[0].steps
        for (mark, part, of), value in counted.items():
            times = counted.get((mark, "count", of), 0.0) - before.get((mark, "count", of), 0.0)
            if part == "sum" and times > 0:
                seconds = value - before.get((mark, part, of), 0.0)
                marked = {**dict(of), "instance": self.name, DIALECT_LABEL: mark}
                found.append((decode.fact_labels(marked, schema), seconds / times))
        return found

    def _count(self, gpus: Mapping[Id, tuple[GpuIdentity, GpuReading]]) -> None:
        """Add what was lost since the page before, by the node's own count where it has one, and a point of each GPU's
        hour."""
        page, before = self._pages[-1], self._pages[-2] if len(self._pages) > 1 else self._pages[-1]
        spent_s = page.t - before.t if page.t - before.t <= LONGEST_PAUSE_S else 0.0
        begun = page.t - page.t % MINUTE_S
        if not self._minutes or self._minutes[-1].begun != begun:
            self._minutes.append(_Minute(begun, {}, {}))
        minute = self._minutes[-1]
        for id, (identity, reading) in gpus.items():
            util = page.values[id].get("util_pct")
            minute.drawn.setdefault(reading.gpu, []).append((util, page.values[id].get("sm_active_pct")))
            state, _ = judged(reading)
            lost_s = lost_hours(state, util, spent_s)
            if spent_s and id in page.lost_s and page.lost_s[id] >= before.lost_s.get(id, page.lost_s[id]):
                lost_s = min(spent_s, page.lost_s[id] - before.lost_s.get(id, page.lost_s[id]))
            if lost_s > 0.0:
                owned = (reading.gpu, reading.job, reading.user, state)
                minute.lost[owned] = minute.lost.get(owned, 0.0) + lost_s * identity.share / HOUR_S


def _named(rows: Rows, signals: Mapping[str, frozenset[str]], host: str) -> list[dict[str, str]]:
    """The GPUs of a page, as ``plan.identities`` asks an engine for them."""
    named: list[dict[str, str]] = []
    for name, keys in signals.items():
        dialect, found, is_own = DIALECTS[name], {}, name == "gputop"
        shares = {_of_gpu(labels): (labels, value) for labels, value in rows.get(_SHARE, ()) if is_own}
        facts = {labels.get(dialect.uuid[0]): labels for labels, _ in rows.get(dialect.facts, ())}
        series = [dialect.signals[key].name for key in MOMENT_KEYS if key in keys] + [_INFO] * is_own
        for labels, _ in (row for one in series for row in rows.get(one, ())):
            gpu = _of_gpu(labels)
            share_labels, share = shares.get(gpu, ({}, 1.0))
            if share > 0.0:
                found[gpu, labels.get("GPU_I_ID", "")] = {**facts.get(labels.get("uuid"), {}), **labels, **share_labels}
        named += [{**labels, "instance": host, DIALECT_LABEL: name} for labels in found.values()]
    return named


def _of_gpu(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("gpu", "uuid", "UUID", "mig", "minor_number", "index"))


def _values(rows: Rows, schema: FleetSchema, host: str) -> dict[str, dict[SeriesKey, float]]:
    """The values of a page in the catalogue's units, by key and GPU."""
    values: dict[str, dict[SeriesKey, float]] = {}
    for key in GPU_KEYS:
        found = []
        for name in schema.labels:
            signal = DIALECTS[name].signals.get(key)
            for labels, value in rows.get(signal.name, ()) if signal is not None else ():
                if all(labels.get(label) == wanted for label, wanted in signal.labels):  # type: ignore[union-attr]
                    found.append((decode.gpu_of({**labels, "instance": host, DIALECT_LABEL: name}, schema), value))
        values[key] = decode.in_units(found, key)
    return values
