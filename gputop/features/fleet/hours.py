"""The GPU time lost in the last hour, in bins of five minutes, each judged by the same rules as the present.

Bins lie on whole five minutes of Unix time, so that each is read once, whether the screen runs on or goes back.
Nodes that run gputop count their own seconds by state, which survive gaps between scrapes; their counters go before.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import floor
from typing import NamedTuple, get_args

from msgspec.structs import replace

from gputop.diagnosis.types import State
from gputop.features.fleet import plan
from gputop.features.fleet.client import Query, Row, number
from gputop.features.fleet.decode_answers import Identity, Key, Remembered, gpu_of, in_units, key_of
from gputop.features.fleet.exporter_names import DETAIL_KEYS, DIALECTS, job_of
from gputop.features.fleet.fleet_inventory import Engine, Inventory, values
from gputop.features.fleet.fleet_reading import HOUR_S, FleetError, GpuReading, Lost
from gputop.features.fleet.judge import lost_hours, state_of
from gputop.features.fleet.plan import QUIET_UTIL, Known
from gputop.features.fleet.promql import any_of, over

BIN_S = 300.0
BINS = int(HOUR_S / BIN_S)
AT_ONCE = 4
"""Bins of one query: a whole hour of 8,000 GPUs would take the engine more than a second."""
MOST_KEPT = 60

Bin = dict[tuple[Key, str, str], tuple[State, float]]
"""(GPU, job, user) → its state and the GPU-hours that were no work."""


def bin_ends(t: float) -> list[float]:
    """The ends of the bins of the last hour, oldest first: only whole bins."""
    last = floor(t / BIN_S) * BIN_S
    return [last - i * BIN_S for i in reversed(range(BINS))]


class Owned(NamedTuple):
    """A GPU with the job that it then had, as the labels of one series name it."""

    gpu: Key
    job: str
    user: str


Point = tuple[float, Owned, float]
"""Unix time, GPU, value as exported."""


class Hours:
    """Bins by the time at which they end, and the nodes' own counters by the same."""

    def __init__(self) -> None:
        self._bins: dict[float, Bin] = {}
        self._own: dict[float, dict[Key, dict[State, float]]] = {}

    def missing(self, t: float, *, binned: bool, own: bool) -> tuple[list[float], bool]:
        """The next bins to ask for, oldest first, and whether the counters are to be asked for."""
        ends = bin_ends(t)
        wanted = [end for end in ends if end not in self._bins] if binned else []
        run = wanted[:1]
        for end in wanted[1:AT_ONCE]:
            if end - run[-1] == BIN_S:
                run.append(end)
        return run, own and ends[-1] not in self._own

    def take(self, ends: Sequence[float], points: Mapping[str, Iterable[Point]]) -> None:
        """Judge these bins. ``points`` are those of each metric and of ``quiet``."""
        by_end: dict[float, dict[str, list[tuple[Owned, float]]]] = {end: defaultdict(list) for end in ends}
        for name, found in points.items():
            for t, owned, value in found:
                of_bin = by_end.get(round(t / BIN_S) * BIN_S)
                if of_bin is not None:
                    of_bin[name].append((owned, value))
        for end, of_bin in by_end.items():
            self._bins[end] = _judged(of_bin)
        for old in sorted(self._bins)[: max(0, len(self._bins) - MOST_KEPT)]:
            del self._bins[old]

    def take_own(self, t: float, seconds: Iterable[tuple[tuple[Key, str], float]]) -> None:
        """Add the nodes' own seconds by GPU and state over the hour before the last bin's end."""
        found: dict[Key, dict[State, float]] = defaultdict(dict)
        for (key, state), value in seconds:
            # Nothing counts more seconds than passed; two percent for what an engine extrapolates.
            if state in get_args(State) and 0.0 <= value <= 1.02 * HOUR_S:
                found[key][state] = value / 3600.0  # type: ignore[index]
        self._own = {bin_ends(t)[-1]: found}

    def lost(self, t: float, identities: Mapping[Key, Identity], *, binned: bool, own: bool) -> list[Lost] | None:
        """The last hour, summed by GPU, job and state; None until all of it was read."""
        ends = bin_ends(t)
        if (binned and any(end not in self._bins for end in ends)) or (own and ends[-1] not in self._own):
            return None
        sums: dict[tuple[Key, str, str, State], float] = defaultdict(float)
        for end in ends if binned else ():
            for (key, job, user), (state, gpu_h) in self._bins[end].items():
                sums[key, job, user, state] += gpu_h
        for key, seconds in self._own[ends[-1]].items() if own else ():
            who = identities.get(key)
            for state, gpu_h in seconds.items():
                sums[key, who.job if who else "", who.user if who else "", state] += gpu_h
        return [
            Lost(who.host, who.gpu, job, user, state, gpu_h)
            for (key, job, user, state), gpu_h in sums.items()
            if (who := identities.get(key)) is not None
        ]


