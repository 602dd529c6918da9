"""The parts under the rules: means of the window, restarts, conditions, trends."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gputop.diagnosis.host.idle_runs import SteadyStateTracker
from gputop.diagnosis.host.workers import feeders
from gputop.diagnosis.rules import (
    BUSY,
    END,
    GATES,
    IDLE_FAMILY,
    RULE_OF,
    RULES,
    STARVED,
    UNATTRIBUTED,
)
from gputop.diagnosis.rules.badges import BADGES
from gputop.diagnosis.track_state import WindowState
from gputop.diagnosis.types import BadgeId, VerdictId
from gputop.diagnosis.verdict.votes import Debouncer
from gputop.diagnosis.window.conditions import Conditions, update_conditions
from gputop.diagnosis.window.host_activity import FeederRow
from gputop.diagnosis.window.sample_facts import pcie_capacity
from gputop.diagnosis.window.window import GpuMeans, Second, gpu_means
from gputop.model.wait_shares import WaitShares
from tests.support.examples import looks
from tests.support.scenes import T0, gpu, workers


def second(tick: float, util: float | None, sm: float | None) -> Second:
    return Second(
        T0 + tick, 1.0, GpuMeans(util_pct=util, sm=sm, util_with_sm=None if sm is None else util)
    )


@pytest.mark.parametrize(
    ("cpu", "network", "leading"),
    [(8.0, 0.0, "cpu"), (8.0, 0.4, "cpu"), (8.0, 3.0, "network"), (0.0, 0.0, "network")],
)
def test_a_state_that_would_be_told_as_nothing_leads_no_longer(
    cpu: float, network: float, leading: str
) -> None:
    """The state that led goes on leading unless another is clearly ahead, but not at 0 %."""
    poll = 100.0 - cpu - network
    shares = WaitShares(run=cpu / 100.0, network=network / 100.0, poll=poll / 100.0)
    row = FeederRow(4001, workers(1, cpu)[0], shares)
    found = feeders([replace(second(t, 20.0, None), workers=(row,)) for t in range(9)], "network")
    assert found is not None and found.leading == leading
    assert found.active == 1, "the busiest does what it does"


@looks(30)
@given(
    st.lists(st.tuples(st.floats(0, 100), st.none() | st.floats(0, 100)), min_size=1, max_size=120)
)
def test_means_are_those_of_the_last_thirty_seconds(
    samples: list[tuple[float, float | None]],
) -> None:
    window = WindowState()
    for tick, (util, sm) in enumerate(samples):
        window.add(second(tick, util, sm))
    kept = samples[-30:]
    assert len(window.seconds) == len(kept)
    means = gpu_means(window.seconds)
    assert means.util_pct == pytest.approx(sum(util for util, _ in kept) / len(kept), abs=1e-5)
    known = [sm for _, sm in kept if sm is not None]
    if 2 * len(known) < len(kept) or not known:
        assert means.sm is None
    else:
        assert means.sm == pytest.approx(sum(known) / len(known), abs=1e-5)


@given(st.floats(0, 100), st.integers(1, 30))
def test_a_mean_of_equal_values_is_that_value(value: float, n: int) -> None:
    """The thresholds of the flags are strict: 80.0 must not become 79.99999."""
    assert gpu_means([second(tick, round(value, 3), None) for tick in range(n)]).util_pct == round(
        value, 3
    )


def test_a_winner_needs_eight_of_ten_and_the_shown_one_ten_seconds() -> None:
    chooser = Debouncer("a", 0.0)
    for t in range(1, 8):
        assert not chooser.vote(float(t), "b", 1.0)
    assert not chooser.vote(8.0, "b", 1.0), (
        "eight wins, but the shown one has stood for eight seconds"
    )
    assert not chooser.vote(9.0, "b", 1.0)
    assert chooser.vote(10.0, "b", 1.0)
    for t in range(11, 30):
        assert not chooser.vote(float(t), "c" if t % 3 else "b", 1.0), "never eight of ten"


def test_every_rule_can_be_read_in_a_table() -> None:
    rules = GATES + IDLE_FAMILY + STARVED + UNATTRIBUTED + BUSY + END
    for rule in rules:
        assert rule.condition and rule.title
        assert len(rule.short or rule.title) <= 24, rule.id
    assert len({badge.id for badge in BADGES}) == len(BADGES)


def test_a_link_of_16_lanes_carries_four_fifths_of_its_generations_rate() -> None:
    carries = [pcie_capacity(gpu(pcie_gen=gen, pcie_width=16)) for gen in range(1, 7)]
    assert [round((capacity or 0.0) / 1e9, 1) for capacity in carries] == [
        3.2,
        6.4,
        12.6,
        25.2,
        50.4,
        96.8,
    ]
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
    now = update_conditions(
        before, GpuMeans(util_pct=util), util, may_be_hollow=False, slow_idle=slow, has_nvlink=False
    )
    assert now.waits == then


@pytest.mark.parametrize(("missed_s", "lasts_s"), [(2.5, 12.5), (2.6, 0.0)])
def test_one_look_that_misses_a_wait_does_not_end_it_and_a_longer_break_does(
    missed_s: float, lasts_s: float
) -> None:
    standing = SteadyStateTracker()
    for t, state in (
        (0.0, "disk"),
        (10.0, "disk"),
        (10.0 + missed_s, None),
        (10.0 + missed_s, "disk"),
    ):
        standing.observe(t, state, None)
    assert standing.state is not None and standing.state.for_s == lasts_s


def test_rules_that_give_the_same_verdict_say_the_same_of_it() -> None:
    """What is remembered of a verdict is its id alone."""
    for rule in RULES:
        same = RULE_OF[rule.id]
        words = (rule.title, rule.short, rule.remedy, rule.remedy_short, rule.state, rule.role)
        assert words == (
            same.title, same.short, same.remedy, same.remedy_short, same.state, same.role,
        )  # fmt: skip
    assert set(RULE_OF) == set(get_args(VerdictId)), "every id is given, and no other one"
    assert {badge.id for badge in BADGES} | {"lost"} == set(get_args(BadgeId))
