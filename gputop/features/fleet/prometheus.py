"""A fleet read from its Prometheus: queries, remembers what seldom changes, and gives readings.

Live queries carry no time, so that a wrong clock here does no harm; going back in time queries everything at that
time. At most ten queries per refresh.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from msgspec.structs import replace

from gputop.diagnosis.types import STATES, State
from gputop.features.fleet import hours, plan
from gputop.features.fleet.client import Client
from gputop.features.fleet.decode_answers import Identity, Key, Remembered, Told, in_units, told_of
from gputop.features.fleet.exporter_names import DIALECTS, STATE_KEYS, host_of
from gputop.features.fleet.fleet_inventory import DAY_S, Answers, Engine, Inventory, values
from gputop.features.fleet.fleet_reading import HOUR_S, Alert, Down, FleetError, FleetReading, GpuReading, Lost, filled
from gputop.features.fleet.hours import History, LastHour
from gputop.features.fleet.plan import AGE, DIALECT_LABEL, Known
from gputop.model.quantity import clean_text

# What every GPU does now, or did at a moment: the queries of a refresh, and the reading made of the answers.
#
# The state of every GPU is queried at each refresh, slowly changing values at every second one; in between these keep
# their last answer.

MOST_ALERTS = 500
LEAST_SILENCE_S = 60.0
"""A host without an ``up`` series counts as down after so long without a new value, or after four scrapes."""
MEANS = ("util_pct", "sm_active_pct")
SELDOM = (("power_w", "ages"), ("mem_used_bytes", "quiet"))
"""Queried in turns, at every second refresh."""
_STATES: Mapping[str, State] = {state: state for state in STATES}
_NOTHING = Told()


class Present:
    """The current answers, for one moment or the present: another time needs a new one."""

    def __init__(self, engine: Engine, inventory: Inventory) -> None:
        self._engine, self._inventory = engine, inventory
        self._refreshes = 0
        self._values: dict[str, dict[Key, float]] = {key: {} for key in STATE_KEYS}
        self._quiet: Mapping[Key, float] = {}
        self._last: dict[tuple[str, str], GpuReading] = {}
        self._ages: Mapping[str, float] = {}
        self._age_s: float | None = None
        self._seen: dict[str, float] = {}
        self._labels: Remembered[dict[str, str]] = Remembered(dict)
        self._troubles: list[tuple[dict[str, str], float]] = []
        self._can_tell = False

    def ask(self, at: float | None, source: str, now: float) -> tuple[FleetReading, float | None]:
        """The fleet without its last hour, and the engine's own time. Raises FleetError where nothing can be shown."""
        known = self._inventory.known
        assert known is not None, "discovery gives it or raises"
        texts = self._questions(known)
        answers = self._engine.asked(texts, at)
        if "util_pct" not in answers.rows:
            raise FleetError(answers.problems[0] if answers.problems else "no answer")
        self._refreshes += 1
        t = now if answers.t is None else answers.t
        self._take(answers, frozenset(name for name, text in texts.items() if text), t)
        return self._reading(answers, t, source, known), answers.t

    def turn(self) -> None:
        """Forget the labels not seen since the last turn."""
        self._labels.turn()

    def _questions(self, known: Known) -> dict[str, str]:
        select = self._engine.select
        return {
            **{key: plan.metric(known, key, select, plan.mean) for key in MEANS},
            "told": plan.told(known, select),
            "troubles": plan.troubles(known, select, ages=self._asks("ages")),
            **{key: plan.metric(known, key, select) for key in ("power_w", "mem_used_bytes") if self._asks(key)},
            "quiet": plan.quiet(known, select) if self._asks("quiet") else "",
        }

    def _asks(self, name: str) -> bool:
        """Whether it is this query's turn; at the first refresh it is every query's."""
        return not self._refreshes or name in SELDOM[self._refreshes % len(SELDOM)]

    def _take(self, answers: Answers, asked: frozenset[str], t: float) -> None:
        """Keep what was answered. What was asked and not answered is unknown from now on."""
        gpus = self._inventory.gpus
        for key in asked.intersection(STATE_KEYS):
            self._values[key] = in_units(values(answers.of(key), gpus), key)
        if "quiet" in asked:
            self._quiet = in_units(values(answers.of("quiet"), gpus), "util_pct")
        troubles = list(values(answers.of("troubles"), self._labels))
        ages = {
            labels.get("instance", ""): at
            for labels, at in troubles
            if labels.get(DIALECT_LABEL) == AGE and abs(t - at) < DAY_S
        }
        if ages:
            self._ages, self._age_s = ages, t - median(ages.values())
            self._seen.update(ages)
        self._troubles = [pair for pair in troubles if DIALECT_LABEL not in pair[0]]
        self._can_tell = "troubles" in answers.rows

    def _reading(self, answers: Answers, t: float, source: str, known: Known) -> FleetReading:
        inventory = self._inventory
        told = told_of(values(answers.of("told"), inventory.said))
        inventory.name_jobs(told)
        down = self._down(t) if self._can_tell else {}
        gpus: dict[tuple[str, str], GpuReading] = {}
        for key, who in inventory.identities.items():
            gpu = self._gpu(key, who, told.get(key, _NOTHING))
            slot = (who.uuid or who.host, who.gpu)
            gpus[slot] = gpu if slot not in gpus else filled(gpus[slot], gpu)
        hosts_down = self._hosts_down(down)
        readings = [self._kept(gpu, gpu.host in hosts_down) for gpu in gpus.values()]
        self._forget(readings)
        return FleetReading(
            t, source, readings, hosts_down, tuple(name for name in DIALECTS if name in known.labels),
            self._age_s, None, HOUR_S, _alerts(self._troubles),
            tuple(answers.problems),
        )  # fmt: skip

    def _gpu(self, key: Key, who: Identity, told: Told) -> GpuReading:
        own = _STATES.get(told.state or "")
        util = self._values["util_pct"].get(key)
        return GpuReading(
            who.host, who.gpu, who.uuid, who.model, key.dialect, util,
            self._values["sm_active_pct"].get(key),
            power_w=self._values["power_w"].get(key),
            mem_used_bytes=self._values["mem_used_bytes"].get(key),
            is_quiet=self._quiet.get(key, plan.QUIET_UTIL) < plan.QUIET_UTIL,
            job=who.job,
            user=who.user,
            own_state=own,
            own_verdict=told.verdict if own else None,
            is_gone=who.gone and util is None,
            step_s=told.step_s,
            step_wait_s=told.step_wait_s,
        )  # fmt: skip

    def _down(self, t: float) -> dict[str, Down]:
        """Scraped addresses that are down: those that the engine reports so twice, and those it no longer scrapes."""
        found: dict[str, Down] = {}
        up = {labels.get("instance", ""): value for labels, value in self._troubles if "alertname" not in labels}
        oldest = max(LEAST_SILENCE_S, 4 * self._inventory.scrape_s)
        for instance in {who.instance for who in self._inventory.identities.values()}:
            seen = self._seen.get(instance)
            since = None if seen is None else t - seen
            if up.get(instance) == 0.0:
                found[instance] = Down(since, "the exporter does not answer")
            elif instance not in self._ages and instance not in up:
                found[instance] = Down(since, "no longer scraped")
            elif instance in self._ages and t - self._ages[instance] > oldest:
                found[instance] = Down(since, "no new values")
        return found

    def _hosts_down(self, down: Mapping[str, Down]) -> dict[str, Down]:
        """Hosts on which no exporter answers."""
        identities = self._inventory.identities.values()
        alive = {who.host for who in identities if who.instance not in down}
        return {who.host: down[who.instance] for who in identities if who.host not in alive}

    def _kept(self, gpu: GpuReading, is_down: bool) -> GpuReading:
        """The reading, or for a host that is down the last one."""
        slot = (gpu.host, gpu.gpu)
        if is_down or gpu.is_gone:
            return replace(self._last.get(slot, gpu), is_gone=gpu.is_gone)
        self._last[slot] = gpu
        return gpu

    def _forget(self, readings: Sequence[GpuReading]) -> None:
        """Forget hosts that are neither there nor known to be down."""
        if len(self._last) > len(readings):
            here = {(gpu.host, gpu.gpu) for gpu in readings}
            self._last = {slot: gpu for slot, gpu in self._last.items() if slot in here}
        instances = {who.instance for who in self._inventory.identities.values()}
        if len(self._seen) > len(instances):
            self._seen = {instance: t for instance, t in self._seen.items() if instance in instances}


