"""Compares SM activity with NVML's utilisation."""

from __future__ import annotations

from gputop.sources.activity.fallback_chain import ChainState, FallbackChain

TIMES = 10
"""Contradictions in a row before the counters are distrusted [judged]."""
MARGIN_PCT = 25.0
"""SM activity cannot exceed utilisation, but for the clock: one is a share of cycles, the other of time, and the two
windows are not the same."""
IDLE_SM_PCT = 5.0


class CrossCheck:
    """Compares counters with NVML's utilisation at each tick."""

    def __init__(self) -> None:
        self._contradictions = 0

    def refutes(self, sm_pct: float | None, util_pct: float | None) -> str | None:
        """Return why SM activity is not trusted, or None.

        A tick without both numbers does not count.
        """
        if sm_pct is None or util_pct is None:
            return None
        if sm_pct <= util_pct + MARGIN_PCT and not (util_pct == 0.0 and sm_pct > IDLE_SM_PCT):
            self._contradictions = 0
            return None
        self._contradictions += 1
        if self._contradictions < TIMES:
            return None
        return (
            f"the GPU counters contradict NVML ({sm_pct:.0f} % of the chip at {util_pct:.0f} % "
            "utilisation): not shown"
        )

    def standing(self, chain: FallbackChain, now: float, util_pct: float | None) -> ChainState:
        """Read the chain, without counters that utilisation contradicts."""
        standing = chain.read(now)
        if standing.source == "counters" and standing.activity is not None:
            why = self.refutes(standing.activity.values.get("sm_active_pct"), util_pct)
            if why is not None:
                chain.reject("counters", why)
                return chain.read(now)
        return standing


def bound(util_pct: float | None, sm_count: int | None) -> tuple[float | None, float | None]:
    """Return the lowest and highest possible SM activity in percent.

    Over one window, SM activity lies in [util / SM count, util]: an SM holds warps only while a kernel runs, and a
    running kernel holds at least one SM. A bound is never exported as a value.
    """
    if util_pct is None:
        return None, None
    return (util_pct / sm_count if sm_count else None), float(util_pct)
