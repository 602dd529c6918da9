"""Why samples of a window are dropped: each reason at its edge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.host.idle_runs import ZERO_UTIL, Pause
from gputop.diagnosis.restarts import (
    BEFORE_S,
    CHANGE_S,
    LONG_PAUSE_S,
    Arrival,
    Restart,
    is_long_enough,
    reasons_to_restart,
)
from gputop.diagnosis.window.host_side import HostMeans
from gputop.diagnosis.window.window import WINDOW_S, GpuMeans, Second
from tests.support.scenes import T0

LONG_PAUSE = Pause(T0, LONG_PAUSE_S + 0.1, None)


def second(tick: float, *, util: float = 20.0, **host: float) -> Second:
    return Second(T0 + tick, 1.0, GpuMeans(util_pct=util), HostMeans(**host))


NEWEST = second(30.0)


def arrival(**what: Any) -> Arrival:
    return Arrival(since_last_s=1.0, second=NEWEST, busy_pct=20.0, **what)


@dataclass
class Case:
    new: Arrival
    then: list[Restart]
    pause: Pause | None = None
    seconds: list[Second] = field(default_factory=list)


RAN_THEN_SLEPT = [
    *[second(tick, main=0.5, main_sleep=0.0) for tick in range(22)],
    *[second(tick, main=0.0, main_sleep=0.5) for tick in range(23, 30)],
]
LESS_CLEARLY = [
    *[second(tick, main=0.49, main_sleep=0.0) for tick in range(22)],
    *[second(tick, main=0.0, main_sleep=0.49) for tick in range(23, 30)],
]
SLEEPS = second(30.0, main=0.0, main_sleep=0.5)
CASES = {
    "nothing has happened": Case(arrival(), []),
    "the job is over": Case(arrival(job_is_over=True), [Restart.JOB_CHANGED]),
    "util is refuted": Case(arrival(refutes_util=True), [Restart.UTIL_REFUTED]),
    "first kernels": Case(arrival(has_first_kernels=True), [Restart.FIRST_KERNELS]),
    "a window's length without a sample": Case(replace(arrival(), since_last_s=WINDOW_S), []),
    "more than that": Case(replace(arrival(), since_last_s=WINDOW_S + 0.1), [Restart.GAP]),
    "a kernel after a long pause": Case(
        replace(arrival(), busy_pct=ZERO_UTIL), [Restart.PAUSE_ENDED], LONG_PAUSE
    ),
    "a kernel after a minute": Case(
        replace(arrival(), busy_pct=ZERO_UTIL), [], Pause(T0, LONG_PAUSE_S, None)
    ),
    "the pause goes on": Case(replace(arrival(), busy_pct=ZERO_UTIL - 0.1), [], LONG_PAUSE),
    "the pause may go on": Case(replace(arrival(), busy_pct=None), [], LONG_PAUSE),
    "the job is over after a gap": Case(
        replace(arrival(job_is_over=True), since_last_s=99.0), [Restart.JOB_CHANGED]
    ),
    "another source of SM": Case(
        arrival(sm_source="dcgm", sm_source_before="gpm"), [Restart.SM_SOURCE_CHANGED]
    ),
    "the same source": Case(arrival(sm_source="gpm", sm_source_before="gpm"), []),
    "the first source": Case(arrival(sm_source="gpm"), []),
    "training began": Case(arrival(trains_since=T0), [Restart.TRAINING_BEGAN]),
    "another cause": Case(
        replace(arrival(is_compared=True), second=SLEEPS),
        [Restart.CAUSE_CHANGED],
        seconds=RAN_THEN_SLEPT,
    ),
    "another cause, not looked for now": Case(
        replace(arrival(), second=SLEEPS), [], seconds=RAN_THEN_SLEPT
    ),
    "hardly another cause": Case(
        replace(arrival(is_compared=True), second=replace(SLEEPS, host=LESS_CLEARLY[-1].host)),
        [],
        seconds=LESS_CLEARLY,
    ),
    "another cause on a busy GPU": Case(
        replace(arrival(is_compared=True), second=replace(SLEEPS, gpu=GpuMeans(util_pct=82.0))),
        [],
        seconds=[replace(old, gpu=GpuMeans(util_pct=82.0)) for old in RAN_THEN_SLEPT],
    ),
    "another cause of another job": Case(
        replace(arrival(is_compared=True, job_is_over=True), second=SLEEPS),
        [Restart.JOB_CHANGED],
        seconds=RAN_THEN_SLEPT,
    ),
    "two reasons": Case(
        arrival(has_first_kernels=True, trains_since=T0, sm_source="dcgm", sm_source_before="gpm"),
        [Restart.FIRST_KERNELS, Restart.SM_SOURCE_CHANGED, Restart.TRAINING_BEGAN],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_window_restarts_for_its_reasons_and_for_no_other(case: Case) -> None:
    assert reasons_to_restart(case.new, case.seconds, case.pause) == case.then


@pytest.mark.parametrize(("before_s", "enough"), [(0.0, True), (0.1, False)])
def test_parts_of_a_window_are_compared_once_both_are_long_enough(
    before_s: float, enough: bool
) -> None:
    t = T0 + CHANGE_S + BEFORE_S - before_s
    assert is_long_enough([second(0.0)], t) is enough
    assert not is_long_enough([], t)
