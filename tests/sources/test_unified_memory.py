"""A GPU without memory of its own (GB10, Thor): what its processes hold of the host's, judged by what the host has."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import GpuSample, HostSample
from gputop.paint.words import memory
from tests.nvml.stand_in import GIB, Process, Scenario
from tests.support.local_reader import Run
from tests.support.scenes import gpu, snap, train

MakeScenario = Callable[..., Scenario]
HOST = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def unified(scenario: Scenario) -> Scenario:
    """The one GPU as a GB10 answers: no memory, no power limit, PCIe x1, an engine counter that stays 0."""
    scenario.gpus[0].set(mem_used_bytes=None, mem_total_bytes=None, power_limit_w=None, pcie_width=1)
    scenario.gpus[0].gpm[1] = 0
    scenario.error("nvmlDeviceGetMemoryInfo", 3)
    return scenario


@pytest.mark.nvml
def test_its_memory_is_what_its_processes_hold_of_the_host_s(nvml_scenario: MakeScenario) -> None:
    scenario = unified(nvml_scenario(1))
    scenario.gpus[0].processes = [Process(1, 3 * GIB), Process(os.getpid(), 2 * GIB)]
    sample = Run(scenario, "once").gpu(0)
    assert sample["static"]["unified_memory"] is True
    assert (sample["mem_used_bytes"], sample["mem_total_bytes"]) == (5 * GIB, HOST)
    assert sample["power_limit_w"] is None and "mem_used_bytes" not in sample["unavailable"]
    assert sample["graphics_active_pct"] is None
    assert "stays 0" in sample["unavailable"]["graphics_active_pct"]


@pytest.mark.nvml
def test_where_one_process_does_not_tell_there_is_no_sum(nvml_scenario: MakeScenario) -> None:
    scenario = unified(nvml_scenario(1))
    scenario.gpus[0].processes = [Process(1, 3 * GIB), Process(os.getpid(), None)]
    sample = Run(scenario, "once").gpu(0)
    assert (sample["mem_used_bytes"], sample["mem_total_bytes"]) == (None, HOST)
    assert "does not say what each process holds" in sample["unavailable"]["mem_used_bytes"]


@pytest.mark.nvml
def test_a_driver_that_refuses_all_but_the_count_is_not_taken_for_a_unified_one(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(1)
    scenario.gpus[0].processes = [Process(os.getpid(), GIB)]
    scenario.gpus[0].gpm.clear()
    scenario.gpus[0].values.update(dict.fromkeys(scenario.gpus[0].values, None))
    for name in ("MemoryInfo", "ComputeRunningProcesses", "GraphicsRunningProcesses", "MPSComputeRunningProcesses"):
        scenario.error(f"nvmlDeviceGet{name}", 3)
    sample = Run(scenario, "once").gpu(0)
    assert sample["static"]["unified_memory"] is None and sample["lost_reason"] is None
    for key in ("util_pct", "mem_used_bytes", "mem_total_bytes", "power_w", "temp_c", "sm_active_pct"):
        assert sample[key] is None and sample["unavailable"][key], key


def sample(**changes: Any) -> GpuSample:
    made = gpu(mem_used_bytes=float(20 * GIB), mem_total_bytes=float(120 * GIB), **changes)
    return replace(made, static=replace(made.static, unified_memory=True))


def judged(one: GpuSample, host_used: float) -> GpuDiagnosis:
    diagnoser = Diagnoser()
    host = HostSample(mem_used_bytes=host_used * GIB, mem_total_bytes=float(120 * GIB))
    for second in range(60):
        (said,) = diagnoser.observe(replace(snap(second, one, [train(main=30.0)]), host=host))
    return said


def test_it_is_full_when_the_host_is_and_not_by_what_its_processes_hold() -> None:
    (badge,) = [badge for badge in judged(sample(), 117.0).badges if badge.id == "memory_full"]
    assert "host's memory" in badge.evidence
    assert "memory_full" not in [badge.id for badge in judged(sample(), 60.0).badges]
    assert "memory_full" not in [
        badge.id for badge in judged(replace(sample(), mem_used_bytes=120.0 * GIB), 60.0).badges
    ]


def test_its_narrow_pcie_link_is_no_degraded_one() -> None:
    narrow = {"pcie_width": 1, "pcie_width_max": 16, "pcie_gen": 1, "pcie_gen_max": 5}
    assert "pcie_degraded" not in [badge.id for badge in judged(sample(**narrow), 60.0).badges]
    assert "pcie_degraded" in [badge.id for badge in judged(gpu(**narrow), 60.0).badges]


def test_the_screen_says_that_it_is_the_host_s() -> None:
    assert memory(sample()).endswith("GiB unified")
    assert memory(gpu()).endswith("GiB")
