"""dcgmi and an exporter under programs of gputop: asked only when allowed, and outlived by nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputop.sources.activity.dcgmi import Dmon
from gputop.sources.activity.fallback_chain import SmReadFailed
from tests.dcgm.exporter import TEXTS, exporting
from tests.dcgm.host import Host, is_gone, until
from tests.nvml.stand_in import Scenario, uuid_of

A100 = "NVIDIA A100-SXM4-80GB"
MakeScenario = Callable[..., Scenario]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path / "dcgmi.log", monkeypatch)


def local(scenario: Scenario, mode: str, **options: Any) -> dict[str, Any]:
    """One snapshot, or the doctor's report, with the stand-in dcgmi in PATH."""
    scenario.write()
    environment = {**scenario.environment(), "PATH": f"{TEXTS}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.local_reader", mode, json.dumps(options)],
        env=environment, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    return answer


NO_EXPORTER = "http://127.0.0.1:1/metrics"


@pytest.mark.nvml
def test_dcgmi_is_only_run_when_asked_for_and_left_behind_by_nobody(host: Host, nvml_scenario: MakeScenario) -> None:
    assert [gpu["sm_source"] for gpu in local(nvml_scenario(2, A100), "once", dcgm_url=NO_EXPORTER)["gpus"]] == [
        "bound",
        "bound",
    ]
    assert host.started("dmon") == []
    gpus = local(nvml_scenario(2, A100), "once", dcgm_url=NO_EXPORTER, dcgmi=True)["gpus"]
    assert [(gpu["sm_source"], gpu["sm_active_pct"]) for gpu in gpus] == [("dcgmi", 37.5), ("dcgmi", 88.8)]
    assert gpus[0]["sm_window_s"] == 1.0
    assert all(is_gone(pid) for pid in host.started("dmon"))


WATCHING = """
import sys, time
from gputop.sources.activity.dcgmi import Dmon
from tests.nvml.stand_in import uuid_of
dmon = Dmon(0.25, sys.argv[1])
dmon.activity(uuid_of(0), time.monotonic())
time.sleep(60)
"""


@pytest.mark.parametrize("does", ["rows", "silent"])
def test_a_dmon_does_not_outlive_a_program_that_is_killed(host: Host, does: str) -> None:
    host.does(does)
    with subprocess.Popen([sys.executable, "-c", WATCHING, str(TEXTS / "dcgmi")]) as program:
        for _ in range(6000):
            if host.started("dmon"):
                break
            time.sleep(0.01)
        (pid,) = host.started("dmon")
        assert not is_gone(pid, tries=5)
        program.kill()
        program.wait()
        assert is_gone(pid)


def test_a_program_that_cannot_be_executed_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "dcgmi"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    reader = Dmon(1.0, str(broken), restart_s=0.02)
    failure = until(reader, lambda got: isinstance(got, SmReadFailed))
    assert f"cannot run {broken}: Exec format error" in failure.reason
    reader.stop()


@pytest.mark.slow
@pytest.mark.nvml
def test_the_doctor_asks_dcgmi_only_when_allowed(host: Host, nvml_scenario: MakeScenario) -> None:
    def dcgmi_row(**options: Any) -> Any:
        (gpu,) = local(nvml_scenario(1, A100), "doctor", dcgm_url=NO_EXPORTER, **options)["gpus"]
        return gpu["rungs"][2]

    assert dcgmi_row()["fix"] == "gputop --dcgmi"
    assert host.started("discovery") == []
    assert dcgmi_row(dcgmi=True)["ok"]


@pytest.mark.slow
@pytest.mark.nvml
def test_a_running_exporter_measures_what_gpm_cannot(nvml_scenario: MakeScenario) -> None:
    text = "".join(f'DCGM_FI_PROF_SM_ACTIVE{{gpu="0",UUID="{uuid_of(gpu)}"}} 0.{gpu + 1}\n' for gpu in range(2))
    with exporting(text) as exporter:
        scenario = nvml_scenario(2, A100)
        scenario.write()
        options = json.dumps({"dcgm_url": exporter.url, "least": 4})
        done = subprocess.run(
            [sys.executable, "-m", "tests.support.local_reader", "live", "1.6", options],
            env=scenario.environment(), capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    *_, last, _end = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(gpu["sm_source"], gpu["sm_active_pct"]) for gpu in last["gpus"]] == [
        ("dcgm-exporter", 10.0),
        ("dcgm-exporter", 20.0),
    ]
    assert exporter.asked >= 1
