"""Ask one engine several questions by name, and return its answers by name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from gputop.features.fleet.engine_client import Client, PromQuery, QueryError, SeriesRow, number
from gputop.features.fleet.label_cache import LabelCache

T = TypeVar("T")


class FleetAnswers(Struct, frozen=True):
    """Series by question, lines for people, and the engine's own time.

    Answers that the engine ``warned`` of may be incomplete.
    """

    rows: Mapping[str, list[SeriesRow]]
    problems: list[str]
    t: float | None
    warned: frozenset[str] = frozenset()

    def rows_of(self, name: str) -> list[SeriesRow]:
        """The series of a question; none if it failed or was not asked."""
        return self.rows.get(name, [])


class Engine:
    """One engine and the matchers that narrow every query."""

    def __init__(self, client: Client, select: str) -> None:
        self.client, self.select = client, select

    def asked(
        self, queries: Mapping[str, str | PromQuery], at: float | None = None, *, needs: Collection[str] = ()
    ) -> FleetAnswers:
        """Ask queries by name at a Unix time, or at the engine's present.

        Failed ones are missing in the answers, empty texts are not asked. Raises FleetError if one of ``needs`` failed.
        """
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


def values(rows: Sequence[SeriesRow], cache: LabelCache[T]) -> Iterator[tuple[T, float]]:
    """Yield the decoded labels and value of each series; skips NaN."""
    for row in rows:
        if row.value is not None and (value := number(row.value[1])) is not None:
            yield cache.value(row.metric), value
