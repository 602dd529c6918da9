"""A fleet read from its Prometheus: the order of a refresh.

``ask`` takes a moment, None for the engine's present, and returns a ``FleetReading``. Names are discovered every 40th
refresh, GPUs every 4th, values each time or every second time, so a value is at most two refreshes old and a new job
four; the last hour is read beside them by ``hour``. Live queries carry no time, so that a wrong clock here does no
harm; going back in time asks everything at that time. At most ten queries per refresh.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from msgspec.structs import replace

from gputop.features.fleet.exporter_names import DETAIL_KEYS
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    MINUTES,
    FleetError,
    FleetReading,
    FleetSource,
    GpuReading,
    History,
    LastHour,
    with_hour,
)
from gputop.features.fleet.promql import any_of, over
from gputop.features.fleet.read import queries
from gputop.features.fleet.read.current_values import MEANS, FleetReader
from gputop.features.fleet.read.decode_labels import Place, SeriesKey
from gputop.features.fleet.read.decode_values import in_units
from gputop.features.fleet.read.engine import Client, Engine, PromQuery, number, values
from gputop.features.fleet.read.gpu_inventory import FleetInventory
from gputop.features.fleet.read.last_hour import HourReader
from gputop.features.fleet.read.recorded_hosts import NamesAmongGpus, RecordedHosts

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


class PrometheusFleet(FleetSource):
    """One engine. Not for several threads at once; every method blocks.

    Each GPU is asked for. Of more than ``most_gpus`` that the rules record, hosts and jobs are read from the records,
    and GPUs on the hosts in sight, each part of them by a reader of its own.
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
        """``clock`` is Unix time, compared with the engine's.

        Without ``most_gpus`` every GPU is asked for. With ``hosts`` this is a part of a large fleet: removed GPUs are
        unknown.
        """
        self.source = source
        self._most_gpus, self._keeps_past, self._clock = most_gpus, hosts is None, clock
        self._engine = Engine(client, select)
        self._inventory = FleetInventory(self._engine, hosts)
        self._present = FleetReader(self._engine, self._inventory)
        self._records = RecordedHosts(self._engine)
        self._hour = HourReader(self._engine)
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
        """Seconds between refreshes: a scrape, or none after the first."""
        return (
            AT_ONCE_S
            if self._is_looking_back
            else max(LEAST_INTERVAL_S, self._inventory.schema.scrape_s)
        )

    @property
    def _is_looking_back(self) -> bool:
        """Whether removed GPUs have still to be looked for."""
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
            self._present, self._records = (
                FleetReader(self._engine, self._inventory),
                RecordedHosts(self._engine),
            )
            self._parts, self._part_of, self._gpus = {}, {}, ()
        if self._most_gpus is not None and self._refreshes % SIZE_EVERY == 0:
            with suppress(FleetError):
                self._is_large = self._records.size(at) > self._most_gpus
        reading = self._records.ask(at, self.source, self._clock()) if self._is_large else None
        # Without shares the rules are not evaluated any more.
        self._is_large = reading is not None and bool(reading.shares)
        reading = (
            replace(reading, gpus=self._gpus) if reading and self._is_large else self._every_gpu(at)
        )
        self._refreshes += 1
        return with_hour(reading, self._hour.known(reading.t))

    def _every_gpu(self, at: float | None) -> FleetReading:
        inventory, problems = self._inventory, []
        if not inventory.schema.names or self._refreshes % DISCOVERY_EVERY == 0:
            inventory.discover(at)
        if (
            not inventory.identities
            or self._refreshes % IDENTITIES_EVERY == 0
            or self._is_looking_back
        ):
            looks_back = self._keeps_past and self._refreshes == self._looks_back_at
            problems += inventory.identify(at, self._clock(), looks_back=looks_back)
            if self._is_looking_back and not looks_back:
                problems.append("GPUs that are not there any more are being looked for")
        if self._refreshes % FORGETS_EVERY == 0:
            inventory.turn()
            self._present.turn()
        reading, t = self._present.ask(at, self.source, self._clock())
        ahead = 0.0 if t is None else t - self._clock()
        if at is None and abs(ahead) > MOST_SKEW_S:
            side = "ahead of" if ahead > 0 else "behind"
            problems.append(f"the engine's clock is {abs(ahead):.0f} s {side} this machine's")
        if self._most_gpus is not None and (n := len(reading.gpus)) > self._most_gpus:
            problems.append(
                f"{n:,} GPUs one by one: with the rules of `gputop fleet deploy` their sums are read"
            )
        return replace(
            reading,
            problems=tuple(dict.fromkeys((*reading.problems, *problems, *inventory.notes()))),
        )

    def hour(self, t: float) -> LastHour | None:
        """The GPU time without work in the hour before ``t``; None if unanswered."""
        known = self._inventory.identities.values()
        among = NamesAmongGpus(known, several=bool(self._inventory.schema.cluster))
        return self._hour.read(t, self._records.names if self._is_large else among, self._inventory)

    def look(self, hosts: Sequence[str], at: float | None) -> Sequence[GpuReading] | None:
        """GPUs of these hosts, and of hosts whose job has a straggler.

        None if ``ask`` gives every GPU. Raises FleetError.
        """
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
        """A fleet of these hosts alone, asked GPU by GPU."""
        select = self._within({address for _, address in hosts})
        return PrometheusFleet(self._engine.client, self.source, select, self._clock, hosts=hosts)

    def _within(self, instances: Collection[str]) -> str:
        return ",".join(filter(None, (any_of("instance", sorted(instances)), self._engine.select)))

    def _asked_for(self, host: str) -> tuple[FleetInventory, queries.FleetSchema] | None:
        """The inventory that knows a host's GPUs, and a schema narrowed to it.

        In a large fleet the inventory is a part's. None for an unknown host.
        """
        if self._is_large and host not in self._part_of:
            for hosts in _parts(self._records.addresses, (host,)):
                self._part_of[host] = self._narrowed(hosts)
                self._part_of[host].ask(self._past)
        inventory = (self._part_of.get(host, self) if self._is_large else self)._inventory
        instances = {
            identity.instance for identity in inventory.identities.values() if identity.host == host
        }
        return (
            (inventory, replace(inventory.schema, select=self._within(instances)))
            if instances
            else None
        )

    def history(self, host: str, t: float) -> History:
        self._engine.client.begin()
        if (asked_for := self._asked_for(host)) is None:
            return {}
        inventory, schema = asked_for
        step_s = HOUR_S / MINUTES
        width_s = max(step_s, 2 * schema.scrape_s)
        texts = {
            key: queries.metric(schema, key, lambda series: over("avg_over_time", series, width_s))
            for key in MEANS
        }
        questions = {
            key: PromQuery(text, t, t - HOUR_S + step_s, step_s)
            for key, text in texts.items()
            if text
        }
        answers = self._engine.asked(questions, needs=questions)
        lines: dict[str, tuple[list[float | None], ...]] = {}
        for place, key in enumerate(MEANS):
            minutes: dict[int, list[tuple[SeriesKey | None, float]]] = defaultdict(list)
            for row in answers.rows_of(key):
                gpu = inventory.gpus.value(row.metric)
                for moment, text in row.points():
                    column = round((moment - (t - HOUR_S)) / step_s) - 1
                    if (value := number(text)) is not None and 0 <= column < MINUTES:
                        minutes[column].append((gpu, value))
            for column, of_minute in minutes.items():
                for known, value in in_units(of_minute, key).items():
                    if (identity := inventory.identities.get(known)) is not None:
                        line = lines.setdefault(identity.gpu, ([None] * MINUTES, [None] * MINUTES))
                        line[place][column] = value
        return {gpu: (util, sm) for gpu, (util, sm) in lines.items()}

    def details(self, host: str, at: float | None) -> Mapping[str, Mapping[str, float]]:
        if (asked_for := self._asked_for(host)) is None:
            return {}
        inventory, schema = asked_for
        answers = self._engine.asked(
            {key: queries.metric(schema, key) for key in DETAIL_KEYS}, at, needs=DETAIL_KEYS
        )
        by_gpu: dict[str, dict[str, float]] = defaultdict(dict)
        for key in answers.rows:
            for gpu, value in in_units(values(answers.rows_of(key), inventory.gpus), key).items():
                if (
                    identity := inventory.identities.get(gpu)
                ) is not None and identity.host == host:
                    by_gpu[identity.gpu].setdefault(key, value)
        return by_gpu


def _parts(addresses: Mapping[str, set[Place]], hosts: Iterable[str]) -> Iterator[dict[Place, str]]:
    """Divide hosts into parts whose addresses fit into one selector."""
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
