"""What decides whether a GPU must be reset, by the stand-in driver and by a scripted one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gputop.cli import main
from gputop.model.xid_catalogue import RECOVERY_ACTIONS, XIDS, recovery_words
from gputop.sources.nvml.device_health import LINK_STATE, MOST_LINKS, DeviceHealth
from gputop.sources.nvml.gpu_questions import Seldom
from gputop.sources.nvml.handle import Handle, MetricAnswers
from tests.nvml.stand_in import GIB, Failure, Process, Scenario, split
from tests.support.local_reader import Run
from tests.support.pty_program import ROOT

MakeScenario = Callable[..., Scenario]


def _json(scenario: Scenario, *words: str) -> Any:
    scenario.write()
    environ = {**os.environ, **scenario.environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "gputop", *words], env=environ, capture_output=True, text=True
    )
    return json.loads(done.stdout)


@pytest.mark.nvml
def test_planted_faults_are_read_and_a_healthy_gpu_has_none(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(2)
    scenario.gpus[0].processes = [Process(os.getpid(), GIB, sm=40, mem=20, enc=3, dec=2)]
    scenario.gpus[1].set(
        recovery_action=4, nvlink_down_mask=(1 << 3) | (1 << 17), module_power_w=912.5,
        retired_pending=1, remap_corrected=5, remap_uncorrected=2,
    )  # fmt: skip
    data = _json(scenario, "once", "--json")
    well, ill = data["gpus"]
    keys = ("recovery_action", "nvlink_count", "nvlink_active", "nvlink_down", "retired_pending")
    assert [well[key] for key in keys] == [0, 18, 18, "none", False]
    assert [ill[key] for key in keys] == [4, 18, 16, "3, 17", True]
    assert (ill["module_power_w"], well["module_power_w"]) == (912.5, None)
    assert well["unavailable"]["module_power_w"] == "not supported by this GPU"
    assert (ill["remapped_rows_corrected"], ill["remapped_rows_uncorrected"]) == (5, 2)
    assert (well["serial"], well["persistence"], well["compute_mode"], well["cuda"]) == (
        "1652000000000",
        True,
        "default",
        "12.8",
    )
    (process,) = [row for row in data["processes"] if row["pid"] == os.getpid()]
    assert [process[f"gpu_{key}"] for key in ("time_pct", "mem_time_pct", "encoder_pct", "decoder_pct")] == [
        40.0, 20.0, 3.0, 2.0,
    ]  # fmt: skip


@pytest.mark.nvml
def test_doctor_lists_health_and_names_what_is_to_be_done(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(1)
    scenario.gpus[0].set(recovery_action=2, nvlink_down_mask=1 << 5, retired_pending=1)
    report = _json(scenario, "doctor", "--json", "--redact")
    (gpu,) = report["gpus"]
    assert gpu["health"]["recovery"] == "reboot the node"
    assert (gpu["health"]["nvlink_down"], gpu["health"]["serial"]) == ("5", "serial1")
    told = "\n".join(report["problems"])
    for words in ("asks for recovery: reboot the node", "NVLinks down: 5 of 18", "page retirement"):
        assert words in told


@pytest.mark.nvml
def test_health_is_read_where_utilisation_clocks_and_power_are_gone(
    nvml_scenario: MakeScenario,
) -> None:
    """As after Xid 154: temperature and memory answer alone."""
    scenario = nvml_scenario(1)
    gone = dict.fromkeys(
        ("util", "mem_util", "power_w", "sm_clock_mhz", "mem_clock_mhz"), Failure(999)
    )
    scenario.gpus[0].set(recovery_action=1, **gone)
    gpu = Run(scenario, "once").gpu(0)
    assert (gpu["lost_reason"], gpu["util_pct"], gpu["power_w"]) == (None, None, None)
    assert (gpu["recovery_action"], gpu["nvlink_active"]) == (1, 18)


@pytest.mark.nvml
def test_a_gpu_that_answers_nothing_but_its_recovery_action_still_tells_it(
    nvml_scenario: MakeScenario,
) -> None:
    scenario = nvml_scenario(1)
    scenario.gpus[0].set(recovery_action=1, util=Failure(pynvml.NVML_ERROR_RESET_REQUIRED))
    gpu = Run(scenario, "once").gpu(0)
    assert "needs a reset" in gpu["lost_reason"] and gpu["recovery_action"] == 1


@pytest.mark.nvml
def test_an_instance_says_that_health_is_its_gpus(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(1)
    split(scenario.gpus[0], 0, 1)
    run = Run(scenario, "once")
    assert run.gpu(0)["recovery_action"] == 0
    assert run.gpu(1)["recovery_action"] is None
    assert run.gpu(1)["unavailable"]["recovery_action"] == "known of the whole GPU alone"


@pytest.mark.nvml
def test_health_costs_one_call_a_gpu_in_five_seconds(nvml_scenario: MakeScenario) -> None:
    scenario = nvml_scenario(2)
    scenario.write()
    run = Run(scenario, "live", "3", interval_s=0.5, least=4)
    calls = scenario.calls()["nvmlDeviceGetFieldValues"]
    # One for the facts, one a reading, and one for health, of each GPU.
    assert calls <= 2 * (1 + len(run.snapshots) + 2 + 1)


def _field(name: int, value: int | None, code: int = 0) -> Any:
    kind = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
    return SimpleNamespace(
        fieldId=name, nvmlReturn=code, valueType=kind, value=SimpleNamespace(uiVal=value)
    )


def test_only_the_links_that_there_are_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def run_bare(_: Handle, name: str, raw: Any, fields: Any) -> Any:
        links = [field for field in fields if isinstance(field, tuple) and field[0] == LINK_STATE]
        asked.append(len(links))
        states = [_field(LINK_STATE, int(link != 1)) for _, link in links]
        return [_field(230, 0), _field(31, None, 3), _field(186, None, 3), _field(91, 4), *states]

    monkeypatch.setattr(Handle, "run_bare", run_bare)
    health, handle = DeviceHealth(), Handle("handle")
    for now in (0.0, 5.0):
        into = MetricAnswers()
        health.ask_into(handle, into, now)
        assert (into.values["nvlink_active"], into.values["nvlink_down"]) == (3, "1")
        assert into.missing["retired_pending"] == "not supported by this GPU"
    assert asked == [MOST_LINKS, 4]


def test_corrected_errors_are_a_rate_from_the_second_count_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = iter([1000, 90_500])

    def run_bare(_: Handle, name: str, raw: Any, *arguments: Any) -> Any:
        volatile = (pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_VOLATILE_ECC)
        if name == "nvmlDeviceGetTotalEccErrors" and arguments == volatile:
            return next(counts)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(Handle, "run_bare", run_bare)
    seldom, handle = Seldom(has_health=True), Handle("handle")
    seldom.ask(handle, 0.0, 0)
    assert seldom.answers.missing["ecc_corrected_per_s"] == "collecting: needs two reads"
    seldom.ask(handle, 5.0, 0)
    assert seldom.answers.values["ecc_corrected_per_s"] == 17_900.0


def test_the_catalogue_of_xids_knows_each_class() -> None:
    classes = {number: xid.cause for number, xid in XIDS.items()}
    assert {classes[number] for number in (13, 31, 43, 45, 68)} == {"program"}
    assert {classes[number] for number in (62, 79, 110, 119, 120, 145, 149, 154)} == {"device"}
    assert {classes[number] for number in (48, 63, 64, 92, 94, 95)} == {"memory"}
    assert all(xid.what and xid.action for xid in XIDS.values())
    assert recovery_words(None) is None and recovery_words(1) == RECOVERY_ACTIONS[1]
    assert recovery_words(99) == "action 99, which this version does not know"


def test_the_doctor_of_a_machine_without_a_driver_still_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["doctor", "--json", "--redact"]) in (0, 1, 3)
    assert "schema" in capsys.readouterr().out
