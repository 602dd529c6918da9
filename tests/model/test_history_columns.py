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


@pytest.mark.parametrize("gap_s", [3_600.0, 86_400.0, 31_536_000.0, 3_650 * 86_400.0, 1e11])
def test_a_clock_that_is_set_forward_empties_the_chart_and_costs_nothing(gap_s: float) -> None:
    history = History()
    for second in range(30):
        history.add(1_000.0 + second, "GPU-0", {"util_pct": 50.0})
        history.columns("GPU-0", "util_pct", 1.0, 40)
    # Counted, not timed: what is kept must not grow with the distance of two times.
    history.add(1_030.0 + gap_s, "GPU-0", {"util_pct": 70.0})
    assert history.columns("GPU-0", "util_pct", 1.0, 40) == [*[None] * 39, 70.0]
    (chart,) = history._charts.values()
    assert len(chart.means) == 1


def test_a_gap_within_the_chart_is_shown_as_a_gap() -> None:
    history = History()
    history.add(1_000.0, "GPU-0", {"util_pct": 50.0})
    history.columns("GPU-0", "util_pct", 1.0, 40)
    history.add(1_020.0, "GPU-0", {"util_pct": 70.0})
    assert history.columns("GPU-0", "util_pct", 1.0, 40) == [*[None] * 19, 50.0, *[None] * 19, 70.0]
