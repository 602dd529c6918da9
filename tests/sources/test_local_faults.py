"""The local source while the driver refuses, loses GPUs, hangs or is slow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gputop.diagnosis.rules.badges import lost_badge
from tests.nvml.stand_in import Scenario
from tests.support.local_run import CALM_S, Run
from tests.support.pace import beside

pytestmark = pytest.mark.nvml
A100 = "NVIDIA A100-SXM4-80GB"
WAIT_S = 2.0
"""How long one snapshot waits for what does not answer."""
STARVED = 3.0
"""Where the same work takes so much longer at times, a late tick is the machine's doing."""
MakeScenario = Callable[..., Scenario]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (18, "upgraded under the running kernel"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((9, "driver is not loaded"), (4, "no permission"), (999, "unknown"))
        ),
    ],
)
def test_a_driver_that_does_not_start_says_so_at_once(nvml_scenario: MakeScenario, code: int, words: str) -> None:
    scenario = nvml_scenario(1)
    scenario.error("nvmlInitWithFlags", code)
    for mode in (["once"], ["live", "30"]):
        (error,) = Run(scenario, *mode).snapshots
        assert error["error"] == "SourceError"
        assert words in error["text"]
        assert error["text"].endswith("gputop demo")
        assert error["after"] < CALM_S


@pytest.mark.parametrize("code", [15, *(pytest.param(code, marks=pytest.mark.slow) for code in (16, 999))])
def test_a_gpu_lost_while_running_leaves_the_others_alone(nvml_scenario: MakeScenario, code: int) -> None:
    scenario = nvml_scenario(3)
    scenario.error("*", code, gpu=1, after=60)
    run = Run(scenario, "live", "1.2", interval_s=0.25, least=5)
    lost = run.gpu(1)
    assert lost["lost_reason"]
    assert lost["static"]["name"] == "NVIDIA H100 80GB HBM3"
    assert lost["util_pct"] is None
    since = {s["gpus"][1]["lost_since"] for s in run.snapshots if s["gpus"][1]["lost_reason"]}
    assert len(since) == 1
    assert run.snapshots[0]["t"] <= since.pop() <= run.last["t"]
    assert [gpu["sm_active_pct"] for gpu in run.last["gpus"]] == [25.0, None, 25.0]
    events = [(e["kind"], e["gpu"]) for s in run.snapshots for e in s["events"]]
    assert events == [("gpu_lost", 1)]


def test_a_gpu_that_cannot_be_found_is_one_lost_pane(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(2)
    scenario.error("nvmlDeviceGetHandleByIndex", 15, gpu=0)
    run = Run(scenario, "once")
    assert run.gpu(0)["lost_reason"].startswith("GPU is lost")
    assert run.gpu(0)["static"]["index"] == 0
    assert run.gpu(1)["sm_active_pct"] == 25.0


def test_a_hung_call_costs_one_gpu_and_gives_it_back(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(3)
    scenario.hang("nvmlDeviceGetPowerUsage", 1.5, gpu=1, after=2, times=1)
    run = Run(scenario, "live", "3.2", interval_s=0.25, hung_s=0.5, least=13)
    reasons = [s["gpus"][1]["lost_reason"] for s in run.snapshots]
    hung = [i for i, reason in enumerate(reasons) if reason]
    assert reasons[hung[0]].startswith("NVML call nvmlDeviceGetPowerUsage has not returned for")
    assert "reset" not in lost_badge(reasons[hung[0]]).remedy and "for minutes" in lost_badge(reasons[hung[0]]).remedy
    assert len(hung) >= 2
    assert all(run.snapshots[i]["gpus"][2]["sm_active_pct"] == 25.0 for i in hung[1:])
    assert len({run.snapshots[i]["gpus"][1]["lost_since"] for i in hung}) == 1
    assert run.gpu(1)["lost_reason"] is None
    assert run.gpu(1)["sm_active_pct"] == 25.0
    times = [s["t"] for s in run.snapshots]
    assert times == sorted(set(times))
    assert run.end["closed_in"] < CALM_S
    assert scenario.sessions()[-1].endswith("shutdown samples=0 event_sets=0")


@pytest.mark.slow
def test_a_hung_gpu_does_not_hold_up_one_snapshot_or_the_end(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(2)
    scenario.hang("nvmlDeviceGetUtilizationRates", 30, gpu=0)
    run = Run(scenario, "once", wait_s=WAIT_S)
    assert WAIT_S <= run.last["after"] < WAIT_S + CALM_S
    assert "has not returned" in run.gpu(0)["lost_reason"]
    assert run.gpu(1)["util_pct"] == 90
    assert run.end["closed_in"] < CALM_S


@pytest.mark.slow
def test_a_hung_start_is_told_and_not_waited_for(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(1)
    scenario.hang("nvmlInitWithFlags", 30)
    run = Run(scenario, "once", wait_s=WAIT_S)
    assert WAIT_S <= run.last["after"] < WAIT_S + CALM_S
    assert run.last["gpus"] == []
    assert "NVML has not answered" in run.last["notices"][0]
    assert run.last["stale"]["nvml"] > 1.0
    assert run.last["host"]["mem_total_bytes"] > 0


@pytest.mark.slow
def test_a_millisecond_a_call_misses_no_tick(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(8)
    scenario.latency_us = 1000
    with beside() as turns:
        run = Run(scenario, "live", "4.3", least=3)
    late = [snapshot for snapshot in run.snapshots if snapshot["stale"] or snapshot["repeats"]]
    # A machine that keeps a thread waiting now and then makes a tick late now and then; a driver's calls every one.
    held_up = [turn for turn in turns if turn > STARVED * min(turns)]
    excused = bool(held_up) + 2.0 * len(run.snapshots) * len(held_up) / len(turns)
    assert len(late) <= excused, turns
    assert len(run.snapshots) >= 3


def test_a_refused_process_list_is_a_notice(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(2)
    scenario.error("nvmlDeviceGetComputeRunningProcesses_v3", 4)
    notices = Run(scenario, "once").last["notices"]
    assert any(notice.startswith("GPU 0, 1: no process list: no permission") for notice in notices)
