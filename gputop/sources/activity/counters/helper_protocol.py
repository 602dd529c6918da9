"""Messages between the counter helper and its client, with checks.

The helper writes ``hello`` once, ``s`` for each sample, ``gpu`` for a changed state, ``bye`` at its end. It reads
``release`` and ``resume``.
"""

from __future__ import annotations

from math import isfinite
from typing import Literal

from msgspec import Struct

State = Literal["ok", "denied", "busy", "unsupported", "lost", "released"]


class Hello(Struct, tag_field="t", tag="hello"):
    """PCI addresses of the GPUs known to the helper; each is ``released`` until taken."""

    gpus: tuple[str, ...] = ()


class SampleLine(Struct, tag_field="t", tag="s"):
    """Means in percent between the GPU's times ``t0`` and ``t1``, in seconds."""

    pci: str
    t0: float
    t1: float
    sm: float
    gr: float | None = None
    tensor: float | None = None
    dram: float | None = None
    dram_r: float | None = None
    dram_w: float | None = None


class GpuLine(Struct, tag_field="t", tag="gpu"):
    """New state of one GPU."""

    pci: str
    state: State
    reason: str = ""


class CostLine(Struct, tag_field="t", tag="cost"):
    """The helper's CPU (percent of one core) and resident bytes."""

    cpu_pct: float
    rss: float


class Bye(Struct, tag_field="t", tag="bye"):
    reason: str = ""


Line = Hello | SampleLine | GpuLine | CostLine | Bye


class HelperCommand(Struct):
    """A command to the helper."""

    cmd: Literal["release", "resume"]
    pci: str


LEAST_WINDOW_S = 0.2
MOST_WINDOW_INTERVALS = 10.0
ROUNDING_PCT = 10.0
"""By how much a counter may exceed 100 % and still be shown as 100 [judged]: the clock of the units and that of the
denominator differ by a few percent where clocks swing. More is impossible, and no value."""


def doubt(sample: SampleLine, interval_s: float) -> str | None:
    """Return why a sample is not believed, or None."""
    window_s = sample.t1 - sample.t0
    if not (isfinite(window_s) and sample.t0 > 0.0):
        return "the counters give no time for their values"
    if not LEAST_WINDOW_S <= window_s <= max(MOST_WINDOW_INTERVALS * interval_s, 10.0):
        return f"the counters give the mean over {window_s:.3g} s, which was not asked for"
    if not (isfinite(sample.sm) and 0.0 <= sample.sm <= 100.0 + ROUNDING_PCT):
        return f"the counters give an impossible value ({sample.sm:g})"
    return None


def shown(value: float | None) -> float | None:
    """Return a percentage as shown; None for an invalid one."""
    if value is None or not isfinite(value) or not 0.0 <= value <= 100.0 + ROUNDING_PCT:
        return None
    return min(value, 100.0)
