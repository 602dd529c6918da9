"""Which metric names, GPUs and jobs a fleet has: this seldom changes, and is seldom queried."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet import plan
from gputop.features.fleet.client import Client, PromQuery, QueryError, SeriesRow, number
from gputop.features.fleet.decode_answers import (
    GpuIdentity,
    Labels,
    Place,
    Remembered,
    SeriesFacts,
    SeriesKey,
    cluster_label,
    doubles,
    exporters_of,
    gpu_of,
    host_names,
    identified,
    key_labels,
    labels_of,
    said_by,
    scrape_seconds,
    signals_found,
)
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import WINDOW_S, FleetError, names_of_numbers, with_scheduler
from gputop.features.fleet.plan import Known

# Queries by name, answers by name: a failure becomes a line for people, once.

T = TypeVar("T")


class FleetAnswers(Struct, frozen=True):
    """The series of every answered query, messages for people, and the engine's own Unix time."""

    rows: Mapping[str, list[SeriesRow]]
    problems: list[str]
    t: float | None

    def of(self, name: str) -> list[SeriesRow]:
        """The series of a question; none where it was not asked, or failed."""
        return self.rows.get(name, [])


class Engine:
    """One engine and the matchers that narrow every query."""

    def __init__(self, client: Client, select: str) -> None:
        self.client, self.select = client, select

    def asked(self, texts: Mapping[str, str], at: float | None) -> FleetAnswers:
        """The answers at a Unix time, or at the engine's present; empty texts are not asked."""
        return self.answers({name: PromQuery(text, at) for name, text in texts.items() if text})

    def answers(self, queries: Mapping[str, PromQuery]) -> FleetAnswers:
        """The answers to these; those that failed are missing."""
        rows: dict[str, list[SeriesRow]] = {}
        problems: list[str] = []
        t = None
        for name, answer in zip(queries, self.client.ask(list(queries.values())), strict=True):
            if isinstance(answer, QueryError):
                problems.append(str(answer))
                continue
            problems += [f"the engine warns: {text}" for text in answer.warnings]
            rows[name] = answer.rows
            if answer.rows and answer.rows[0].value is not None:
                t = answer.rows[0].value[0]
        return FleetAnswers(rows, list(dict.fromkeys(problems)), t)

    def all_of(self, texts: Mapping[str, str], at: float | None) -> FleetAnswers:
        """As ``asked``. Raises FleetError where one question failed."""
        return self.all_answers({name: PromQuery(text, at) for name, text in texts.items() if text})

    def all_answers(self, queries: Mapping[str, PromQuery]) -> FleetAnswers:
        """As ``answers``. Raises FleetError where one question failed."""
        found = self.answers(queries)
        if len(found.rows) < len(queries):
            raise FleetError(found.problems[0])
        return found


def values(rows: Sequence[SeriesRow], whose: Remembered[T]) -> Iterator[tuple[T, float]]:
    """Whose a series is, and its value; without those that are not numbers."""
    of = whose.of
    for row in rows:
        if row.value is not None and (value := number(row.value[1])) is not None:
            yield of(row.metric), value


DAY_S = 86400.0
LEAST_SCRAPE_S = 15.0


