"""Wasted time: a share of each second, by one function for seconds, windows and bins.

Keys and metrics call it ``lost``: they are public. In words a GPU is lost that fell off the bus, and time is wasted.
"""

from __future__ import annotations

from gputop.diagnosis.types import State, VerdictId

WASTES_ALL: frozenset[VerdictId] = frozenset(("hang", "stalled"))
"""Verdicts under which nothing is computed, whatever the counters show."""
HELD_IDLE: frozenset[State] = frozenset(("starved", "idle_allocated"))
"""States in which somebody holds the GPU and no kernel runs."""


def lost_share(
    state: State,
    verdict: VerdictId,
    util_pct: float | None,
    sm_pct: float | None,
    clock: float | None = None,
) -> float | None:
    """Share, 0 to 1, of a moment that was wasted under a verdict.

    None if nothing was judged.

    Starved GPUs and idle ones that somebody holds waste the part without a kernel, busy-not-working and half working
    the part of the chip that no kernel used: linear in the measured values, so that sums over seconds equal what their
    means give. Busy-not-working without measured SM, a hang and warps that only wait waste all. A low clock wastes the
    part of the clock that is missing (``clock`` is the share of its maximum). Other work wastes nothing: from the
    SM / util at which half working ends on, what remains is how kernels are. Nor does a GPU that nobody holds: its time
    is idle.
    """
    if state == "unmeasured":
        return None
    if verdict in WASTES_ALL:
        return 1.0
    if state in HELD_IDLE:
        return 1.0 if util_pct is None else 1.0 - _share(util_pct)
    if state == "busy_not_working":
        return 1.0 if sm_pct is None else 1.0 - _share(sm_pct)
    if verdict == "low_clock":
        return None if clock is None else 1.0 - min(1.0, clock)
    if verdict == "half_working":
        return None if sm_pct is None else 1.0 - _share(sm_pct)
    return 0.0


def _share(percent: float) -> float:
    return min(100.0, max(0.0, percent)) / 100.0
