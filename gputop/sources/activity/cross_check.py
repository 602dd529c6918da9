"""Whether the hardware counters can be right beside NVML's utilisation: an independent check at each tick."""

from __future__ import annotations

from gputop.sources.activity.ladder import Ladder, Standing

TIMES = 10
"""Contradictions in a row before the counters are distrusted [judged]."""
MARGIN_PCT = 25.0
"""SM activity cannot exceed utilisation, but for the clock: one is a share of cycles, the other of time, and the two
windows are not the same."""
IDLE_SM_PCT = 5.0


class CrossCheck:
    """Compares both numbers at each tick."""

    def __init__(self) -> None:
        self._contradictions = 0

    def refutes(self, sm_pct: float | None, util_pct: float | None) -> str | None:
        """Why SM activity is no longer trusted, or None. A tick without both numbers says nothing."""
        if sm_pct is None or util_pct is None:
            return None
        if sm_pct <= util_pct + MARGIN_PCT and not (util_pct == 0.0 and sm_pct > IDLE_SM_PCT):
            self._contradictions = 0
            return None
        self._contradictions += 1
        if self._contradictions < TIMES:
            return None
        return (
            f"the GPU counters contradict NVML ({sm_pct:.0f} % of the chip at {util_pct:.0f} % utilisation): not shown"
        )

    def standing(self, ladder: Ladder, now: float, util_pct: float | None) -> Standing:
        """Where the ladder stands at monotonic ``now``, without counters that NVML's utilisation contradicts."""
        standing = ladder.read(now)
        if standing.source == "counters" and standing.activity is not None:
            why = self.refutes(standing.activity.values.get("sm_active_pct"), util_pct)
            if why is not None:
                ladder.reject("counters", why)
                return ladder.read(now)
        return standing
