"""Discover exporters' names: the first step of a refresh.

Asked every fortieth refresh. Takes an engine and a moment; returns the dialects that have series, and the time between
two scrapes.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from gputop.features.fleet import queries
from gputop.features.fleet.engine import Engine, FleetAnswers, values
from gputop.features.fleet.exporter_names import DIALECTS
from gputop.features.fleet.fleet_reading import WINDOW_S, FleetError
from gputop.features.fleet.label_cache import LabelCache

USUAL_SCRAPE_S = 15.0


class NamesFound(Struct, frozen=True):
    """Dialects in order of preference."""

    names: tuple[str, ...]
    scrape_s: float


def discovered_names(engine: Engine, at: float | None, *, looks_back: bool) -> NamesFound | None:
    """Ask which names have series; None if nothing new was answered.

    ``looks_back`` tries the last day, if none has one now. Raises FleetError if there are no GPU metrics.
    """
    needs = ("names",) * looks_back
    answers = engine.asked({"names": queries.names(engine.select), "scrapes": queries.scrapes(engine.select)}, at,
                           needs=needs)  # fmt: skip
    names = _dialects(answers)
    if not names and looks_back:
        past = queries.names(engine.select, is_past=True)
        names = _dialects(engine.asked({"names": past}, at, needs=needs))
        if not names:
            wanted = ", ".join(dialect.signals["util_pct"].name for dialect in DIALECTS.values())
            where = f" with {engine.select}" if engine.select else ""
            raise FleetError(f"no GPU metrics there{where}; looked for {wanted}")
    scrapes = (value for _, value in values(answers.rows_of("scrapes"), LabelCache(dict)))
    return NamesFound(names, scrape_seconds(scrapes, WINDOW_S)) if names else None


def _dialects(answers: FleetAnswers) -> tuple[str, ...]:
    rows = values(answers.rows_of("names"), LabelCache(dict))
    found = {labels.get(queries.DIALECT_LABEL) for labels, count in rows if count > 0.0}
    return tuple(name for name in DIALECTS if name in found)


def scrape_seconds(samples: Iterable[float], window_s: float) -> float:
    """Seconds between two scrapes; 15 if unknown."""
    most_samples = max(samples, default=0.0)
    return min(120.0, max(1.0, round(window_s / most_samples))) if most_samples > 1 else USUAL_SCRAPE_S
