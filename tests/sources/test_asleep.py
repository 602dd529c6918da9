"""A sleeping GPU is left asleep and its driver not asked; a GPU without memory of its own is judged by the host's."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.engine import Diagnoser
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.sm import SmLack
from gputop.model.snapshot import GpuSample, GpuStatic, HostSample
from gputop.monitor import Monitor
from gputop.output.ansi import plain_text
from gputop.paint.main_screen import main_screen
from gputop.paint.view import View
from gputop.sources.nvml.gpu_sleep import RELEASED_AFTER_S, Sleep
from gputop.sources.surroundings import is_wsl, no_driver
from tests.faults.row import Watcher
from tests.nvml.stand_in import GIB, Process, Scenario
from tests.support.local_reader import Run
from tests.support.scenes import gpu, snap, train

MakeScenario = Callable[..., Scenario]


class Bus:
    """A PCI bus of files: NVIDIA cards at the addresses of the stand-in's GPUs."""

    def __init__(self, folder: Path, gpus: int = 1, control: str = "auto") -> None:
        self.sys = folder / "sys"
        for number in range(gpus):
            self.card(f"0000:{0x1A + number:02x}:00.0", control=control)

    def card(
        self, address: str, vendor: int = 0x10DE, device: int = 0x2684, control: str = "auto"
    ) -> None:
        folder = self.sys / "bus/pci/devices" / address
        (folder / "power").mkdir(parents=True)
        (folder / "class").write_text("0x030000\n")
        (folder / "vendor").write_text(f"{vendor:#06x}\n")
        (folder / "device").write_text(f"{device:#06x}\n")
        (folder / "power/control").write_text(f"{control}\n")
        self.status(address, "active")

    def status(self, address: str, status: str) -> None:
        (self.sys / "bus/pci/devices" / address / "power/runtime_status").write_text(f"{status}\n")

    def sleeps(self, number: int = 0) -> None:
        self.status(f"0000:{0x1A + number:02x}:00.0", "suspended")

    def wakes(self, number: int = 0) -> None:
        self.status(f"0000:{0x1A + number:02x}:00.0", "active")


@pytest.mark.nvml
def test_where_all_gpus_sleep_the_driver_is_not_even_opened(
    nvml_scenario: MakeScenario, tmp_path: Path
) -> None:
    bus = Bus(tmp_path, 2)
    bus.sleeps(0)
    bus.sleeps(1)
    scenario = nvml_scenario(2)
    run = Run(scenario, "once", sys=str(bus.sys))
    assert scenario.calls() == {}
    assert [gpu["asleep"] for gpu in run.last["gpus"]] == [True, True]
    assert [gpu["static"]["index"] for gpu in run.last["gpus"]] == [0, 1]
    assert "10de:2684" in run.gpu(0)["static"]["name"]
    assert (
        "leaves it so" in run.gpu(0)["unavailable"]["util_pct"] and run.gpu(0)["util_pct"] is None
    )


@pytest.mark.nvml
def test_one_that_sleeps_is_not_asked_and_its_neighbour_is_measured(
    nvml_scenario: MakeScenario, tmp_path: Path
) -> None:
    bus = Bus(tmp_path, 2)
    bus.sleeps(0)
    scenario = nvml_scenario(2)
    # Whatever is asked of the sleeping one would fail this test.
    scenario.error("*", 15, gpu=0)
    run = Run(scenario, "once", sys=str(bus.sys))
    assert (run.gpu(0)["asleep"], run.gpu(0)["lost_reason"]) == (True, None)
    assert run.gpu(1)["util_pct"] == 90.0 and run.gpu(1)["static"]["index"] == 1
    assert "nvmlDeviceGetHandleByIndex" not in " ".join(scenario.calls()), (
        "an index may mean any of them"
    )


def is_asleep(snapshot: dict[str, Any]) -> bool:
    return bool(snapshot["gpus"]) and bool(snapshot["gpus"][0]["asleep"])


