"""How one GPU is found, lost, found again and split, with pynvml's calls replaced and time given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gputop.sources.activity.cross_check import CrossCheck
from gputop.sources.activity.fallback_chain import ChainState, MeasuredActivity
from gputop.sources.nvml.gpu_device import Device
from gputop.sources.nvml.gpu_inventory import GpuInventory
from gputop.sources.nvml.gpu_questions import ask_memory_into
from gputop.sources.nvml.gpu_sleep import Sleep
from gputop.sources.nvml.handle import Handle, MetricAnswers
from gputop.sources.nvml.nvml_errors import reason
from gputop.sources.selection import MachineOptions
from tests.nvml.stand_in import Scenario
from tests.support.local_reader import Run


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
    assert (back.lost_reason, back.lost_since, back.power_w, back.static.index) == (
        None,
        None,
        90.0,
        0,
    )


CORE = {
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=90, memory=40),
    "nvmlDeviceGetPowerUsage": 100_000,
    "nvmlDeviceGetTemperature": 60,
    "nvmlDeviceGetClockInfo": 1400,
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=1 << 30, total=80 << 30),
}


def failing(code: int, *spared: str) -> dict[str, Any]:
    return {name: pynvml.NVMLError(code) for name in CORE if name not in spared}


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_UNKNOWN, "unknown error"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "the driver was unloaded: sudo modprobe nvidia"),
        (
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            "upgraded under us: reload the nvidia modules or reboot",
        ),
    ],
)
def test_a_gpu_is_lost_when_every_core_question_fails_twice_and_stays_so_until_one_is_answered(
    answers: dict[str, Any], code: int, words: str
) -> None:
    device = Device(0, MachineOptions(), lambda _: [])
    device.find(0, "570", 1000.0)
    answers.update(failing(code))
    first = device.read(0.0, 1000.0, "none")
    assert (first.lost_reason, first.util_pct, first.unavailable["util_pct"]) == (
        None,
        None,
        reason(code),
    )
    for t in (1001.0, 1011.0):
        lost = device.read(t, t, "none")
        assert lost.lost_since == 1001.0 and words in (lost.lost_reason or "")
        device.find(0, "570", t + 5.0)
    answers.update(CORE)
    back = device.read(1020.0, 1020.0, "none")
    assert (back.lost_reason, back.lost_since, back.util_pct) == (None, None, 90)


@pytest.mark.parametrize("name", CORE)
def test_one_core_question_that_fails_costs_its_own_values_alone(
    answers: dict[str, Any], name: str
) -> None:
    """As utilisation under WSL 2."""
    device = Device(0, MachineOptions(), lambda _: [])
    answers.update(CORE)
    device.find(0, "570", 1000.0)
    answers[name] = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
    for t in range(5):
        sample = device.read(float(t), 1000.0 + t, "none")
        assert sample.lost_reason is None
        assert sum(value is None for value in (sample.util_pct, sample.power_w, sample.temp_c)) <= 1
    # Asked for as if it were a slip, then ever more seldom.
    answers[name] = CORE[name]
    missing = set(device.read(5.0, 1005.0, "none").unavailable)
    assert missing > set(device.read(70.0, 1070.0, "none").unavailable)


def test_what_the_source_in_use_never_measures_says_so_and_is_not_on_its_way(
    answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ChainState("counters", MeasuredActivity({"sm_active_pct": 41.0}, {}, 1.0, 0.0))
    monkeypatch.setattr(CrossCheck, "standing", lambda *_: found)
    device = Device(0, MachineOptions(), lambda _: [])
    device.find(0, "570", 1000.0)
    sample = device.read(0.0, 1000.0, "none")
    assert (sample.sm_active_pct, sample.unavailable["int_active_pct"]) == (
        41.0,
        "not measured by counters",
    )


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_TIMEOUT, pynvml.NVML_ERROR_NO_PERMISSION])
def test_a_driver_that_times_out_or_forbids_loses_no_gpu(
    answers: dict[str, Any], code: int
) -> None:
    device = Device(0, MachineOptions(), lambda _: [])
    device.find(0, "570", 1000.0)
    answers.update(failing(code))
    for t in range(5):
        sample = device.read(float(t), 1000.0 + t, "none")
        assert (sample.lost_reason, sample.unavailable["power_w"]) == (None, reason(code))


def test_instances_that_cannot_be_listed_are_not_taken_for_destroyed(
    answers: dict[str, Any],
) -> None:
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


# Which GPUs there are, asked again and again, with pynvml's calls replaced.


class Driver:
    """Plays NVML: GPUs by UUID in the order of their indices; a handle is good until they change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *uuids: str) -> None:
        self.uuids = list(uuids)
        self.failing: dict[str, int] = {}
        self.asked: list[str] = []
        self.shown = frozenset({"a"})
        monkeypatch.setattr(
            Handle, "run_bare", lambda _, name, *arguments: self._answer(name, *arguments)
        )
        self.inventory = GpuInventory(
            lambda index, parent, uuid: Device(index, MachineOptions(), lambda _: [], parent, uuid),
            lambda _ticket, _part: nullcontext(),
            lambda: self.shown,
            Sleep(sys=""),
        )

    def _answer(self, name: str, *arguments: Any) -> Any:
        self.asked.append(name)
        if name in self.failing:
            raise pynvml.NVMLError(self.failing[name])
        if name in ("nvmlInit", "nvmlShutdown"):
            return None
        if name == "nvmlDeviceGetCount":
            return len(self.uuids)
        if name == "nvmlDeviceGetHandleByIndex":
            return self.uuids[arguments[0]], tuple(self.uuids)
        if name == "nvmlDeviceGetUUID":
            uuid, then = arguments[0]
            assert then == tuple(self.uuids), "a handle of before the change"
            return uuid
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def take(self, t: float = 1000.0) -> list[tuple[int, str, str | None]]:
        """Look round; index, UUID and reason of absence of each GPU."""
        self.asked.clear()
        self.inventory.take(0, t, t)
        return [(d.static.index, d.static.uuid, d.why) for d in self.inventory.devices]


