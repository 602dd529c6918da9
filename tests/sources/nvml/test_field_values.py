"""gputop.sources.nvml.field_values: a rate needs two counts, time between them, and a counter that grew."""

from __future__ import annotations

import pytest

from gputop.sources.nvml.field_values import Rate

COLLECTING = "collecting: needs two reads"


@pytest.mark.parametrize(
    ("count", "now", "rate"),
    [
        (300, 11.0, 200.0),
        (100, 11.0, 0.0),
        (300, 10.0 + 1e-6, pytest.approx(200e6, rel=1e-6)),
        # Time that stands still or steps back gives no rate, and no division by zero.
        (300, 10.0, COLLECTING),
        (300, 9.0, COLLECTING),
        (99, 11.0, "the counter started again"),
    ],
)
def test_a_counter_becomes_a_rate(count: int, now: float, rate: object) -> None:
    counter = Rate()
    assert counter.feed(100, 10.0) == COLLECTING
    assert counter.feed(count, now) == rate


def test_after_a_pause_two_reads_are_needed_again() -> None:
    counter = Rate()
    counter.feed(100, 10.0)
    counter.forget()
    assert counter.feed(300, 11.0) == COLLECTING
