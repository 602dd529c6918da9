"""The parts under the rules: bounds, the window's sums, correlation, trends."""

from __future__ import annotations

import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputop.diagnosis.attribution import correlate
from gputop.diagnosis.conditions import Conditions, update_conditions
from gputop.diagnosis.hardware_health import growth
from gputop.diagnosis.host_side import SteadyStateTracker
from gputop.diagnosis.rules import BUSY, END, GATES, IDLE_FAMILY, STARVED, UNATTRIBUTED
from gputop.diagnosis.rules.badges import BADGES
from gputop.diagnosis.verdict_state import Debouncer
from gputop.diagnosis.window import COLUMNS, GpuMeans, Row, Window, pcie_capacity, scaled
from tests.support.examples import looks
from tests.support.scenes import gpu


def row(util: float | None, sm: float | None) -> Row:
    return (scaled(util), scaled(sm), *(None,) * (COLUMNS - 2))


@looks(30)
@given(st.lists(st.tuples(st.floats(0, 100), st.none() | st.floats(0, 100)), min_size=1, max_size=120))
def test_the_running_sums_are_the_sums_of_the_window(samples: list[tuple[float, float | None]]) -> None:
    window, kept = Window(30.0), deque[tuple[float, float | None]](maxlen=30)
    for tick, sample in enumerate(samples):
        window.push(1.78e9 + tick, row(*sample))
        kept.append(sample)
    assert len(window) == len(kept)
    assert window.means().gpu.u == pytest.approx(sum(util for util, _ in kept) / len(kept), abs=1e-5)
    known = [sm for _, sm in kept if sm is not None]
    if 2 * len(known) < len(kept) or not known:
        assert window.means().gpu.sm is None
    else:
        assert window.means().gpu.sm == pytest.approx(sum(known) / len(known), abs=1e-5)


def test_what_a_window_keeps_up_to_date_is_what_a_new_one_makes_of_the_same_samples() -> None:
    """Samples that repeat and that do not, that come late and twice at once, and columns that are forgotten."""
    draw, window = random.Random(5), Window(6.0)
    kept: list[tuple[float, Row]] = []
    t, wide = 1.78e9, tuple[int | None, ...]([None] * (COLUMNS - 3))
    values: tuple[int | None, ...] = (None, 0, 1_000_000, 50_000_000)
    sample: Row = (0, None, 1_000_000, *wide)
    for _ in range(400):
        t += draw.choice((1.0, 1.0, 1.0, 1.0, 1.0003, 0.25, 3.0, 7.0))
        if draw.random() < 0.3:
            sample = (draw.choice(values), draw.choice(values), draw.choice(values), *wide)
        window.push(t, sample)
        kept.append((t, sample))
        kind = draw.randrange(40)
        if kind == 0:
            window.forget("sm")
            kept = [(at, (row[0], None, *row[2:])) for at, row in kept]
        elif kind == 1:
            window.keep(2.0)
            kept = [(at, row) for at, row in kept if at > t - 2.0 + 0.0005]
        kept = [(at, row) for at, row in kept if at > t - 6.0 + 0.0005]
        anew = Window(1e9)
        for at, row in kept:
            anew.push(at, row)
        assert len(window) == len(anew)
        assert window.means() == anew.means()
        assert [window.total(name) for name in ("u", "sm")] == [anew.total(name) for name in ("u", "sm")]


def test_the_correlation_line_needs_variation_and_says_how_much_data() -> None:
    rng = random.Random(3)
    steps = [rng.choice((0.0, 60.0)) for _ in range(120)]
    noise = [rng.gauss(0.0, 4.0) for _ in range(120)]
    opposite = [70.0 - s + e for s, e in zip(steps, noise, strict=True)]
    assert correlate(opposite, steps) == "the loaders work while the GPU waits"
    assert (
        correlate([98.0 + 0.01 * s for s in steps], steps)
        == "the loaders' work or the GPU's does not vary: nothing to relate"
    )
    other = [rng.choice((0.0, 60.0)) for _ in range(120)]
    assert correlate(other, steps).startswith("no clear relation")


