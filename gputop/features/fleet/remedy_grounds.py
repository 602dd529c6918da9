"""What a remedy may stand on besides lost GPUs: counts of uncorrected memory errors, asked of the engine.

Raw series alone: a verdict, a mean or a gap is no reason to act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gputop.features.fleet.client import SeriesRow
from gputop.features.fleet.decode_answers import GpuIdentity
from gputop.features.fleet.exporter_names import BLANK
from gputop.features.fleet.fleet_inventory import Engine, FleetInventory, values
from gputop.features.fleet.plan import FleetSchema
from gputop.features.fleet.promql import over, union

ROSE_S = 3600.0
"""A count of memory errors that rose within this time is a reason."""


class Grounds(Struct, frozen=True):
    """``counts`` are uncorrected memory errors since the driver was loaded, by UUID; ``risen`` are those that rose
    within ``ROSE_S``, by host and GPU: UUID and count."""

    counts: Mapping[str, int] = {}
    risen: Mapping[tuple[str, str], tuple[str, int]] = {}


def grounds(engine: Engine, inventory: FleetInventory) -> Grounds:
    """What there is. Raises FleetError."""
    schema = inventory.schema
    if schema is None:
        return Grounds()
    queries = {name: _counts(schema, engine.select, risen=name == "risen") for name in ("counts", "risen")}
    answers = engine.all_of(queries, None)
    return Grounds(
        {identity.uuid: count for identity, count in _counted(answers.of("counts"), inventory) if identity.uuid},
        {
            (identity.host, identity.gpu): (identity.uuid, count)
            for identity, count in _counted(answers.of("risen"), inventory)
        },
    )


def _counts(schema: FleetSchema, select: str, *, risen: bool) -> str:
    """Counts of uncorrected memory errors since the driver was loaded. One that fell was reset with the driver: what
    it counts since then rose. One that is not there for a while did not."""
    parts = []
    for name in schema.labels:
        q = schema.scope(name, select)
        if "ecc_uncorrected_volatile" in q.dialect.signals:
            series = q.exported("ecc_uncorrected_volatile")
            # Not `increase`: a blank between two equal counts, as DCGM writes it, is no rise.
            rise = f"({series} and ({series} - {over('min_over_time', series, ROSE_S)} > 0))"
            parts.append(schema.marked(q.per_gpu(rise if risen else series), q))
    return union(parts)


def _counted(rows: Sequence[SeriesRow], inventory: FleetInventory) -> list[tuple[GpuIdentity, int]]:
    return [
        (identity, round(value))
        for key, value in values(rows, inventory.gpus)
        if key is not None and (identity := inventory.identities.get(key)) is not None and 0.0 <= value < BLANK
    ]
