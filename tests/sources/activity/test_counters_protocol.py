"""Hardware counters: the library's structures, byte for byte, and the lines that helper and client exchange."""

from __future__ import annotations

import ctypes

import pytest

from gputop.sources.activity.counters import abi
from gputop.sources.activity.counters.abi import HOST_CALLS, TARGET_CALLS, NvperfError, structure
from gputop.sources.activity.counters.counters_client import kernel_pci
from gputop.sources.activity.counters.helper_protocol import SampleLine, doubt
from gputop.sources.activity.counters.sampler import host_library, places, plan_for, target_library
from tests.nvperf.stand_in import Counters as Scripted


def test_every_structure_ends_where_the_library_expects_it() -> None:
    for name, (size, fields) in {**HOST_CALLS, **TARGET_CALLS}.items():
        assert ctypes.sizeof(structure(name, size, fields)) >= size
    assert ctypes.sizeof(abi.EvalRequest) == 16 and ctypes.sizeof(abi.RawCounterRequest) == 24


def test_a_structure_of_another_size_is_not_made() -> None:
    with pytest.raises(TypeError, match="where the library takes 99"):
        structure("NVPW_X", 99, ())


@pytest.mark.parametrize("half", ["host", "target"])
def test_the_library_refuses_a_structure_of_another_size(counters: Scripted, half: str) -> None:
    library = host_library(str(counters.libraries)) if half == "host" else target_library(str(counters.libraries))
    table = HOST_CALLS if half == "host" else TARGET_CALLS
    for name, (function, made, size) in library._calls.items():
        assert function(ctypes.byref(made(structSize=size + 1))) == 8, name
        assert function(ctypes.byref(made(structSize=size - 1))) == 8, name
    assert library._calls.keys() == table.keys()


def test_gpus_are_joined_by_their_pci_address_and_not_by_their_number(counters: Scripted) -> None:
    counters.write(gpus=3)
    found = places(target_library(str(counters.libraries)))
    assert [(place.device, place.pci) for place in found] == [
        (0, "0000:03:00.0"),
        (1, "0000:02:00.0"),
        (2, "0000:01:00.0"),
    ]
    assert kernel_pci("00000000:3B:00.0") == "0000:3b:00.0" == kernel_pci("0000:3B:00.0")
    assert kernel_pci(None) is None and kernel_pci("x") is None


def test_what_does_not_fit_into_one_pass_is_left_out_and_sm_activity_comes_first(counters: Scripted) -> None:
    library = host_library(str(counters.libraries))
    assert list(plan_for(library, "AD102").metrics) == ["sm", "gr", "tensor", "dram_r", "dram_w", "issue"]
    counters.write(one_pass=2)
    assert list(plan_for(library, "AD102").metrics) == ["sm", "gr"]
    counters.write(one_pass=0)
    with pytest.raises(NvperfError, match="SM activity in one pass"):
        plan_for(library, "AD102")
    counters.write(one_pass=None, sm_only=1)
    assert list(plan_for(library, "AD102").metrics) == ["sm"]
    with pytest.raises(NvperfError):
        plan_for(library, "XX999")


@pytest.mark.parametrize(
    ("t0", "t1", "sm", "believed"),
    [
        (10.0, 11.0, 50.0, True),
        (10.0, 11.0, 104.0, True),
        (10.0, 11.0, 250.0, False),
        (10.0, 11.0, -1.0, False),
        (0.0, 11.0, 50.0, False),
        (11.0, 10.0, 50.0, False),
        (10.0, 10.1, 50.0, False),
        (10.0, 40.0, 50.0, False),
        (10.0, float("nan"), 50.0, False),
    ],
)
def test_a_sample_without_a_plausible_time_and_value_is_not_believed(
    t0: float, t1: float, sm: float, believed: bool
) -> None:
    assert (doubt(SampleLine("p", t0, t1, sm), 1.0) is None) is believed
