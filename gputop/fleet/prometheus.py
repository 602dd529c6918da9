"""A fleet as its Prometheus knows it: asks, remembers what changes seldom, and gives readings.

Live questions carry no time, so that a clock of ours that is wrong does no harm; going back in time asks everything at
that time. At most ten questions a refresh.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from msgspec.structs import replace

from gputop.diagnosis.types import STATES
from gputop.fleet import plan
from gputop.fleet.client import Client, Query, QueryError, Row, number
from gputop.fleet.decode import (
    Answered,
    Identity,
    Key,
    Told,
    answered,
    identified,
    key_labels,
    signals_found,
    told_of,
    values_of,
)
from gputop.fleet.history import History, columns_of
from gputop.fleet.hours import BIN_S, Hours, bin_ends
from gputop.fleet.names import DIALECTS, host_of
from gputop.fleet.plan import Known
from gputop.fleet.reading import HOUR_S, Alert, Down, FleetError, FleetReading, GpuReading, Lost, filled
from gputop.model.text import clean_text

IDENTITIES_EVERY, DISCOVERY_EVERY = 4, 40
"""Refreshes between two looks at which GPUs and jobs there are, and at which names."""
LEAST_INTERVAL_S = 10.0
MOST_SKEW_S = 60.0
MOST_ALERTS = 500
_STATES = frozenset(STATES)
LEAST_SILENCE_S = 60.0
"""A host that no ``up`` tells of is down after so long without a new value, or after four scrapes."""
VALUES = ("util_pct", "sm_active_pct", "power_w", "mem_used_bytes")
FILLING = ("tensor_active_pct", "dram_active_pct", "graphics_active_pct", "temp_c")
"""Asked for hosts in sight only."""


class PrometheusFleet:
    """One engine. Not for several threads at once. Every method blocks."""

    def __init__(self, client: Client, source: str, select: str, clock: Callable[[], float]) -> None:
        """``clock`` is Unix time, and only compared with the engine's."""
        self.source = source
        self._client, self._select, self._clock = client, select, clock
        self._known: Known | None = None
        self._identities: dict[Key, Identity] = {}
        self._refreshes = 0
        self._past: float | None = None
        self._last: dict[tuple[str, str], GpuReading] = {}
        self._seen: dict[str, float] = {}
        self._hours = Hours()

    @property
    def interval_s(self) -> float:
        """How often it is worth asking: never faster than exporters are scraped."""
        return max(LEAST_INTERVAL_S, 15.0 if self._known is None else self._known.scrape_s)

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    # -- asking -----------------------------------------------------------------------------------------------------

    def ask(self, at: float | None = None) -> FleetReading:
        """The fleet now, or at a Unix time. Raises FleetError where nothing can be shown."""
        problems: list[str] = []
        if at != self._past:
            self._past, self._refreshes, self._last, self._seen = at, 0, {}, {}
        if self._known is None or self._refreshes % DISCOVERY_EVERY == 0:
            self._discover(at)
        known = self._known
        assert known is not None, "discovery gives it or raises"
        if self._refreshes % IDENTITIES_EVERY == 0:
            self._identify(at, known, problems)
            known = self._known or known
        self._refreshes += 1
        texts = {
            **{key: plan.metric(known, key, self._select, plan.mean if key in VALUES[:2] else str) for key in VALUES},
            "quiet": plan.quiet(known, self._select),
            "ages": plan.ages(known, self._select),
            "troubles": plan.troubles(known, self._select),
            "told": plan.told(known, self._select),
        }
        rows, t = self._asked({name: Query(text, at) for name, text in texts.items() if text}, problems)
        if "util_pct" not in rows:
            raise FleetError(problems[0] if problems else "no answer")
        t = t if t is not None else self._clock()
        if at is None and abs(t - self._clock()) > MOST_SKEW_S:
            ahead = "ahead of" if t > self._clock() else "behind"
            problems.append(f"the engine's clock is {abs(t - self._clock()):.0f} s {ahead} this machine's")
        return self._reading(t, known, rows, problems)

    def _asked(
        self, queries: Mapping[str, Query], problems: list[str]
    ) -> tuple[dict[str, list[Answered]], float | None]:
        """The answers by name, without those that failed, and the engine's own time."""
        found: dict[str, list[Answered]] = {}
        t = None
        for name, rows in zip(queries, self._client.ask(list(queries.values())), strict=True):
            if isinstance(rows, QueryError):
                if str(rows) not in problems:
                    problems.append(str(rows))
                continue
            found[name] = [answered(row.metric, value) for row in rows if (value := _value(row)) is not None]
            if rows and rows[0].value is not None:
                t = rows[0].value[0]
        return found, t

    def _discover(self, at: float | None) -> None:
        problems: list[str] = []
        rows, _ = self._asked({"names": Query(plan.discovery(self._select), at)}, problems)
        if "names" not in rows:
            if self._known is None:
                raise FleetError(problems[0])
            return
        signals, scrape_s = signals_found(rows["names"])
        if signals:
            self._known = Known(signals, {} if self._known is None else self._known.labels, scrape_s)
        elif self._known is None:
            names = ", ".join(dialect.signals["util_pct"].name for dialect in DIALECTS.values())
            where = f" with {self._select}" if self._select else ""
            raise FleetError(f"no GPU metrics there{where}; looked for {names}")

    def _identify(self, at: float | None, known: Known, problems: list[str]) -> None:
        dialects = [DIALECTS[name] for name in known.signals]
        rows, _ = self._asked({"who": Query(plan.identities(dialects, self._select), at)}, problems)
        if "who" in rows:
            labels = key_labels(rows["who"])
            self._known = Known({name: known.signals[name] for name in labels}, labels, known.scrape_s)
            found = identified(rows["who"], labels)
            # Of a GPU that two exporters tell, the preferred one comes first.
            order = {name: at for at, name in enumerate(DIALECTS)}
            self._identities = dict(sorted(found.items(), key=lambda pair: order[pair[0].dialect]))
        elif not self._identities:
            raise FleetError(problems[0])

    # -- reading ----------------------------------------------------------------------------------------------------

    def _reading(
        self, t: float, known: Known, rows: Mapping[str, Sequence[Answered]], problems: list[str]
    ) -> FleetReading:
        values = {key: values_of(rows.get(key, ()), key, known.labels) for key in VALUES}
        quiet = values_of(rows.get("quiet", ()), "util_pct", known.labels)
        told = told_of(rows.get("told", ()), known.labels)
        self._name_jobs(told)
        ages = {row.labels.get("instance", ""): t - row.value for row in rows.get("ages", ())}
        self._seen.update({instance: t - age for instance, age in ages.items()})
        down = self._down(t, rows.get("troubles"), ages)
        gpus: dict[tuple[str, str], GpuReading] = {}
        for key, who in self._identities.items():
            gpu = self._gpu(key, who, values, quiet, told.get(key), known)
            slot = (who.uuid or who.host, who.gpu)
            gpus[slot] = gpu if slot not in gpus else filled(gpus[slot], gpu)
        hosts_down = self._hosts_down(down)
        readings = [self._kept(gpu, gpu.host in hosts_down) for gpu in gpus.values()]
        return FleetReading(
            t, self.source, readings, hosts_down, tuple(name for name in DIALECTS if name in known.labels),
            median(ages.values()) if ages else None, self.hour(t), HOUR_S, _alerts(rows.get("troubles", ())),
            tuple(problems),
        )  # fmt: skip

    def _name_jobs(self, told: Mapping[Key, Told]) -> None:
        """Take the jobs that series of their own tell. A number without a scheduler takes the name it has elsewhere."""
        named = {one.job.partition(" ")[2]: one.job for one in told.values() if not one.job.startswith("job ")}
        for key, who in self._identities.items():
            one = told.get(key)
            job, user = (one.job, one.user) if one is not None and one.job else (who.job, who.user)
            if job.startswith("job "):
                job = named.get(job[4:], job)
            if (job, user) != (who.job, who.user):
                self._identities[key] = replace(who, job=job, user=user)

    def _gpu(
        self,
        key: Key,
        who: Identity,
        values: Mapping[str, Mapping[Key, float]],
        quiet: Mapping[Key, float],
        told: Told | None,
        known: Known,
    ) -> GpuReading:
        told = told or _NOTHING
        own = told.state if told.state in _STATES else None
        util = values["util_pct"].get(key)
        return GpuReading(
            who.host, who.gpu, who.uuid, who.model, key.dialect, util,
            values["sm_active_pct"].get(key),
            power_w=values["power_w"].get(key),
            mem_used_bytes=values["mem_used_bytes"].get(key),
            is_quiet=quiet.get(key, plan.QUIET_UTIL) < plan.QUIET_UTIL,
            job=who.job,
            user=who.user,
            own_state=own,
            own_verdict=told.verdict if own else None,
            is_gone=who.gone and util is None,
        )  # fmt: skip

    def _down(self, t: float, troubles: Sequence[Answered] | None, ages: Mapping[str, float]) -> dict[str, Down]:
        """Scraped addresses that are down: those of which the engine says so twice, and those it asks no more."""
        found: dict[str, Down] = {}
        if troubles is None:
            return found
        up = {row.labels.get("instance", ""): row.value for row in troubles if "alertname" not in row.labels}
        oldest = max(LEAST_SILENCE_S, 4 * (15.0 if self._known is None else self._known.scrape_s))
        for instance in {who.instance for who in self._identities.values()}:
            age, seen = ages.get(instance), self._seen.get(instance)
            since = age if age is not None else None if seen is None else t - seen
            if up.get(instance) == 0.0:
                found[instance] = Down(since, "the exporter does not answer")
            elif age is None and instance not in up:
                found[instance] = Down(since, "no longer scraped")
            elif age is not None and age > oldest:
                found[instance] = Down(since, "no new values")
        return found

    def _hosts_down(self, down: Mapping[str, Down]) -> dict[str, Down]:
        """Hosts of which no exporter answers."""
        alive = {who.host for who in self._identities.values() if who.instance not in down}
        return {who.host: down[who.instance] for who in self._identities.values() if who.host not in alive}

    def _kept(self, gpu: GpuReading, is_down: bool) -> GpuReading:
        """The reading, or of a host that is down what it was last."""
        slot = (gpu.host, gpu.gpu)
        if is_down or gpu.is_gone:
            return replace(self._last.get(slot, gpu), is_gone=gpu.is_gone)
        self._last[slot] = gpu
        return gpu

    # -- the last hour ----------------------------------------------------------------------------------------------

    @property
    def _kinds(self) -> tuple[bool, bool]:
        """Whether some GPUs' hour is to be judged by bins, and some nodes count it themselves."""
        labels = {} if self._known is None else self._known.labels
        return any(name != "gputop" for name in labels), "gputop" in labels

    def hour(self, t: float) -> list[Lost] | None:
        """What the last hour before ``t`` lost, None until ``more`` has read it."""
        binned, own = self._kinds
        found = self._hours.lost(t, self._identities, binned=binned, own=own)
        if not own or found is None:
            return found
        named = {who.job.partition(" ")[2]: who.job for who in self._identities.values() if who.job[:4] != "job "}
        return [
            replace(lost, job=named.get(lost.job[4:], lost.job)) if lost.job[:4] == "job " else lost for lost in found
        ]

    def more(self, t: float) -> bool:
        """Read the next part of the hour before ``t``; whether there was one. At most five questions."""
        known = self._known
        if known is None:
            return False
        binned, own = self._kinds
        ends, wants_own = self._hours.missing(t, binned=binned, own=own)
        queries: dict[str, Query] = {}
        if ends:
            others = {name: keys for name, keys in known.signals.items() if name != "gputop"}
            labels = {name: (*known.labels[name], *DIALECTS[name].job) for name in others if name in known.labels}
            seen = Known(others, labels, known.scrape_s)
            texts = {key: plan.metric(seen, key, self._select, plan.mean) for key in (*VALUES[:2], VALUES[3])}
            texts["quiet"] = plan.quiet(seen, self._select)
            queries = {name: Query(text, ends[-1], ends[0], BIN_S) for name, text in texts.items() if text}
        if wants_own and (text := plan.lost_by_own(known, self._select, HOUR_S)):
            queries["own"] = Query(text, bin_ends(t)[-1])
        if not queries:
            return False
        rows = dict(zip(queries, self._client.ask(list(queries.values())), strict=True))
        if any(isinstance(found, QueryError) for found in rows.values()):
            return False
        good = {name: found for name, found in rows.items() if not isinstance(found, QueryError)}
        if "own" in good:
            own_rows = [answered(row.metric, value) for row in good.pop("own") if (value := _value(row)) is not None]
            self._hours.take_own(t, own_rows, known.labels["gputop"])
        if ends:
            series = {name: list(_points(found)) for name, found in good.items()}
            self._hours.take(ends, {"quiet": [], **{key: [] for key in VALUES}, **series}, known.labels)
        return True

    # -- one host ---------------------------------------------------------------------------------------------------

    def history(self, host: str, t: float, span_s: float, columns: int) -> History:
        """Utilisation and SM activity of a host's GPUs over the time before ``t``. Raises QueryError."""
        known = self._known
        instances = sorted({who.instance for who in self._identities.values() if who.host == host})
        if known is None or not instances:
            return {}
        select = _matching("instance", instances) + (f",{self._select}" if self._select else "")
        step = span_s / columns
        window = f"{max(step, 2 * known.scrape_s):.0f}s"
        found: dict[str, dict[str, list[float | None]]] = {}
        keys = ("util_pct", "sm_active_pct")
        texts = [
            plan.metric(known, key, select, lambda selector: f"avg_over_time({selector}[{window}])") for key in keys
        ]
        asked = [(key, Query(text, t, t - span_s + step, step)) for key, text in zip(keys, texts, strict=True) if text]
        for (key, _), rows in zip(asked, self._client.ask([query for _, query in asked]), strict=True):
            if isinstance(rows, QueryError):
                raise rows
            found[key] = columns_of(
                ((moment, self._identities.get(gpu), value)
                 for moment, row in _points(rows)
                 for gpu, value in values_of((row,), key, known.labels).items()),
                t, span_s, columns,
            )  # fmt: skip
        empty: list[float | None] = [None] * columns
        utils, sms = found.get("util_pct", {}), found.get("sm_active_pct", {})
        return {gpu: (util, sms.get(gpu, empty)) for gpu, util in utils.items()}

    def details(self, hosts: Sequence[str], at: float | None) -> dict[tuple[str, str], dict[str, float]]:
        """What only hosts in sight are asked for, by host and GPU. Raises QueryError."""
        known = self._known
        instances = sorted({who.instance for who in self._identities.values() if who.host in set(hosts)})
        if known is None or not instances:
            return {}
        select = _matching("instance", instances) + (f",{self._select}" if self._select else "")
        texts = [(key, plan.metric(known, key, select)) for key in FILLING]
        asked = [(key, Query(text, at)) for key, text in texts if text]
        found: dict[tuple[str, str], dict[str, float]] = {}
        for (key, _), rows in zip(asked, self._client.ask([query for _, query in asked]), strict=True):
            if isinstance(rows, QueryError):
                raise rows
            series = [answered(row.metric, value) for row in rows if (value := _value(row)) is not None]
            for gpu, value in values_of(series, key, known.labels).items():
                if (who := self._identities.get(gpu)) is not None:
                    found.setdefault((who.host, who.gpu), {}).setdefault(key, value)
        return found


_NOTHING = Told()


class _Point(NamedTuple):
    t: float
    row: Answered


def _value(row: Row) -> float | None:
    return None if row.value is None else number(row.value[1])


def _points(rows: Sequence[Row]) -> list[_Point]:
    return [
        _Point(t, answered(row.metric, value))
        for row in rows
        for t, text in row.values
        if (value := number(text)) is not None
    ]


def _alerts(rows: Sequence[Answered]) -> tuple[Alert, ...]:
    found = []
    for row in rows:
        if name := row.labels.get("alertname"):
            labels = {clean_text(key): clean_text(value) for key, value in sorted(row.labels.items())}
            severity = labels.get("severity", "")
            for internal in ("__name__", "alertname", "alertstate", "severity"):
                labels.pop(internal, None)
            found.append(Alert(clean_text(name), severity, clean_text(host_of(row.labels)), labels))
    return tuple(sorted(found, key=lambda one: (one.name, one.host))[:MOST_ALERTS])


def _matching(label: str, values: Sequence[str]) -> str:
    """A matcher for any of these values, whatever they hold."""
    pattern = "|".join(re.sub(r"([.+*?()|\[\]{}^$\\])", r"\\\1", value) for value in values)
    escaped = pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{label}=~"{escaped}"'
