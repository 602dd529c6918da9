"""The last rung: what utilisation alone proves about SM activity.

Over one window, time-weighted SM activity lies in [util / SM count, util]: an SM holds warps only while a kernel runs,
and a running kernel holds at least one SM. A bound is never exported as a value.
"""

from __future__ import annotations


def bound(util_pct: float | None, sm_count: int | None) -> tuple[float | None, float | None]:
    """Lowest and highest possible SM activity in percent; None where nothing is known."""
    if util_pct is None:
        return None, None
    return (util_pct / sm_count if sm_count else None), float(util_pct)
