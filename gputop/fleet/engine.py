"""Queries by name, answers by name: a failure becomes a line for people, once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from gputop.fleet.client import Client, Query, QueryError, Row, number
from gputop.fleet.reading import FleetError
from gputop.fleet.series import Remembered

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
