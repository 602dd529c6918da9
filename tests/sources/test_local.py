"""The local source against a true shared library: values, MIG, choice of GPUs, and a driver in trouble."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from gputop.diagnosis.rules.device_badges import lost_badge
from gputop.model.metrics import GPU_METRICS
from gputop.sources.nvml.gpm import CLOSEST_PAIR_S
from tests.nvml.stand_in import GIB, MIB, Failure, Process, Scenario, split, uuid_of
from tests.support.local_reader import CALM_S, Run

pytestmark = pytest.mark.nvml
MakeScenario = Callable[..., Scenario]
OFTEN = {"interval_s": 0.1}


def test_a_chosen_gpu_has_the_librarys_exact_values_of_two_samples(
    nvml_scenario: MakeScenario,
) -> None:
    scenario = nvml_scenario(3)
    gpu = scenario.gpus[1]
    gpu.set(
        util=97,
        mem_util=33,
        mem_used_bytes=61 * GIB + 12345,
        power_w=412.345,
        temp_c=71,
        sm_clock_mhz=1755,
    )
    gpu.set(
        mem_clock_mhz=2600,
        pcie_gen=4,
        pcie_width=8,
        pcie_tx_mib=123,
        pcie_rx_mib=4567,
        throttle=0x24,
    )
    gpu.set(
        ecc_uncorrected=17, ecc_corrected=140, ecc_uncorrected_volatile=2, ecc_corrected_volatile=5
    )
    gpu.gpm[2] = 7.84
    gpu.processes = [
        Process(os.getpid(), 3 * GIB + 1, sm=41),
        Process(os.getppid(), None, type="G"),
    ]
    run = Run(scenario, "once", gpus=f"{uuid_of(1)},2")
    got = run.gpu(0)
    expected = {
        "util_pct": 97, "mem_util_pct": 33, "mem_used_bytes": 61 * GIB + 12345, "mem_total_bytes": 80 * GIB,
        "power_w": 412.345, "power_limit_w": 700, "temp_c": 71, "mem_temp_c": 70, "temp_slowdown_c": 90,
        "sm_clock_mhz": 1755, "sm_clock_max_mhz": 1980, "mem_clock_mhz": 2600, "pcie_gen": 4, "pcie_width": 8,
        "pcie_gen_max": 5, "pcie_width_max": 16, "pcie_tx_bytes_per_s": pytest.approx(123 * MIB),
        "pcie_rx_bytes_per_s": pytest.approx(4567 * MIB), "throttle_reasons": 0x24, "pstate": 0, "ecc_uncorrected": 17,
        "ecc_corrected": 140, "ecc_uncorrected_volatile": 2, "ecc_corrected_volatile": 5, "remap_pending": False,
        "sm_active_pct": pytest.approx(7.84, abs=0.5), "sm_source": "gpm",
    }  # fmt: skip
    assert {key: got[key] for key in expected} == expected
    # The distance of the two looks, and what a crowded machine adds.
    assert CLOSEST_PAIR_S <= got["sm_window_s"] < CALM_S
    assert got["static"] == {
        "index": 1, "uuid": uuid_of(1), "name": "NVIDIA H100 80GB HBM3", "architecture": "hopper", "sm_count": 132,
        "pci_bus_id": "00000000:1B:00.0", "driver": "570.86.15", "nvlink_peak_bytes_per_s": 18 * 26562e6,
        "mig_enabled": False, "mig_parent": None, "mig_instance": None, "unified_memory": None,
        "serial": "1652000000001", "persistence": True, "compute_mode": "default", "cuda": "12.8",
    }  # fmt: skip
    own = {
        (p["pid"], p["type"]): p["gpu_mem_bytes"]
        for p in run.last["processes"]
        if p["role"] == "gpu"
    }
    assert own == {(os.getpid(), "C"): 3 * GIB + 1, (os.getppid(), "G"): None}
    assert [gpu["static"]["index"] for gpu in run.last["gpus"]] == [1, 2]
    assert scenario.calls()["nvmlGpmSampleGet"] == 2 * 2
    assert (
        run.last["stale"] == {}
        and run.last["host"]["cpu_pct"] is not None
        and not run.end["textual"]
    )


def test_mig_instances_are_entries_of_their_own_and_every_absent_value_has_its_reason(
    nvml_scenario: MakeScenario,
) -> None:
    scenario = nvml_scenario(2)
    split(scenario.gpus[0], 0, 2)
    scenario.gpus[0].instances[1].gpm[2] = 61.0
    scenario.gpus[0].instances[1].processes = [Process(os.getpid(), GIB)]
    scenario.gpus[1].set(
        power_w=None, fan=None, encoder=Failure(4), nvlink_links=0, gpm_supported=0
    )
    scenario.error("nvmlDeviceGetComputeRunningProcesses_v3", 4, gpu=1)
    run = Run(scenario, "once", dcgm_url="http://127.0.0.1:1/metrics")
    parent, refused, first, second = run.last["gpus"]
    assert parent["static"]["mig_enabled"]
    assert parent["sm_source"] == "none"
    assert "MIG" in parent["unavailable"]["util_pct"]
    assert [g["static"]["mig_parent"] for g in (first, second)] == [uuid_of(0)] * 2
    assert [g["static"]["mig_instance"] for g in (first, second)] == ["7/0", "8/0"]
    assert (first["static"]["sm_count"], second["sm_active_pct"]) == (16, 61.0)
    assert first["mem_total_bytes"] == 10 * GIB
    assert [(p["pid"], p["gpu"]) for p in run.last["processes"] if p["role"] == "gpu"] == [
        (os.getpid(), 3)
    ]
    assert (refused["sm_active_pct"], refused["sm_source"]) == (None, "bound")
    assert any(
        notice.startswith("GPU 1: no process list: no permission") for notice in run.last["notices"]
    )
    for gpu in run.last["gpus"]:
        absent = {key for key in GPU_METRICS if gpu[key] is None}
        assert absent and absent == gpu["unavailable"].keys() - {"processes"}
        assert all(gpu["unavailable"].values())


def test_an_xid_is_an_event_and_a_gpu_lost_while_running_leaves_the_others_alone(
    nvml_scenario: MakeScenario,
) -> None:
    scenario = nvml_scenario(3)
    scenario.gpus[2].xids = [63, 94]
    scenario.error("*", 15, gpu=1, after=60)
    run = Run(scenario, "live", "0.8", least=7, **OFTEN)
    lost = run.gpu(1)
    assert lost["lost_reason"]
    assert lost["static"]["name"] == "NVIDIA H100 80GB HBM3"
    assert lost["util_pct"] is None
    since = {s["gpus"][1]["lost_since"] for s in run.snapshots if s["gpus"][1]["lost_reason"]}
    assert len(since) == 1
    assert run.snapshots[0]["t"] <= since.pop() <= run.last["t"]
    assert [gpu["sm_active_pct"] for gpu in run.last["gpus"]] == [25.0, None, 25.0]
    events = [(e["kind"], e["gpu"], e["text"]) for s in run.snapshots for e in s["events"]]
    assert sorted(events) == [
        ("gpu_lost", 1, lost["lost_reason"]),
        ("xid", 2, "Xid 63"),
        ("xid", 2, "Xid 94"),
    ]
    assert [gpu["xid"] for gpu in run.last["gpus"]][::2] == [None, 94]


def test_a_hung_call_costs_one_gpu_and_gives_it_back(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(3)
    scenario.hang("nvmlDeviceGetPowerUsage", 0.7, gpu=1, after=2, times=1)
    run = Run(scenario, "live", "1.6", hung_s=0.2, least=13, **OFTEN)
    reasons = [s["gpus"][1]["lost_reason"] for s in run.snapshots]
    hung = [i for i, reason in enumerate(reasons) if reason]
    assert reasons[hung[0]].startswith("NVML call nvmlDeviceGetPowerUsage has not returned for")
    assert (
        "reset" not in lost_badge(reasons[hung[0]]).remedy
        and "for minutes" in lost_badge(reasons[hung[0]]).remedy
    )
    assert len(hung) >= 2
    assert all(run.snapshots[i]["gpus"][2]["sm_active_pct"] == 25.0 for i in hung[1:])
    assert len({run.snapshots[i]["gpus"][1]["lost_since"] for i in hung}) == 1
    assert run.gpu(1)["lost_reason"] is None
    assert run.gpu(1)["sm_active_pct"] == 25.0
    times = [s["t"] for s in run.snapshots]
    assert times == sorted(set(times))
    assert run.end["closed_in"] < CALM_S
    assert scenario.sessions()[-1].endswith("shutdown samples=0 event_sets=0")
