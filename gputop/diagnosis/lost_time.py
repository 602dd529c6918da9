"""Lost time: a share of each second, by one function for seconds, windows and bins."""

from __future__ import annotations

from gputop.diagnosis.rules.half_working import HALF_WORKING
from gputop.diagnosis.rules.low_clock import LOW_CLOCK
from gputop.diagnosis.rules.stuck import HANG, STALLED
from gputop.diagnosis.types import (
    State,
)

LOSES_ALL = frozenset((HANG.id, STALLED.id))
"""Verdicts under which nothing is computed, whatever the counters show."""
IDLES: frozenset[State] = frozenset(("starved", "idle_allocated", "idle"))


def lost_share(
    state: State,
    verdict: str,
    util_pct: float | None,
    sm_pct: float | None,
    clock: float | None = None,
) -> float | None:
    """Share, 0 to 1, of a moment that a GPU lost under a verdict.

    None if nothing was judged.

    Starved and idle lose the part without a kernel, busy-not-working and half working the part of the chip that no
    kernel used: linear in the measured values, so that sums over seconds equal what their means give. Busy-not-working
    without measured SM, a hang and warps that only wait lose all. A low clock loses the part of the clock that is
    missing (``clock`` is the share of its maximum). Other work loses nothing: from the SM / util at which half working
    ends on, what remains is how kernels are.
    """
    if state == "unmeasured":
        return None
    if verdict in LOSES_ALL:
        return 1.0
    if state in IDLES:
        return 1.0 if util_pct is None else 1.0 - _share(util_pct)
    if state == "busy_not_working":
        return 1.0 if sm_pct is None else 1.0 - _share(sm_pct)
    if verdict == LOW_CLOCK.id:
        return None if clock is None else 1.0 - min(1.0, clock)
    if verdict == HALF_WORKING.id:
        return None if sm_pct is None else 1.0 - _share(sm_pct)
    return 0.0


def _share(percent: float) -> float:
    return min(100.0, max(0.0, percent)) / 100.0
