"""Memory does not grow with time: everything that remembers is bounded."""

from __future__ import annotations

import tracemalloc

import pytest
from msgspec.structs import replace

from gputop.monitor import Monitor
from gputop.paint.main_screen import Painter
from gputop.paint.view import View
from gputop.session.session import Session
from gputop.sources.simulation.simulated import snapshot_at
from tests.support.frames import MOMENT
from tests.support.held import held_bytes

GPUS = 3
RECORDED = 60
ROUNDS = 20
WARM = 14
"""Ten minutes fill the rings, and the tables that hold them double for the last time in the fourteenth."""
MOST_GROWTH_BYTES = 50_000
"""Minute rings and findings still fill up within the test; at present 11 kB. A leak of 150 bytes a tick is more."""


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.weekly
def test_a_thousand_snapshots_as_fast_as_possible_leave_memory_flat_after_warm_up() -> None:
    snapshots = [snapshot_at(MOMENT + s, gpus=GPUS, started=MOMENT) for s in range(RECORDED)]
    session, painter = Session(Monitor()), Painter()
    session.remember()
    sizes = []
    tracemalloc.start()
    try:
        for number in range(ROUNDS):
            for snapshot in snapshots:
                frame = session.take(replace(snapshot, t=snapshot.t + number * RECORDED))
            painter.paint(frame, View(), 160, 48)
            if number >= WARM:
                sizes.append(held_bytes())
    finally:
        tracemalloc.stop()
    assert sizes[-1] - sizes[0] < MOST_GROWTH_BYTES, sizes
