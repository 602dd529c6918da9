"""Idle attribution: how much of the GPU's idle time a host state can have filled, without knowing their overlap.

Fréchet bounds. With u the GPU's busy share and x a host state's share of the same window, the share of x within the
idle time lies in [L, U]. Nothing here assumes that the two are independent; correlation is never used.
"""

from __future__ import annotations

from gputop.diagnosis.correlation import Correlation
from gputop.diagnosis.signals import Signals
from gputop.diagnosis.types import Attribution

MOSTLY = 0.5
"""L at or above this: "mostly this" filled the idle time."""
NOT_THIS = 0.35
"""U below this: "not this" filled the idle time. Between the two the cause stays open."""
IDLE_PCT = 20.0
"""Idle time from which on a GPU counts as starved, and below which the bounds say nothing (TensorFlow's input-pipeline
analyzer uses the same line)."""


def at_least(x: float, util_pct: float) -> float:
    """L: the least share of the idle time in which the state held (0–1)."""
    idle = 1.0 - util_pct / 100.0
    return max(0.0, round((x - 1.0 + idle) / idle, 9)) if idle > 0.0 else 0.0


def at_most(x: float, util_pct: float) -> float:
    """U: the greatest share of the idle time in which the state can have held (0–1)."""
    idle = 1.0 - util_pct / 100.0
    return min(1.0, round(x / idle, 9)) if idle > 0.0 else 1.0


def main_is_unclear(s: Signals) -> bool:
    """Whether the main thread may or may not have filled the idle time: CUDA waits spin by default."""
    return s.main is not None and at_least(s.main, s.u) < MOSTLY and at_most(s.main, s.u) >= NOT_THIS


def attribute(s: Signals, correlation: Correlation) -> Attribution:
    """The numbers of the host panel. Loader shares are those of the window; the main thread's is its bound."""
    main = None
    if s.main is not None and not main_is_unclear(s):
        least = at_least(s.main, s.u)
        main = 100.0 * (least if least >= MOSTLY else s.main)
    loaders = s.loaders > 0
    return Attribution(
        idle_pct=s.idle,
        window_s=s.window_s,
        n=s.n,
        loaders=s.loaders,
        loader_kind=s.loader_kind,
        running_pct=_percent(s.running) if loaders else None,
        queued_pct=_percent(s.queued) if loaders else None,
        disk_pct=_percent(s.disk) if loaders else None,
        network_pct=_percent(s.network) if loaders and s.waits_known else None,
        main_pct=main,
        pin_memory=s.pin_memory,
        correlation=correlation.words() if loaders else None,
        feeders=s.feeders,
        main_waits=s.main_waits if s.knows_feeders else None,
        outsiders=s.outsiders,
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
