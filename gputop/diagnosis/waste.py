"""Measured GPU time by state, integrated second by second: nothing is extrapolated, and nothing is priced here.

What counts as waste is decided where the verdicts are: each rule names the state that its time goes to. A starved or
idle GPU's time is split by its util, so that "starved" is the time in which nothing ran, not the time under that
verdict. Memory-bound work counts as working, and so does an exchange of data beside work; a chip that only waits in its
collectives is busy, not working, with that cause.
"""

from __future__ import annotations

from collections import deque
from types import MappingProxyType

from gputop.diagnosis.types import NOT_WORK, STATES, State, Waste
from gputop.model.snapshot import GAP_INTERVALS

RECENT_S = 600.0
SPLIT: frozenset[State] = frozenset(("starved", "idle_allocated", "idle"))


class Ledger:
    """Seconds by state for each GPU, over all of them, and over the last ten minutes."""

    def __init__(self) -> None:
        self._gpus: dict[str, dict[State, float]] = {}
        self._total: dict[State, float] = dict.fromkeys(STATES, 0.0)
        self._causes: dict[str, dict[str, float]] = {}
        """By GPU and verdict the seconds of busy_not_working; under an empty name those of all GPUs."""
        self._recent: deque[tuple[float, float, float, float]] = deque()
        self._recent_s = self._recent_measured = self._recent_waste = 0.0
        self._tick = [0.0, 0.0]

    def add(self, uuid: str, state: State, dt: float, util_pct: float | None, verdict: str = "") -> None:
        """Add ``dt`` seconds of one GPU, whose ``verdict`` is the cause where it is busy and does not work."""
        if dt <= 0.0:
            return
        seconds = self._gpus.get(uuid)
        if seconds is None:
            seconds = self._gpus[uuid] = dict.fromkeys(STATES, 0.0)
        wasted = dt
        if state in SPLIT and util_pct is not None:
            worked = dt * min(100.0, max(0.0, util_pct)) / 100.0
            wasted = dt - worked
            seconds["working"] += worked
            self._total["working"] += worked
        seconds[state] += wasted
        if state == "busy_not_working":
            for name in (uuid, ""):
                causes = self._causes.setdefault(name, {})
                causes[verdict] = causes.get(verdict, 0.0) + wasted
        self._total[state] += wasted
        if state != "unmeasured":
            self._tick[0] += dt
            if state in NOT_WORK:
                self._tick[1] += wasted

    def close_tick(self, t: float, dt: float) -> None:
        """End a snapshot of ``dt`` seconds: what lies more than ten minutes back leaves the recent sums."""
        measured, wasted = self._tick
        self._tick = [0.0, 0.0]
        recent = self._recent
        recent.append((t, dt, measured, wasted))
        self._recent_s += dt
        self._recent_measured += measured
        self._recent_waste += wasted
        while recent[0][0] <= t - RECENT_S:
            _, old_dt, old_measured, old_wasted = recent.popleft()
            self._recent_s -= old_dt
            self._recent_measured -= old_measured
            self._recent_waste -= old_wasted

    def seconds(self, uuid: str) -> dict[State, float]:
        """A copy of one GPU's seconds by state."""
        seconds = self._gpus.get(uuid)
        return dict.fromkeys(STATES, 0.0) if seconds is None else seconds.copy()

    def causes(self, uuid: str) -> dict[str, float]:
        """A copy of one GPU's seconds of busy_not_working by verdict."""
        return self._causes.get(uuid, {}).copy()

    def forget(self, uuid: str) -> None:
        """Drop one GPU's own seconds."""
        self._gpus.pop(uuid, None)
        self._causes.pop(uuid, None)

    def waste(self) -> Waste:
        """The sums as they stand."""
        span = self._recent_s
        if span <= 0.0:
            return Waste(MappingProxyType(self._total.copy()), self.causes(""))
        return Waste(
            MappingProxyType(self._total.copy()),
            self.causes(""),
            span,
            max(0.0, self._recent_measured / span),
            max(0.0, self._recent_waste / span),
        )


def measured_span(since_last_s: float, interval_s: float) -> float:
    """The time that a sample stands for: never the whole of a gap."""
    if since_last_s <= 0.0:
        return 0.0
    return since_last_s if since_last_s <= GAP_INTERVALS * interval_s else interval_s
