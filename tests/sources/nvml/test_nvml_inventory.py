"""Which GPUs there are, asked again and again, with pynvml's calls replaced."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gputop.sources.nvml.gpu_device import Device
from gputop.sources.nvml.gpu_inventory import GONE, MOST_LEFT, GpuInventory, Sleep, kernel_gpus
from gputop.sources.nvml.handle import Handle
from gputop.sources.selection import MachineOptions
from tests.support.held import held


class Driver:
    """Plays NVML: GPUs by UUID in the order of their indices; a handle is good until they change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *uuids: str) -> None:
        self.uuids = list(uuids)
        self.failing: dict[str, int] = {}
        self.asked: list[str] = []
        self.shown = frozenset({"a"})
        monkeypatch.setattr(Handle, "run_bare", lambda _, name, *arguments: self._answer(name, *arguments))
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


def test_nothing_new_costs_one_call_and_one_a_gpu_that_could_be_split(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, "A", "B")
    assert driver.take() == [(0, "A", None), (1, "B", None)]
    handles = driver.inventory.handles()
    driver.take()
    assert driver.asked == ["nvmlDeviceGetCount", "nvmlDeviceGetMigMode", "nvmlDeviceGetMigMode"]
    driver.take()
    assert driver.asked == ["nvmlDeviceGetCount"]
    assert driver.inventory.handles() == handles


def test_a_gpu_that_comes_first_takes_nobody_s_place_and_every_handle_is_renewed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver(monkeypatch, "A", "B")
    driver.take()
    driver.uuids.insert(0, "N")
    assert driver.take() == [(0, "A", None), (1, "B", None), (2, "N", None)]
    assert [device.handle.raw[0] for device in driver.inventory.devices] == ["A", "B", "N"]
    assert [device.times_found for device in driver.inventory.devices] == [2, 2, 1]


def test_a_gpu_that_goes_keeps_its_entry_and_number_until_it_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, "A", "B", "C")
    driver.take()
    driver.uuids = ["B", "C"]
    assert driver.take() == [(0, "A", GONE), (1, "B", None), (2, "C", None)]
    driver.uuids = ["C", "B", "A"]
    assert driver.take() == [(0, "A", None), (1, "B", None), (2, "C", None)]
    assert [device.handle.raw[0] for device in driver.inventory.devices] == ["A", "B", "C"]


def test_a_gpu_of_which_nothing_is_known_is_forgotten_when_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, "A")
    driver.failing["nvmlDeviceGetHandleByIndex"] = pynvml.NVML_ERROR_GPU_IS_LOST
    ((index, uuid, lost),) = driver.take()
    assert (index, uuid, "GPU is lost" in str(lost)) == (0, "GPU-unknown-0", True)
    driver.failing.clear()
    assert driver.take() == [(0, "A", None)]
    driver.failing["nvmlDeviceGetHandleByIndex"] = pynvml.NVML_ERROR_GPU_IS_LOST
    driver.uuids.append("B")
    assert [uuid for _, uuid, _ in driver.take()] == ["A", "GPU-unknown-1"]
    driver.failing.clear()
    driver.uuids.pop()
    assert driver.take() == [(0, "A", None)]


def test_a_call_that_was_left_behind_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, "A", "B")
    driver.failing["nvmlDeviceGetCount"] = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(pynvml.NVMLError):
        driver.take()
    driver.failing.clear()
    assert driver.take() == [(0, "A", None), (1, "B", None)]
    assert "nvmlInit" not in driver.asked
    driver.inventory.devices[1].stuck = True
    driver.inventory.shut(0)
    driver.inventory.take(0, 0.0, 0.0)
    assert [device.stale for device in driver.inventory.devices] == [False, True]


def test_mig_instances_made_anew_again_and_again_leave_few_numbers_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, "A", "B")
    driver.take()
    split, slots = driver.inventory.devices[0], dict[str, int]()
    monkeypatch.setattr(Device, "mig_devices", lambda device, *_: slots if device is split else {})
    monkeypatch.setattr(Device, "find", lambda device, *_: device.static.uuid)
    for remade in range(3 * MOST_LEFT):
        slots = {f"MIG-{remade}": 0, "MIG-stays": 1}
        driver.take()
    assert {d.static.uuid: d.static.index for d in driver.inventory.devices}["MIG-stays"] == 3
    numbers = [device.static.index for device in driver.inventory.devices]
    assert len(set(numbers)) == 4 and max(numbers) < MOST_LEFT + 6
    newest, slots = f"MIG-{remade}", {}
    driver.take()
    slots = {newest: 0}
    assert driver.take()[-1][:2] == (numbers[-1], newest), "who comes back has its number again"
    driver.inventory.departed.clear()
    assert max(size for size, _ in held(driver.inventory)) <= MOST_LEFT + 6


def test_what_the_kernel_shows_is_compared_with_when_nvml_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, "A")
    driver.take()
    assert not driver.inventory.kernel_has_changed()
    driver.shown = frozenset({"a", "b"})
    assert driver.inventory.kernel_has_changed()
    driver.inventory.shut(0)
    driver.take()
    assert driver.asked[0] == "nvmlInit"
    assert not driver.inventory.kernel_has_changed()


def test_the_kernel_shows_gpus_by_address_and_by_device_node(tmp_path: Path) -> None:
    (tmp_path / "proc" / "driver" / "nvidia" / "gpus" / "0000:1a:00.0").mkdir(parents=True)
    dev = tmp_path / "dev"
    dev.mkdir()
    for name in ("nvidia0", "nvidia12", "nvidiactl", "nvidia-uvm", "null"):
        (dev / name).touch()
    assert kernel_gpus(str(tmp_path / "proc"), str(dev)) == {"0000:1a:00.0", "nvidia0", "nvidia12"}
    assert kernel_gpus(str(tmp_path / "none"), str(tmp_path / "none")) == frozenset()
