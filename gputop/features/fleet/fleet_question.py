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


class Rises(Struct, frozen=True):
    """A value that begins at 0 and rises by so much a minute."""

    per_minute: float


class Stops(Struct, frozen=True):
    """A value that is there for so many minutes, and no longer."""

    value: float
    minutes: int


Level = float | Rises | Stops
Either = Level | tuple[Level, Level]
"""One value in both scenarios, or that at which an alert fires and that at which it is silent."""


class Planted(Struct, frozen=True):
    """The scenarios in which an alert must and must not fire, of the same series: they differ in numbers alone. GPUs by
    what they measure, in base units; other series."""

    gpus: tuple[Mapping[str, Either], ...] = ()
    series: tuple[tuple[str, Either], ...] = ()
    has_job: bool = False
    has_process: bool = True
    """Whether the job runs there: gputop's exporter names jobs by their processes, and pods that have none apart."""


class AlertRule(Struct, frozen=True):
    """When a query's answer is worth a page. ``when`` follows the query; ``lasts`` is how long it must hold.

    ``about`` says whose labels an alert carries: a target is known by its address alone.
    """

    name: str
    when: str
    lasts: str
    severity: Severity
    planted: Planted
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
