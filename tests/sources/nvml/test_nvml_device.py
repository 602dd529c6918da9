"""How one GPU is found, lost, found again and split, with pynvml's calls replaced and time given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gputop.sources.nvml.gpu_device import Device
from gputop.sources.nvml.handle import Handle, reason
from gputop.sources.selection import MachineOptions


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What NVML answers to a device's calls, by their names; whatever is not there is not supported."""
    given: dict[str, Any] = {
        "nvmlDeviceGetHandleByIndex": "handle",
        "nvmlDeviceGetUUID": "GPU-a",
        "nvmlDeviceGetName": "H100",
        "nvmlDeviceGetPowerUsage": 100_000,
    }

    def run_bare(_: Handle, name: str, *arguments: Any) -> Any:
        answer = given.get(name, pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED))
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Handle, "run_bare", run_bare)
    return given


def test_a_lost_gpu_is_looked_for_again_by_its_uuid(answers: dict[str, Any]) -> None:
    device = Device(0, MachineOptions(), lambda _: [])
    assert device.find(0, "570", 1000.0) == "GPU-a"
    assert device.read(0.0, 1000.0, "none").power_w == 100.0
    answers["nvmlDeviceGetPowerUsage"] = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    lost = device.read(1.0, 1001.0, 79)
    assert (lost.power_w, lost.lost_since, lost.static.name, lost.xid) == (None, 1001.0, "H100", 79)
    assert device.is_due
    answers["nvmlDeviceGetPowerUsage"] = 90_000
    answers["nvmlDeviceGetUUID"] = "GPU-b"
    assert device.find(0, "570", 1010.0) == "GPU-b"
    assert device.read(10.0, 1010.0, "none").lost_since == 1001.0
    answers["nvmlDeviceGetUUID"] = "GPU-a"
    assert device.find(1, "570", 1020.0) == "GPU-a"
    back = device.read(20.0, 1020.0, "none")
    assert (back.lost_reason, back.lost_since, back.power_w, back.static.index) == (None, None, 90.0, 0)


CORE = {
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=90, memory=40),
    "nvmlDeviceGetPowerUsage": 100_000,
    "nvmlDeviceGetTemperature": 60,
    "nvmlDeviceGetClockInfo": 1400,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=1 << 30, total=80 << 30),
}


def failing(code: int, *spared: str) -> dict[str, Any]:
    return {name: pynvml.NVMLError(code) for name in CORE if name not in spared}


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_DRIVER_NOT_LOADED])
def test_a_gpu_is_lost_when_every_core_question_fails_twice_and_stays_so_until_one_is_answered(
    answers: dict[str, Any], code: int
) -> None:
    device = Device(0, MachineOptions(), lambda _: [])
    device.find(0, "570", 1000.0)
    answers.update(failing(code))
    first = device.read(0.0, 1000.0, "none")
    assert (first.lost_reason, first.util_pct, first.unavailable["util_pct"]) == (None, None, reason(code))
    for t in (1001.0, 1011.0):
        assert device.read(t, t, "none").lost_since == 1001.0
        device.find(0, "570", t + 5.0)
    answers.update(CORE)
    back = device.read(1020.0, 1020.0, "none")
    assert (back.lost_reason, back.lost_since, back.util_pct) == (None, None, 90)


@pytest.mark.parametrize("name", CORE)
def test_one_core_question_that_fails_costs_its_own_values_alone(answers: dict[str, Any], name: str) -> None:
    """As utilisation under WSL 2."""
    device = Device(0, MachineOptions(), lambda _: [])
    answers.update(CORE)
    device.find(0, "570", 1000.0)
    answers[name] = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
    for t in range(5):
        sample = device.read(float(t), 1000.0 + t, "none")
        assert sample.lost_reason is None
        assert sum(value is None for value in (sample.util_pct, sample.power_w, sample.temp_c)) <= 1
    # Asked for as if it were a slip, then once a minute.
    answers[name] = CORE[name]
    missing = set(device.read(30.0, 1030.0, "none").unavailable)
    assert missing > set(device.read(70.0, 1070.0, "none").unavailable)


def test_a_slip_of_the_driver_is_over_with_the_next_sample(answers: dict[str, Any]) -> None:
    device = Device(0, MachineOptions(), lambda _: [])
    answers.update(CORE)
    device.find(0, "570", 1000.0)
    answers.update(failing(pynvml.NVML_ERROR_UNKNOWN, "nvmlDeviceGetPowerUsage"))
    assert device.read(0.0, 1000.0, "none").util_pct is None
    answers.update(CORE)
    assert device.read(1.0, 1001.0, "none").util_pct == 90


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_driver_that_times_out_or_forbids_loses_no_gpu(answers: dict[str, Any], code: int) -> None:
    device = Device(0, MachineOptions(), lambda _: [])
    device.find(0, "570", 1000.0)
    answers.update(failing(code))
    for t in range(5):
        sample = device.read(float(t), 1000.0 + t, "none")
        assert (sample.lost_reason, sample.unavailable["power_w"]) == (None, reason(code))


