"""What is queried only for the hosts on screen: their last hour in columns, and metrics that no state needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gputop.fleet import plan
from gputop.fleet.client import Query, number
from gputop.fleet.decode import Key, in_units
from gputop.fleet.engine import Engine, values
from gputop.fleet.history import History, columns_of
from gputop.fleet.inventory import Inventory
from gputop.fleet.names import DETAIL_KEYS
from gputop.fleet.promql import any_of, over

DRAWN = ("util_pct", "sm_active_pct")


def _narrowed(engine: Engine, instances: Sequence[str]) -> str:
    """Matchers of these addresses within what is selected."""
    return ",".join(part for part in (any_of("instance", instances), engine.select) if part)


def history(engine: Engine, inventory: Inventory, host: str, t: float, span_s: float, columns: int) -> History:
    """Utilisation and SM activity of a host's GPUs over the time before ``t``. Raises FleetError."""
    known, instances = inventory.known, inventory.instances(frozenset((host,)))
    if known is None or not instances:
        return {}
    select, step = _narrowed(engine, instances), span_s / columns
    width = max(step, 2 * known.scrape_s)
    texts = {key: plan.metric(known, key, select, lambda series: over("avg_over_time", series, width)) for key in DRAWN}
    queries = {key: Query(text, t, t - span_s + step, step) for key, text in texts.items() if text}
    answers = engine.all_answers(queries)

    def points(key: str) -> Iterator[tuple[float, Key | None, float]]:
        for row in answers.of(key):
            gpu = inventory.gpus.of(row.metric)
            for moment, text in row.values:
                if (value := number(text)) is not None:
                    yield moment, gpu, value

    found: dict[str, dict[str, list[float | None]]] = {}
    for key in queries:
        moments: dict[float, list[tuple[Key | None, float]]] = {}
        for moment, gpu, value in points(key):
            moments.setdefault(moment, []).append((gpu, value))
        found[key] = columns_of(
            ((moment, inventory.identities.get(gpu), value)
             for moment, of_moment in moments.items()
             for gpu, value in in_units(of_moment, key).items()),
            t, span_s, columns,
        )  # fmt: skip
    empty: list[float | None] = [None] * columns
    utils, sms = found.get("util_pct", {}), found.get("sm_active_pct", {})
    return {gpu: (util, sms.get(gpu, empty)) for gpu, util in utils.items()}


def details(
    engine: Engine, inventory: Inventory, hosts: Sequence[str], at: float | None
) -> dict[tuple[str, str], dict[str, float]]:
    """The further metrics of these hosts' GPUs, by host and GPU. Raises FleetError."""
    known, instances = inventory.known, inventory.instances(frozenset(hosts))
    if known is None or not instances:
        return {}
    select = _narrowed(engine, instances)
    answers = engine.all_of({key: plan.metric(known, key, select) for key in DETAIL_KEYS}, at)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for key in answers.rows:
        for gpu, value in in_units(values(answers.of(key), inventory.gpus), key).items():
            if (who := inventory.identities.get(gpu)) is not None:
                found.setdefault((who.host, who.gpu), {}).setdefault(key, value)
    return found
