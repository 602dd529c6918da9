"""Which metric names, GPUs and jobs a fleet has: this seldom changes, and is seldom queried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet import decode_answers as decode
from gputop.features.fleet import plan
from gputop.features.fleet.client import Client, PromQuery, QueryError, SeriesRow, number
from gputop.features.fleet.decode_answers import GpuIdentity, Labels, Place, Remembered, SeriesFacts, SeriesKey
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import WINDOW_S, FleetError, with_schedulers
from gputop.features.fleet.plan import FleetSchema

# Queries by name, answers by name: a failure becomes a line for people, once.

T = TypeVar("T")


class FleetAnswers(Struct, frozen=True):
    """The series of every answered query, messages for people, and the engine's own Unix time. Of what the engine
    ``warned`` of a part may be missing."""

    rows: Mapping[str, list[SeriesRow]]
    problems: list[str]
    t: float | None
    warned: frozenset[str] = frozenset()

    def of(self, name: str) -> list[SeriesRow]:
        """The series of a question; none where it was not asked, or failed."""
        return self.rows.get(name, [])


class Engine:
    """One engine and the matchers that narrow every query."""

    def __init__(self, client: Client, select: str) -> None:
        self.client, self.select = client, select

    def asked(
        self, queries: Mapping[str, str | PromQuery], at: float | None = None, *, needs: Collection[str] = ()
    ) -> FleetAnswers:
        """The answers, texts at a Unix time or at the engine's present; those that failed are missing, and empty texts
        are not asked. Raises FleetError where one of ``needs`` failed."""
        asked = {
            name: PromQuery(query, at) if isinstance(query, str) else query for name, query in queries.items() if query
        }
        rows: dict[str, list[SeriesRow]] = {}
        problems: dict[str, None] = {}
        warned: set[str] = set()
        t = None
        for name, answer in zip(asked, self.client.ask(list(asked.values())), strict=True):
            if isinstance(answer, QueryError):
                if name in needs:
                    raise answer
                problems[str(answer)] = None
                continue
            for text in answer.warnings:
                warned.add(name)
                problems[f"the engine warns: {text}"] = None
            rows[name] = answer.rows
            if answer.rows and answer.rows[0].value is not None:
                t = answer.rows[0].value[0]
        return FleetAnswers(rows, list(problems), t, frozenset(warned))


def values(rows: Sequence[SeriesRow], whose: Remembered[T]) -> Iterator[tuple[T, float]]:
    """Whose a series is, and its value; without those that are not numbers."""
    of = whose.of
    for row in rows:
        if row.value is not None and (value := number(row.value[1])) is not None:
            yield of(row.metric), value


DAY_S = 86400.0


class FleetInventory:
    """The result of the last discovery. ``schema`` has no signals until it found some."""

    def __init__(self, engine: Engine, hosts: Mapping[Place, str] | None = None) -> None:
        """``hosts`` are those of a part of a large fleet, by the places that are recorded: its GPUs are theirs."""
        self._engine, self._hosts = engine, hosts
        self.schema = FleetSchema(select=engine.select)
        self.identities: dict[SeriesKey, GpuIdentity] = {}
        self._identified: Mapping[SeriesKey, GpuIdentity] = {}
        self._metrics: frozenset[bytes] | None = None
        self._gone_since: dict[SeriesKey, float] = {}
        self.host_names: Mapping[Place, str] = {}
        self._forget()

    def _forget(self) -> None:
        """Forget all labels, which mean something else from now on."""
        schema = self.schema
        self.gpus = Remembered(lambda labels: decode.gpu_of(labels, schema))
        self.fact_labels = Remembered(lambda labels: decode.fact_labels(labels, schema))

    def turn(self) -> None:
        """Forget the labels not seen since the last turn."""
        self.gpus.turn()
        self.fact_labels.turn()

    def discover(self, at: float | None, now: float) -> None:
        """Find out which names there are. ``now`` is this machine's time. Raises FleetError where there are none."""
        select = self._engine.select
        try:
            signals = self._signals(at, now)
        except FleetError:
            if not self.schema.signals:
                raise
            return
        if signals:
            samples = self._engine.asked({"samples": plan.samples(select)}, at).of("samples")
            scrape_s = decode.scrape_seconds((value for _, value in values(samples, Remembered(dict))), WINDOW_S)
            self.schema = replace(self.schema, signals=signals, scrape_s=scrape_s)
            self._forget()
        elif not self.schema.signals:
            names = ", ".join(dialect.signals["util_pct"].name for dialect in DIALECTS.values())
            where = f" with {select}" if select else ""
            raise FleetError(f"no GPU metrics there{where}; looked for {names}")

    def _signals(self, at: float | None, now: float) -> Mapping[str, frozenset[str]]:
        matchers, client = plan.names_selector(self._engine.select), self._engine.client
        # A day to both sides, whatever our clock says; without an end an engine searches all that it has stored.
        spans = ((now - DAY_S, now + DAY_S), (None, None)) if at is None else ((at - plan.LAST_SEEN_S, at),)
        return next(filter(None, (decode.keys_by_dialect(client.names(matchers, *span)) for span in spans)), {})

    def identify(self, at: float | None, now: float, *, looks_back: bool) -> list[str]:
        """Find out which GPUs there are. Returns messages for people. Raises FleetError where none is known.

        ``looks_back`` also asks for those that are not there any more; else they are those that were there before.
        """
        texts = {"who": plan.identities(self.schema), "before": plan.before(self.schema) if looks_back else ""}
        answers = self._engine.asked(texts, at, needs=() if self.identities else ("who",))
        if "who" not in answers.rows:
            return answers.problems
        rows = [*answers.of("who"), *answers.of("before")]
        metrics = frozenset(bytes(row.metric) for row in rows)
        if metrics != self._metrics:
            labels = [decode.labels_of(row.metric) for row in rows]
            if self._hosts is not None:
                # Whatever a host calls itself.
                labels = [
                    {**of, "hostname": self._hosts[place]} if place in self._hosts else of
                    for of in labels
                    if (place := decode.recorded_place(of)) in self._hosts or not place[1]
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
        """What is to be said of the GPUs that are known, for people."""
        present = [one for one in self.identities.values() if not one.gone and one.uuid and not one.mig]
        slots = Counter((host, gpu) for host, gpu, _ in dict.fromkeys((one.host, one.gpu, one.uuid) for one in present))
        # Two GPUs of one number.
        twice = list(dict.fromkeys(host for (host, _), n in slots.items() if n > 1))
        hosts = ", ".join(twice[:3]) + f" and {len(twice) - 3} more" * (len(twice) > 3)
        say = f"two machines answer as {hosts}: give each cluster its label, or show one by --select 'cluster=\"NAME\"'"
        return [say] if twice else []

    def _read(self, rows: Sequence[Labels]) -> None:
        """Take the GPUs that these series name, which are others than before."""
        schema, self.host_names, self._identified = decode.discovered(rows, self.schema)
        if not schema.labels:
            raise FleetError("the GPU metrics there are older than a day: does anything scrape the exporters?")
        if schema != self.schema:
            self.schema = schema
            self._forget()

    def _missing(
        self, present: Mapping[SeriesKey, GpuIdentity], now: float, *, looks_back: bool
    ) -> dict[SeriesKey, GpuIdentity]:
        """The GPUs that were there within the last day and are not there now, whatever they were called by."""
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
        """Add the jobs that separate series give. A number without a scheduler takes the name it has elsewhere."""
        told = {key: facts.whose for key, facts in facts_by_gpu.items() if facts.whose[0]}
        owners = {key: told.get(key, (of.job, of.user)) for key, of in self.identities.items()}
        jobs = with_schedulers([job.within(self.identities[key].cluster) for key, (job, _) in owners.items()])
        for (key, (_, user)), job in zip(owners.items(), jobs, strict=True):
            if (job, user) != (self.identities[key].job, self.identities[key].user):
                self.identities[key] = replace(self.identities[key], job=job, user=user)
