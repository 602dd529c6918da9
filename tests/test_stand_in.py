"""The stand-in NVML library, seen through the real nvidia-ml-py in another process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.nvml.stand_in import GIB, Failure, Process, Scenario, make_gpu, split, uuid_of

pytestmark = pytest.mark.nvml

MakeScenario = Callable[..., Scenario]

# The other side of a conversation: evaluates one expression a line and answers in JSON; an NVML error is its code.
ANSWERER = """
import json, sys, time
import pynvml
from pynvml import *
def h(index): return nvmlDeviceGetHandleByIndex(index)
def mig(gpu, index): return nvmlDeviceGetMigDeviceHandleByIndex(h(gpu), index)
def facts(struct): return {name: getattr(struct, name) for name, *_ in struct._fields_}
def text(value): return value.decode() if isinstance(value, bytes) else value
def fields(index, ids):
    values = nvmlDeviceGetFieldValues(h(index), ids)
    return [v.nvmlReturn or (v.value.uiVal if v.valueType == 1 else v.value.ullVal) for v in values]
def pair(handle, wait, ids=(2,), first=None):
    samples = [nvmlGpmSampleAlloc(), nvmlGpmSampleAlloc()]
    try:
        nvmlGpmSampleGet(handle, samples[0])
        time.sleep(wait)
        nvmlGpmSampleGet(handle, samples[1])
        request = c_nvmlGpmMetricsGet_t(version=1, numMetrics=len(ids), sample1=samples[0], sample2=samples[1])
        for metric, number in zip(request.metrics, ids): metric.metricId = number
        nvmlGpmMetricsGet(request)
        return [request.metrics[i].nvmlReturn or [request.metrics[i].value] for i in range(len(ids))]
    finally:
        for sample in samples: nvmlGpmSampleFree(sample)
for line in sys.stdin:
    try:
        answer = eval(line)
    except NVMLError as error:
        answer = {"error": error.value}
    print(json.dumps(answer, default=text), flush=True)
