"""Chooses, for one GPU, the best source of SM activity that works now.

A rung says what it measured, that it is still collecting, or that it failed and why. The ladder counts failures,
steps down after three and looks up again after a minute. It knows no rung's workings and never blends two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Protocol

from msgspec import Struct

from gputop.model.snapshot import SmSource

BAD_TICKS = 3
PROBE_AGAIN_S = 60.0
ACTIVITY_KEYS = (
    "sm_active_pct",
    "sm_occupancy_pct",
    "tensor_active_pct",
    "dram_active_pct",
    "fp64_active_pct",
    "fp32_active_pct",
    "fp16_active_pct",
    "graphics_active_pct",
)
"""The catalogue keys that only a rung can fill."""


class Activity(Struct, frozen=True):
    """What a rung measured: ``t`` is the monotonic time of the value, ``window_s`` what it is the mean over.

    Both are None where the rung cannot know them. ``values`` and ``missing`` are by catalogue key; ``values`` always
    holds ``sm_active_pct``.
    """

    values: Mapping[str, float]
    missing: Mapping[str, str]
    window_s: float | None
    t: float | None


class Waiting(Struct, frozen=True):
    """Nothing yet, and nothing wrong: why. ``looking`` while it is not even known whether this rung exists here."""

    reason: str
    looking: bool = False


class RungFailed(Exception):
    """No value this time. ``forever`` when asking again is pointless on this GPU; ``fix`` is what would help."""

    def __init__(self, reason: str, forever: bool = False, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.forever = forever
        self.fix = fix


class Rung(Protocol):
    """One way to measure one GPU."""

    @property
    def name(self) -> SmSource: ...

    def read(self, now: float) -> Activity | Waiting:
        """The newest value. ``now`` is monotonic. Raises RungFailed."""

    def close(self) -> None:
        """Free what the rung holds. Called on the thread that reads."""


class Standing(Struct, frozen=True):
    """Where the ladder stands: the rung in use (None below all), its value or None, and why there is none."""

    source: SmSource | None
    activity: Activity | None = None
    reason: str | None = None


class _Step(Struct):
    rung: Rung
    delivered: bool = False
    bad: int = 0
    retry_at: float = -inf
    reason: str = ""
    fix: str = ""


class Ladder:
    """The rungs of one GPU, best first."""

    def __init__(self, rungs: Sequence[Rung]) -> None:
        self._steps = [_Step(rung) for rung in rungs]

    def read(self, now: float) -> Standing:
        """Ask the rungs from the top and stop at the first that stands."""
        for step in self._steps:
            if now < step.retry_at:
                continue
            try:
                got = step.rung.read(now)
            except RungFailed as failure:
                step.reason, step.fix = failure.reason, failure.fix
                if failure.forever:
                    step.retry_at = inf
                    continue
                if self._still_bad(step, now):
                    continue
                return Standing(step.rung.name, None, failure.reason)
            if isinstance(got, Activity):
                step.delivered, step.bad, step.reason, step.fix = True, 0, "", ""
                return Standing(step.rung.name, got)
            if got.looking:
                continue
            # After a failure a rung that only collects is still bad: it has dropped its pair and given no value.
            if step.bad and self._still_bad(step, now):
                continue
            return Standing(step.rung.name, None, step.reason or got.reason)
        return Standing(None, None, self._why())

    def close(self) -> None:
        for step in self._steps:
            step.rung.close()

    def _still_bad(self, step: _Step, now: float) -> bool:
        """Count a tick without a value; whether to look further down now. A rung that never stood is not waited for."""
        step.bad += 1
        if step.bad < BAD_TICKS:
            return not step.delivered
        step.bad, step.retry_at = 0, now + PROBE_AGAIN_S
        return True

    def _why(self) -> str:
        """All reasons from the top, then the most specific remedy."""
        reasons = [step.reason for step in self._steps if step.reason] or ["no SM counter on this GPU"]
        fixes = [step.fix for step in self._steps if step.fix]
        return "; ".join([", ".join(reasons), *fixes[-1:]])
