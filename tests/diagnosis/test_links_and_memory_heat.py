"""A PCIe link that is itself the bottleneck, and memory above its temperature limit."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from tests.support.scenes import assert_told, badges, gpu, steady, train


def told_of(**values: Any) -> GpuDiagnosis:
    return steady(60, gpu(**values), [train(main=5.0)])


@pytest.mark.parametrize(
    ("gen", "width", "rx", "words"),
    [
        (1, 1, 1.99e8, "PCIe RX 0.2 of 0.25 GB/s (link gen 1 x1 of gen 5 x16)"),
        (3, 1, 0.78e9, "PCIe RX 0.8 of 0.98 GB/s (link gen 3 x1 of gen 5 x16)"),
        (5, 2, 6.2e9, "PCIe RX 6.2 of 7.88 GB/s (link gen 5 x2 of gen 5 x16)"),
        (2, 16, 6.3e9, "PCIe RX 6.3 of 8.00 GB/s (link gen 2 x16 of gen 5 x16)"),
    ],
)
@pytest.mark.parametrize("util", [45.0, 20.0])
def test_a_full_link_below_its_best_is_named_and_comes_before_pinned_memory(
    gen: int, width: int, rx: float, words: str, util: float
) -> None:
    said = told_of(
        util=util, sm=0.7 * util, pcie_gen=gen, pcie_width=width, pcie_gen_max=5, pcie_width_max=16,
        pcie_rx_bytes_per_s=rx,
    )  # fmt: skip
    assert_told(
        said,
        {"verdict": "pcie_transfer", "confidence": "high", "has": "pcie_degraded", "says": words},
    )
    assert said.remedy.index("reseat") < said.remedy.index("pin_memory")


def test_a_full_link_at_its_best_asks_for_pinned_memory_alone() -> None:
    said = told_of(util=45.0, sm=35.0, pcie_rx_bytes_per_s=20e9)
    assert_told(
        said,
        {
            "verdict": "pcie_transfer",
            "lacks": "pcie_degraded",
            "says": "of 25 GB/s",
            "never": "reseat",
        },
    )


def test_an_idle_link_that_rests_at_a_low_generation_is_no_fault() -> None:
    said = told_of(util=30.0, sm=20.0, pcie_gen=1, pcie_rx_bytes_per_s=1e7)
    assert_told(said, {"lacks": "pcie_degraded"})


@pytest.mark.parametrize(
    ("name", "now", "most", "is_hot"),
    [
        ("NVIDIA H100 80GB HBM3", 99.0, None, True), ("NVIDIA H100 80GB HBM3", 95.0, None, False),
        ("NVIDIA H100 80GB HBM3", 99.0, 105.0, False), ("NVIDIA A100-SXM4-80GB", 97.0, None, True),
        ("NVIDIA GeForce RTX 3090", 104.0, None, False), ("NVIDIA GeForce RTX 3090", 112.0, 110.0, True),
        ("NVIDIA H100 80GB HBM3", None, 95.0, False),
    ],
)  # fmt: skip
def test_memory_above_its_limit_is_named(
    name: str, now: float | None, most: float | None, is_hot: bool
) -> None:
    sample = gpu(mem_temp_c=now, mem_temp_max_c=most)
    said = steady(40, replace(sample, static=replace(sample.static, name=name)), [train()])
    assert ("memory_hot" in badges(said)) == is_hot
    if is_hot:
        (badge,) = said.badges
        assert badge.level == "yellow" and f"memory at {now:.0f} of" in badge.evidence