def _judged(points: Mapping[str, Sequence[tuple[Owned, float]]]) -> Bin:
    util, sm, held = (
        in_units(((owned.gpu, value) for owned, value in points[key]), key)
        for key in ("util_pct", "sm_active_pct", "mem_used_bytes")
    )
    quiet = in_units(((owned.gpu, value) for owned, value in points["quiet"]), "util_pct")
    jobs: dict[Key, tuple[str, str]] = {}
    for owned, _ in points["util_pct"]:
        jobs[owned.gpu] = min((owned.job, owned.user), jobs.get(owned.gpu, ("~", "")))
    found: Bin = {}
    for key, value in util.items():
        job, user = jobs.get(key, ("", ""))
        gpu = GpuReading(
            "",
            "",
            util_pct=value,
            sm_active_pct=sm.get(key),
            mem_used_bytes=held.get(key),
            is_quiet=quiet.get(key, QUIET_UTIL) < QUIET_UTIL,
            job=job,
        )
        state, _ = state_of(gpu)
        if state == "down":
            continue
        gpu_h = lost_hours(state, value, BIN_S / 3600.0)
        if gpu_h > 0.0:
            found[key, job, user] = (state, gpu_h)
    return found


# Reads the last hour in parts, beside what is shown: each part once, and none that would take an engine long.

BINNED = ("util_pct", "sm_active_pct", "mem_used_bytes")
"""What a bin's state follows from, beside the quiet GPUs."""


class LastHour:
    """The parts read so far. A part that failed is read again."""

    def __init__(self, engine: Engine, inventory: Inventory) -> None:
        self._engine, self._inventory = engine, inventory
        self._hours = Hours()
        self._seen: Known | None = None
        self._owned: Remembered[Owned | None] = Remembered(lambda labels: None)

    @property
    def _kinds(self) -> tuple[bool, bool]:
        """Whether some GPUs' hour is to be judged by bins, and some nodes count it themselves."""
        labels = {} if self._inventory.known is None else self._inventory.known.labels
        return any(name != "gputop" for name in labels), "gputop" in labels

    def lost(self, t: float) -> list[Lost] | None:
        """The GPU time lost in the hour before ``t``, None until ``more`` has read it."""
        binned, own = self._kinds
        identities = self._inventory.identities
        found = self._hours.lost(t, identities, binned=binned, own=own)
        if not own or found is None:
            return found
        named = {who.job.partition(" ")[2]: who.job for who in identities.values() if who.job[:4] != "job "}
        return [
            replace(lost, job=named.get(lost.job[4:], lost.job)) if lost.job[:4] == "job " else lost for lost in found
        ]

    def more(self, t: float) -> bool:
        """Read the next part of the hour before ``t``; whether there was one. At most five queries."""
        known = self._inventory.known
        if known is None:
            return False
        binned, own = self._kinds
        ends, wants_own = self._hours.missing(t, binned=binned, own=own)
        queries = self._bins(known, ends) if ends else {}
        if wants_own and (text := plan.lost_by_own(known, self._engine.select, HOUR_S)):
            queries["own"] = Query(text, bin_ends(t)[-1])
        if not queries:
            return False
        try:
            rows = self._engine.all_answers(queries).rows
            if "own" in rows:
                names = known.labels["gputop"]
                by_state: Remembered[tuple[Key, str]] = Remembered(
                    lambda labels: (key_of(labels, "gputop", names), labels.get("state", ""))
                )
                self._hours.take_own(t, values(rows["own"], by_state))
            if ends:
                self._hours.take(ends, {name: self._points(rows.get(name, ())) for name in (*BINNED, "quiet")})
        except FleetError:
            return False
        return True

    def _bins(self, known: Known, ends: Sequence[float]) -> dict[str, Query]:
        """The questions of a run of bins, of all GPUs whose nodes do not count for themselves, with their jobs."""
        others = {name: labels for name, labels in known.labels.items() if name != "gputop"}
        told_apart = Known(known.signals, others, known.scrape_s)
        if told_apart != self._seen:
            self._seen = told_apart
            self._owned = Remembered(lambda labels: _owned(labels, told_apart))
        self._owned.turn()
        with_jobs = {name: (*labels, *DIALECTS[name].job) for name, labels in others.items()}
        seen, select = Known(known.signals, with_jobs, known.scrape_s), self._engine.select
        texts = {key: plan.metric(seen, key, select, plan.mean) for key in BINNED}
        texts["quiet"] = plan.quiet(seen, select)
        return {name: Query(text, ends[-1], ends[0], BIN_S) for name, text in texts.items() if text}

    def _points(self, rows: Sequence[Row]) -> Iterator[Point]:
        for row in rows:
            owned = self._owned.of(row.metric)
            if owned is not None:
                for t, text in row.values:
                    if (value := number(text)) is not None:
                        yield t, owned, value


