"""gputop.session.judged: how many places a jump can go on from are kept, and how far apart.

What a jump shows is tested in tests/diagnosis/test_judged.py.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.session import judged
from gputop.session.judged import CHECKPOINT_S, Judged
from gputop.sources.simulation.simulated import snapshot_at

BEGIN_T = 1_780_000_000.0
MOST = 4


def judged_of(times: list[float]) -> Judged:
    first = snapshot_at(BEGIN_T, scenario="healthy", started=BEGIN_T)
    frames = ((0, replace(first, t=BEGIN_T + time)) for time in times)
    walked = Judged(frames, 1.0)
    while not walked.is_complete:
        walked.advance(until=float("inf"), clock=lambda: 0.0)
    return walked


@pytest.mark.parametrize(
    ("count", "every_s", "kept"),
    [(MOST, CHECKPOINT_S, MOST), (MOST + 1, 2 * CHECKPOINT_S, 3)],
)
def test_of_too_many_places_every_second_one_goes(
    count: int, every_s: float, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judged, "MOST_CHECKPOINTS", MOST)
    walked = judged_of([number * CHECKPOINT_S for number in range(count)])
    assert walked.every_s == every_s
    assert len(walked._places[0]) == kept
    # The first place stays, so that every moment can be reached.
    first = walked.first(0)
    assert first is not None and first.t == BEGIN_T


@pytest.mark.parametrize(("apart_s", "kept"), [(CHECKPOINT_S - 0.5, 1), (CHECKPOINT_S, 2)])
def test_places_are_a_minute_apart(apart_s: float, kept: int) -> None:
    assert len(judged_of([0.0, apart_s])._places[0]) == kept