@pytest.mark.nvml
def test_a_gpu_that_wakes_is_measured_and_one_that_falls_asleep_is_left_alone(
    nvml_scenario: MakeScenario, tmp_path: Path
) -> None:
    bus, scenario = Bus(tmp_path), nvml_scenario(1)
    bus.sleeps()
    with Watcher(scenario, sys=str(bus.sys)) as watcher:
        watcher.until(is_asleep)
        assert scenario.calls() == {}
        bus.wakes()
        awake = watcher.until(lambda s: s["gpus"][0]["util_pct"] == 90.0)["gpus"][0]
        assert awake["static"]["uuid"].startswith("GPU-")
        bus.sleeps()
        watcher.until(is_asleep)
        asked = scenario.calls()["nvmlDeviceGetUtilizationRates"]
        again = watcher.until(is_asleep)["gpus"][0]
        assert again["static"]["uuid"] == awake["static"]["uuid"], "it is still that GPU"
        assert scenario.calls()["nvmlDeviceGetUtilizationRates"] == asked


@pytest.mark.parametrize("spoilt", ["runtime_status", "control"])
def test_a_status_that_cannot_be_read_is_awake(tmp_path: Path, spoilt: str) -> None:
    bus = Bus(tmp_path)
    bus.sleeps()
    found = []
    for spoil in (False, True):
        if spoil:
            next(bus.sys.rglob(spoilt)).unlink()
        sleep = Sleep(str(bus.sys))
        sleep.find()
        sleep.read()
        found.append(len(sleep.asleep))
    assert found == [1, 0]


def test_nvml_is_let_go_after_five_minutes_without_a_program_and_only_where_gpus_can_sleep(
    tmp_path: Path,
) -> None:
    def after(seconds: float, control: str = "auto", *, lets_go: bool = True) -> bool:
        folder = tmp_path / f"{seconds}-{control}-{lets_go}"
        sleep = Sleep(str(Bus(folder, control=control).sys), lets_go=lets_go)
        sleep.find()
        assert not sleep.is_time_to_let_go(1000.0, used=True)
        return sleep.is_time_to_let_go(1000.0 + seconds, used=False)

    assert after(RELEASED_AFTER_S)
    assert not after(RELEASED_AFTER_S - 1.0)
    assert not after(RELEASED_AFTER_S, "on"), "the kernel never switches these off"
    assert not after(RELEASED_AFTER_S, lets_go=False), "who records goes on"


def asleep() -> GpuSample:
    why = "asleep: the kernel has switched this GPU off"
    return GpuSample(
        GpuStatic(0, "PCI-0000:01:00.0", "NVIDIA GPU [10de:2684]"),
        sm_lack=SmLack((why,)),
        asleep=True,
    )


def test_a_sleeping_gpu_is_idle_for_sure_and_says_asleep() -> None:
    diagnoser = Diagnoser()
    for second in range(40):
        (said,) = diagnoser.diagnose(snap(second, asleep()))
    assert (said.title, said.state, said.level, said.badges) == ("asleep", "idle", "info", ())
    assert "switched this GPU off" in said.evidence[0]


def test_the_screen_shows_it_as_a_row_without_numbers() -> None:
    frame = Monitor().feed(snap(0, asleep()))
    for size in ((160, 48), (80, 24), (40, 10)):
        text = plain_text(main_screen(frame, View(), *size).rows)
        assert "asleep" in text
        assert "LOST" not in text and "not measured" not in text


# One sentence for each place in which less can be measured: what is, what is not, and why.


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[], str]:
    (tmp_path / "proc").mkdir()
    return lambda: no_driver(str(tmp_path / "proc"), str(tmp_path / "sys"))


def test_without_any_gpu_it_is_the_driver_or_the_container(machine: Callable[[], str]) -> None:
    assert machine().endswith(
        "install the driver, or start the container with GPUs (docker run --gpus all)"
    )