def _owned(labels: Mapping[str, str], known: Known) -> Owned | None:
    gpu = gpu_of(labels, known)
    if gpu is None:
        return None
    return Owned(gpu, *(job_of(labels) if DIALECTS[gpu.dialect].job else ("", "")))


# A host's GPUs over time, in columns of a chart. Pure.

History = Mapping[str, tuple[Sequence[float | None], Sequence[float | None]]]
"""GPU → utilisation and SM activity in percent, a value a column, the oldest first; None where nothing was measured."""


def columns_of(
    points: Iterable[tuple[float, Identity | None, float]], t: float, span_s: float, columns: int
) -> dict[str, list[float | None]]:
    """(Unix time, GPU, value) in so many columns of the ``span_s`` seconds before ``t``."""
    step = span_s / columns
    found: dict[str, list[float | None]] = {}
    for moment, who, value in points:
        if who is None:
            continue
        at = round((moment - (t - span_s)) / step) - 1
        if 0 <= at < columns:
            found.setdefault(who.gpu, [None] * columns)[at] = value
    return found


# What is queried only for the hosts on screen: their last hour in columns, and metrics that no state needs.

DRAWN = ("util_pct", "sm_active_pct")


def _narrowed(engine: Engine, instances: Sequence[str]) -> str:
    """Matchers of these addresses within what is selected."""
    return ",".join(part for part in (any_of("instance", instances), engine.select) if part)


def history(engine: Engine, inventory: Inventory, host: str, t: float, span_s: float, columns: int) -> History:
    """Utilisation and SM activity of a host's GPUs over the time before ``t``. Raises FleetError."""
    known, instances = inventory.known, inventory.instances(frozenset((host,)))
    if known is None or not instances:
        return {}
    select, step = _narrowed(engine, instances), span_s / columns
    width = max(step, 2 * known.scrape_s)
    texts = {key: plan.metric(known, key, select, lambda series: over("avg_over_time", series, width)) for key in DRAWN}
    queries = {key: Query(text, t, t - span_s + step, step) for key, text in texts.items() if text}
    answers = engine.all_answers(queries)

    def points(key: str) -> Iterator[tuple[float, Key | None, float]]:
        for row in answers.of(key):
            gpu = inventory.gpus.of(row.metric)
            for moment, text in row.values:
                if (value := number(text)) is not None:
                    yield moment, gpu, value

    found: dict[str, dict[str, list[float | None]]] = {}
    for key in queries:
        moments: dict[float, list[tuple[Key | None, float]]] = {}
        for moment, gpu, value in points(key):
            moments.setdefault(moment, []).append((gpu, value))
        found[key] = columns_of(
            ((moment, inventory.identities.get(gpu), value)
             for moment, of_moment in moments.items()
             for gpu, value in in_units(of_moment, key).items()),
            t, span_s, columns,
        )  # fmt: skip
    empty: list[float | None] = [None] * columns
    utils, sms = found.get("util_pct", {}), found.get("sm_active_pct", {})
    return {gpu: (util, sms.get(gpu, empty)) for gpu, util in utils.items()}


def details(
    engine: Engine, inventory: Inventory, hosts: Sequence[str], at: float | None
) -> dict[tuple[str, str], dict[str, float]]:
    """The further metrics of these hosts' GPUs, by host and GPU. Raises FleetError."""
    known, instances = inventory.known, inventory.instances(frozenset(hosts))
    if known is None or not instances:
        return {}
    select = _narrowed(engine, instances)
    answers = engine.all_of({key: plan.metric(known, key, select) for key in DETAIL_KEYS}, at)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for key in answers.rows:
        for gpu, value in in_units(values(answers.of(key), inventory.gpus), key).items():
            if (who := inventory.identities.get(gpu)) is not None:
                found.setdefault((who.host, who.gpu), {}).setdefault(key, value)
    return found
