"""What a question to a fleet is: its query, unit, meaning and what to do, and the alert that may follow from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gputop.features.fleet.promql import Names, Scope

Mode = Literal["health", "throughput", "bottleneck", "breadth", "waste"]
MODES: Mapping[Mode, str] = MappingProxyType({
    "health": "Health: is every GPU there and healthy",
    "throughput": "Throughput: how much work is done",
    "bottleneck": "Bottleneck: what holds it back",
    "breadth": "Breadth: does every GPU of a job keep up",
    "waste": "Waste: GPU time that did no work",
})  # fmt: skip
"""What questions are grouped by."""
Unit = Literal[
    "ratio", "watts", "celsius", "bytes", "bytes/s", "joules", "seconds", "GPU-hours", "GPUs", "flag", "1/s", "money"
]  # fmt: skip
Severity = Literal["critical", "warning", "info"]


class AlertRule(Struct, frozen=True):
    """When a query's answer is worth a page. ``when`` follows the query; ``lasts`` is how long it must hold.

    ``about`` says whose labels an alert carries: a target is known by its address alone.
    """

    name: str
    when: str
    lasts: str
    severity: Severity
    about: Literal["gpu", "host", "target", "fleet"] = "gpu"


Query = Callable[[Scope], str]
"""Writes PromQL for a scope."""


class FleetQuestion(Struct, frozen=True):
    """One question. ``dcgm`` is the query for dcgm-exporter where it differs, None where it cannot answer."""

    id: str
    mode: Mode
    title: str
    unit: Unit
    query: Query
    meaning: str
    advice: str
    dcgm: Query | Literal["same"] | None = "same"
    alert: AlertRule | None = None

    def is_answered(self, names: Names) -> bool:
        """Whether something exported under these names can answer."""
        return names == "gputop" or self.dcgm is not None

    def promql(self, q: Scope) -> str | None:
        """The query in PromQL, None where it cannot be asked under these names, or needs a price that is not given."""
        query = self.query if q.is_own or self.dcgm == "same" else self.dcgm
        if query is None or (self.needs_price and not q.price):
            return None
        return query(q)

    @property
    def needs_price(self) -> bool:
        """Whether it asks about money."""
        return self.unit == "money"
