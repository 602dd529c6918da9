"""The worked example at the head of the process collector is true."""

from __future__ import annotations

import doctest

from gputop.sources.processes import collector


def test_the_worked_example_of_the_collector_holds() -> None:
    result = doctest.testmod(collector)
    assert result.attempted >= 10
    assert result.failed == 0