class FleetInventory:
    """The result of the last discovery. ``known`` is None until it found something."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.known: Known | None = None
        self.identities: dict[SeriesKey, GpuIdentity] = {}
        self._found: Mapping[SeriesKey, GpuIdentity] = {}
        self._asked: frozenset[bytes] | None = None
        self._gone_since: dict[SeriesKey, float] = {}
        self.host_names: Mapping[Place, str] = {}
        self.exporters: frozenset[str] = frozenset()
        self._forget()

    def _forget(self) -> None:
        """Forget all labels, which mean something else from now on."""
        known = self.known or Known({}, {})
        self.gpus = Remembered(lambda labels: gpu_of(labels, known))
        self.said = Remembered(lambda labels: said_by(labels, known))

    def turn(self) -> None:
        """Forget the labels not seen since the last turn."""
        self.gpus.turn()
        self.said.turn()

    @property
    def scrape_s(self) -> float:
        """The time between two scrapes."""
        return LEAST_SCRAPE_S if self.known is None else self.known.scrape_s

    def discover(self, at: float | None, now: float) -> None:
        """Find out which names there are. ``now`` is this machine's time. Raises FleetError where there are none."""
        select = self._engine.select
        try:
            signals = self._signals(at, now)
        except FleetError:
            if self.known is None:
                raise
            return
        if signals:
            samples = self._engine.asked({"samples": plan.samples(select)}, at).of("samples")
            scrape_s = scrape_seconds((value for _, value in values(samples, Remembered(dict))), WINDOW_S)
            before = Known({}, {}) if self.known is None else self.known
            self.known = replace(before, signals=signals, scrape_s=scrape_s)
            self._forget()
        elif self.known is None:
            names = ", ".join(dialect.signals["util_pct"].name for dialect in DIALECTS.values())
            where = f" with {select}" if select else ""
            raise FleetError(f"no GPU metrics there{where}; looked for {names}")

    def _signals(self, at: float | None, now: float) -> Mapping[str, frozenset[str]]:
        asked, client = plan.names_asked(self._engine.select), self._engine.client
        if at is not None:
            return signals_found(client.names(asked, at - plan.LAST_SEEN_S, at))
        # A day to both sides, whatever our clock says; without an end an engine searches all that it has stored.
        return signals_found(client.names(asked, now - DAY_S, now + DAY_S)) or signals_found(client.names(asked))

    def identify(self, at: float | None, now: float, *, anew: bool) -> list[str]:
        """Find out which GPUs there are. Returns messages for people. Raises FleetError where none is known.

        ``anew`` also asks for those that are not there any more; else they are those that were there before.
        """
        known = self.known
        assert known is not None, "discovery gives it or raises"
        dialects = [DIALECTS[name] for name in known.signals]
        answers = self._engine.asked({"who": plan.identities(dialects, self._engine.select, gone=anew)}, at)
        if "who" not in answers.rows:
            if not self.identities:
                raise FleetError(answers.problems[0])
            return answers.problems
        asked = frozenset(bytes(row.metric) for row in answers.of("who"))
        if asked != self._asked:
            self._read(known, [labels_of(row.metric) for row in answers.of("who")])
            self._asked = asked
        # Where two exporters have the same GPU, the preferred one comes first.
        order = {name: at for at, name in enumerate(DIALECTS)}
        present = {key: who for key, who in self._found.items() if not who.gone}
        # Those that are there come first: a host that was renamed has the same GPUs under its new name.
        before = self._found if anew else {**self._found, **self.identities}
        found = {**present, **self._missing(present, before, now)}
        self.identities = dict(sorted(found.items(), key=lambda pair: order[pair[0].dialect]))
        return answers.problems

    def notes(self) -> list[str]:
        """What is to be said of the GPUs that are known, for people."""
        twice = doubles(self.identities.values())
        if not twice:
            return []
        hosts = ", ".join(twice[:3]) + ("" if len(twice) <= 3 else f" and {len(twice) - 3} more")
        text = (
            f"two machines answer as {hosts}: give each cluster its label, or show one by --select 'cluster=\"NAME\"'"
        )
        return [text]

    def _read(self, known: Known, rows: Sequence[Labels]) -> None:
        """Take the GPUs that these series name, which are others than before."""
        cluster = cluster_label(row for row in rows if row.get(plan.DIALECT_LABEL) in DIALECTS)
        labels = key_labels(rows, cluster)
        place = (cluster, "instance") if cluster else ("instance",)
        self.host_names = host_names(rows, place)
        if self.host_names and "gputop" in known.signals:
            # A driver that hangs has no GPU to tell its labels by.
            labels.setdefault("gputop", (*place, *DIALECTS["gputop"].number))
        if not labels:
            raise FleetError("the GPU metrics there are older than a day: does anything scrape the exporters?")
        if (labels, cluster) != (known.labels, known.cluster):
            self.known = replace(known, labels=labels, cluster=cluster)
            self._forget()
        self.exporters = exporters_of(rows)
        self._found = identified(rows, labels, cluster)

    def _missing(
        self, present: Mapping[SeriesKey, GpuIdentity], before: Mapping[SeriesKey, GpuIdentity], now: float
    ) -> dict[SeriesKey, GpuIdentity]:
        """The GPUs that were there within the last day and are not there now, whatever they were called by."""
        uuids = {who.uuid for who in present.values() if who.uuid}
        # A new GPU in the place of an old one is a repair. A known one there: the driver numbers them anew.
        earlier = self.identities or {key: who for key, who in before.items() if who.gone}
        known = {who.uuid for who in earlier.values()}
        taken = {
            (who.host, who.gpu.partition("/")[0]) for who in present.values() if not who.uuid or who.uuid not in known
        }
        gone = {
            key: who
            for key, who in before.items()
            if key not in present
            and not (who.uuid and who.uuid in uuids)
            and (who.host, who.gpu.partition("/")[0]) not in taken
        }
        self._gone_since = {key: self._gone_since.get(key, now) for key in gone}
        return {key: replace(who, gone=True) for key, who in gone.items() if now - self._gone_since[key] < DAY_S}

    def dismiss(self, keys: Collection[SeriesKey]) -> None:
        """Forget GPUs of hosts that are gone."""
        for key in keys:
            self.identities.pop(key, None)
            self._gone_since.pop(key, None)
        self._found = {key: who for key, who in self._found.items() if key not in keys}

    def name_jobs(self, told: Mapping[SeriesKey, SeriesFacts]) -> None:
        """Add the jobs that separate series give. A number without a scheduler takes the name it has elsewhere."""
        known = names_of_numbers(one.job for one in told.values())
        for key, who in self.identities.items():
            one = told.get(key)
            job, user = (who.job, who.user)
            if one is not None and (one.job or one.pod is not None):
                job, user = (one.job, one.user) if one.job or one.pod is None else one.pod
            job = with_scheduler(job, known)
            if (job, user) != (who.job, who.user):
                self.identities[key] = replace(who, job=job, user=user)

    def instances(self, hosts: frozenset[str]) -> list[str]:
        """The scraped addresses of these hosts."""
        return sorted({who.instance for who in self.identities.values() if who.host in hosts})
