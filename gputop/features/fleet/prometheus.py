"""A fleet read from its Prometheus: queries, remembers what seldom changes, and gives readings.

What the rules record is read where it is there: the last hour always, the hosts of a large fleet as well.

Live queries carry no time, so that a wrong clock here does no harm; going back in time queries everything at that
time. At most ten queries per refresh.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from statistics import median

from msgspec.structs import replace

from gputop.diagnosis.idle_runs import QUIET_UTIL
from gputop.features.fleet import plan
from gputop.features.fleet.client import Client, PromQuery, number
from gputop.features.fleet.decode_answers import (
    GpuIdentity,
    Place,
    Remembered,
    SeriesFacts,
    SeriesKey,
    in_units,
    marked_places,
    reading_of,
    series_facts,
)
from gputop.features.fleet.exporter_names import DETAIL_KEYS, DIALECTS, STATE_KEYS
from gputop.features.fleet.fleet_inventory import DAY_S, Engine, FleetAnswers, FleetInventory, values
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    MINUTES,
    AskedFleet,
    Down,
    FiringAlert,
    FleetError,
    FleetReading,
    Gone,
    GpuReading,
    History,
    LastHour,
    filled,
    with_hour,
)
from gputop.features.fleet.promql import any_of, over
from gputop.features.fleet.recorded_hosts import NamesAmongGpus, RecordedHosts, RecordedHour

LEAST_SILENCE_S = 60.0
"""Where no ``up`` is known, a host is down after so long without a new value, or after four scrapes, beside others that
have new ones."""
LONGEST_GAP_S = 300.0
"""How long values are kept over a pause of the engine: as long as it holds a value for the present itself."""
MEANS = ("util_pct", "sm_active_pct")
SLACK_S = 5.0
SELDOM = (("power_w", "ages"), ("mem_used_bytes", "quiet"))
"""Queried in turns, at every second refresh."""
_NOTHING = SeriesFacts()


class Present:
    """What every GPU does now, or did at a moment: another one needs a new reader. What was not asked this time, or not
    answered, keeps its last answer."""

    def __init__(self, engine: Engine, inventory: FleetInventory) -> None:
        self._engine, self._inventory = engine, inventory
        self._refreshes = 0
        self._values: dict[str, dict[SeriesKey, float]] = {key: {} for key in STATE_KEYS}
        self._quiet: Mapping[SeriesKey, float] = {}
        self._last: dict[tuple[str, str], GpuReading] = {}
        self._ages: Mapping[Place, float] = {}
        self._last_seen: dict[Place, float] = {}
        self._labels: Remembered[Mapping[str, str]] = Remembered(dict)
        self._alerts: tuple[FiringAlert, ...] = ()
        self._facts: Mapping[SeriesKey, SeriesFacts] = {}
        self._marked: Mapping[str, Mapping[Place, float]] = {}
        """What the last answer says of scraped addresses, by mark; empty where it never came."""
        self._gone: dict[str, tuple[int, float | None, float]] = {}
        """Host → its GPUs, when it last had values, and since when nothing lists it."""
        self._unanswered: frozenset[str] = frozenset()
        """Questions that were never answered."""
        self._gap_since: float | None = None

    def ask(self, at: float | None, source: str, now: float) -> tuple[FleetReading, float | None]:
        """The fleet without its last hour, and the engine's own time. Raises FleetError where nothing can be shown."""
        texts = self._questions()
        answers = self._engine.asked(texts, at, needs=("util_pct",))
        t = now if answers.t is None else answers.t
        problems = (*answers.problems, *self._take(answers, [name for name, text in texts.items() if text], t))
        self._refreshes += 1
        down = self._down(t)
        self._dismiss(down, t)
        return self._reading(down, problems, t, source), answers.t

    def turn(self) -> None:
        """Forget the labels not seen since the last turn."""
        self._labels.turn()

    def _questions(self) -> dict[str, str]:
        schema = self._inventory.schema
        seldom = SELDOM[(self._refreshes - 1) % 2] if self._refreshes else sum(SELDOM, ())

        def current(key: str) -> str:
            # The newest value of two scrapes: one that failed once does not make a GPU vanish from a sum.
            return plan.metric(schema, key, lambda of: over("last_over_time", of, 2 * schema.scrape_s + SLACK_S))

        return {
            **{key: plan.metric(schema, key, plan.mean) for key in MEANS},
            "told": plan.node_facts(schema),
            "troubles": plan.troubles(schema, ages="ages" in seldom),
            **{key: current(key) for key in ("power_w", "mem_used_bytes") if key in seldom},
            "quiet": plan.quiet(schema) if "quiet" in seldom else "",
        }

    def _take(self, answers: FleetAnswers, asked: Collection[str], t: float) -> list[str]:
        """Keep what was answered; what was asked and not answered keeps its last answer, or is not known."""
        gpus = self._inventory.gpus
        self._unanswered = frozenset(self._unanswered if self._refreshes else asked).difference(answers.rows)
        now = {key: in_units(values(answers.of(key), gpus), key) for key in STATE_KEYS if key in answers.rows}
        if "quiet" in answers.rows:
            self._quiet = in_units(values(answers.of("quiet"), gpus), "util_pct")
        if "told" in answers.rows:
            self._facts = series_facts(values(answers.of("told"), self._inventory.fact_labels))
            self._inventory.name_jobs(self._facts)
        if "troubles" in answers.rows:
            troubles, place = values(answers.of("troubles"), self._labels), self._inventory.schema.place
            self._marked, self._alerts = marked_places(troubles, place)
            if ages := {place: seen for place, seen in self._marked[plan.AGE].items() if abs(t - seen) < DAY_S}:
                self._ages = ages
                self._last_seen.update(ages)
        gap = self._gap(now.get("util_pct", {}), t)
        if not gap:
            self._values.update(now)
        return gap

    def _gap(self, utils: Mapping[SeriesKey, float], t: float) -> list[str]:
        """Words on a pause of the engine: most GPUs have no value, though nothing says that their hosts are down."""
        before, up = self._values["util_pct"], self._marked.get(plan.UP, {})
        explained = {place for mark in (plan.LATE, plan.DEAD) for place in self._marked.get(mark, {})}
        explained |= {place for place, value in up.items() if value == 0.0}
        identities = self._inventory.identities
        without = [identities[key].place for key in before if key not in utils and key in identities]
        if 2 * sum(place not in explained for place in without) <= len(before) or not up:
            self._gap_since = None
            return []
        self._gap_since = t if self._gap_since is None else self._gap_since
        if t - self._gap_since > LONGEST_GAP_S:
            return []
        return [f"the engine has values of {len(utils)} of {len(before)} GPUs: it may have paused; the last ones stay"]

    def _reading(
        self, down: Mapping[Place, Down | None], problems: Iterable[str], t: float, source: str
    ) -> FleetReading:
        hosts_down, spoken = self._hosts_down(down), self._inventory.schema.labels
        gpus: dict[tuple[str, ...], GpuReading] = {}
        for key, identity in self._inventory.identities.items():
            measured = {name: of_name[key] for name, of_name in self._values.items() if key in of_name}
            quiet = None if "quiet" in self._unanswered else self._quiet.get(key, QUIET_UTIL) < QUIET_UTIL
            facts = self._facts.get(key, _NOTHING)
            gpu = reading_of(key, identity, facts, measured, is_quiet=quiet, unanswered=self._unanswered)
            gpus[identity.id] = filled(gpus[identity.id], gpu) if identity.id in gpus else gpu
        # One without current values has the last ones.
        readings = [
            replace(self._last.get((gpu.host, gpu.gpu), gpu), is_lost=gpu.is_lost)
            if gpu.is_lost or gpu.host in hosts_down
            else gpu
            for gpu in gpus.values()
        ]
        self._last = {(gpu.host, gpu.gpu): gpu for gpu in readings}
        return FleetReading(
            t, source, readings, hosts_down, tuple(name for name in DIALECTS if name in spoken),
            t - median(self._ages.values()) if self._ages else None, alerts=self._alerts,
            problems=tuple(dict.fromkeys(problems)),
            gone={host: Gone(n, None if seen is None else t - seen) for host, (n, seen, _) in self._gone.items()},
        )  # fmt: skip

    def _places(self) -> dict[Place, str]:
        """Every scraped address that is known, and its host."""
        named = {identity.place: identity.host for identity in self._inventory.identities.values()}
        return {**self._inventory.host_names, **named}

    def _down(self, t: float) -> dict[Place, Down | None]:
        """Scraped addresses without current values, and why; None for one that nothing lists any more.

        Where the engine says which addresses are scraped, that alone decides: how old values are is told, and changes
        no state.
        """
        up, late, dead = (self._marked.get(mark, {}) for mark in (plan.UP, plan.LATE, plan.DEAD))
        identities, places = self._inventory.identities, self._places()
        measured = {identity.place for key, identity in identities.items() if key in self._values["util_pct"]}
        self._last_seen = {place: seen for place, seen in self._last_seen.items() if place in places}
        newest = max(self._ages.values(), default=t)
        oldest = max(LEAST_SILENCE_S, 4 * self._inventory.schema.scrape_s)
        down: dict[Place, Down | None] = {}
        for place in places if self._marked else ():
            since = t - self._last_seen[place] if place in self._last_seen else None
            if up.get(place) == 0.0:
                down[place] = Down(since, "the exporter does not answer")
            elif place in late:
                since = late[place] if 0.0 < late[place] < DAY_S else since
                down[place] = Down(since, "the driver does not answer: it is late or hangs", "late")
            elif place in dead:
                down[place] = Down(dead[place], "nobody writes its file any more: the exporter has ended")
            elif up:
                if place not in up and place not in measured:
                    down[place] = None
            elif place not in self._ages and place not in measured:
                is_recent = since is not None and since < plan.LAST_SEEN_S
                down[place] = Down(since, "no longer scraped") if is_recent else None
            elif newest - self._ages.get(place, newest) > oldest:
                down[place] = Down(since, "no new values")
        return down

    def _hosts_down(self, down: Mapping[Place, Down | None]) -> dict[str, Down]:
        """Hosts on which no exporter answers."""
        named = self._places()
        alive = {host for place, host in named.items() if place not in down}
        hosts_down: dict[str, Down] = {}
        for place, host in named.items():
            place_down = down.get(place)
            # Of two exporters on a host the one whose driver is late says more than the one that is silent.
            if place_down is not None and host not in alive and (host not in hosts_down or place_down.kind == "late"):
                hosts_down[host] = place_down
        return hosts_down

    def _dismiss(self, down: Mapping[Place, Down | None], t: float) -> None:
        """Count the GPUs of hosts that nothing lists any more, and forget the GPUs."""
        identities = self._inventory.identities
        listed = {identity.host for identity in identities.values() if down.get(identity.place, identity) is not None}
        gone: dict[str, dict[SeriesKey, GpuIdentity]] = defaultdict(dict)
        for key, identity in identities.items():
            if identity.host not in listed:
                gone[identity.host][key] = identity
        for host, members in gone.items():
            seen = [self._last_seen[of.place] for of in members.values() if of.place in self._last_seen]
            self._gone[host] = len({of.uuid or of.gpu for of in members.values()}), max(seen, default=None), t
            self._inventory.dismiss(members)
        self._gone = {host: of for host, of in self._gone.items() if host not in listed and t - of[2] <= DAY_S}


