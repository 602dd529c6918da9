"""Each scenario is diagnosed as it says: the demo shows what it promises."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gputop.monitor import Frame, Monitor
from gputop.sources.simulation.scenarios import SCENARIOS, Scenario
from gputop.sources.simulation.simulated import SimulatedSource
from tests.support.expected_verdicts import EXPECTED

STARTED = 1_780_000_000.0
PAST_S = 700.0
SHORT_PAST_S = 120.0
"""Enough where no rule looks back on ten minutes."""
LOOK_BACK = {"idle_holding_memory", "memory_leak"}
"""The verdict and the badge of the rules that do."""


class Clock:
    def __init__(self) -> None:
        self.t = STARTED

    def __call__(self) -> float:
        return self.t


def looks_back(scenario: Scenario) -> bool:
    return any(
        {expected.verdict, *expected.badges} & LOOK_BACK for expected in EXPECTED[scenario.name]
    )


def watch(scenario: Scenario, interval_s: float) -> list[Frame]:
    """The frames after the start: the past first, then ticks until the last expectation is due."""
    clock = Clock()
    source = SimulatedSource(scenario.name, interval_s=interval_s, clock=clock)
    monitor = Monitor(interval_s, charts=False)
    for snapshot in source.past(PAST_S if looks_back(scenario) else SHORT_PAST_S):
        monitor.feed(snapshot)
    frames = []
    ticks = round(max(expected.after_s for expected in EXPECTED[scenario.name]) / interval_s)
    for tick in range(ticks + 1):
        clock.t = STARTED + tick * interval_s
        snapshot = source.next_due()
        assert snapshot is not None
        frames.append(monitor.feed(snapshot))
    return frames


SEEN_ELSEWHERE = {
    "sixteen", "node", "healthy", "dataloader_io", "mig", "one_gpu", "pid_namespace", "no_sm_counter", "fabric_link",
}  # fmt: skip
"""What the quick part leaves out: each of their verdicts and badges is reached there by another scenario."""


FOUR_TIMES_A_SECOND = ("low_sm",)
"""What is also watched four times a second in the quick part."""
IN_TIME = ("hang", "straggler", "checkpoint_pause", "worker_restart")
"""And in the slow one, as their rules look at how things follow each other; all others each week."""


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    if name in FOUR_TIMES_A_SECOND:
        return []
    return [pytest.mark.slow, *[pytest.mark.weekly] * (name not in IN_TIME)]


def assert_as_expected(scenario: Scenario, interval_s: float, frames: list[Frame]) -> None:
    for expected in EXPECTED[scenario.name]:
        found = frames[round(expected.after_s / interval_s)].diagnoses[expected.gpu]
        badges = {badge.id for badge in found.badges}
        assert (found.verdict, found.busy_not_working) == (expected.verdict, expected.flag), found
        assert badges == set(expected.badges), found.badges


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(scenario, marks=pytest.mark.slow if name in SEEN_ELSEWHERE else ())
        for name, scenario in SCENARIOS.items()
    ],
    ids=list(SCENARIOS),
)
def test_a_scenario_reaches_its_diagnosis_and_has_it_in_its_first_frame(scenario: Scenario) -> None:
    frames = watch(scenario, 1.0)
    assert_as_expected(scenario, 1.0, frames)
    for expected in EXPECTED[scenario.name]:
        # What only begins while the program runs cannot be in its first frame.
        if expected.after_s <= 40.0:
            shown = {
                (f.diagnoses[expected.gpu].verdict, f.diagnoses[expected.gpu].busy_not_working)
                for f in frames
            }
            assert shown == {(expected.verdict, expected.flag)}


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in SCENARIOS])
def test_a_scenario_reaches_its_diagnosis_four_times_a_second_too(name: str) -> None:
    scenario = SCENARIOS[name]
    assert_as_expected(scenario, 0.25, watch(scenario, 0.25))


def test_the_quick_part_reaches_every_verdict_and_badge() -> None:
    def reached(names: Iterable[str]) -> set[str]:
        expected = [one for name in names for one in EXPECTED[name]]
        return {name for one in expected for name in (one.verdict, *one.badges)}

    assert reached(set(SCENARIOS) - SEEN_ELSEWHERE) == reached(SCENARIOS)


@pytest.mark.parametrize(("name", "gpu", "badge"), [("lost_gpu", 2, "lost"), ("ecc", 0, "ecc")])
def test_those_who_see_the_past_only_see_what_a_scenario_has_in_store(
    name: str, gpu: int, badge: str
) -> None:
    def badges(*, events_past: bool) -> set[str]:
        source = SimulatedSource(name, events_past=events_past, clock=Clock())
        monitor = Monitor(1.0, charts=False)
        frame = [monitor.feed(snapshot) for snapshot in source.past(SHORT_PAST_S)][-1]
        return {found.id for found in frame.diagnoses[gpu].badges}

    assert badges(events_past=False) == set()
    assert badges(events_past=True) == {badge}


@pytest.mark.parametrize("interval_s", [9.0, 20.0, 30.0, 60.0])
def test_a_demo_whose_samples_lie_far_apart_is_judged(interval_s: float) -> None:
    monitor = Monitor(interval_s, charts=False)
    frames = [
        monitor.feed(s) for s in SimulatedSource(interval_s=interval_s, clock=Clock()).past(900.0)
    ]
    assert len(frames[-1].diagnoses) == 8
