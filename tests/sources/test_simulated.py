"""The simulated machines: deterministic, believable, and complete."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from gputop.model.metrics import GPU_METRICS, HOST_METRICS, PROCESS_METRICS, Metric
from gputop.model.snapshot import Snapshot
from gputop.model.source import UsageError
from gputop.session.arrivals import Arrivals
from gputop.sources.simulation.scenarios import SCENARIOS, find
from gputop.sources.simulation.simulated import MOST_WAITING, SimulatedSource, snapshot_at
from tests.support.expected_verdicts import EXPECTED
from tests.support.scripted_loop import ScriptedLoop
from tests.support.waiting import until

STARTED = 1_780_000_000.0
NAMES = tuple(SCENARIOS)
SOME_NAMES = [
    pytest.param(name, marks=pytest.mark.slow if n % 3 else ()) for n, name in enumerate(NAMES)
]
"""The quick part takes each third scenario through what needs many moments of it."""


def _broken(metrics: dict[str, Metric], row: object) -> list[tuple[str, object]]:
    return [
        (key, value)
        for key, metric in metrics.items()
        if isinstance(value := getattr(row, key), (int, float)) and not metric.is_valid(value)
    ]


@pytest.mark.parametrize("name", SOME_NAMES)
def test_a_moment_is_the_same_whenever_it_is_asked_for(name: str) -> None:
    times = [STARTED + 7.0 * i for i in range(-6, 12)]
    forwards = {t: snapshot_at(t, scenario=name, started=STARTED) for t in times}
    random.Random(4).shuffle(times)
    assert all(snapshot_at(t, scenario=name, started=STARTED) == forwards[t] for t in times)
    assert len({snapshot.gpus[0].power_w for snapshot in forwards.values()}) > 5, (
        "the machine must live"
    )


@pytest.mark.parametrize("interval_s", [1.0, pytest.param(0.25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SOME_NAMES)
def test_every_value_lies_in_the_catalogues_bounds(name: str, interval_s: float) -> None:
    for i in range(-45, 75):
        t = STARTED + i * (1.66 if interval_s == 1.0 else interval_s)
        snapshot = snapshot_at(t, scenario=name, started=STARTED, interval_s=interval_s)
        assert snapshot.interval_s == interval_s
        assert not _broken(HOST_METRICS, snapshot.host)
        for gpu in snapshot.gpus:
            assert not _broken(GPU_METRICS, gpu)
        for process in snapshot.processes:
            assert not _broken(PROCESS_METRICS, process)
            assert (process.main_run_pct or 0.0) + (process.main_wait_pct or 0.0) <= 100.0 + 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_has_a_reason(name: str) -> None:
    snapshot = snapshot_at(STARTED + 100.0, scenario=name, started=STARTED)
    for gpu in snapshot.gpus:
        if gpu.lost_reason is None:
            missing = {key for key in GPU_METRICS if getattr(gpu, key) is None} - {"xid"}
            assert missing == {key for key, reason in gpu.unavailable.items() if reason} - {"xid"}
        if gpu.sm_active_pct is None and gpu.lost_reason is None:
            assert gpu.sm_reason
    for process in snapshot.processes:
        if process.starttime is None:
            assert "PID namespace" in process.unavailable["starttime"]


def test_a_lost_gpu_is_lost_after_a_minute_and_the_others_go_on() -> None:
    before = snapshot_at(STARTED + 59.0, scenario="lost_gpu", started=STARTED)
    then = snapshot_at(STARTED + 60.0, scenario="lost_gpu", started=STARTED)
    after = snapshot_at(STARTED + 90.0, scenario="lost_gpu", started=STARTED)
    assert all(gpu.lost_reason is None for gpu in before.gpus)
    assert [(e.kind, e.gpu) for e in then.events] == [("gpu_lost", 2)]
    assert [gpu.static.index for gpu in after.gpus if gpu.lost_reason] == [2]
    assert after.gpus[2].lost_since == STARTED + 60.0 and after.gpus[2].util_pct is None
    assert {p.gpu for p in after.processes} == {0, 1, 3} and not after.events


def test_an_unknown_scenario_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"dataloader_cpu.*gputop demo --list"):
        find("dataloader-cpu")
    with pytest.raises(UsageError, match="--list"):
        SimulatedSource("zzz")


def test_every_scenario_has_a_line_and_an_expected_diagnosis() -> None:
    for name, scenario in SCENARIOS.items():
        assert (
            scenario.name == name and 10 < len(scenario.title) < 70 and "\n" not in scenario.title
        )
        gpus = len(scenario.machine.gpus)
        assert EXPECTED[name] and all(expected.gpu < gpus for expected in EXPECTED[name])


def test_the_past_is_coarse_first_then_at_full_rate_and_ends_where_the_present_begins() -> None:
    past = list(SimulatedSource(clock=lambda: STARTED).past(3700.0))
    steps = [round(b.t - a.t, 6) for a, b in pairwise(past)]
    assert steps == [25.0] * 120 + [5.0] * 114 + [1.0] * 129
    assert past[0].t == STARTED - 3700.0 and past[-1].t == STARTED - 1.0
    assert [s.interval_s for s in past[1:]] == steps, (
        "each stands for the time since the one before"
    )


def delivered(seconds: float, held_s: float = 0.0) -> list[float]:
    """The times in a run's intervals at which a source delivered; its loop is held in the middle."""
    loop, times = ScriptedLoop(), list[float]()
    source = SimulatedSource("healthy", interval_s=0.5, clock=lambda: STARTED + loop.now)

    def hold() -> None:
        loop.now += held_s

    def note(snapshot: Snapshot) -> None:
        times.append((snapshot.t - STARTED) / source.interval_s)

    loop.call_later(seconds / 2.0, hold)
    loop.call_later(seconds + held_s, source.close)
    loop.run_until_complete(source.run(note))
    loop.close()
    return times


def test_a_source_delivers_at_each_interval_until_it_is_closed() -> None:
    assert delivered(10.2) == list(range(21))


def test_a_source_makes_up_for_intervals_in_which_its_loop_was_held() -> None:
    assert delivered(10.2, held_s=4.0) == list(range(29))


def test_a_source_that_was_asleep_makes_up_for_the_newest_intervals_alone() -> None:
    times = delivered(10.2, held_s=600.0)
    assert times[:11] == list(range(11))
    # The loop goes on at 605.1 s, in interval 1210.
    assert times[11:] == list(range(1210 - MOST_WAITING + 1, 1221))


def test_a_source_that_is_closed_ends_the_thread_that_runs_it() -> None:
    source = SimulatedSource("healthy", interval_s=3600.0)
    arrivals = Arrivals(source)
    arrivals.start()
    thread = arrivals._thread
    assert thread is not None
    source.close()
    until(lambda: not thread.alive)
