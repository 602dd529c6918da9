"""Frames for the tests of what is drawn: made by the real monitor from the simulated node."""

from __future__ import annotations

from functools import cache

from gputop.monitor import Frame, Monitor
from gputop.paint.detail_page import DetailPage, DetailsView
from gputop.paint.view import View
from gputop.sources.simulation.simulated import SimulatedSource, snapshot_at
from tests.support.kept import kept

MOMENT = 1_780_000_000.0
PAST_S, SHORT_PAST_S = 700.0, 150.0
"""The node's charts go back ten minutes, and so does the rule of one scenario; all else is seen in two, sooner made."""
LOOKED_BACK_ON = (None, "memory_leak")


@cache
def demo_frame(scenario: str | None = None, seed: int = 0, later_s: int = 0) -> Frame:
    """The last frame of a scenario's past, and of so many seconds after its start."""
    return kept(f"demo-{scenario}-{seed}-{later_s}", lambda: _demo_frame(scenario, seed, later_s))


def detail_page(frame: Frame, width: int) -> DetailPage:
    """A page without history, to which a part can be added."""
    return DetailPage(frame, DetailsView(View()), None, lambda *_: [], None, width)


def _demo_frame(scenario: str | None, seed: int, later_s: int) -> Frame:
    source = SimulatedSource(scenario, seed=seed, clock=lambda: MOMENT)
    monitor = Monitor()
    past_s = PAST_S if scenario in LOOKED_BACK_ON and not later_s else SHORT_PAST_S
    frames = [monitor.feed(snapshot) for snapshot in source.past(past_s)]
    frames += [
        monitor.feed(snapshot_at(MOMENT + s, scenario=scenario, seed=seed, started=MOMENT))
        for s in range(1, later_s + 1)
    ]
    return frames[-1]