def test_a_gpu_in_good_order_is_not_asked_for_its_facts_again(answers: dict[str, Any]) -> None:
    device = Device(0, MachineOptions(), lambda _: [])
    device.find(0, "570", 1000.0)
    answers["nvmlDeviceGetName"] = "another name"
    answers["nvmlDeviceGetHandleByIndex"] = "newer handle"
    device.find(0, "570", 1001.0)
    assert (device.static.name, device.handle.raw, device.times_found) == ("H100", "newer handle", 1)
    device.stale = True
    device.find(0, "580", 1002.0)
    assert (device.static.name, device.static.driver, device.times_found) == ("another name", "580", 2)


def test_instances_that_cannot_be_listed_are_not_taken_for_destroyed(answers: dict[str, Any]) -> None:
    answers["nvmlDeviceGetMigMode"] = (1, 1)
    answers["nvmlDeviceGetMaxMigDeviceCount"] = 1
    answers["nvmlDeviceGetMigDeviceHandleByIndex"] = "instance"
    device = Device(0, MachineOptions(), lambda _: [])
    device.find(0, "570", 1000.0)
    assert device.mig_devices(0.0, 1000.0) == {"GPU-a": 0}
    answers["nvmlDeviceGetMigDeviceHandleByIndex"] = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
    assert device.mig_devices(1.0, 1001.0) is None
    answers["nvmlDeviceGetMigDeviceHandleByIndex"] = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    assert device.mig_devices(2.0, 1002.0) == {}
    answers["nvmlDeviceGetMigMode"] = pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
    assert device.mig_devices(3.0, 1003.0) is None
    answers["nvmlDeviceGetMigMode"] = (0, 0)
    assert device.mig_devices(100.0, 1100.0) == {}
    assert device.static.mig_enabled is False


def test_a_byte_counter_is_of_the_moment_at_which_it_was_asked(
    answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first read of a slow driver takes long before it comes to the counters, the second does not."""
    field = pynvml.c_nvmlFieldValue_t()
    field.fieldId, field.valueType = pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
    clock = [0.0]
    monkeypatch.setattr("gputop.sources.nvml.gpu_device.monotonic", lambda: clock[0])
    device = Device(0, MachineOptions(), lambda _: [])
    device.find(0, "570", 1000.0)
    answers["nvmlDeviceGetFieldValues"] = [field]
    asked = Handle.run_bare

    def slowly(handle: Handle, name: str, *arguments: Any) -> Any:
        clock[0] += 0.2 if name == "nvmlDeviceGetPowerUsage" and clock[0] < 0.1 else 0.0
        return asked(handle, name, *arguments)

    monkeypatch.setattr(Handle, "run_bare", slowly)
    field.value.ullVal = 0
    device.read(0.0, 1000.0, "none")
    clock[0], field.value.ullVal = 0.45, 250_000
    assert device.read(0.45, 1000.45, "none").pcie_tx_bytes_per_s == pytest.approx(1e6)


def test_what_a_gpu_is_built_for_is_asked_once_a_minute_and_again_when_it_was_found_anew(
    answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run_bare = Handle.run_bare

    def counting(handle: Handle, name: str, *arguments: Any) -> Any:
        asked.append(name)
        return run_bare(handle, name, *arguments)

    monkeypatch.setattr(Handle, "run_bare", counting)
    answers["nvmlDeviceGetMaxPcieLinkGeneration"] = 5
    answers["nvmlDeviceGetPerformanceState"] = 0
    device = Device(0, MachineOptions(), lambda _: [])
    device.find(0, "570", 1000.0)
    for second in range(0, 60, 5):
        device.ask_seldom(float(second), 1000.0 + second)
        sample = device.read(float(second), 1000.0 + second, "none")
        assert (sample.pcie_gen_max, sample.pstate) == (5, 0)
    assert asked.count("nvmlDeviceGetMaxPcieLinkGeneration") == 1
    assert asked.count("nvmlDeviceGetPerformanceState") > 10
    device.ask_seldom(61.0, 1061.0)
    assert asked.count("nvmlDeviceGetMaxPcieLinkGeneration") == 2
    device.lose("gone", 1062.0)
    device.find(0, "570", 1063.0)
    device.ask_seldom(63.0, 1063.0)
    assert asked.count("nvmlDeviceGetMaxPcieLinkGeneration") == 3
