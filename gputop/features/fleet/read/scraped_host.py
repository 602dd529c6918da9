"""GPUs of one host, from the pages of its gputop exporter.

``take`` reads pages in the order of time, and trusts nothing on them. Utilisation and SM activity are means over five
minutes of pages; states and verdicts are the node's own. An hour of minutes is kept for wasted time and charts; of the
time before the first page nothing is known. Pure: time is passed in.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from math import floor, isfinite
from statistics import fmean

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet.exporter_names import (
    DIALECTS,
    GPU_KEYS,
    MOMENT_KEYS,
    exporter_of,
    plausible,
)
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
from gputop.features.fleet.judge.gpu_state import judged, lost_hours
from gputop.features.fleet.promql import ENGINE
from gputop.features.fleet.read import queries
from gputop.features.fleet.read.decode_labels import GpuIdentity, SeriesKey, label_text
from gputop.features.fleet.read.decode_values import Fact, SeriesFacts, fact_of, reading_of
from gputop.model.exposition import Labels, PageLimitError, parse_page

_OWN = DIALECTS["gputop"].signals
_STEPS = {"step_s": "gputop_step_seconds_", "step_wait_s": "gputop_step_wait_seconds_"}
_MARKS = {
    "gputop_gpu_state": "", "gputop_gpu_verdict": "", "gputop_job_info": "",
    "gputop_gpu_lost": queries.LOST, "gputop_pod_info": queries.POD,
}  # fmt: skip
"""Series that hold where they are 1 → their mark among the facts of a node."""
_INFO, _SHARE, _UP, _HOST = "gputop_gpu_info", "gputop_gpu_share", "gputop_up", "gputop_host_info"
_LOST, _STATES = "gputop_gpu_lost_seconds_total", "gputop_gpu_state_seconds_total"
NAMES = frozenset((
    _INFO, _SHARE, _UP, _HOST, _LOST, _STATES, *_MARKS, *(_OWN[key].name for key in GPU_KEYS),
    *(f"{name}{part}" for name in _STEPS.values() for part in ("sum", "count")),
))  # fmt: skip
_GPU_NAMES = (*(_OWN[key].name for key in MOMENT_KEYS), _INFO)
"""Series of which each GPU has one at most."""
LONGEST_PAUSE_S = 15.0
"""Time between two pages above which nothing is known of it."""
MINUTE_S = 60.0
MOST_GPUS = 4096
"""GPUs of one page: sixteen times as many as MIG makes of the largest host."""
TOO_MANY_GPUS = f"its page has more than {MOST_GPUS:,} GPUs"
MOST_MISSING = 64
"""Remembered GPUs that are no longer on the page."""

PageRows = Mapping[str, Sequence[tuple[Labels, float]]]
"""Name of a series → the labels and value of each line."""
GpuLabels = tuple[str, str, str]
"""Number, UUID and instance of a GPU, as its exporter names it."""
Owned = tuple[str, JobName, str, GpuState]
"""GPU number, job, user and state."""


def _gpu_labels(labels: Labels) -> GpuLabels:
    return labels.get("gpu", ""), labels.get("uuid", ""), labels.get("mig", "")


class _Page(Struct, frozen=True):
    """Values, step counters by name and rank, and seconds without work of one page."""

    t: float
    values: Mapping[GpuId, Mapping[str, float]]
    steps: Mapping[tuple[str, str], float]
    lost_s: Mapping[GpuId, float]


class _Minute(Struct, frozen=True):
    """GPU-hours without work and samples of utilisation and SM activity in one minute."""

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
        self.left_out: tuple[str, ...] = ()
        """Series of the newest page that were left out, with the reason."""
        self._pages: deque[_Page] = deque()
        self._minutes: deque[_Minute] = deque(maxlen=MINUTES)
        self._known: dict[GpuId, GpuReading] = {}

    def take(self, page: str, t: float) -> str | None:
        """Read a page; return the reason if it has no GPU, or too many."""
        # Counted before they are read, which takes seconds where there are hundreds of thousands.
        if any(page.count(f"\n{name}{{") > MOST_GPUS for name in _GPU_NAMES):
            return TOO_MANY_GPUS
        try:
            read = parse_page(page, NAMES.__contains__)
        except PageLimitError as error:
            return str(error)
        self.left_out = tuple(map(str, read.left_out))
        rows: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
        for sample in read.samples:
            if isfinite(sample.value):
                rows[sample.name].append((sample.labels, sample.value))
        for labels, _ in rows[_HOST][:1]:
            self.own_name = label_text(labels.get("hostname", ""))
        self.is_late = any(value == 0.0 for _, value in rows[_UP])
        if self.is_late:
            return None
        identities = _identities(rows, self.name)
        if len(identities) > MOST_GPUS:
            return TOO_MANY_GPUS
        if identities:
            self._take_values(rows, identities, t)
        other = None if self.gpus else exporter_of(page)
        if other is not None and not other.is_own:
            return "that is dcgm-exporter: let a Prometheus scrape it, and give --prom URL"
        return None if self.gpus else "its page has no GPU"

    def lost(self, t: float) -> list[Lost]:
        """GPU time without work in the hour before ``t``."""
        hours: dict[Owned, float] = defaultdict(float)
        for minute in self._minutes:
            for owned, gpu_h in minute.lost.items() if t - minute.begun < HOUR_S else ():
                hours[owned] += gpu_h
        return [Lost(self.name, *owned, gpu_h) for owned, gpu_h in hours.items()]

    def history(self, t: float) -> dict[str, tuple[list[float | None], list[float | None]]]:
        """Utilisation and SM activity by minute in the hour before ``t``."""
        lines: dict[str, tuple[list[float | None], list[float | None]]] = {}
        for minute in self._minutes:
            # A minute has the column that holds its middle, so each has its own.
            age_minutes = floor((t - minute.begun - MINUTE_S / 2.0) / MINUTE_S)
            if age_minutes >= MINUTES:
                continue
            column = MINUTES - 1 - max(0, age_minutes)
            for gpu, pairs in minute.drawn.items():
                line = lines.setdefault(gpu, ([None] * MINUTES, [None] * MINUTES))
                for at in (0, 1):
                    values = [value for pair in pairs if (value := pair[at]) is not None]
                    # The minute that has just begun is drawn if the one before was not seen.
                    if values and line[at][column] is None:
                        line[at][column] = fmean(values)
        return lines

    def _take_values(
        self, rows: PageRows, identities: Mapping[GpuLabels, GpuIdentity], t: float
    ) -> None:
        values: dict[GpuLabels, dict[str, float]] = defaultdict(dict)
        for key in GPU_KEYS:
            for labels, value in rows.get((signal := _OWN[key]).name, ()):
                possible = plausible(key, value * signal.factor)
                if possible is not None and all(
                    labels.get(label) == wanted for label, wanted in signal.labels
                ):
                    values[_gpu_labels(labels)][key] = possible
        for gpu in (
            gpu for gpu, identity in identities.items() if identity.mig and ENGINE in values[gpu]
        ):
            values[gpu]["util_pct"] = values[gpu][ENGINE]
        lost_s: dict[GpuId, float] = defaultdict(float)
        for labels, value in _no_work_seconds(rows):
            if (found := identities.get(_gpu_labels(labels))) is not None:
                lost_s[found.id] += value
        steps = {
            (name, str(labels)): value
            for name in NAMES
            if "_step_" in name
            for labels, value in rows.get(name, ())
        }
        self._pages.append(
            _Page(t, {one.id: values[gpu] for gpu, one in identities.items()}, steps, lost_s)
        )
        while t - self._pages[0].t > WINDOW_S:
            self._pages.popleft()
        facts = self._facts(rows, identities)
        shares = {identity.id: identity.share for identity in identities.values()}
        readings = [
            self._reading(identity, values[key], facts[key]) for key, identity in identities.items()
        ]
        gpus = {gpu.id: gpu for gpu in merged(readings)}
        self._count(gpus, shares)
        # GPUs of earlier pages that are not on this one are lost.
        uuids, numbers = (
            {gpu.uuid for gpu in gpus.values()},
            {gpu.gpu.partition("/")[0] for gpu in gpus.values()},
        )
        missing = {
            id: replace(gpu, is_lost=True)
            for id, gpu in self._known.items()
            if id not in gpus and not gpu.mig and gpu.uuid not in uuids and gpu.gpu not in numbers
        }
        self._known = {**gpus, **dict(list(missing.items())[-MOST_MISSING:])}
        self.gpus = list(self._known.values())

    def _reading(
        self, identity: GpuIdentity, values: Mapping[str, float], facts: SeriesFacts
    ) -> GpuReading:
        past = [page.values[identity.id] for page in self._pages if identity.id in page.values]
        means = {
            key: fmean(of_page[key] for of_page in past if key in of_page)
            for key in ("util_pct", "sm_active_pct")
            if key in values
        }
        job, user = facts.job_and_user
        owned = replace(identity, job=job, user=user)
        return reading_of(SeriesKey("gputop", ()), owned, facts, {**values, **means}, is_quiet=None)

    def _facts(
        self, rows: PageRows, identities: Mapping[GpuLabels, GpuIdentity]
    ) -> Mapping[GpuLabels, SeriesFacts]:
        """States, verdicts, owners and mean steps of five minutes."""
        found: dict[GpuLabels, SeriesFacts] = defaultdict(SeriesFacts)
        for name, mark in _MARKS.items():
            for labels, value in rows.get(name, ()):
                if value == 1.0:
                    found[_gpu_labels(labels)].take(fact_of(labels, mark), value)
        # Ranks are labelled with the number of their GPU alone.
        numbered = {identity.gpu: key for key, identity in identities.items()}
        now, before = self._pages[-1].steps, self._pages[0].steps
        for field, name in _STEPS.items():
            for labels, _ in rows.get(f"{name}count", ()):
                keys = ((f"{name}{part}", str(labels)) for part in ("sum", "count"))
                seconds, times = (now.get(key, 0.0) - before.get(key, 0.0) for key in keys)
                if times > 0 and labels.get("gpu") in numbered:
                    found[numbered[labels["gpu"]]].take(Fact(field), seconds / times)
        return found

    def _count(self, gpus: Mapping[GpuId, GpuReading], shares: Mapping[GpuId, float]) -> None:
        """Add time without work since the previous page, and chart points.

        The node's own count of seconds comes before an estimate from its state.
        """
        page, before = self._pages[-1], self._pages[max(0, len(self._pages) - 2)]
        spent_s = page.t - before.t if page.t - before.t <= LONGEST_PAUSE_S else 0.0
        begun = page.t - page.t % MINUTE_S
        if not self._minutes or self._minutes[-1].begun != begun:
            self._minutes.append(_Minute(begun, {}, {}))
        minute = self._minutes[-1]
        for id, gpu in gpus.items():
            util = page.values[id].get("util_pct")
            minute.drawn.setdefault(gpu.gpu, []).append(
                (util, page.values[id].get("sm_active_pct"))
            )
            state, _ = judged(gpu)
            lost_s = lost_hours(state, util, spent_s)
            counted_s = page.lost_s.get(id, -1.0) - before.lost_s.get(id, 0.0)
            if counted_s >= 0.0 and id in before.lost_s:
                lost_s = min(spent_s, counted_s)
            if lost_s > 0.0:
                owned = (gpu.gpu, gpu.job, gpu.user, state)
                minute.lost[owned] = minute.lost.get(owned, 0.0) + lost_s * shares[id] / HOUR_S


def _no_work_seconds(rows: PageRows) -> list[tuple[Labels, float]]:
    """Seconds that GPUs wasted or were idle, as the node counts them.

    Idle time is a state's alone; nodes of an older version count it under a cause of its own, too.
    """
    wasted = [row for row in rows.get(_LOST, ()) if row[0].get("cause") != "idle"]
    idle = [row for row in rows.get(_STATES, ()) if row[0].get("state") == "idle"]
    return wasted + idle


def _identities(rows: PageRows, host: str) -> dict[GpuLabels, GpuIdentity]:
    """The GPUs and MIG instances on a page; one that is split is left out."""
    shares = {
        _gpu_labels(labels): (value, labels.get("parent", ""))
        for labels, value in rows.get(_SHARE, ())
    }
    found: dict[GpuLabels, GpuIdentity] = {}
    for key in dict.fromkeys(
        _gpu_labels(labels) for name in _GPU_NAMES for labels, _ in rows.get(name, ())
    ):
        gpu, uuid, mig = map(label_text, key)
        share, parent = shares.get(key, (1.0, ""))
        if share > 0.0:
            number, instance = gpu or uuid[:12] or "?", mig.removesuffix("/0") if parent else mig
            number, uuid = f"{number}/{mig}" if mig else number, label_text(parent) or uuid
            found[key] = GpuIdentity(host, number, uuid, "", (host,), share=share, mig=instance)
    return found
