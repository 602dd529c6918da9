"""`gputop prove --links`: what comes through each link of the GPUs, against its peak."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.features.prove.links import Link, judged, link_of, named, text, verdict
from gputop.model.snapshot import GpuSample
from tests.cuda.stand_in import Cuda, library_path
from tests.features.prove.test_prove import cuda
from tests.nvml.stand_in import GIB, Process, Scenario, split
from tests.support.scenes import gpu
from tests.support.sources_reader import NOBODY

__all__ = ["cuda"]
MakeScenario = Callable[..., Scenario]
GB = 1e9


def card(index: int, nvlink: float | None = 450 * GB, **more: Any) -> GpuSample:
    made = gpu(**{"pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 16, "pcie_width_max": 16, **more})
    return replace(made, static=replace(made.static, index=index, nvlink_peak_bytes_per_s=nvlink))


def one(source: GpuSample | None, target: GpuSample | None, gb: float, *, direct: bool = True) -> Link:
    gpus = {g.static.index: g for g in (source, target) if g is not None}
    return judged([link_of(source, target, gb * GB, direct=direct)], gpus)[0]


def test_the_host_s_link_is_held_against_what_card_and_slot_can_do() -> None:
    link = one(None, card(0), 55.0)
    assert link.peak_bytes_per_s == pytest.approx(63.04 * GB) and link.ok is True and named(link) == "host → GPU 0"
    slow = one(card(0, pcie_width=8), None, 27.0)
    assert slow.ok is False and "x8 of x16 lanes" in slow.why


def test_a_link_that_sleeps_at_a_low_generation_is_held_against_its_highest() -> None:
    assert one(None, card(0, pcie_gen=1), 55.0).ok is True


def test_what_has_no_known_peak_is_not_judged() -> None:
    assert one(None, card(0, pcie_gen_max=None), 55.0).ok is None
    shared = card(0)
    shared = replace(shared, static=replace(shared.static, unified_memory=True))
    assert one(None, shared, 200.0).ok is None


def test_gpus_that_do_not_reach_each_other_go_through_the_host_and_are_not_judged() -> None:
    link = one(card(0), card(1), 20.0, direct=False)
    assert (link.way, link.ok) == ("through the host", None) and "host's memory" in link.why


def test_one_slow_nvlink_pair_is_found_beside_the_others_and_equal_pairs_accuse_nobody() -> None:
    cards = {index: card(index) for index in range(3)}
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    rates = dict.fromkeys(pairs, 150.0)
    links = judged([link_of(cards[a], cards[b], rates[a, b] * GB, direct=True) for a, b in pairs], cards)
    assert {link.ok for link in links} == {None}, "a third of all links may be all that join a pair"
    rates[0, 1] = 90.0
    links = judged([link_of(cards[a], cards[b], rates[a, b] * GB, direct=True) for a, b in pairs], cards)
    assert [named(link) for link in links if link.ok is False] == ["GPU 0 → GPU 1"]
    assert verdict(links).exit_status == 1 and "GPU 0 → GPU 1" in verdict(links).words


def test_exit_statuses_are_those_of_prove() -> None:
    right, slow, unknown = one(None, card(0), 55.0), one(None, card(0), 5.0), one(card(0), card(1), 9.0, direct=False)
    assert [verdict(links).exit_status for links in ([right], [right, unknown], [right, slow], [unknown], [])] == [
        0, 0, 1, 3, 3,
    ]  # fmt: skip
    assert "1 could not be judged" in verdict([right, unknown]).words
    assert "✗" in text([slow], verdict([slow]))


# -- the whole, on the stand-in driver ---------------------------------------------------------------------------------


def proving(scenario: Scenario, cuda: Cuda, *options: str) -> tuple[int, str, str]:
    scenario.write()
    environment = {
        **os.environ, **scenario.environment(), **cuda.environment(),
        "LD_LIBRARY_PATH": library_path(scenario.library_directory, cuda.libraries),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "gputop", "prove", "--links", "--dcgm-url", NOBODY, *options],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def idle(scenario: Scenario) -> Scenario:
    for each in scenario.gpus:
        each.set(util=0)
    return scenario


@pytest.mark.nvml
@pytest.mark.slow
def test_every_link_of_two_gpus_is_measured_both_ways(nvml_scenario: MakeScenario, cuda: Cuda, tmp_path: Path) -> None:
    status, out, err = proving(idle(nvml_scenario(2)), cuda, "-o", str(tmp_path / "links.json"))
    assert status == 0, (out, err)
    assert out.count("✓") == 6 and "6 of 6 links are right" in out
    links = json.loads((tmp_path / "links.json").read_text())["links"]
    assert {(link["source"], link["target"], link["way"]) for link in links} == {
        (None, 0, "host"), (0, None, "host"), (None, 1, "host"), (1, None, "host"), (0, 1, "nvlink"), (1, 0, "nvlink"),
    }  # fmt: skip
    assert links[0]["bytes_per_s"] == pytest.approx(55 * GB, rel=0.01)


@pytest.mark.nvml
@pytest.mark.slow
def test_one_gpu_has_the_host_s_link_alone_and_a_slow_one_is_told(nvml_scenario: MakeScenario, cuda: Cuda) -> None:
    scenario = idle(nvml_scenario(1))
    scenario.gpus[0].set(pcie_width=4)
    cuda.write(from_host=13, to_host=13)
    status, out, _ = proving(scenario, cuda, "--ascii")
    assert out.isascii() and out.count("host => GPU 0") == 3 and out.count(" x PCIe") == 2
    status, out, err = proving(scenario, cuda, "--json")
    report = json.loads(out)
    assert (status, report["exit_status"], len(report["links"])) == (1, 1, 2), err
    assert "x4 of x16" in report["reason"]


@pytest.mark.nvml
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [({"cuInit": 100}, "CUDA_ERROR_NO_DEVICE"), ({"cuMemAllocHost": 2}, "OUT_OF_MEMORY"),
     ({"cuMemcpyHtoDAsync": 719}, "cuMemcpyHtoDAsync"), ({"cuEventSynchronize_crash": 1}, "ended by SIGSEGV")],
)  # fmt: skip
def test_where_nothing_can_be_copied_it_is_one_line_and_3(
    nvml_scenario: MakeScenario, cuda: Cuda, words: dict[str, int], said: str
) -> None:
    cuda.write(**words)
    status, _, err = proving(idle(nvml_scenario(1)), cuda)
    assert status == 3 and said in err and "Traceback" not in err


@pytest.mark.nvml
@pytest.mark.slow
def test_it_is_refused_while_others_use_one_of_the_gpus(nvml_scenario: MakeScenario, cuda: Cuda) -> None:
    scenario = idle(nvml_scenario(2))
    scenario.gpus[1].processes = [Process(os.getpid(), GIB)]
    status, out, err = proving(scenario, cuda)
    assert status == 2 and "GPU 1 is in use" in err and out == ""
    assert proving(scenario, cuda, "--gpus", "0")[0] == 0
    assert proving(scenario, cuda, "--force")[0] == 0


@pytest.mark.nvml
@pytest.mark.slow
def test_an_instance_of_a_split_gpu_has_no_links(nvml_scenario: MakeScenario, cuda: Cuda) -> None:
    scenario = idle(nvml_scenario(1))
    split(scenario.gpus[0], 0, 2)
    status, _, err = proving(scenario, cuda)
    assert status == 3 and "no links of its own" in err