IDENTITIES_EVERY, DISCOVERY_EVERY, SIZE_EVERY = 4, 40, 40
"""Refreshes between two looks for new GPUs and jobs, for new metric names, and at how large the fleet is."""
FORGETS_EVERY = 8
"""Refreshes after which labels of vanished series are forgotten."""
LEAST_INTERVAL_S, AT_ONCE_S = 10.0, 0.1
MOST_SKEW_S = 60.0
MOST_LOOKED_AT = 64
"""Hosts of a large fleet whose GPUs are asked for at once."""
LONGEST_MATCHER = 600
"""Characters of addresses in a selector: VictoriaMetrics takes 16 kB a query, and one has up to 18 selectors."""


class PrometheusFleet(AskedFleet):
    """One engine. Not for several threads at once. Every method blocks.

    Each GPU is asked for, but of more than ``most_gpus`` that the rules record: hosts and jobs are then what these
    record, and GPUs are asked for on the hosts in sight, each part of them by a reader of its own. The last hour is
    what the rules record, however large the fleet.
    """

    def __init__(
        self,
        client: Client,
        source: str,
        select: str,
        clock: Callable[[], float],
        *,
        most_gpus: int | None = None,
        hosts: Mapping[Place, str] | None = None,
    ) -> None:
        """``clock`` is Unix time, and only compared with the engine's. Without ``most_gpus`` every GPU is asked for.
        With ``hosts`` it is this part of a large fleet: no GPU is known that was there within the last day."""
        self.source = source
        self._most_gpus, self._keeps_past, self._clock = most_gpus, hosts is None, clock
        self._engine = Engine(client, select)
        self._inventory = FleetInventory(self._engine, hosts)
        self._present = Present(self._engine, self._inventory)
        self._records = RecordedHosts(self._engine)
        self._hour = RecordedHour(self._engine)
        self._refreshes = 0
        self._looks_back_at = 1
        """The refresh that asks for what is not there any more: the first picture does not wait for that."""
        self._past: float | None = None
        self._is_large = False
        self._parts: dict[tuple[Place, ...], PrometheusFleet] = {}
        self._part_of: dict[str, PrometheusFleet] = {}
        self._gpus: Sequence[GpuReading] = ()

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        """How often a query is worthwhile: never faster than exporters are scraped, but for what the first one left."""
        return AT_ONCE_S if self._is_looking_back else max(LEAST_INTERVAL_S, self._inventory.schema.scrape_s)

    @property
    def _is_looking_back(self) -> bool:
        """Whether what is not there any more has still to be looked for."""
        return self._keeps_past and not self._is_large and self._refreshes <= self._looks_back_at

    def settle(self) -> None:
        """Leave nothing for a second refresh."""
        self._looks_back_at = 0

    def close(self) -> None:
        self._engine.client.close()

    def ask(self, at: float | None = None) -> FleetReading:
        self._engine.client.begin()
        if at != self._past:
            self._past, self._refreshes = at, 0
            self._present, self._records = Present(self._engine, self._inventory), RecordedHosts(self._engine)
            self._parts, self._part_of, self._gpus = {}, {}, ()
        if self._refreshes % SIZE_EVERY == 0:
            self._is_large = self._is_recorded_large(at)
        reading = self._records.ask(at, self.source, self._clock()) if self._is_large else None
        # Without shares the rules are not evaluated any more.
        self._is_large = reading is not None and bool(reading.shares)
        reading = replace(reading, gpus=self._gpus) if reading and self._is_large else self._every_gpu(at)
        self._refreshes += 1
        return with_hour(reading, self._hour.at(reading.t))

    def _is_recorded_large(self, at: float | None) -> bool:
        if self._most_gpus is None:
            return False
        try:
            return self._records.size(at) > self._most_gpus
        except FleetError:
            return self._is_large

    def _every_gpu(self, at: float | None) -> FleetReading:
        problems: list[str] = []
        if not self._inventory.schema.signals or self._refreshes % DISCOVERY_EVERY == 0:
            self._inventory.discover(at, self._clock())
        if not self._inventory.identities or self._refreshes % IDENTITIES_EVERY == 0 or self._is_looking_back:
            looks_back = self._keeps_past and self._refreshes == self._looks_back_at
            problems += self._inventory.identify(at, self._clock(), looks_back=looks_back)
            if self._is_looking_back and not looks_back:
                problems.append("GPUs that are not there any more are being looked for")
        if self._refreshes % FORGETS_EVERY == 0:
            self._inventory.turn()
            self._present.turn()
        reading, t = self._present.ask(at, self.source, self._clock())
        ahead = 0.0 if t is None else t - self._clock()
        if at is None and abs(ahead) > MOST_SKEW_S:
            side = "ahead of" if ahead > 0 else "behind"
            problems.append(f"the engine's clock is {abs(ahead):.0f} s {side} this machine's")
        if self._most_gpus is not None and len(reading.gpus) > self._most_gpus:
            n = len(reading.gpus)
            problems.append(f"{n:,} GPUs one by one: with the rules of `gputop fleet deploy` their sums are read")
        return replace(reading, problems=tuple(dict.fromkeys((*reading.problems, *problems, *self._inventory.notes()))))

    def hour(self, t: float) -> LastHour | None:
        """The GPU time lost in the hour before ``t``, asked for at most once a minute; None where it was not answered.
        At most two questions."""
        known = self._inventory.identities.values()
        names = self._records.names if self._is_large else NamesAmongGpus(known, several=bool(self.clusters))
        return self._hour.read(t, names)

    @property
    def clusters(self) -> str:
        """The label that tells several clusters apart; empty where there is one."""
        return self._inventory.schema.cluster

    # -- the hosts in sight -------------------------------------------------------------------------------------------

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading] | None:
        """The GPUs of these hosts, and of those on which a job is held up; None where ``ask`` gives every GPU. Raises
        FleetError."""
        if not self._is_large:
            return None
        wanted_hosts = dict.fromkeys((*hosts, *self._records.of_straggling_jobs()))
        before, self._parts, self._part_of = self._parts, {}, {}
        gpus: list[GpuReading] = []
        for part in _parts(self._records.addresses, wanted_hosts):
            addressed = tuple(sorted(part))
            fleet = self._parts[addressed] = before.get(addressed) or self._narrowed(part)
            self._part_of.update(dict.fromkeys(part.values(), fleet))
            gpus += fleet.ask(at).gpus
        self._gpus = gpus
        return gpus

    def _narrowed(self, hosts: Mapping[Place, str]) -> PrometheusFleet:
        """These hosts as a fleet of their own, asked GPU by GPU."""
        select = self._within({address for _, address in hosts})
        return PrometheusFleet(self._engine.client, self.source, select, self._clock, hosts=hosts)

    def _within(self, instances: Collection[str]) -> str:
        return ",".join(part for part in (any_of("instance", sorted(instances)), self._engine.select) if part)

    def _asked_for(self, host: str) -> tuple[FleetInventory, plan.FleetSchema] | None:
        """Who knows this host's GPUs, in a large fleet the reader of a part, and how to ask for them alone; None where
        nothing is known of it."""
        inventory = self._inventory
        if self._is_large:
            for hosts in _parts(self._records.addresses, (host,)) if host not in self._part_of else ():
                self._part_of[host] = self._narrowed(hosts)
                self._part_of[host].ask(self._past)
            if host not in self._part_of:
                return None
            inventory = self._part_of[host]._inventory
        instances = {identity.instance for identity in inventory.identities.values() if identity.host == host}
        return (inventory, replace(inventory.schema, select=self._within(instances))) if instances else None

    def history(self, host: str, t: float) -> History:
        self._engine.client.begin()
        if (asked_for := self._asked_for(host)) is None:
            return {}
        inventory, schema = asked_for
        step = HOUR_S / MINUTES
        width = max(step, 2 * schema.scrape_s)
        texts = {key: plan.metric(schema, key, lambda series: over("avg_over_time", series, width)) for key in MEANS}
        queries = {key: PromQuery(text, t, t - HOUR_S + step, step) for key, text in texts.items() if text}
        answers = self._engine.asked(queries, needs=queries)
        lines: dict[str, dict[str, list[float | None]]] = {}
        for key in queries:
            moments: dict[float, list[tuple[SeriesKey | None, float]]] = defaultdict(list)
            for row in answers.of(key):
                gpu = inventory.gpus.of(row.metric)
                for moment, text in row.values:
                    if (value := number(text)) is not None:
                        moments[moment].append((gpu, value))
            for moment, of_moment in moments.items():
                column = round((moment - (t - HOUR_S)) / step) - 1
                for gpu, value in in_units(of_moment, key).items() if 0 <= column < MINUTES else ():
                    if (identity := inventory.identities.get(gpu)) is not None:
                        of_gpu = lines.setdefault(identity.gpu, {name: [None] * MINUTES for name in MEANS})
                        of_gpu[key][column] = value
        return {gpu: (of_gpu["util_pct"], of_gpu["sm_active_pct"]) for gpu, of_gpu in lines.items()}

    def details(self, host: str, at: float | None) -> Mapping[str, Mapping[str, float]]:
        if (asked_for := self._asked_for(host)) is None:
            return {}
        inventory, schema = asked_for
        answers = self._engine.asked({key: plan.metric(schema, key) for key in DETAIL_KEYS}, at, needs=DETAIL_KEYS)
        by_gpu: dict[str, dict[str, float]] = defaultdict(dict)
        for key in answers.rows:
            for gpu, value in in_units(values(answers.of(key), inventory.gpus), key).items():
                if (identity := inventory.identities.get(gpu)) is not None and identity.host == host:
                    by_gpu[identity.gpu].setdefault(key, value)
        return by_gpu


def _parts(addresses: Mapping[str, set[Place]], hosts: Iterable[str]) -> Iterator[dict[Place, str]]:
    """These hosts by the places of theirs that are known, in parts whose addresses fit into a selector."""
    part: dict[Place, str] = {}
    length = 0
    for host in islice((host for host in hosts if host in addresses), MOST_LOOKED_AT):
        places = {place: host for place in sorted(addresses[host]) if place[1]}
        added_length = sum(len(any_of("", (address,))) for _, address in places)
        if part and length + added_length > LONGEST_MATCHER:
            yield part
            part, length = {}, 0
        part |= places
        length += added_length
    if part:
        yield part
