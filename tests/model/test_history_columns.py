"""The columns of a chart, brought up to date from one answer to the next."""

from __future__ import annotations

import random

import pytest

from gputop.model.history import History

WIDTHS = ((1.0, 60), (2.067, 58), (2.067, 58), (2.067, 61), (5.0, 30), (0.5, 90))
"""Width of a column in seconds, and how many."""


@pytest.mark.parametrize("seed", range(4))
def test_columns_that_are_brought_up_to_date_are_those_of_a_chart_that_is_asked_for_the_first_time(seed: int) -> None:
    draw, often, once, t = random.Random(seed), History(), History(), 1_000.0 + seed / 3.0
    for _ in range(300):
        step = draw.choice((0.25, 0.25, 1.0, 1.0, 3.0, 40.0))
        t += step
        values = {"util_pct": draw.choice((None, *(draw.uniform(0.0, 100.0) for _ in range(3))))}
        broken = frozenset({"util_pct"}) if draw.random() < 0.02 else frozenset[str]()
        interval_s = draw.choice((None, step, 2.0, 60.0))
        for history in (often, once):
            history.add(t, "GPU-0", values, interval_s, broken)
        if draw.random() < 0.1:
            t += 0.1
            often.pass_time(t)
            once.pass_time(t)
        for width_s, count in draw.choices(WIDTHS, k=draw.randrange(3)):
            once._charts.clear()
            assert often.columns("GPU-0", "util_pct", width_s, count) == once.columns(
                "GPU-0", "util_pct", width_s, count
            )


def test_columns_that_no_answer_shows_are_forgotten() -> None:
    history = History()
    for second in range(500):
        history.add(1_000.0 + second, "GPU-0", {"util_pct": 50.0})
        assert history.columns("GPU-0", "util_pct", 1.0, 40) == [None] * max(0, 39 - second) + [50.0] * min(
            40, second + 1
        )
    (chart,) = history._charts.values()
    assert len(chart.sums) == 2 and len(chart.means) <= 81
