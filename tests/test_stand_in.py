"""The stand-in NVML library, seen through the real nvidia-ml-py in another process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest

from tests.nvml.answerer import error, program
from tests.nvml.stand_in import GIB, Failure, Process, Scenario, split, uuid_of

pytestmark = pytest.mark.nvml
MakeScenario = Callable[..., Scenario]


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