def test_gpus_of_others_are_named_by_their_pci_ids(
    machine: Callable[[], str], tmp_path: Path
) -> None:
    bus = Bus(tmp_path, gpus=0)
    bus.card("0000:00:02.0", vendor=0x8086, device=0xA7A0)
    bus.card("0000:03:00.0", vendor=0x1002, device=0x744C)
    said = machine()
    assert "Intel" in said and "[8086:a7a0]" in said and "AMD" in said and "[1002:744c]" in said
    assert "NVIDIA's GPUs alone" in said and "install the driver" not in said


def test_wsl_is_told_that_the_driver_is_windows(machine: Callable[[], str], tmp_path: Path) -> None:
    put(tmp_path / "proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    assert is_wsl(str(tmp_path / "proc"))
    assert "that of Windows" in machine() and "/usr/lib/wsl/lib" in machine()


@pytest.mark.nvml
def test_a_virtual_gpu_says_whose_numbers_it_shows(nvml_scenario: Callable[..., Scenario]) -> None:
    scenario = nvml_scenario(2)
    scenario.gpus[1].set(virtualization=2)
    notices = Run(scenario, "once").last["notices"]
    (said,) = [notice for notice in notices if "virtual GPU" in notice]
    assert said.startswith("GPU 1: ") and "counted by the host alone" in said


HOST = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.nvml
def test_unified_memory_is_what_processes_hold_of_the_host_s_where_all_of_them_tell(
    nvml_scenario: MakeScenario,
) -> None:
    """As a GB10 answers: no memory, no power limit, PCIe x1, an engine counter that stays 0."""
    scenario = nvml_scenario(2)
    for device in scenario.gpus:
        device.set(mem_used_bytes=None, mem_total_bytes=None, power_limit_w=None, pcie_width=1)
        device.gpm[1] = 0
    scenario.error("nvmlDeviceGetMemoryInfo", 3)
    scenario.gpus[0].processes = [Process(1, 3 * GIB), Process(os.getpid(), 2 * GIB)]
    scenario.gpus[1].processes = [Process(1, 3 * GIB), Process(os.getpid(), None)]
    told, untold = Run(scenario, "once").last["gpus"]
    assert told["static"]["unified_memory"] is True
    assert (told["mem_used_bytes"], told["mem_total_bytes"]) == (5 * GIB, HOST)
    assert told["power_limit_w"] is None and "mem_used_bytes" not in told["unavailable"]
    assert told["graphics_active_pct"] is None
    assert "stays 0" in told["unavailable"]["graphics_active_pct"]
    assert (untold["mem_used_bytes"], untold["mem_total_bytes"]) == (None, HOST)
    assert "does not say what each process holds" in untold["unavailable"]["mem_used_bytes"]


def sample(**changes: Any) -> GpuSample:
    made = gpu(mem_used_bytes=float(20 * GIB), mem_total_bytes=float(120 * GIB), **changes)
    return replace(made, static=replace(made.static, unified_memory=True))


def judged(one: GpuSample, host_used: float) -> GpuDiagnosis:
    diagnoser = Diagnoser()
    host = HostSample(mem_used_bytes=host_used * GIB, mem_total_bytes=float(120 * GIB))
    for second in range(60):
        (said,) = diagnoser.diagnose(replace(snap(second, one, [train(main=30.0)]), host=host))
    return said


def test_it_is_full_when_the_host_is_and_not_by_what_its_processes_hold() -> None:
    (badge,) = [badge for badge in judged(sample(), 117.0).badges if badge.id == "memory_full"]
    assert "host's memory" in badge.evidence
    assert "memory_full" not in [badge.id for badge in judged(sample(), 60.0).badges]
    assert "memory_full" not in [
        badge.id for badge in judged(replace(sample(), mem_used_bytes=120.0 * GIB), 60.0).badges
    ]
