"""What a query is: PromQL, unit, meaning and what to do; grouped by failure mode."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gputop.fleet.template import Names, Setting, render

Mode = Literal["health", "throughput", "bottleneck", "breadth", "waste"]
MODES: Mapping[Mode, str] = MappingProxyType({
    "health": "Health: is every GPU there and healthy",
    "throughput": "Throughput: how much work is done",
    "bottleneck": "Bottleneck: what holds it back",
    "breadth": "Breadth: does every GPU of a job keep up",
    "waste": "Waste: GPU time that did no work",
})  # fmt: skip
Unit = Literal[
    "ratio", "watts", "celsius", "bytes", "bytes/s", "joules", "seconds", "GPU-hours", "GPUs", "flag", "1/s", "money"
]  # fmt: skip
Severity = Literal["critical", "warning", "info"]
Level = float | tuple[float, float]
"""A constant value, or a first value with its rise per minute."""


class Planted(Struct, frozen=True):
    """A scenario for the unit test of an alert. GPUs by what they measure, in base units; other series."""

    gpus: tuple[Mapping[str, Level], ...] = ()
    series: tuple[tuple[str, Level], ...] = ()
    has_job: bool = False


class Alert(Struct, frozen=True):
    """When a query's answer is worth a page. ``when`` follows the query; ``lasts`` is how long it must hold.

    ``fires`` and ``silent`` are scenarios in which it must and must not fire.
    """

    name: str
    when: str
    lasts: str
    severity: Severity
    fires: Planted
    silent: Planted


class Query(Struct, frozen=True):
    """One question. ``dcgm`` is the template for dcgm-exporter where it differs, None where it cannot answer."""

    id: str
    mode: Mode
    title: str
    unit: Unit
    template: str
    meaning: str
    advice: str
    dcgm: str | None = "same"
    alert: Alert | None = None

    def template_for(self, names: Names) -> str | None:
        """The template for these names; None where nothing exported under them can answer."""
        return self.template if names == "gputop" or self.dcgm == "same" else self.dcgm

    def promql(self, setting: Setting) -> str | None:
        """The query in PromQL, None where it cannot be asked under these names, or needs a price that is not given."""
        template = self.template_for(setting.names)
        if template is None or (self.needs_price and setting.price is None):
            return None
        return render(template, setting)

    @property
    def needs_price(self) -> bool:
        """Whether it asks about money."""
        return "{price}" in self.template
