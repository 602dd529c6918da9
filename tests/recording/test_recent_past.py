"""gputop.recording.recent_past: what lies before a run is its past only where no hole lies between."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.model.snapshot import GAP_INTERVALS
from gputop.recording.recent_past import BLOCK_FRAMES, KEPT_S, Memory, OlderFrames
from gputop.sources.simulation.simulated import snapshot_at

BEGIN_T = 1_780_000_000.0
FIRST = snapshot_at(BEGIN_T, scenario="healthy", started=BEGIN_T)
GAP_S = GAP_INTERVALS * FIRST.interval_s


def remembered(seconds: int) -> Memory:
    memory = Memory()
    for second in range(seconds):
        memory.add(replace(FIRST, t=BEGIN_T + second), lambda: b"state")
    return memory


@pytest.mark.parametrize(
    ("before_s", "is_past"), [(1.0, True), (GAP_S, True), (GAP_S + 0.1, False), (-1.0, False)]
)
def test_older_frames_are_the_past_unless_a_hole_lies_between(
    before_s: float, is_past: bool
) -> None:
    memory = remembered(2)
    older = OlderFrames(BEGIN_T - 60.0, BEGIN_T - before_s, lambda: ())
    memory.begin_with([older])
    past = memory.past()
    assert past is not None
    assert (past.segments[0].begin == older.first_t) == is_past


def test_what_is_older_than_a_diagnosis_needs_is_forgotten() -> None:
    whole, longer = remembered(int(KEPT_S)).past(), remembered(int(KEPT_S) + 180).past()
    assert whole is not None and longer is not None
    assert whole.segments[0].begin == BEGIN_T
    dropped_s = longer.segments[0].begin - BEGIN_T
    # A state of the diagnosis is kept once a minute, and blocks go whole.
    assert 180.0 - 60.0 - BLOCK_FRAMES <= dropped_s <= 180.0