"""


class Program:
    """A process that uses nvidia-ml-py; ``ask`` gives it an expression and returns what it evaluates to."""

    def __init__(self, process: subprocess.Popen[str]):
        self._process = process

    def ask(self, expression: str) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(expression + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def program(scenario: Scenario, start: str = "nvmlInit()") -> Iterator[Program]:
    scenario.write()
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", ANSWERER]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=scenario.environment()) as process:
        other = Program(process)
        other.ask(start)
        yield other
        assert process.stdin is not None
        process.stdin.close()


def error(code: int) -> dict[str, int]:
    return {"error": code}


def test_a_gpu_is_found_by_index_uuid_and_pci_address(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(gpus=3)
    with program(scenario) as other:
        assert other.ask("nvmlDeviceGetCount()") == 3
        assert other.ask("nvmlDeviceGetUUID(h(2))") == uuid_of(2)
        assert other.ask(f"nvmlDeviceGetIndex(nvmlDeviceGetHandleByUUID('{uuid_of(1)}'))") == 1
        assert other.ask("nvmlDeviceGetIndex(nvmlDeviceGetHandleByPciBusId('00000000:1C:00.0'))") == 2
        assert other.ask("facts(nvmlDeviceGetPciInfo(h(1)))")["busId"] == "00000000:1B:00.0"
        assert other.ask("h(3)") == error(2)
        assert other.ask("nvmlDeviceGetHandleByUUID('GPU-nobody')") == error(6)


def test_plain_values_come_back_in_the_units_of_nvml(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario()
    scenario.gpus[0].set(util=73, mem_util=21, power_w=321.5, temp_c=64, sm_clock_mhz=1755, throttle=0x44, fan=None)
    scenario.gpus[0].set(mem_used_bytes=7 * GIB + 1, mem_reserved_bytes=GIB, pcie_gen=4, pcie_width=8, mem_temp_c=81)
    with program(scenario) as other:
        assert other.ask("facts(nvmlDeviceGetUtilizationRates(h(0)))") == {"gpu": 73, "memory": 21}
        assert other.ask("nvmlDeviceGetPowerUsage(h(0))") == 321_500
        assert other.ask("nvmlDeviceGetEnforcedPowerLimit(h(0))") == 700_000
        assert other.ask("nvmlDeviceGetTemperature(h(0), NVML_TEMPERATURE_GPU)") == 64
        # The oldest nvidia-ml-py that is supported has no name for the newer call.
        assert other.ask("globals().get('nvmlDeviceGetTemperatureV', nvmlDeviceGetTemperature)(h(0), 0)") == 64
        assert other.ask("nvmlDeviceGetClockInfo(h(0), NVML_CLOCK_SM)") == 1755
        assert other.ask("nvmlDeviceGetMaxClockInfo(h(0), NVML_CLOCK_SM)") == 1980
        assert other.ask("nvmlDeviceGetCurrentClocksThrottleReasons(h(0))") == 0x44
        assert other.ask("nvmlDeviceGetCurrentClocksEventReasons(h(0))") == 0x44
        assert other.ask("nvmlDeviceGetCurrPcieLinkWidth(h(0))") == 8
        assert other.ask("nvmlDeviceGetCurrPcieLinkGeneration(h(0))") == 4
        assert other.ask("nvmlDeviceGetFanSpeed(h(0))") == error(3)
        assert other.ask("nvmlDeviceGetNumGpuCores(h(0))") == 132 * 128
        assert other.ask("facts(nvmlDeviceGetMemoryInfo(h(0)))")["used"] == 8 * GIB + 1
        memory = other.ask("facts(nvmlDeviceGetMemoryInfo(h(0), nvmlMemory_v2))")
        assert (memory["used"], memory["reserved"], memory["total"]) == (7 * GIB + 1, GIB, 80 * GIB)
        assert other.ask("fields(0, [82, 186, 999])") == [81, 321_500, 3]
        assert other.ask("nvmlSystemGetDriverVersion()") == scenario.driver


def test_nvlink_states_speeds_and_remote_ends_follow_the_active_links(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario()
    scenario.gpus[0].set(nvlink_links=18, nvlink_active=17)
    with program(scenario) as other:
        assert other.ask("[nvmlDeviceGetNvLinkState(h(0), link) for link in (0, 16, 17)]") == [1, 1, 0]
        assert other.ask("nvmlDeviceGetNvLinkState(h(0), 18)") == error(2)
        assert other.ask("facts(nvmlDeviceGetNvLinkRemotePciInfo(h(0), 1))")["busId"] == "00000000:C1:00.0"
        assert other.ask("fields(0, [90, 91, (164, 3), (165, 17)])") == [26562, 18, 26562, 0]


def test_counters_are_the_integral_of_their_rates(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario()
    scenario.gpus[0].set(power_w=1000, pcie_rx_mib=1000, nvlink_tx_mib=1000)
    asked = "[time.monotonic(), fields(0, [83, 198, (138, 0xffffffff)]), time.monotonic(), time.sleep(0.2)]"
    with program(scenario) as other:
        (begun, before, since, _), (until, after, ended, _) = other.ask(asked), other.ask(asked)
    # Between the two readings lies at least until - since, at most ended - begun.
    for grown, rate in zip((b - a for a, b in zip(before, after, strict=True)), (1e6, 1048576e3, 1024e3), strict=True):
        assert 0.9 * rate * (until - since) <= grown <= 1.1 * rate * (ended - begun)


def test_processes_carry_their_memory_type_and_load(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario()
    scenario.gpus[0].processes += [Process(101, GIB, "C", sm=33, mem=4), Process(102, None, "G")]
    pids = "[[p.pid, p.usedGpuMemory, p.gpuInstanceId] for p in {}(h(0))]"
    with program(scenario) as other:
        for version in ("", "_v2", "_v3"):
            assert other.ask(pids.format("nvmlDeviceGetComputeRunningProcesses" + version)) == [[101, GIB, 0xFFFFFFFF]]
        assert other.ask(pids.format("nvmlDeviceGetGraphicsRunningProcesses")) == [[102, None, 0xFFFFFFFF]]
        assert other.ask(pids.format("nvmlDeviceGetMPSComputeRunningProcesses")) == []
        assert other.ask("[[s.pid, s.smUtil] for s in nvmlDeviceGetProcessUtilization(h(0), 0)]") == [
            [101, 33],
            [102, 0],
        ]
        assert other.ask("[[s.pid, s.memUtil] for s in nvmlDeviceGetProcessesUtilizationInfo(h(0), 0)]")[0] == [101, 4]
        assert other.ask("nvmlDeviceGetProcessUtilization(h(0), int(2e6 * time.time()))") == error(6)


def test_gpm_averages_over_the_pair_and_moves_apart_from_utilisation(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario()
    scenario.gpus[0].set(util=100)
    scenario.gpus[0].gpm.update({2: 12.25, 5: Failure(3), 11: math.nan})
    with program(scenario) as other:
        assert other.ask("nvmlGpmQueryDeviceSupport(h(0)).isSupportedDevice") == 1
        sm, tensor, fp64, unknown = other.ask("pair(h(0), 0.12, (2, 5, 11, 30))")
        assert sm == pytest.approx([12.25], abs=1e-6) and tensor == 3 and math.isnan(fp64[0]) and unknown == 3
        assert math.isnan(other.ask("pair(h(0), 0.01)")[0][0]), "a pair closer than 100 ms gives NaN"
        assert other.ask("nvmlDeviceGetUtilizationRates(h(0)).gpu") == 100


def test_a_change_within_a_gpm_pair_is_weighted_by_time(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario()
    scenario.gpus[0].gpm[2] = 100
    start = (
        "globals().update(a=nvmlGpmSampleAlloc(), b=nvmlGpmSampleAlloc())"
        " or [time.time(), nvmlGpmSampleGet(h(0), a) and time.time()]"
    )
    stop = (
        "[time.time(), nvmlGpmSampleGet(h(0), b) and time.time(),"
        " nvmlGpmMetricsGet((r := c_nvmlGpmMetricsGet_t(1, 1, a, b), setattr(r.metrics[0], 'metricId', 2))[0])"
        ".metrics[0].value]"
    )
    with program(scenario) as other:
        begun = other.ask(start)
        time.sleep(0.15)
        scenario.gpus[0].gpm[2] = 0
        scenario.write()
        changed = scenario.path.stat().st_mtime
        time.sleep(0.15)
        *ended, average = other.ask(stop)
    shares = [100 * (changed - begin) / (end - begin) for begin in begun for end in ended]
    assert min(shares) - 10 < average < max(shares) + 10


def test_gpm_samples_that_are_not_freed_show_in_the_session_log(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario()
    with program(scenario) as other:
        other.ask("pair(h(0), 0) and globals().update(kept=nvmlGpmSampleAlloc())")
        other.ask("nvmlShutdown()")
        assert other.ask("nvmlDeviceGetCount()") == error(1)
    assert scenario.sessions()[-1].split()[1:] == ["shutdown", "samples=1", "event_sets=0"]


def test_a_gpu_without_gpm_refuses_samples(nvml_scenario: MakeScenario) -> None:
    with program(nvml_scenario(model="NVIDIA A100-SXM4-80GB")) as other:
        assert other.ask("nvmlGpmQueryDeviceSupport(h(0)).isSupportedDevice") == 0
        assert other.ask("pair(h(0), 0)") == error(3)


def test_mig_instances_have_their_own_handles_memory_processes_and_gpm(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(gpus=2)
    split(scenario.gpus[1], 1, instances=2)
    scenario.gpus[1].instances[1].processes.append(Process(77, GIB))
    scenario.gpus[1].instances[1].gpm[2] = 61
    with program(scenario) as other:
        assert other.ask("nvmlDeviceGetMigMode(h(1))") == [1, 1]
        assert other.ask("nvmlDeviceGetUtilizationRates(h(1)).gpu") == error(3)
        assert other.ask("nvmlDeviceGetUUID(mig(1, 1))").startswith("MIG-")
        assert other.ask("nvmlDeviceGetIndex(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig(1, 1)))") == 1
        assert other.ask("mig(1, 2)") == error(6)
        assert other.ask("nvmlDeviceGetAttributes_v2(mig(1, 0)).multiprocessorCount") == 16
        assert other.ask("nvmlDeviceGetMemoryInfo(mig(1, 0)).total") == 10 * GIB
        seen = "[[p.pid, p.gpuInstanceId] for p in nvmlDeviceGetComputeRunningProcesses({})]"
        assert [other.ask(seen.format(x)) for x in ("h(1)", "mig(1, 0)", "mig(1, 1)")] == [[[77, 8]], [], [[77, 8]]]
        assert other.ask("pair(mig(1, 1), 0.12)")[0] == pytest.approx([61], abs=1e-6)
        assert other.ask("nvmlGpmMigSampleGet(h(1), 3, nvmlGpmSampleAlloc())") == error(6)


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
