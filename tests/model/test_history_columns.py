"""The columns of a chart, brought up to date from one answer to the next."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.sm_remedy import power_word
from gputop.model.derived import Work, gap_pct, work
from gputop.model.history import History
from gputop.model.snapshot import GpuSample, GpuStatic

WIDTHS = ((1.0, 60), (2.067, 58), (2.067, 58), (2.067, 61), (5.0, 30), (0.5, 90))
"""Width of a column in seconds, and how many."""


@pytest.mark.parametrize("seed", range(4))
def test_columns_that_are_brought_up_to_date_are_those_of_a_chart_that_is_asked_for_the_first_time(
    seed: int,
) -> None:
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


def test_a_short_sleep_is_a_hole_in_the_line() -> None:
    history = History()
    for t in (*range(1_000, 1_030), 1_050):
        history.add(t, "GPU-0", {"util_pct": 50.0})
    assert history.columns("GPU-0", "util_pct", 1.0, 40) == [*[50.0] * 19, *[None] * 20, 50.0]


STATIC = GpuStatic(0, "GPU-0", "NVIDIA H100 80GB HBM3")


def test_work_is_the_busier_of_the_pipes_and_the_memory() -> None:
    assert work(
        GpuSample(STATIC, tensor_active_pct=45.0, fp32_active_pct=6.0, dram_active_pct=24.0)
    ) == Work(45.0, "C")
    assert work(GpuSample(STATIC, tensor_active_pct=12.0, dram_active_pct=60.0)) == Work(75.0, "M")
    assert work(GpuSample(STATIC, dram_active_pct=95.0)) == Work(100.0, "M")
    assert work(GpuSample(STATIC, fp64_active_pct=3.0)) == Work(3.0, "C")
    assert work(GpuSample(STATIC)) is None


def test_the_gap_is_never_below_zero_and_needs_both_numbers() -> None:
    assert gap_pct(GpuSample(STATIC, util_pct=97.0, sm_active_pct=8.0)) == 89.0
    assert gap_pct(GpuSample(STATIC, util_pct=50.0, sm_active_pct=60.0)) == 0.0
    assert gap_pct(GpuSample(STATIC, util_pct=50.0)) is None


@pytest.mark.parametrize(
    ("power_w", "changes", "words"),
    [
        (124.0, {}, "power 31 % of its limit: draws little for a busy GPU"),
        (124.0, {"util_pct": 94.0}, "power 31 % of its limit: says nothing of the work"),
        (200.0, {}, "power 50 % of its limit: says nothing of the work"),
        (380.0, {}, "power 95 % of its limit: works hard"), (124.0, {"util_pct": 60.0}, None),
        (124.0, {"sm_source": "gpm"}, None), (124.0, {"throttle_reasons": 0x20}, None), (900.0, {}, None),
        (None, {}, None),
    ],
)  # fmt: skip
def test_power_gives_a_word_where_sm_activity_is_only_bounded(
    power_w: float | None, changes: dict[str, Any], words: str | None
) -> None:
    gpu = GpuSample(
        GpuStatic(0, "GPU-0", "A"),
        util_pct=99.0,
        power_w=power_w,
        power_limit_w=400.0,
        sm_source="bound",
    )
    assert power_word(replace(gpu, **changes)) == words
