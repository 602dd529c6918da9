"""One sentence for each place in which less can be measured: what is, what is not, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gputop.sources.surroundings import PciCard, card_name, is_wsl, no_driver, of_gpus
from tests.nvml.stand_in import Scenario
from tests.sources.test_asleep import Bus
from tests.support.local_run import Run


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[], str]:
    (tmp_path / "proc").mkdir()
    return lambda: no_driver(str(tmp_path / "proc"), str(tmp_path / "sys"))


def test_without_any_gpu_it_is_the_driver_or_the_container(machine: Callable[[], str]) -> None:
    assert machine().endswith("install the driver, or start the container with GPUs (docker run --gpus all)")


def test_gpus_of_others_are_named_by_their_pci_ids(machine: Callable[[], str], tmp_path: Path) -> None:
    bus = Bus(tmp_path, gpus=0)
    bus.card("0000:00:02.0", vendor=0x8086, device=0xA7A0)
    bus.card("0000:03:00.0", vendor=0x1002, device=0x744C)
    said = machine()
    assert "Intel" in said and "[8086:a7a0]" in said and "AMD" in said and "[1002:744c]" in said
    assert "NVIDIA's GPUs alone" in said and "install the driver" not in said


def test_an_nvidia_card_beside_them_still_lacks_its_driver(machine: Callable[[], str], tmp_path: Path) -> None:
    bus = Bus(tmp_path)
    bus.card("0000:00:02.0", vendor=0x8086, device=0xA7A0)
    assert "install the driver" in machine()


def test_the_names_of_the_system_s_list_are_used_where_it_is_installed(tmp_path: Path) -> None:
    names = tmp_path / "pci.ids"
    names.write_text("# a comment\n1001  One\n\t744c  Not this\n1002  AMD\n\t744b  No\n\t744c  Navi 31\n1003  Two\n")
    card = PciCard("0000:03:00.0", 0x1002, 0x744C, False)
    assert card_name(card, (str(tmp_path / "none"), str(names))) == "AMD Navi 31 [1002:744c]"
    assert card_name(card, ()) == "AMD GPU [1002:744c]"
    assert card_name(PciCard("0000:03:00.0", 0x1002, 0x1111, False), (str(names),)) == "AMD GPU [1002:1111]"


def test_a_jetson_is_told_where_its_load_is_shown(machine: Callable[[], str], tmp_path: Path) -> None:
    put(tmp_path / "proc/device-tree/compatible", "nvidia,p3737-0000\0nvidia,tegra234\0")
    assert "tegrastats" in machine() and "JetPack 7" in machine()


def test_wsl_is_told_that_the_driver_is_windows(machine: Callable[[], str], tmp_path: Path) -> None:
    put(tmp_path / "proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
    assert is_wsl(str(tmp_path / "proc"))
    assert "that of Windows" in machine() and "/usr/lib/wsl/lib" in machine()


@pytest.mark.nvml
def test_a_virtual_gpu_says_whose_numbers_it_shows(nvml_scenario: Callable[..., Scenario]) -> None:
    scenario = nvml_scenario(2)
    scenario.gpus[1].set(virtualization=2)
    run = Run(scenario, "once")
    (said,) = [notice for notice in run.last["notices"] if "virtual GPU" in notice]
    assert said.startswith("GPU 1: ") and "counted by the host alone" in said


@pytest.mark.nvml
def test_an_integrated_gpu_before_jetpack_7_says_what_shows_the_rest(nvml_scenario: Callable[..., Scenario]) -> None:
    scenario = nvml_scenario(1)
    scenario.gpus[0].name = "Orin (nvgpu)"
    scenario.gpus[0].gpm.clear()
    scenario.gpus[0].set(util=None, mem_util=None, power_w=None)
    assert any("tegrastats" in notice for notice in Run(scenario, "once").last["notices"])


def test_nothing_is_said_where_nothing_limits() -> None:
    assert of_gpus((), (), wsl=False) == []
    (said,) = of_gpus((), (), wsl=True)
    assert "no process can be named" in said
