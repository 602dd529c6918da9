"""GPUs of one host, from the pages of its gputop exporter.

``take`` reads pages in the order of time. Utilisation and SM activity are means over five minutes of pages; states and
verdicts are the node's own. An hour of minutes is kept for lost time and charts. Nothing is known of the time before
the first page. Pure: time is passed in.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet import decode_labels, queries
from gputop.features.fleet.decode_labels import GpuIdentity, SeriesKey
from gputop.features.fleet.decode_values import FactLabels, SeriesFacts, fact_labels, in_units, reading_of, series_facts
from gputop.features.fleet.exporter_names import DIALECTS, GPU_KEYS, MOMENT_KEYS
from gputop.features.fleet.exporter_page import PageRows, other_exporter, page_rows
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    MINUTES,
    WINDOW_S,
    GpuId,
    GpuReading,
    GpuState,
    JobName,
    Lost,
    merged,
)
from gputop.features.fleet.gpu_state import judged, lost_hours
from gputop.features.fleet.promql import ENGINE
from gputop.features.fleet.queries import DIALECT_LABEL, FleetSchema

_OWN = DIALECTS["gputop"]
_SCHEMA = FleetSchema(("gputop",))
_STEPS = {
    f"gputop_{name}_seconds_{part}": (mark, part)
    for name, mark in (("step", queries.STEP), ("step_wait", queries.STEP_WAIT))
    for part in ("sum", "count")
}
_FLAGS = {
    "gputop_gpu_state": "", "gputop_gpu_verdict": "", "gputop_job_info": "",
    "gputop_gpu_lost": queries.LOST, "gputop_pod_info": queries.POD,
}  # fmt: skip
"""Series that hold where they are 1 → their mark."""
_INFO, _SHARE, _UP, _HOST = "gputop_gpu_info", "gputop_gpu_share", "gputop_up", "gputop_host_info"
_LOST = "gputop_gpu_lost_seconds_total"
NAMES = frozenset((
    _INFO, _SHARE, _UP, _HOST, _LOST, *_STEPS, *_FLAGS, *(_OWN.signals[key].name for key in GPU_KEYS),
))  # fmt: skip
LONGEST_PAUSE_S = 15.0
"""Time between two pages above which nothing is known of it."""
MINUTE_S = 60.0
MOST_MISSING = 64
"""LabelCache GPUs that are no longer on the page."""

RankCounter = tuple[str, str, tuple[tuple[str, str], ...]]
"""Mark of steps, sum or count, and the labels of a rank."""
Owned = tuple[str, JobName, str, GpuState]
"""GPU number, job, user and state."""


class _Page(Struct, frozen=True):
    """Values, step counters and lost seconds of one page."""

    t: float
    values: Mapping[GpuId, Mapping[str, float]]
    steps: Mapping[RankCounter, float]
    lost_s: Mapping[GpuId, float]


class _Minute(Struct, frozen=True):
    """Lost GPU-hours and samples of utilisation and SM activity in one minute."""

    begun: float
    lost: dict[Owned, float]
    drawn: dict[str, list[tuple[float | None, float | None]]]


class ScrapedHost:
    """State of one host; ``name`` is what the user called it."""

    def __init__(self, name: str) -> None:
        self.name, self.own_name = name, ""
        self.gpus: Sequence[GpuReading] = ()
        self.is_late = False
        """Whether the exporter said that its driver does not answer."""
        self._pages: deque[_Page] = deque()
        self._minutes: deque[_Minute] = deque(maxlen=MINUTES)
        self._known: dict[GpuId, tuple[GpuIdentity, GpuReading]] = {}

    def take(self, page: str, t: float) -> str | None:
        """Read a page; return the reason if it has no GPU."""
        rows = page_rows(page, NAMES)
        self.own_name = next(
            (decode_labels.label_text(labels.get("hostname", "")) for labels, _ in rows.get(_HOST, ())), self.own_name
        )
        self.is_late = any(value == 0.0 for _, value in rows.get(_UP, ()))
        if self.is_late:
            return None
        found = _gpu_labels(rows, self.name)
        if found:
            self._take_values(rows, found, t)
        if self.gpus:
            return None
        if other := other_exporter(page):
            return f"that is {other}: let a Prometheus scrape it, and give --prom URL"
        return "its page has no GPU"

    def lost(self, t: float) -> list[Lost]:
        """GPU time lost in the hour before ``t``."""
        hours: dict[Owned, float] = defaultdict(float)
        for minute in self._minutes:
            for owned, gpu_h in minute.lost.items() if t - minute.begun < HOUR_S else ():
                hours[owned] += gpu_h
        return [Lost(self.name, *owned, gpu_h) for owned, gpu_h in hours.items()]

    def history(self, t: float) -> dict[str, tuple[list[float | None], list[float | None]]]:
        """Utilisation and SM activity by minute in the hour before ``t``."""
        lines: dict[str, tuple[list[float | None], list[float | None]]] = {}
        for minute in self._minutes:
            column = MINUTES - 1 - int((t - minute.begun - MINUTE_S / 2.0) / MINUTE_S)
            for gpu, pairs in minute.drawn.items() if 0 <= column < MINUTES else ():
                line = lines.setdefault(gpu, ([None] * MINUTES, [None] * MINUTES))
                for at in (0, 1):
                    values = [value for pair in pairs if (value := pair[at]) is not None]
                    line[at][column] = fmean(values) if values else None
        return lines

    def _take_values(self, rows: PageRows, found: Sequence[dict[str, str]], t: float) -> None:
        schema, _, identities, _ = decode_labels.discovered(found, _SCHEMA)
        identities = {key: replace(identity, host=self.name) for key, identity in identities.items()}
        values = _values(rows, schema, self.name)
        instances = {key for key, identity in identities.items() if identity.mig}
        utils = {key: value for key, value in values["util_pct"].items() if key not in instances}
        values["util_pct"] = utils | {key: value for key, value in values[ENGINE].items() if key in instances}
        lost_s: dict[GpuId, float] = defaultdict(float)
        for labels, value in rows.get(_LOST, ()):
            series = decode_labels.gpu_of(self._placed(labels), schema)
            if series in identities:
                lost_s[identities[series].id] += value
        of_gpus = {
            identity.id: {key: of_key[series] for key, of_key in values.items() if series in of_key}
            for series, identity in identities.items()
        }
        steps = {
            (*_STEPS[name], tuple(labels.items())): value for name in _STEPS for labels, value in rows.get(name, ())
        }
        self._pages.append(_Page(t, of_gpus, steps, lost_s))
        while t - self._pages[0].t > WINDOW_S:
            self._pages.popleft()
        facts = series_facts(self._facts(rows, schema))
        readings = [
            (identity, self._reading(series, identity, values, facts.get(series, SeriesFacts())))
            for series, identity in identities.items()
        ]
        identity_of = {identity.id: identity for identity, _ in reversed(readings)}
        gpus = {gpu.id: (identity_of[gpu.id], gpu) for gpu in merged(reading for _, reading in readings)}
        self._count(gpus)
        self._known = {**gpus, **self._missing(gpus)}
        self.gpus = [reading for _, reading in self._known.values()]

    def _missing(
        self, gpus: Mapping[GpuId, tuple[GpuIdentity, GpuReading]]
    ) -> dict[GpuId, tuple[GpuIdentity, GpuReading]]:
        """GPUs of earlier pages that are not on this one, as lost."""
        uuids = {identity.uuid for identity, _ in gpus.values()}
        numbers = {identity.gpu.partition("/")[0] for identity, _ in gpus.values()}
        missing = [
            (id, (identity, replace(reading, is_lost=True)))
            for id, (identity, reading) in self._known.items()
            if id not in gpus and not identity.mig and identity.uuid not in uuids and identity.gpu not in numbers
        ]
        return dict(missing[-MOST_MISSING:])

    def _reading(
        self, series: SeriesKey, identity: GpuIdentity, values: Mapping[str, Mapping[SeriesKey, float]],
        facts: SeriesFacts,
    ) -> GpuReading:  # fmt: skip
        present = {key: of_key[series] for key, of_key in values.items() if series in of_key}
        past = [page.values[identity.id] for page in self._pages if identity.id in page.values]
        for key in ("util_pct", "sm_active_pct"):
            if key in present:
                present[key] = fmean(of_page[key] for of_page in past if key in of_page)
        job, user = facts.job_and_user
        owned = replace(identity, job=job, user=user)
        return reading_of(series, owned, facts, present, is_quiet=None)

    def _placed(self, labels: Mapping[str, str], mark: str = "gputop") -> dict[str, str]:
        """The labels as an engine would give them, with a mark."""
        return {**labels, "instance": self.name, DIALECT_LABEL: mark}

    def _facts(self, rows: PageRows, schema: FleetSchema) -> Iterable[tuple[FactLabels | None, float]]:
        """States, verdicts, owners and mean steps of five minutes."""
        for name, mark in _FLAGS.items():
            for labels, value in rows.get(name, ()):
                if value == 1.0:
                    yield fact_labels(self._placed(labels, mark), schema), value
        counted, before = self._pages[-1].steps, self._pages[0].steps
        for (mark, part, rank), value in counted.items():
            times = counted.get((mark, "count", rank), 0.0) - before.get((mark, "count", rank), 0.0)
            if part == "sum" and times > 0:
                seconds = value - before.get((mark, part, rank), 0.0)
                yield fact_labels(self._placed(dict(rank), mark), schema), seconds / times

    def _count(self, gpus: Mapping[GpuId, tuple[GpuIdentity, GpuReading]]) -> None:
        """Add time lost since the previous page, and chart points.

        The node's own count of lost seconds comes before an estimate from its state.
        """
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


def _gpu_labels(rows: PageRows, host: str) -> list[dict[str, str]]:
    """Labels of each GPU on a page, as an engine answers ``queries.identities``."""
    found = {}
    shares = {_own_labels(labels): (labels, value) for labels, value in rows.get(_SHARE, ())}
    for name in (*(_OWN.signals[key].name for key in MOMENT_KEYS), _INFO):
        for labels, _ in rows.get(name, ()):
            gpu = _own_labels(labels)
            share_labels, share = shares.get(gpu, ({}, 1.0))
            if share > 0.0:
                found[gpu] = {**labels, **share_labels, "instance": host, DIALECT_LABEL: "gputop"}
    return list(found.values())


def _own_labels(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("gpu", "uuid", "mig"))


def _values(rows: PageRows, schema: FleetSchema, host: str) -> dict[str, dict[SeriesKey, float]]:
    """Values in the catalogue's units, by key and GPU."""
    values: dict[str, dict[SeriesKey, float]] = {}
    for key in GPU_KEYS:
        signal = _OWN.signals[key]
        found = [
            (decode_labels.gpu_of({**labels, "instance": host, DIALECT_LABEL: "gputop"}, schema), value)
            for labels, value in rows.get(signal.name, ())
            if all(labels.get(label) == wanted for label, wanted in signal.labels)
        ]
        values[key] = in_units(found, key)
    return values
