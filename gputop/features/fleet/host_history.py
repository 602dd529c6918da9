"""What is asked only of hosts in sight: their last hour in columns, and metrics that no state needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gputop.features.fleet import plan
from gputop.features.fleet.client import PromQuery, number
from gputop.features.fleet.decode_answers import GpuIdentity, SeriesKey, in_units
from gputop.features.fleet.exporter_names import DETAIL_KEYS
from gputop.features.fleet.fleet_inventory import Engine, FleetInventory, values
from gputop.features.fleet.promql import any_of, over

History = Mapping[str, tuple[Sequence[float | None], Sequence[float | None]]]
"""GPU → utilisation and SM activity in percent, a value a column, the oldest first; None where nothing was measured."""


def columns_of(
    points: Iterable[tuple[float, GpuIdentity | None, float]], t: float, span_s: float, columns: int
) -> dict[str, list[float | None]]:
    """(Unix time, GPU, value) in so many columns of the ``span_s`` seconds before ``t``."""
    step = span_s / columns
    columns_by_gpu: dict[str, list[float | None]] = {}
    for moment, identity, value in points:
        if identity is None:
            continue
        at = round((moment - (t - span_s)) / step) - 1
        if 0 <= at < columns:
            columns_by_gpu.setdefault(identity.gpu, [None] * columns)[at] = value
    return columns_by_gpu


DRAWN = ("util_pct", "sm_active_pct")


def _narrowed(engine: Engine, instances: Sequence[str]) -> str:
    """Matchers of these addresses within what is selected."""
    return ",".join(part for part in (any_of("instance", instances), engine.select) if part)


def history(engine: Engine, inventory: FleetInventory, host: str, t: float, span_s: float, columns: int) -> History:
    """Utilisation and SM activity of a host's GPUs over the time before ``t``. Raises FleetError."""
    schema, instances = inventory.schema, inventory.instances(frozenset((host,)))
    if schema is None or not instances:
        return {}
    select, step = _narrowed(engine, instances), span_s / columns
    width = max(step, 2 * schema.scrape_s)
    texts = {
        key: plan.metric(schema, key, select, lambda series: over("avg_over_time", series, width)) for key in DRAWN
    }
    queries = {key: PromQuery(text, t, t - span_s + step, step) for key, text in texts.items() if text}
    answers = engine.all_answers(queries)

    def points(key: str) -> Iterator[tuple[float, SeriesKey | None, float]]:
        for row in answers.of(key):
            gpu = inventory.gpus.of(row.metric)
            for moment, text in row.values:
                if (value := number(text)) is not None:
                    yield moment, gpu, value

    columns_by_key: dict[str, dict[str, list[float | None]]] = {}
    for key in queries:
        moments: dict[float, list[tuple[SeriesKey | None, float]]] = {}
        for moment, gpu, value in points(key):
            moments.setdefault(moment, []).append((gpu, value))
        columns_by_key[key] = columns_of(
            ((moment, inventory.identities.get(gpu), value)
             for moment, of_moment in moments.items()
             for gpu, value in in_units(of_moment, key).items()),
            t, span_s, columns,
        )  # fmt: skip
    empty: list[float | None] = [None] * columns
    utils, sms = columns_by_key.get("util_pct", {}), columns_by_key.get("sm_active_pct", {})
    return {gpu: (util, sms.get(gpu, empty)) for gpu, util in utils.items()}


def details(
    engine: Engine, inventory: FleetInventory, hosts: Sequence[str], at: float | None
) -> dict[tuple[str, str], dict[str, float]]:
    """The further metrics of these hosts' GPUs, by host and GPU. Raises FleetError."""
    schema, instances = inventory.schema, inventory.instances(frozenset(hosts))
    if schema is None or not instances:
        return {}
    select = _narrowed(engine, instances)
    answers = engine.all_of({key: plan.metric(schema, key, select) for key in DETAIL_KEYS}, at)
    values_by_gpu: dict[tuple[str, str], dict[str, float]] = {}
    for key in answers.rows:
        for gpu, value in in_units(values(answers.of(key), inventory.gpus), key).items():
            if (identity := inventory.identities.get(gpu)) is not None:
                values_by_gpu.setdefault((identity.host, identity.gpu), {}).setdefault(key, value)
    return values_by_gpu
