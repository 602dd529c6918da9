"""Which metric names, GPUs and jobs a fleet has: this seldom changes, and is seldom queried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from gputop.features.fleet import plan
from gputop.features.fleet.client import Client, Query, QueryError, Row, number
from gputop.features.fleet.decode_answers import (
    Identity,
    Key,
    Labels,
    Remembered,
    Told,
    gpu_of,
    identified,
    key_labels,
    labels_of,
    said_by,
    scrape_seconds,
    signals_found,
)
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import WINDOW_S, FleetError
from gputop.features.fleet.plan import Known

# Queries by name, answers by name: a failure becomes a line for people, once.

T = TypeVar("T")


class Answers(Struct, frozen=True):
    """The series of every answered query, messages for people, and the engine's own Unix time."""

    rows: Mapping[str, list[Row]]
    problems: list[str]
    t: float | None

    def of(self, name: str) -> list[Row]:
        """The series of a question; none where it was not asked, or failed."""
        return self.rows.get(name, [])


class Engine:
    """One engine and the matchers that narrow every query."""

    def __init__(self, client: Client, select: str) -> None:
        self.client, self.select = client, select

    def asked(self, texts: Mapping[str, str], at: float | None) -> Answers:
        """The answers at a Unix time, or at the engine's present; empty texts are not asked."""
        return self.answers({name: Query(text, at) for name, text in texts.items() if text})

    def answers(self, queries: Mapping[str, Query]) -> Answers:
        """The answers to these; those that failed are missing."""
        rows: dict[str, list[Row]] = {}
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
        return Answers(rows, list(dict.fromkeys(problems)), t)

    def all_of(self, texts: Mapping[str, str], at: float | None) -> Answers:
        """As ``asked``. Raises FleetError where one question failed."""
        return self.all_answers({name: Query(text, at) for name, text in texts.items() if text})

    def all_answers(self, queries: Mapping[str, Query]) -> Answers:
        """As ``answers``. Raises FleetError where one question failed."""
        found = self.answers(queries)
        if len(found.rows) < len(queries):
            raise FleetError(found.problems[0])
        return found


def values(rows: Sequence[Row], whose: Remembered[T]) -> Iterator[tuple[T, float]]:
    """Whose a series is, and its value; without those that are not numbers."""
    of = whose.of
    for row in rows:
        if row.value is not None and (value := number(row.value[1])) is not None:
            yield of(row.metric), value


DAY_S = 86400.0
LEAST_SCRAPE_S = 15.0


class Inventory:
    """The result of the last discovery. ``known`` is None until it found something."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.known: Known | None = None
        self.identities: dict[Key, Identity] = {}
        self._found: Mapping[Key, Identity] = {}
        self._asked: frozenset[bytes] | None = None
        self._gone_since: dict[Key, float] = {}
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
            labels = {} if self.known is None else self.known.labels
            self.known = Known(signals, labels, scrape_s)
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

        ``anew`` also asks for those that are gone; else they are those that were there before, ``now`` ago at most.
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
        found = dict(self._found)
        if not anew:
            # Those that are there come first: a host that was renamed has the same GPUs under its new name.
            found |= {key: who for key, who in self._gone(found, now).items() if key not in found}
        self.identities = dict(sorted(found.items(), key=lambda pair: order[pair[0].dialect]))
        return answers.problems

    def _read(self, known: Known, rows: Sequence[Labels]) -> None:
        """Take the GPUs that these series name, which are others than before."""
        labels = key_labels(rows)
        if not labels:
            raise FleetError("the GPU metrics there are older than ten minutes: does anything scrape the exporters?")
        if labels != known.labels:
            self.known = replace(known, labels=labels)
            self._forget()
        self._found = identified(rows, labels)

    def _gone(self, present: Mapping[Key, Identity], now: float) -> dict[Key, Identity]:
        """The GPUs that were there in the last ten minutes and are gone now."""
        there = {(who.instance, who.gpu, who.uuid) for who in present.values()}
        gone = {key: who for key, who in self.identities.items() if (who.instance, who.gpu, who.uuid) not in there}
        self._gone_since = {key: self._gone_since.get(key, now) for key in gone}
        return {
            key: replace(who, gone=True) for key, who in gone.items() if now - self._gone_since[key] < plan.LAST_SEEN_S
        }

    def name_jobs(self, told: Mapping[Key, Told]) -> None:
        """Add the jobs that separate series give. A number without a scheduler takes the name it has elsewhere."""
        named = {one.job.partition(" ")[2]: one.job for one in told.values() if not one.job.startswith("job ")}
        for key, who in self.identities.items():
            one = told.get(key)
            job, user = (one.job, one.user) if one is not None and one.job else (who.job, who.user)
            if job.startswith("job "):
                job = named.get(job[4:], job)
            if (job, user) != (who.job, who.user):
                self.identities[key] = replace(who, job=job, user=user)

    def instances(self, hosts: frozenset[str]) -> list[str]:
        """The scraped addresses of these hosts."""
        return sorted({who.instance for who in self.identities.values() if who.host in hosts})
