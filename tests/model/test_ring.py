"""gputop.model.ring: what a sample covers, and what is kept, just inside and just outside of each limit."""

from __future__ import annotations

from math import isnan

import pytest

from gputop.model.ring import Ring
from gputop.model.snapshot import GAP_INTERVALS

GAP_S = GAP_INTERVALS * 1.0


@pytest.mark.parametrize(
    ("since_s", "covers_s"),
    [
        (0.5, 0.5),
        (GAP_S, GAP_S),
        # A hole: the sample covers its own interval alone.
        (GAP_S + 0.01, 1.0),
        (2 * GAP_S, 1.0),
        # A clock that stands still or steps back.
        (0.0, 1.0),
        (-5.0, 1.0),
    ],
)
def test_a_sample_covers_the_time_since_the_last_one_unless_a_hole_lies_between(
    since_s: float, covers_s: float
) -> None:
    ring = Ring(4)
    ring.push(100.0, {"util": 1.0}, 1.0)
    ring.push(100.0 + since_s, {"util": 2.0}, 1.0)
    assert list(ring.spans) == pytest.approx([1.0, covers_s])


@pytest.mark.parametrize(("pushed", "kept"), [(3, [0, 1, 2]), (4, [0, 1, 2, 3]), (5, [1, 2, 3, 4])])
def test_the_oldest_sample_goes_when_the_ring_is_full(pushed: int, kept: list[int]) -> None:
    ring = Ring(4)
    for number in range(pushed):
        ring.push(float(number), {"util": float(number)}, 1.0)
    assert [ring.times[slot] for slot in ring.since(0)] == kept
    assert sorted(ring.newest("util", len(kept))) == kept


def test_a_value_that_comes_later_was_missing_before() -> None:
    ring = Ring(4)
    ring.push(0.0, {"util": 1.0}, 1.0)
    ring.push(1.0, {"util": 2.0, "sm": 3.0}, 1.0)
    series = ring.series("sm")
    assert series is not None and isnan(series[0]) and series[1] == 3.0
    assert ring.series("never") is None
