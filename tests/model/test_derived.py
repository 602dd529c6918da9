"""GAP and WORK: what follows from one sample, and what does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.sm_remedy import power_word
from gputop.model.derived import Work, gap_pct, work
from gputop.model.snapshot import GpuSample, GpuStatic

STATIC = GpuStatic(0, "GPU-0", "NVIDIA H100 80GB HBM3")


def test_work_is_the_busier_of_the_pipes_and_the_memory() -> None:
    assert work(GpuSample(STATIC, tensor_active_pct=45.0, fp32_active_pct=6.0, dram_active_pct=24.0)) == Work(45.0, "C")
    assert work(GpuSample(STATIC, tensor_active_pct=12.0, dram_active_pct=60.0)) == Work(75.0, "M")
    assert work(GpuSample(STATIC, dram_active_pct=95.0)) == Work(100.0, "M")
    assert work(GpuSample(STATIC, fp64_active_pct=3.0)) == Work(3.0, "C")
    assert work(GpuSample(STATIC)) is None


def test_the_gap_is_never_below_zero_and_needs_both_numbers() -> None:
    assert gap_pct(GpuSample(STATIC, util_pct=97.0, sm_active_pct=8.0)) == 89.0
    assert gap_pct(GpuSample(STATIC, util_pct=50.0, sm_active_pct=60.0)) == 0.0
    assert gap_pct(GpuSample(STATIC, util_pct=50.0)) is None


@pytest.mark.parametrize(
    ("power_w", "changes", "words"),
    [
        (124.0, {}, "power 31 % of its limit: draws little for a busy GPU"),
        (124.0, {"util_pct": 94.0}, "power 31 % of its limit: says nothing of the work"),
        (200.0, {}, "power 50 % of its limit: says nothing of the work"),
        (380.0, {}, "power 95 % of its limit: works hard"),
        (124.0, {"util_pct": 60.0}, None),
        (124.0, {"sm_source": "gpm"}, None),
        (124.0, {"throttle_reasons": 0x20}, None),
        (900.0, {}, None),
        (None, {}, None),
    ],
)
def test_power_gives_a_word_where_sm_activity_is_only_bounded(
    power_w: float | None, changes: dict[str, Any], words: str | None
) -> None:
    gpu = GpuSample(GpuStatic(0, "GPU-0", "A"), util_pct=99.0, power_w=power_w, power_limit_w=400.0, sm_source="bound")
    assert power_word(replace(gpu, **changes)) == words
