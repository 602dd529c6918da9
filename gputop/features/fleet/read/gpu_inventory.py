"""Know which exporters, GPUs and jobs a fleet has: what changes seldom.

Two steps of a refresh, each with the inventory as its result. ``discover`` asks every 40th refresh which exporters'
names have series; ``identify`` asks every 4th which GPUs these have, so a new GPU or job is known after a minute. GPUs
of the last day that are not there any more stay known as ``gone``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import WINDOW_S, FleetError, with_schedulers
from gputop.features.fleet.read import decode_labels, decode_values, screen_queries
from gputop.features.fleet.read.decode_labels import GpuIdentity, Place, SeriesKey
from gputop.features.fleet.read.decode_values import SeriesFacts
from gputop.features.fleet.read.engine import Engine, LabelCache, PromQuery, labels_of, values
from gputop.features.fleet.read.screen_queries import FleetSchema

DAY_S, USUAL_SCRAPE_S = 86400.0, 15.0
MOST_GPUS = 100_000
"""GPUs that are asked for one by one: ten seconds of CPU at the first refresh."""
PATIENCE = 2.5
"""These questions are seldom, and the heaviest: all labels of all GPUs."""


def scrape_seconds(samples: Iterable[float], window_s: float) -> float:
    """Seconds between two scrapes; 15 if unknown."""
    most_samples = max(samples, default=0.0)
    return (
        min(120.0, max(1.0, round(window_s / most_samples))) if most_samples > 1 else USUAL_SCRAPE_S
    )


class FleetInventory:
    """The GPUs of a fleet. ``schema`` names no dialect until some were found."""

    def __init__(self, engine: Engine, hosts: Mapping[Place, str] | None = None) -> None:
        """``hosts`` are the hosts of a part of a large fleet, by recorded place."""
        self._engine, self._hosts = engine, hosts
        self.schema = FleetSchema(select=engine.select)
        self.identities: dict[SeriesKey, GpuIdentity] = {}
        self._identified: Mapping[SeriesKey, GpuIdentity] = {}
        self._metrics: frozenset[bytes] | None = None
        self._gone_since: dict[SeriesKey, float] = {}
        self.host_names: Mapping[Place, str] = {}
        self.exporters: frozenset[str] = frozenset()
        """Pods that export GPUs and work on none."""
        self._set_schema(self.schema)

    def _set_schema(self, schema: FleetSchema) -> None:
        """Forget all labels, which mean something else from now on."""
        self.schema = schema
        self.gpus = LabelCache(lambda labels: decode_labels.gpu_of(labels, schema))
        self.fact_labels = LabelCache(lambda labels: decode_values.fact_labels(labels, schema))

    def turn(self) -> None:
        """Forget the labels not seen since the last turn."""
        self.gpus.turn()
        self.fact_labels.turn()

    def discover(self, at: float | None) -> None:
        """Find the exporters' names that have series, and the time between scrapes.

        Without any now it looks for those of the last day. Raises FleetError if there are none and none were known.
        """
        select, is_first = self._engine.select, not self.schema.names
        texts = {"names": screen_queries.names(select), "scrapes": screen_queries.scrapes(select)}
        answers = self._engine.asked(texts, at, needs=("names",) * is_first)
        rows = answers.rows_of("names")
        if not rows and is_first:
            texts = {"names": screen_queries.names(select, is_past=True)}
            rows = self._engine.asked(texts, at, needs=texts).rows_of("names")
        counts = {
            labels.get(screen_queries.DIALECT_LABEL): count
            for labels, count in values(rows, LabelCache(dict))
        }
        names = tuple(name for name in DIALECTS if counts.get(name, 0.0) > 0.0)
        if not names and is_first:
            wanted = ", ".join(dialect.signals["util_pct"].name for dialect in DIALECTS.values())
            raise FleetError(
                f"no GPU metrics there{f' with {select}' if select else ''}; looked for {wanted}"
            )
        if names:
            scrapes = (value for _, value in values(answers.rows_of("scrapes"), LabelCache(dict)))
            self._set_schema(
                replace(self.schema, names=names, scrape_s=scrape_seconds(scrapes, WINDOW_S))
            )

    def identify(self, at: float | None, now: float, *, looks_back: bool) -> list[str]:
        """Ask which GPUs there are; return lines for people.

        ``looks_back`` also asks for removed ones; else the known ones that are missing now. Raises FleetError if none
        is known.
        """
        texts = {
            "who": screen_queries.identities(self.schema),
            "before": screen_queries.removed(self.schema) if looks_back else "",
        }
        questions = {
            name: PromQuery(text, at, patience=PATIENCE) for name, text in texts.items() if text
        }
        answers = self._engine.asked(questions, needs=() if self.identities else ("who",))
        if "who" not in answers.rows:
            return answers.problems
        rows = [*answers.rows_of("who"), *answers.rows_of("before")]
        metrics = frozenset(bytes(row.metric) for row in rows)
        if metrics != self._metrics:
            self._read([labels_of(row.metric) for row in rows])
            self._metrics = metrics
        present = {key: identity for key, identity in self._identified.items() if not identity.gone}
        # Nobody is missing by the word of an engine that may not have looked everywhere.
        kept = (
            self.identities
            if "who" in answers.warned
            else self._missing(present, now, looks_back=looks_back)
        )
        # Where two exporters have the same GPU, the preferred one comes first.
        order = {name: place for place, name in enumerate(DIALECTS)}
        found = {**kept, **present}
        self.identities = {
            key: found[key] for key in sorted(found, key=lambda key: order[key.dialect])
        }
        return answers.problems

    def notes(self) -> list[str]:
        """Lines for people on the known GPUs: two of one number are two machines of one name."""
        present = {
            (one.host, one.gpu, one.uuid)
            for one in self.identities.values()
            if not one.gone and one.uuid and not one.mig
        }
        slots = Counter((host, gpu) for host, gpu, _ in present)
        twice = sorted({host for (host, _), n in slots.items() if n > 1})
        hosts = ", ".join(twice[:3]) + f" and {len(twice) - 3} more" * (len(twice) > 3)
        say = (
            f"two machines answer as {hosts}: give each cluster its label, or show one by --select "
            "'cluster=\"NAME\"'"
        )
        return [say] * bool(twice)

    def _read(self, rows: list[dict[str, str]]) -> None:
        """Replace the identified GPUs by those that these series name."""
        if (hosts := self._hosts) is not None:
            places = [(labels, decode_labels.recorded_place(labels)) for labels in rows]
            # Whatever a host calls itself.
            rows = [
                {**labels, "hostname": hosts[place]} if place in hosts else labels
                for labels, place in places
                if place in hosts or not place[1]
            ]
        found = decode_labels.discovered(rows, self.schema)
        if len(found.identities) > MOST_GPUS:
            raise FleetError(
                f"more than {MOST_GPUS:,} GPUs one by one: narrow them by --select, or read their "
                "sums with the rules of `gputop fleet deploy`"
            )
        schema, self.host_names, self._identified, self.exporters = found
        if not schema.labels:
            raise FleetError(
                "the GPU metrics there have no value now: does anything scrape the exporters?"
            )
        if schema != self.schema:
            self._set_schema(schema)

    def _missing(
        self, present: Mapping[SeriesKey, GpuIdentity], now: float, *, looks_back: bool
    ) -> dict[SeriesKey, GpuIdentity]:
        """GPUs of the last day that are missing now.

        Not among them are GPUs of a host that was renamed, and those in whose place is a new GPU, which is a repair. A
        known GPU there was only numbered again by the driver.
        """
        uuids = {identity.uuid for identity in present.values() if identity.uuid}
        before = {**self._identified, **self.identities}
        # A look back knows itself which GPUs were there earlier.
        known = before if looks_back else self.identities
        known_uuids = {
            identity.uuid for identity in known.values() if identity.gone or not looks_back
        }
        taken = {
            (identity.host, identity.gpu.partition("/")[0])
            for identity in present.values()
            if not identity.uuid or identity.uuid not in known_uuids
        }
        gone = {
            key: replace(identity, gone=True)
            for key, identity in before.items()
            if key not in present
            # Under gputop's names an instance is its own GPU: one that is gone was given up.
            and not (identity.mig and key.dialect == "gputop")
            and not (identity.uuid and identity.uuid in uuids)
            and (identity.host, identity.gpu.partition("/")[0]) not in taken
        }
        self._gone_since = {key: self._gone_since.get(key, now) for key in gone}
        return {
            key: identity for key, identity in gone.items() if now - self._gone_since[key] < DAY_S
        }

    def dismiss(self, keys: Collection[SeriesKey]) -> None:
        """Forget GPUs of hosts that are gone."""
        for key in keys:
            self.identities.pop(key, None)
            self._gone_since.pop(key, None)
        self._identified = {
            key: identity for key, identity in self._identified.items() if key not in keys
        }

    def name_jobs(self, facts_by_gpu: Mapping[SeriesKey, SeriesFacts]) -> None:
        """Add jobs and users that series of their own name.

        A number without a scheduler takes the name it has elsewhere.
        """
        told = {
            key: facts.job_and_user
            for key, facts in facts_by_gpu.items()
            if any(facts.job_and_user)
        }
        owners = {key: told.get(key, (one.job, one.user)) for key, one in self.identities.items()}
        jobs = with_schedulers(
            [job.within(self.identities[key].cluster) for key, (job, _) in owners.items()]
        )
        for (key, (_, user)), job in zip(owners.items(), jobs, strict=True):
            if (job, user) != (self.identities[key].job, self.identities[key].user):
                self.identities[key] = replace(self.identities[key], job=job, user=user)
