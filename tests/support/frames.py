"""Frames for the tests of what is drawn: made by the real monitor from the simulated node."""

from __future__ import annotations

from functools import cache

from gputop.monitor import Frame, Monitor
from gputop.sources.simulation.simulated import SimulatedSource, snapshot_at

MOMENT = 1_780_000_000.0


@cache
def demo_frame(scenario: str | None = None, seed: int = 0, later_s: int = 0) -> Frame:
    """The last frame of 700 s of a scenario, and of so many seconds after its start."""
    source = SimulatedSource(scenario, seed=seed, clock=lambda: MOMENT)
    monitor = Monitor()
    frames = [monitor.feed(snapshot) for snapshot in source.past(700)]
    frames += [
        monitor.feed(snapshot_at(MOMENT + s, scenario=scenario, seed=seed, started=MOMENT))
        for s in range(1, later_s + 1)
    ]
    return frames[-1]
