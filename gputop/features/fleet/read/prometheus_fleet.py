"""A fleet read from its Prometheus GPU by GPU: the order of a refresh.

``ask`` takes a moment, None for the engine's present, and returns a ``FleetReading``. Names are discovered every 40th
refresh, GPUs every 4th, values each time or every second time, so a value is at most two refreshes old and a new job
four; the last hour is read beside them by ``hour``. Live queries carry no time, so that a wrong clock here does no
harm; going back in time asks everything at that time. At most ten queries per refresh.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from gputop.features.fleet.exporter_names import DETAIL_KEYS
from gputop.features.fleet.fleet_reading import (
    HOUR_S,
    MINUTES,
    FleetReading,
    FleetSource,
    History,
    LastHour,
    with_hour,
)
from gputop.features.fleet.promql import any_of, over
from gputop.features.fleet.read import screen_queries
from gputop.features.fleet.read.current_values import MEANS, FleetReader
from gputop.features.fleet.read.decode_labels import Place, SeriesKey
from gputop.features.fleet.read.decode_values import in_units
from gputop.features.fleet.read.engine import Client, Engine, PromQuery, number, values
from gputop.features.fleet.read.gpu_inventory import FleetInventory
from gputop.features.fleet.read.last_hour import HourReader
from gputop.features.fleet.read.recorded_hosts import NamesAmongGpus

IDENTITIES_EVERY, DISCOVERY_EVERY = 4, 40
"""Refreshes between two looks for new GPUs and jobs, and for new metric names."""
FORGETS_EVERY = 8
"""Refreshes after which labels of vanished series are forgotten."""
LEAST_INTERVAL_S, AT_ONCE_S = 10.0, 0.1
MOST_SKEW_S = 60.0


def within(instances: Collection[str], select: str) -> str:
    """Matchers that narrow a selection to scraped addresses."""
    return ",".join(filter(None, (any_of("instance", sorted(instances)), select)))


class PrometheusFleet(FleetSource):
    """Asks one engine for each GPU. Not for several threads at once; every method blocks."""

    def __init__(
        self,
        client: Client,
        source: str,
        select: str,
        clock: Callable[[], float],
        *,
        hosts: Mapping[Place, str] | None = None,
    ) -> None:
        """``clock`` is Unix time, compared with the engine's.

        With ``hosts`` this is a part of a large fleet: removed GPUs are unknown.
        """
        self.source = source
        self._keeps_past, self._clock = hosts is None, clock
        self._engine = Engine(client, select)
        self._inventory = FleetInventory(self._engine, hosts)
        self._present = FleetReader(self._engine, self._inventory)
        self._hour = HourReader(self._engine)
        self._refreshes = 0
        self._looks_back_at = 1
        """The refresh that asks for what is not there any more: the first picture does not wait for that."""
        self._past: float | None = None

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        """Seconds between refreshes: a scrape, or none after the first."""
        if self._is_looking_back:
            return AT_ONCE_S
        return max(LEAST_INTERVAL_S, self._inventory.schema.scrape_s)

    @property
    def _is_looking_back(self) -> bool:
        """Whether removed GPUs have still to be looked for."""
        return self._keeps_past and self._refreshes <= self._looks_back_at

    def settle(self) -> None:
        """Leave nothing for a second refresh."""
        self._looks_back_at = 0

    def close(self) -> None:
        self._engine.client.close()

    def ask(self, at: float | None = None) -> FleetReading:
        self._engine.client.begin()
        if at != self._past:
            self._past, self._refreshes = at, 0
            self._present = FleetReader(self._engine, self._inventory)
        problems = self._known_gpus(at)
        reading, t = self._present.ask(at, self.source, self._clock())
        self._refreshes += 1
        ahead_s = 0.0 if t is None else t - self._clock()
        if at is None and abs(ahead_s) > MOST_SKEW_S:
            side = "ahead of" if ahead_s > 0 else "behind"
            problems.append(f"the engine's clock is {abs(ahead_s):.0f} s {side} this machine's")
        told = dict.fromkeys((*reading.problems, *problems, *self._inventory.notes()))
        return with_hour(replace(reading, problems=tuple(told)), self._hour.known(reading.t))

    def _known_gpus(self, at: float | None) -> list[str]:
        """Bring the inventory up to date; return lines for people."""
        inventory, problems = self._inventory, []
        if not inventory.schema.names or self._refreshes % DISCOVERY_EVERY == 0:
            inventory.discover(at)
        is_due = not inventory.identities or self._refreshes % IDENTITIES_EVERY == 0
        if is_due or self._is_looking_back:
            looks_back = self._keeps_past and self._refreshes == self._looks_back_at
            problems += inventory.identify(at, self._clock(), looks_back=looks_back)
            if self._is_looking_back and not looks_back:
                problems.append("GPUs that are not there any more are being looked for")
        if self._refreshes % FORGETS_EVERY == 0:
            inventory.turn()
            self._present.turn()
        return problems

    def hour(self, t: float) -> LastHour | None:
        """The GPU time without work in the hour before ``t``; None if unanswered."""
        known = self._inventory.identities.values()
        among = NamesAmongGpus(known, several=bool(self._inventory.schema.cluster))
        return self._hour.read(t, among, self._inventory)

    def _schema_of(self, host: str) -> screen_queries.FleetSchema | None:
        """The schema narrowed to a host; None for an unknown one."""
        instances = {
            identity.instance
            for identity in self._inventory.identities.values()
            if identity.host == host
        }
        if not instances:
            return None
        return replace(self._inventory.schema, select=within(instances, self._engine.select))

    def history(self, host: str, t: float) -> History:
        self._engine.client.begin()
        inventory, schema = self._inventory, self._schema_of(host)
        if schema is None:
            return {}
        step_s = HOUR_S / MINUTES
        width_s = max(step_s, 2 * schema.scrape_s)
        texts = {
            key: screen_queries.metric(
                schema, key, lambda series: over("avg_over_time", series, width_s)
            )
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
        inventory, schema = self._inventory, self._schema_of(host)
        if schema is None:
            return {}
        answers = self._engine.asked(
            {key: screen_queries.metric(schema, key) for key in DETAIL_KEYS}, at, needs=DETAIL_KEYS
        )
        by_gpu: dict[str, dict[str, float]] = defaultdict(dict)
        for key in answers.rows:
            for gpu, value in in_units(values(answers.rows_of(key), inventory.gpus), key).items():
                if (
                    identity := inventory.identities.get(gpu)
                ) is not None and identity.host == host:
                    by_gpu[identity.gpu].setdefault(key, value)
        return by_gpu
