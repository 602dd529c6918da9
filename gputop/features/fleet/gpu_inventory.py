"""Know which GPUs and jobs a fleet has: seldom changes, asked every fourth refresh."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from gputop.features.fleet import decode_labels, decode_values, label_cache, queries
from gputop.features.fleet.decode_labels import GpuIdentity, Labels, Place, SeriesKey
from gputop.features.fleet.decode_values import SeriesFacts
from gputop.features.fleet.discover_names import discovered_names
from gputop.features.fleet.engine import Engine
from gputop.features.fleet.engine_client import PromQuery
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import FleetError, with_schedulers
from gputop.features.fleet.label_cache import LabelCache
from gputop.features.fleet.queries import FleetSchema

DAY_S = 86400.0
PATIENCE = 2.5
"""These questions are seldom, and the heaviest: all labels of all GPUs."""


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
        self._forget()

    def _forget(self) -> None:
        """Forget all labels, which mean something else from now on."""
        schema = self.schema
        self.gpus = LabelCache(lambda labels: decode_labels.gpu_of(labels, schema))
        self.fact_labels = LabelCache(lambda labels: decode_values.fact_labels(labels, schema))

    def turn(self) -> None:
        """Forget the labels not seen since the last turn."""
        self.gpus.turn()
        self.fact_labels.turn()

    def discover(self, at: float | None) -> None:
        """Find the dialects that the engine has. Raises FleetError if it has none."""
        try:
            found = discovered_names(self._engine, at, looks_back=not self.schema.names)
        except FleetError:
            if not self.schema.names:
                raise
            return
        if found is not None:
            self.schema = replace(self.schema, names=found.names, scrape_s=found.scrape_s)
            self._forget()

    def identify(self, at: float | None, now: float, *, looks_back: bool) -> list[str]:
        """Ask which GPUs there are; return lines for people.

        ``looks_back`` also asks for removed ones; else the known ones that are missing now. Raises FleetError if none
        is known.
        """
        texts = {
            "who": queries.identities(self.schema),
            "before": queries.removed(self.schema) if looks_back else "",
        }
        questions = {name: PromQuery(text, at, patience=PATIENCE) for name, text in texts.items() if text}
        answers = self._engine.asked(questions, needs=() if self.identities else ("who",))
        if "who" not in answers.rows:
            return answers.problems
        rows = [*answers.rows_of("who"), *answers.rows_of("before")]
        metrics = frozenset(bytes(row.metric) for row in rows)
        if metrics != self._metrics:
            labels = [label_cache.labels_of(row.metric) for row in rows]
            if self._hosts is not None:
                # Whatever a host calls itself.
                labels = [
                    {**of, "hostname": self._hosts[place]} if place in self._hosts else of
                    for of in labels
                    if (place := decode_labels.recorded_place(of)) in self._hosts or not place[1]
                ]
            self._read(labels)
            self._metrics = metrics
        # Where two exporters have the same GPU, the preferred one comes first.
        order = {name: at for at, name in enumerate(DIALECTS)}
        present = {key: identity for key, identity in self._identified.items() if not identity.gone}
        if "who" in answers.warned:
            # Nobody is missing by the word of an engine that may not have looked everywhere.
            identities = {**self.identities, **present}
        else:
            identities = {**present, **self._missing(present, now, looks_back=looks_back)}
        self.identities = dict(sorted(identities.items(), key=lambda pair: order[pair[0].dialect]))
        return answers.problems

    def notes(self) -> list[str]:
        """Lines for people on the known GPUs."""
        present = [one for one in self.identities.values() if not one.gone and one.uuid and not one.mig]
        slots = Counter((host, gpu) for host, gpu, _ in dict.fromkeys((one.host, one.gpu, one.uuid) for one in present))
        # Two GPUs of one number.
        twice = list(dict.fromkeys(host for (host, _), n in slots.items() if n > 1))
        hosts = ", ".join(twice[:3]) + f" and {len(twice) - 3} more" * (len(twice) > 3)
        say = f"two machines answer as {hosts}: give each cluster its label, or show one by --select 'cluster=\"NAME\"'"
        return [say] if twice else []

    def _read(self, rows: Sequence[Labels]) -> None:
        """Replace the identified GPUs by those that these series name."""
        schema, self.host_names, self._identified, self.exporters = decode_labels.discovered(rows, self.schema)
        if not schema.labels:
            raise FleetError("the GPU metrics there are older than a day: does anything scrape the exporters?")
        if schema != self.schema:
            self.schema = schema
            self._forget()

    def _missing(
        self, present: Mapping[SeriesKey, GpuIdentity], now: float, *, looks_back: bool
    ) -> dict[SeriesKey, GpuIdentity]:
        """GPUs of the last day that are not there now."""
        uuids = {identity.uuid for identity in present.values() if identity.uuid}
        # Those that are there come first: a host that was renamed has the same GPUs under its new name.
        before = {**self._identified, **self.identities}
        # A new GPU in the place of an old one is a repair. A known one there: the driver numbers them again. A look
        # back knows itself which GPUs were there earlier.
        known = before if looks_back else self.identities
        known_uuids = {identity.uuid for identity in known.values() if identity.gone or not looks_back}
        taken = {
            (identity.host, identity.gpu.partition("/")[0])
            for identity in present.values()
            if not identity.uuid or identity.uuid not in known_uuids
        }
        gone = {
            key: identity
            for key, identity in before.items()
            if key not in present
            # Under gputop's names an instance is its own GPU: one that is gone was given up.
            and not (identity.mig and key.dialect == "gputop")
            and not (identity.uuid and identity.uuid in uuids)
            and (identity.host, identity.gpu.partition("/")[0]) not in taken
        }
        self._gone_since = {key: self._gone_since.get(key, now) for key in gone}
        return {
            key: replace(identity, gone=True) for key, identity in gone.items() if now - self._gone_since[key] < DAY_S
        }

    def dismiss(self, keys: Collection[SeriesKey]) -> None:
        """Forget GPUs of hosts that are gone."""
        for key in keys:
            self.identities.pop(key, None)
            self._gone_since.pop(key, None)
        self._identified = {key: identity for key, identity in self._identified.items() if key not in keys}

    def name_jobs(self, facts_by_gpu: Mapping[SeriesKey, SeriesFacts]) -> None:
        """Add jobs and users that series of their own name.

        A number without a scheduler takes the name it has elsewhere.
        """
        told = {key: facts.job_and_user for key, facts in facts_by_gpu.items() if facts.job_and_user[0]}
        owners = {key: told.get(key, (of.job, of.user)) for key, of in self.identities.items()}
        jobs = with_schedulers([job.within(self.identities[key].cluster) for key, (job, _) in owners.items()])
        for (key, (_, user)), job in zip(owners.items(), jobs, strict=True):
            if (job, user) != (self.identities[key].job, self.identities[key].user):
                self.identities[key] = replace(self.identities[key], job=job, user=user)
