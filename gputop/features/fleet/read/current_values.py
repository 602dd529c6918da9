"""Read the current values of every GPU: ask, decode, merge.

Takes the GPUs that the inventory knows; returns a reading without the last hour. Utilisation, SM activity, node facts
and marks are asked for at each refresh, memory, power, idleness and ages at every second one. A value that was not
asked for or not answered keeps its last answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from gputop.diagnosis.host.idle_runs import QUIET_UTIL
from gputop.features.fleet.exporter_names import DIALECTS, STATE_KEYS
from gputop.features.fleet.fleet_reading import Down, FleetReading, GpuReading, merged
from gputop.features.fleet.promql import over
from gputop.features.fleet.read import screen_queries
from gputop.features.fleet.read.decode_labels import SeriesKey
from gputop.features.fleet.read.decode_values import SeriesFacts, in_units, reading_of, series_facts
from gputop.features.fleet.read.engine import Engine, FleetAnswers, PromQuery, values
from gputop.features.fleet.read.gpu_inventory import PATIENCE, FleetInventory
from gputop.features.fleet.read.outages import HostOutages

MEANS = ("util_pct", "sm_active_pct")
SLACK_S = 5.0
IN_TURNS = (("power_w", "ages", "ports"), ("mem_used_bytes", "quiet"))
"""Asked for in turns, at every second refresh."""
_NO_FACTS = SeriesFacts()


class FleetReader:
    """Reads all GPUs at the present or at one past moment."""

    def __init__(self, engine: Engine, inventory: FleetInventory) -> None:
        self._engine, self._inventory = engine, inventory
        self._refreshes = 0
        self._values: dict[str, dict[SeriesKey, float]] = {
            key: {} for key in (*STATE_KEYS, "quiet")
        }
        self._last: dict[tuple[str, str], GpuReading] = {}
        self._facts: Mapping[SeriesKey, SeriesFacts] = {}
        self._outages = HostOutages(inventory)
        self._unanswered: frozenset[str] = frozenset()
        """Questions that were never answered."""

    def ask(self, at: float | None, source: str, now: float) -> tuple[FleetReading, float | None]:
        """Return the fleet and the engine's own time.

        Raises FleetError if utilisation was not answered.
        """
        # Before the first answer there is nothing to show meanwhile.
        patience = 1.0 if self._refreshes else PATIENCE
        questions = {
            name: PromQuery(text, at, patience=patience)
            for name, text in self._questions().items()
            if text
        }
        answers = self._engine.asked(questions, needs=("util_pct",))
        t = now if answers.t is None else answers.t
        gap = self._take(answers, questions, t)
        self._refreshes += 1
        identities = self._inventory.identities
        measured = {identities[key].place for key in self._values["util_pct"] if key in identities}
        hosts_down = self._outages.hosts_down(measured, t)
        return self._reading(
            hosts_down, (*answers.problems, *filter(None, (gap,))), t, source
        ), answers.t

    def turn(self) -> None:
        """Forget labels that were not used since the last turn."""
        self._outages.labels.turn()

    def _questions(self) -> dict[str, str]:
        schema = self._inventory.schema
        seldom = IN_TURNS[(self._refreshes - 1) % 2] if self._refreshes else sum(IN_TURNS, ())
        # The newest value of two scrapes: one that failed once does not make a GPU vanish from a sum.
        width_s = 2 * schema.scrape_s + SLACK_S
        newest: dict[str, str] = {
            key: screen_queries.metric(
                schema, key, lambda series: over("last_over_time", series, width_s)
            )
            for key in ("power_w", "mem_used_bytes")
            if key in seldom
        }
        return {
            **{key: screen_queries.metric(schema, key, screen_queries.mean) for key in MEANS},
            **newest,
            "facts": screen_queries.node_facts(schema),
            "marks": screen_queries.marks(schema, ages="ages" in seldom),
            "quiet": screen_queries.quiet(schema) if "quiet" in seldom else "",
            "ports": screen_queries.ports(schema) if "ports" in seldom else "",
        }

    def _take(self, answers: FleetAnswers, asked: Collection[str], t: float) -> str:
        """Keep answered values; return a line on a pause of the engine."""
        inventory = self._inventory
        self._unanswered = frozenset(self._unanswered if self._refreshes else asked).difference(
            answers.rows
        )
        now = {
            key: in_units(
                values(answers.rows[key], inventory.gpus), "util_pct" if key == "quiet" else key
            )
            for key in self._values
            if key in answers.rows
        }
        if "facts" in answers.rows:
            self._facts = series_facts(values(answers.rows["facts"], inventory.fact_labels))
            inventory.name_jobs(self._facts)
        if "marks" in answers.rows:
            self._outages.take(answers, t)
        if "ports" in answers.rows:
            self._outages.take_ports(answers)
        gap = self._outages.gap(self._values["util_pct"], now.get("util_pct", {}), t)
        self._values["quiet"] = now.pop("quiet", self._values["quiet"])
        self._values.update({} if gap else now)
        return gap

    def _reading(
        self, hosts_down: Mapping[str, Down], problems: Iterable[str], t: float, source: str
    ) -> FleetReading:
        """Merge all GPUs; one without current values keeps its last ones."""
        asks_quiet, quiet = "quiet" not in self._unanswered, self._values["quiet"]
        gpus = merged(
            reading_of(
                key,
                identity,
                self._facts.get(key, _NO_FACTS),
                {name: self._values[name][key] for name in STATE_KEYS if key in self._values[name]},
                is_quiet=quiet.get(key, QUIET_UTIL) < QUIET_UTIL if asks_quiet else None,
                unanswered=self._unanswered,
            )
            for key, identity in self._inventory.identities.items()
        )
        readings = [
            replace(self._last.get((gpu.host, gpu.gpu), gpu), is_lost=gpu.is_lost)
            if gpu.is_lost or gpu.host in hosts_down
            else gpu
            for gpu in gpus
        ]
        self._last = {(gpu.host, gpu.gpu): gpu for gpu in readings}
        return FleetReading(
            t,
            source,
            readings,
            hosts_down,
            tuple(name for name in DIALECTS if name in self._inventory.schema.labels),
            self._outages.age_s(t),
            alerts=self._outages.alerts,
            problems=tuple(dict.fromkeys(problems)),
            faults=self._outages.faults(hosts_down),
            gone=self._outages.removed_hosts(t),
        )
