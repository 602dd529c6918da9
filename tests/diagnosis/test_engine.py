"""The story of one snapshot, as the engine tells it."""

from __future__ import annotations

import doctest

from gputop.diagnosis import engine


def test_the_worked_example_of_the_engine_is_true() -> None:
    result = doctest.testmod(engine)
    assert result.attempted > 8
    assert result.failed == 0
