"""What the stand-in NVML library does on request: errors, lost GPUs, hangs, latency, events."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.nvml.answerer import error, program
from tests.nvml.stand_in import GIB, Failure, Scenario, make_gpu

pytestmark = pytest.mark.nvml
MakeScenario = Callable[..., Scenario]


@pytest.mark.parametrize("code", [4, 9, 15, 18, 999])
def test_init_fails_as_planned(nvml_scenario: MakeScenario, code: int) -> None:
    scenario = nvml_scenario()
    scenario.error("nvmlInitWithFlags", code)
    with program(scenario, start="None") as other:
        assert other.ask("nvmlInit()") == error(code)


def test_an_error_strikes_one_gpu_after_some_calls_and_ends(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(gpus=2)
    scenario.error("nvmlDeviceGetMemoryInfo", 15, gpu=1, after=1, times=2)
    scenario.error("nvmlDeviceGetName", 4)
    used = "nvmlDeviceGetMemoryInfo(h({}), nvmlMemory_v2).total"
    with program(scenario) as other:
        assert [other.ask(used.format(1)) for _ in range(4)] == [80 * GIB, error(15), error(15), 80 * GIB]
        assert other.ask(used.format(0)) == 80 * GIB
        assert other.ask("nvmlDeviceGetName(h(0))") == error(4)


def test_a_gpu_is_lost_and_comes_back_while_the_program_runs(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(gpus=2)
    with program(scenario) as other:
        other.ask("globals().update(kept=h(1))")
        scenario.error("*", 15, gpu=1)
        scenario.write()
        time.sleep(0.03)
        assert other.ask("h(1)") == error(15)
        assert other.ask("nvmlDeviceGetPowerUsage(kept)") == error(15)
        assert other.ask("nvmlDeviceGetPowerUsage(h(0))") == 400_000
        scenario.clear_trouble()
        scenario.gpus[1].set(power_w=Failure(999), util=5)
        scenario.write()
        time.sleep(0.03)
        assert other.ask("nvmlDeviceGetUtilizationRates(kept).gpu") == 5
        assert other.ask("nvmlDeviceGetPowerUsage(kept)") == error(999)


def test_a_driver_that_is_reloaded_knows_only_who_begins_anew(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(gpus=2)
    with program(scenario) as other:
        for loads, answer in ((0, error(9)), (2, error(999))):
            scenario.loads = loads
            scenario.write()
            time.sleep(0.03)
            assert other.ask("nvmlDeviceGetCount()") == answer
        assert other.ask("nvmlShutdown()") is None
        other.ask("nvmlInit()")
        assert other.ask("nvmlDeviceGetCount()") == 2


def test_gpus_may_be_counted_at_init_only(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(gpus=1)
    scenario.count_at_init = True
    with program(scenario) as other:
        scenario.gpus.append(make_gpu(1))
        scenario.write()
        time.sleep(0.03)
        assert other.ask("nvmlDeviceGetCount()") == 1
        assert other.ask("h(1)") == error(2)
        other.ask("[nvmlShutdown(), nvmlInit()]")
        assert other.ask("nvmlDeviceGetCount()") == 2


def test_a_hang_blocks_only_the_call_that_meets_it(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(gpus=2)
    scenario.hang("nvmlDeviceGetPowerUsage", 0.5, gpu=1, times=1)
    timed = "[time.monotonic(), nvmlDeviceGetPowerUsage(h({})), time.monotonic()]"
    with program(scenario) as other:
        took = {gpu: (lambda answer: answer[2] - answer[0])(other.ask(timed.format(gpu))) for gpu in (0, 1)}
    assert took[0] < took[1] >= 0.5


def test_latency_is_added_to_every_call_and_calls_are_counted(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario()
    scenario.latency_us = 5000
    with program(scenario) as other:
        begin, end = other.ask(
            "[time.monotonic(), [nvmlSystemGetDriverVersion() for _ in range(20)], time.monotonic()][::2]"
        )
    assert end - begin >= 0.1
    assert scenario.calls()["nvmlSystemGetDriverVersion"] == 20


def test_the_wave_changes_values_within_bounds_and_means(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario()
    # Short beside the time over which it is averaged, whatever a crowded machine adds to that.
    scenario.wave_s, scenario.wave_depth = 0.05, 0.5
    scenario.gpus[0].set(power_w=400)
    scenario.gpus[0].gpm[2] = 80
    with program(scenario) as other:
        watts = other.ask("[nvmlDeviceGetPowerUsage(h(0)) / 1000 for _ in range(20) if not time.sleep(0.02)]")
        (average,) = other.ask("pair(h(0), 0.4)")
    assert 199 < min(watts) < 250 and 350 < max(watts) < 401
    assert average == pytest.approx([60], abs=3), "the wave averages to 1 - depth / 2"


def test_xid_events_reach_a_set_once(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(gpus=2)
    with program(scenario) as other:
        other.ask("globals().update(s=nvmlEventSetCreate())")
        other.ask("[nvmlDeviceRegisterEvents(h(i), nvmlEventTypeXidCriticalError, s) for i in (0, 1)]")
        assert other.ask("nvmlEventSetWait_v2(s, 1)") == error(10)
        scenario.gpus[1].xids.append(79)
        scenario.write()
        wait = "(lambda e: [nvmlDeviceGetIndex(e.device), e.eventType, e.eventData])(nvmlEventSetWait_v2(s, 500))"
        assert other.ask(wait) == [1, 8, 79]
        assert other.ask("nvmlEventSetWait_v2(s, 1)") == error(10)
        assert other.ask("nvmlEventSetFree(s)") is None


def test_a_function_that_the_library_lacks_is_not_found(nvml_scenario: MakeScenario) -> None:
    with program(nvml_scenario()) as other:
        assert other.ask("nvmlDeviceGetVirtualizationMode(h(0))") == error(13)
