"""Measured GPU time by state, integrated second by second: nothing is extrapolated, and nothing is priced here.

What counts as waste is decided where the verdicts are: each rule names the state that its time goes to. A starved or
idle GPU's time is split by its util, so that "starved" is the time in which nothing ran, not the time under that
verdict. Memory-bound work counts as working, and so does an exchange of data beside work; a chip that only waits in
its collectives is busy, not working, with that cause.

Working, wasted, idle and unmeasured time of a GPU add up to the time that it was watched: time in the state "idle" is
the part without a kernel of a GPU that nobody holds, and no waste.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gputop.diagnosis.types import STATES, State, VerdictId, Waste
from gputop.model.snapshot import GAP_INTERVALS

RECENT_S = 600.0
SPLIT: frozenset[State] = frozenset(("starved", "idle_allocated", "idle"))
HOLDING: State = "idle_allocated"
"""The state whose wasted time has one cause, whatever verdict is shown: before its verdict, or of low demand."""


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


class GpuTime(Struct):
    """One GPU's seconds: by state, of busy_not_working by verdict, and wasted by verdict."""

    seconds: dict[State, float]
    causes: dict[VerdictId, float] = {}
    lost: dict[VerdictId, float] = {}


class _Tick(Struct):
    """GPU seconds of one snapshot: judged, wasted and idle ones; ``dt`` is its length."""

    t: float = 0.0
    dt: float = 0.0
    judged: float = 0.0
    wasted: float = 0.0
    idle: float = 0.0


class Ledger:
    """The time of each GPU, and what all wasted over the last ten minutes."""

    def __init__(self) -> None:
        self._gpus: dict[str, GpuTime] = {}
        self._recent: deque[_Tick] = deque()
        self._sum = _Tick()
        """Sums over the recent ticks."""
        self._tick = _Tick()

    def add(
        self,
        uuid: str,
        state: State,
        dt: float,
        util_pct: float | None,
        sm_pct: float | None,
        verdict: VerdictId,
        clock: float | None = None,
    ) -> float:
        """Add seconds of one GPU and return the wasted ones.

        ``verdict`` is the cause of the waste.
        """
        if dt <= 0.0:
            return 0.0
        time = self._gpus.get(uuid)
        if time is None:
            time = self._gpus[uuid] = GpuTime(dict.fromkeys(STATES, 0.0))
        in_state = dt
        if state in SPLIT and util_pct is not None:
            worked = dt * min(100.0, max(0.0, util_pct)) / 100.0
            in_state = dt - worked
            time.seconds["working"] += worked
        time.seconds[state] += in_state
        if state == "busy_not_working":
            time.causes[verdict] = time.causes.get(verdict, 0.0) + in_state
        share = lost_share(state, verdict, util_pct, sm_pct, clock)
        if share is None:
            return 0.0
        lost = dt * share
        self._tick.judged += dt
        self._tick.wasted += lost
        if state == "idle":
            self._tick.idle += in_state
        if lost > 0.0:
            cause: VerdictId = "idle_holding_memory" if state == HOLDING else verdict
            time.lost[cause] = time.lost.get(cause, 0.0) + lost
        return lost

    def close_tick(self, t: float, dt: float) -> None:
        """End a snapshot of ``dt`` seconds and forget old ones."""
        tick, self._tick = self._tick, _Tick()
        tick.t, tick.dt = t, dt
        self._recent.append(tick)
        self._add_to_sums(tick, 1.0)
        while self._recent[0].t <= t - RECENT_S:
            self._add_to_sums(self._recent.popleft(), -1.0)

    def _add_to_sums(self, tick: _Tick, sign: float) -> None:
        """Add a tick to the recent sums, or take it out of them."""
        self._sum.dt += sign * tick.dt
        self._sum.judged += sign * tick.judged
        self._sum.wasted += sign * tick.wasted
        self._sum.idle += sign * tick.idle

    def time_of(self, uuid: str) -> GpuTime:
        """A copy of one GPU's time."""
        time = self._gpus.get(uuid)
        if time is None:
            return GpuTime(dict.fromkeys(STATES, 0.0))
        return GpuTime(time.seconds.copy(), time.causes.copy(), time.lost.copy())

    def forget(self, uuid: str) -> None:
        """Drop one GPU's own time."""
        self._gpus.pop(uuid, None)

    def waste(self) -> Waste:
        """The present sums."""
        span = self._sum.dt
        if span <= 0.0:
            return Waste()
        return Waste(
            recent_s=span,
            recent_gpus=max(0.0, self._sum.judged / span),
            recent_lost_gpus=max(0.0, self._sum.wasted / span),
            recent_idle_gpus=max(0.0, self._sum.idle / span),
        )


class RisingSums:
    """Growth of sums that only rise.

    Sums of a monitor that began anew, as after a clock that was set back, count from there.
    """

    def __init__(self, before: Mapping[str, float] | None = None) -> None:
        """``before`` are the sums from which on it counts.

        None are those that are taken first.
        """
        self.risen: dict[str, float] = {}
        self._before = before

    def take(self, sums: Mapping[Any, float] | None) -> float:
        """Add the rise of the sums since the last call, and return it."""
        now: dict[str, float] = dict(sums or {})
        before = now if self._before is None else self._before
        if any(now.get(key, 0.0) < value for key, value in before.items()):
            before = {}
        rises = {key: value - before.get(key, 0.0) for key, value in now.items()}
        for key, rise in rises.items():
            self.risen[key] = self.risen.get(key, 0.0) + rise
        self._before = now
        return sum(rises.values())


def measured_span(since_last_s: float, interval_s: float) -> float:
    """Time that a sample covers: never the whole of a gap."""
    if since_last_s <= 0.0:
        return 0.0
    return since_last_s if since_last_s <= GAP_INTERVALS * interval_s else interval_s
