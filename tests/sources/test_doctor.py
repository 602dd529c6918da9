"""``gputop doctor``'s data, with and without a driver."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.model.sm import SmOptions
from gputop.model.snapshot import GpuSample, GpuStatic, Machine, Snapshot
from gputop.output.doctor_text import doctor_text
from gputop.sources.activity.counters.access import WITH_PERFMON, Rights, advice
from gputop.sources.activity.dcgm_exporter import Exporter
from gputop.sources.doctor_report import examine, gpu_problems
from gputop.sources.doctor_sources import counters_here, source_rows
from tests.nvml.stand_in import LIBRARY, Scenario, split
from tests.support.local_reader import read

NO_EXPORTER = "http://127.0.0.1:1/metrics"


def doctor(scenario: Scenario) -> dict[str, Any]:
    (report,) = read(scenario, "doctor", dcgm_url=NO_EXPORTER)
    return dict(report)


def rows_of(gpu: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["rung"]: row for row in gpu["rungs"]}


@pytest.mark.nvml
def test_a_gpu_with_gpm_needs_nothing(nvml_scenario: Callable[..., Scenario]) -> None:
    report = doctor(nvml_scenario(4))
    assert report["schema"] == 1
    assert report["driver"] == "570.86.15"
    assert report["nvml"] == "12.570.86.15"
    assert report["library"].endswith(LIBRARY)
    assert [gpu["sm_source"] for gpu in report["gpus"]] == ["gpm"] * 4
    found = rows_of(report["gpus"][0])
    assert next(iter(found)) == "gpm" and [*found][-2:] == ["bound", "none"], "best first"
    assert {"dcgm-exporter", "dcgmi", "counters"} < set(found)
    assert found["gpm"]["ok"]
    assert found["gpm"]["fix"] is None
    assert found["bound"]["ok"]
    assert not any("SM activity" in problem for problem in report["problems"])
    report["gpus"][2]["sm_active_pct"] = 3.0
    text = doctor_text(report)
    assert [line for line in text.splitlines() if line.startswith("GPU")] == [
        "GPUs 0-3   4 × NVIDIA H100 80GB HBM3   hopper"
    ]
    assert text.count("SM activity from GPM: measured over") == 1 and "always" not in text


@pytest.mark.nvml
def test_a_lost_gpu_and_a_split_one_are_told_apart(nvml_scenario: Callable[..., Scenario]) -> None:
    scenario = nvml_scenario(3)
    split(scenario.gpus[0], 0, 1)
    scenario.error("*", 15, gpu=1)
    # As under WSL 2.
    scenario.error("nvmlDeviceGetUtilizationRates", 999, gpu=2)
    scenario.gpus[2].set(encoder=2_147_483_632)
    report = doctor(scenario)
    parent, lost, refused, instance = report["gpus"]
    assert {row["reason"] for row in parent["rungs"][:3]} == {
        "split into MIG instances: see each instance"
    }
    assert lost["lost_reason"]
    assert rows_of(instance)["gpm"]["ok"]
    first, *others = [problem for problem in report["problems"] if problem.startswith("GPU")]
    assert first.startswith("GPU 1: ") and refused["lost_reason"] is None
    assert others == [
        "GPU 2: utilisation is not measured: the driver answers with an unknown error",
        "GPU 2: ENC is not measured: the driver gives an impossible value (2.14748e+09)",
    ]


def test_without_a_driver_there_are_problems_and_no_gpus(tmp_path: Any) -> None:
    report = examine(sm=SmOptions(NO_EXPORTER), proc=str(tmp_path), terminal={"colors": 256})
    json.dumps(report)
    assert report["gpus"] == []
    assert report["driver"] is None
    assert report["problems"][0].endswith("gputop demo")
    assert report["terminal"] == {"colors": 256}
    assert report["versions"]["nvidia-ml-py"]
    assert report["kernel"]["psi"] is False
    assert any("schedstat" in problem for problem in report["problems"])
    assert any("hidepid" in problem for problem in report["problems"])


@pytest.mark.nvml
def test_a_gpu_without_gpm_says_what_would_help_and_denied_counters_the_command_that_gives_the_right(
    nvml_scenario: Callable[..., Scenario], nvperf_dir: Path, tmp_path: Path
) -> None:
    params = tmp_path / "driver/nvidia"
    params.mkdir(parents=True)
    (params / "params").write_text("RmProfilingAdminOnly: 1\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self/uid_map").write_text("0 0 4294967295\n")
    counters = counters_here("580.65", str(tmp_path), str(nvperf_dir))
    assert (counters["library"], counters["missing"]) == (str(nvperf_dir), None)
    report = doctor(nvml_scenario(1, "NVIDIA A100-SXM4-80GB"))
    (gpu,) = report["gpus"]
    found = rows_of(gpu)
    assert (
        gpu["sm_source"] == "bound" and not found["gpm"]["ok"] and not found["dcgm-exporter"]["ok"]
    )
    assert "Ampere has no GPM counters" in found["gpm"]["reason"]
    assert "DCGM_FI_PROF_SM_ACTIVE" in found["dcgm-exporter"]["fix"]
    assert any("SM activity is not measured" in problem for problem in report["problems"])
    assert counters_here(None, str(tmp_path), str(tmp_path))["missing"].startswith(
        "no libnvperf_host.so"
    )
    denied = {
        **counters,
        "allowed": False,
        "advice": list(advice(Rights(True, False, True, False))),
    }
    sample = GpuSample(GpuStatic(0, "GPU-0", "NVIDIA A100"), sm_source="bound")
    gpu["rungs"] = source_rows(sample, Exporter(), (), denied)
    report["counters"] = denied
    text = doctor_text(report)
    assert (
        "\ncounters\n  SM not measured: this driver lets only administrators read GPU counters.\n"
        in text
    )
    assert f"    {WITH_PERFMON}\n" in text, "one line, to be copied"


def test_a_card_s_health_is_a_problem() -> None:
    static = GpuStatic(3, "GPU-3", "NVIDIA H100 80GB HBM3")
    sick = GpuSample(static, sm_active_pct=80.0, remap_pending=True, ecc_uncorrected_volatile=1)
    problems = gpu_problems(
        Snapshot(1.0, Machine("n1"), gpus=(sick, replace(sick, static=replace(static, index=4))))
    )
    assert problems == [
        "GPUs 3, 4: a row remap is pending: drain the node and reset the GPU",
        "GPUs 3, 4: 1 uncorrected memory error since the driver was loaded: nvidia-smi -q -d ECC,ROW_REMAPPER",
    ]