def _alerts(troubles: Sequence[tuple[dict[str, str], float]]) -> tuple[Alert, ...]:
    found = []
    for row, _ in troubles:
        if name := row.get("alertname"):
            labels = {clean_text(key): clean_text(value) for key, value in sorted(row.items())}
            severity = labels.get("severity", "")
            for internal in ("__name__", "alertname", "alertstate", "severity"):
                labels.pop(internal, None)
            found.append(Alert(clean_text(name), severity, clean_text(host_of(row)), labels))
    return tuple(sorted(found, key=lambda one: (one.name, one.host))[:MOST_ALERTS])


IDENTITIES_EVERY, DISCOVERY_EVERY = 4, 40
"""Refreshes between two looks for new GPUs and jobs, and for new metric names."""
FORGETS_EVERY = 8
"""Refreshes after which labels of vanished series are forgotten."""
LEAST_INTERVAL_S = 10.0
MOST_SKEW_S = 60.0


class PrometheusFleet:
    """One engine. Not for several threads at once. Every method blocks."""

    def __init__(self, client: Client, source: str, select: str, clock: Callable[[], float]) -> None:
        """``clock`` is Unix time, and only compared with the engine's."""
        self.source = source
        self._clock = clock
        self._engine = Engine(client, select)
        self._inventory = Inventory(self._engine)
        self._present = Present(self._engine, self._inventory)
        self._hour = LastHour(self._engine, self._inventory)
        self._refreshes = 0
        self._past: float | None = None

    @property
    def interval_s(self) -> float:
        """How often a query is worthwhile: never faster than exporters are scraped."""
        return max(LEAST_INTERVAL_S, self._inventory.scrape_s)

    def close(self) -> None:
        """Close the connections."""
        self._engine.client.close()

    def ask(self, at: float | None = None) -> FleetReading:
        """The fleet now, or at a Unix time. Raises FleetError where nothing can be shown."""
        self._engine.client.begin()
        if at != self._past:
            self._past, self._refreshes = at, 0
            self._present = Present(self._engine, self._inventory)
        problems: list[str] = []
        if self._inventory.known is None or self._refreshes % DISCOVERY_EVERY == 0:
            self._inventory.discover(at, self._clock())
        if self._refreshes % IDENTITIES_EVERY == 0:
            problems += self._inventory.identify(at, self._clock(), anew=self._refreshes == 0)
        if self._refreshes % FORGETS_EVERY == 0:
            self._inventory.turn()
            self._present.turn()
        self._refreshes += 1
        reading, t = self._present.ask(at, self.source, self._clock())
        ahead = 0.0 if t is None else t - self._clock()
        if at is None and abs(ahead) > MOST_SKEW_S:
            side = "ahead of" if ahead > 0 else "behind"
            problems.append(f"the engine's clock is {abs(ahead):.0f} s {side} this machine's")
        told = tuple(dict.fromkeys((*reading.problems, *problems)))
        return replace(reading, lost=self._hour.lost(reading.t), problems=told)

    def hour(self, t: float) -> list[Lost] | None:
        """The GPU time lost in the hour before ``t``, None until ``more`` has read it."""
        return self._hour.lost(t)

    def more(self, t: float) -> bool:
        """Read the next part of the hour before ``t``; whether there was one. At most five questions."""
        return self._hour.more(t)

    def history(self, host: str, t: float, span_s: float, columns: int) -> History:
        """Utilisation and SM activity of a host's GPUs over the time before ``t``. Raises FleetError."""
        self._engine.client.begin()
        return hours.history(self._engine, self._inventory, host, t, span_s, columns)

    def details(self, hosts: Sequence[str], at: float | None) -> Mapping[tuple[str, str], Mapping[str, float]]:
        """What is queried only for the hosts on screen, by host and GPU. Raises FleetError."""
        return hours.details(self._engine, self._inventory, hosts, at)