def test_the_loaders_may_be_one_sample_ahead() -> None:
    rng = random.Random(4)
    steps = [rng.choice((0.0, 60.0)) for _ in range(120)]
    late = [50.0, *(70.0 - s for s in steps[:-1])]
    assert correlate(late, steps) == "the loaders work while the GPU waits"


def test_two_slow_walks_are_not_called_related() -> None:
    """Differencing and Bartlett's variance: independent random walks correlate by chance alone."""
    false = 0
    for seed in range(200):
        rng = random.Random(seed)
        walks = []
        for _ in range(2):
            value, walk = 50.0, []
            for _ in range(120):
                value += rng.gauss(0.0, 6.0)
                walk.append(value)
            walks.append(walk)
        false += correlate(*walks).startswith("moves")
    assert false == 0


def test_growth_is_the_median_slope() -> None:
    points = [(20.0 * i, 1e10 + 20.0 * i * 1e6) for i in range(31)]
    points[15] = (300.0, points[15][1] * 1.02)
    found = growth(points)
    assert found is not None
    assert found[0] == pytest.approx(60e6, rel=0.02)
    assert found[1] > 0.9


def test_a_winner_needs_eight_of_ten_and_the_shown_one_ten_seconds() -> None:
    chooser = Debouncer("a", 0.0)
    for t in range(1, 8):
        assert not chooser.vote(float(t), "b", 1.0)
    assert not chooser.vote(8.0, "b", 1.0), "eight wins, but the shown one has stood for eight seconds"
    assert not chooser.vote(9.0, "b", 1.0)
    assert chooser.vote(10.0, "b", 1.0)
    for t in range(11, 30):
        assert not chooser.vote(float(t), "c" if t % 3 else "b", 1.0), "never eight of ten"


def test_every_rule_can_be_read_in_a_table() -> None:
    rules = GATES + IDLE_FAMILY + STARVED + UNATTRIBUTED + BUSY + END
    for rule in rules:
        assert rule.condition and rule.title and rule.level
        assert len(rule.short or rule.title) <= 24, rule.id
    assert len({badge.id for badge in BADGES}) == len(BADGES)


def test_a_link_of_16_lanes_carries_four_fifths_of_its_generations_rate() -> None:
    carries = [pcie_capacity(gpu(pcie_gen=gen, pcie_width=16)) for gen in range(1, 7)]
    assert [round((capacity or 0.0) / 1e9, 1) for capacity in carries] == [3.2, 6.4, 12.6, 25.2, 50.4, 96.8]
    assert pcie_capacity(gpu(pcie_gen=9)) is None and pcie_capacity(gpu(pcie_width=None)) is None


@pytest.mark.parametrize(
    ("waits", "idle", "slow", "then"),
    [
        (False, 20.0, None, True), (False, 19.9, None, False), (True, 16.0, None, True), (True, 15.9, None, False),
        (False, 30.0, 19.9, False), (False, 19.9, 30.0, False), (False, 20.0, 20.0, True),
        (True, 4.0, 12.0, True), (True, 3.9, 30.0, False), (True, 15.9, 11.9, False), (True, 16.0, 0.0, True),
    ],
)  # fmt: skip
def test_where_requests_come_by_chance_a_slow_mean_decides_whether_a_gpu_waits(
    waits: bool, idle: float, slow: float | None, then: bool
) -> None:
    before, util = Conditions(waits=waits), 100.0 - idle
    now = update_conditions(before, GpuMeans(u=util), util, may_be_hollow=False, slow_idle=slow, has_nvlink=False)
    assert now.waits == then


@pytest.mark.parametrize(("missed_s", "lasts_s"), [(2.5, 12.5), (2.6, 0.0)])
def test_one_look_that_misses_a_wait_does_not_end_it_and_a_longer_break_does(missed_s: float, lasts_s: float) -> None:
    standing = SteadyStateTracker()
    for t, state in ((0.0, "disk"), (10.0, "disk"), (10.0 + missed_s, None), (10.0 + missed_s, "disk")):
        standing.observe(t, state, None)
    assert standing.stands is not None and standing.stands.for_s == lasts_s