GONE = "gone: the driver no longer shows this GPU (unplugged, or taken from this container)"


def test_a_gpu_that_goes_keeps_its_entry_and_number_until_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(monkeypatch, "A", "B", "C")
    driver.take()
    driver.uuids = ["B", "C"]
    assert driver.take() == [(0, "A", GONE), (1, "B", None), (2, "C", None)]
    driver.uuids = ["C", "B", "A"]
    assert driver.take() == [(0, "A", None), (1, "B", None), (2, "C", None)]
    assert [device.handle.raw[0] for device in driver.inventory.devices] == ["A", "B", "C"]
    driver.uuids = ["D", "C", "B", "A"]
    assert driver.take()[3:] == [(3, "D", None)]


@pytest.mark.nvml
@pytest.mark.parametrize(
    ("links", "wanted"), [(0, (None, "no NVLink on this GPU")), (18, (0.0, None))]
)
def test_traffic_of_links_that_are_not_there_is_not_0(
    nvml_scenario: Callable[..., Scenario], links: int, wanted: tuple[float | None, str | None]
) -> None:
    """An H200 in a virtual machine has none of its links, and GPM gives 0 MiB/s of them."""
    scenario = nvml_scenario(1)
    scenario.gpus[0].set(nvlink_links=links, nvlink_active=links)
    scenario.gpus[0].gpm.update({60: 0, 61: 0})
    sample = Run(scenario, "once").gpu(0)
    assert sample["sm_source"] == "gpm"
    assert (
        sample["nvlink_rx_bytes_per_s"],
        sample["unavailable"].get("nvlink_rx_bytes_per_s"),
    ) == wanted


GIB = 2.0**30
WITH_RESERVE, WITHOUT = 40.6, 40.0


def used(
    handle: Handle, now: float, v2_error: int | None, monkeypatch: pytest.MonkeyPatch
) -> float | None:
    def answer(name: str, raw: object, *arguments: object) -> Any:
        if arguments and v2_error is not None:
            raise pynvml.NVMLError(v2_error)
        return SimpleNamespace(
            used=(WITHOUT if arguments else WITH_RESERVE) * GIB, total=80.0 * GIB
        )

    monkeypatch.setattr(Handle, "run_bare", staticmethod(answer))
    into = MetricAnswers()
    assert ask_memory_into(handle, into, now)
    value = into.values.get("mem_used_bytes")
    assert value is not None or into.missing["mem_used_bytes"]
    return None if value is None else value / GIB


def test_failures_of_the_newer_question_never_give_the_older_ones_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = Handle("gpu")
    assert used(handle, 0.0, None, monkeypatch) == WITHOUT
    for now in (1.0, 2.0, 3.0, 30.0, 61.0):
        assert used(handle, now, pynvml.NVML_ERROR_UNKNOWN, monkeypatch) is None
    assert used(handle, 150.0, None, monkeypatch) == WITHOUT


def test_a_driver_without_the_newer_question_answers_the_older_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (
        used(Handle("gpu"), 0.0, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, monkeypatch) == WITH_RESERVE
    )
    known = Handle("gpu")
    assert used(known, 0.0, None, monkeypatch) == WITHOUT
    assert used(known, 1.0, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, monkeypatch) == WITH_RESERVE
