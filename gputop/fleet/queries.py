"""All queries joined: rules, alerts, dashboards and the command are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from gputop.fleet.query import Query


@lru_cache(maxsize=1)
def library() -> Mapping[str, Query]:
    """Every query by its id, in the order of the failure modes."""
    from gputop.fleet.questions import bottleneck, breadth, health, throughput, waste

    rows: tuple[Query, ...] = (
        *health.QUERIES, *throughput.QUERIES, *bottleneck.QUERIES, *breadth.QUERIES, *waste.QUERIES
    )  # fmt: skip
    return MappingProxyType({row.id: row for row in rows})
