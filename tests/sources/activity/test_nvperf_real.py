"""NVIDIA's real performance libraries, without a GPU: what they know of every chip, and what they say then."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from gputop.sources.activity.counters.abi import TARGET_CALLS, TARGET_LIBRARY, Library, NvperfError
from gputop.sources.activity.counters.counter_libraries import NoLibraries, find
from gputop.sources.activity.counters.counter_plan import (
    Evaluator,
    configure,
    host_library,
    plan_for,
)

pytestmark = pytest.mark.slow
ALL = ["sm", "gr", "tensor", "dram"]
WITHOUT_TENSOR = ["sm", "gr", "dram_r", "dram_w"]
PLANS = {
    "TU102": WITHOUT_TENSOR, "TU117": WITHOUT_TENSOR, "GA100": ALL, "GA102": ALL, "GA107": ALL, "AD102": ALL,
    "AD107": ALL, "GH100": ALL, "GB100": ALL, "GB202": ALL, "GB20B": ["sm", "gr", "tensor"],
}  # fmt: skip
"""What each chip counts in one pass, by CUDA 12.9, 13.0 and 13.5: counted by these libraries, not on a GPU."""


@lru_cache(maxsize=1)
def directory() -> str:
    try:
        return find("580.65")
    except NoLibraries:
        pass
    if Path("/usr/local/cuda/lib64", TARGET_LIBRARY).exists():
        return "/usr/local/cuda/lib64"
    pytest.skip("NVIDIA's performance libraries are not installed (the extra perf)")


@pytest.mark.parametrize("chip", PLANS)
def test_one_pass_holds_sm_activity_and_what_else_the_chip_counts(chip: str) -> None:
    plan = plan_for(host_library(directory()), chip)
    assert list(plan.metrics) == PLANS[chip]
    assert len(plan.config) > 1000 and len(plan.prefix) > 100


def test_every_chip_since_turing_counts_sm_activity_in_one_pass() -> None:
    library = host_library(directory())
    known = library.call("NVPW_RawCounterConfig_GetSupportedChipNames")
    names = [known.names[i].decode() for i in range(known.count)]
    chips = [name for name in names if name.startswith(("TU", "GA", "AD", "GH", "GB"))]
    assert set(PLANS) <= set(chips)
    for chip in chips:
        assert "sm" in plan_for(library, chip).metrics, chip


def test_more_than_one_pass_holds_is_counted_as_such() -> None:
    library = host_library(directory())
    evaluator = Evaluator(library, "TU102")
    names = ("sm__cycles_active", "sm__warps_active", "gr__cycles_active", "dram__cycles_active")
    counters = [
        counter
        for name in (
            *names,
            "sm__inst_executed_pipe_tensor",
            "l1tex__t_sectors",
            "lts__t_sectors",
            "sm__inst_executed",
        )
        for counter in evaluator.raw_counters(evaluator.request(f"{name}.sum"))
    ]
    evaluator.close()
    assert configure(library, "TU102", list(dict.fromkeys(counters)), None)[1] > 1


def test_the_target_library_answers_without_a_driver_as_it_did() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver")
    library = Library(f"{directory()}/{TARGET_LIBRARY}", TARGET_CALLS)
    library.call("NVPW_InitializeTarget")
    with pytest.raises(NvperfError) as no_driver:
        library.call("NVPW_CUDA_LoadDriver")
    assert no_driver.value.status == 1
    assert library.call("NVPW_GetDeviceCount").count == 0
    with pytest.raises(NvperfError) as unknown:
        library.call("NVPW_GPU_PeriodicSampler_IsGpuSupported", device=0)
    assert unknown.value.status == 10
