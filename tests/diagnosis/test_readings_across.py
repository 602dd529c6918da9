"""Readings seen against each other: latched, frozen, aliased and spinning ones are not believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.diagnosis.window.standstill import STANDING
from gputop.model.snapshot import GpuSample, ProcessSample
from tests.support.scenes import GIB, Watch, gpu, snap, train

Sample = Callable[[int], GpuSample]


def after(seconds: int, sample: Sample, *processes: ProcessSample) -> GpuDiagnosis:
    watch = Watch()
    for tick in range(seconds):
        said = watch.feed([snap(tick, sample(tick), processes)])
    return said


def wobble(tick: int, size: float) -> float:
    """A value that is different in each second."""
    return size * ((7 * tick) % 11 - 5) / 5.0


# --- util that stays latched ---------------------------------------------------------------------------------------


def latched(**changes: Any) -> Sample:
    values: dict[str, Any] = {"mem_used_bytes": 0.0, "power_limit_w": 600.0, **changes}
    return lambda tick: replace(
        gpu(util=100.0, sm=0.0, power_w=100.0 + wobble(tick, 2.0)), **values
    )


def test_util_without_process_memory_and_work_is_latched() -> None:
    said = after(45, latched())
    assert said.verdict == "collecting"
    assert said.evidence[0].startswith("stuck at 100")
    assert "open and close a CUDA context" in said.evidence[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"mem_used_bytes": 2.0 * GIB},
        {"sm_active_pct": 40.0},
        {"power_w": 300.0},
        {"unavailable": {"processes": "another namespace"}},
    ],
)
def test_util_is_believed_where_somebody_may_be_at_work(changes: dict[str, Any]) -> None:
    said = after(45, latched(**changes))
    assert not said.evidence[0].startswith("stuck")


def test_util_is_believed_of_a_gpu_with_a_process() -> None:
    said = after(45, latched(), train())
    assert not said.evidence[0].startswith("stuck")


# --- values that stand still ---------------------------------------------------------------------------------------


def still_from(second: int, **changes: Any) -> Sample:
    """A GPU at work whose values are the same from some second on."""

    def sample(tick: int) -> GpuSample:
        at = min(tick, second)
        one = gpu(util=98.0, sm=None, power_w=420.0 + wobble(at, 9.0), temp_c=53.0)
        return replace(one, **changes) if tick >= second else one

    return sample


def test_values_equal_to_the_last_digit_for_a_minute_are_not_judged() -> None:
    said = after(120, still_from(40), train())
    assert said.verdict == "collecting"
    assert said.title == "readings stand still: not judged"
    assert said.evidence[0].startswith(STANDING)


@pytest.mark.parametrize(
    ("seconds", "sample"),
    [
        (95, still_from(40)),
        (120, still_from(1000)),
        # Values that never moved: a recording by hand, or a board without sensors.
        (120, still_from(0)),
        # A job that hangs draws less than before, and evenly.
        (120, still_from(40, power_w=90.0)),
        (120, still_from(40, util_pct=0.0)),
        (120, still_from(40, temp_c=None)),
        (120, still_from(40, power_w=None)),
    ],
)
def test_other_values_that_hardly_move_are_believed(seconds: int, sample: Sample) -> None:
    said = after(seconds, sample, train())
    assert not said.evidence[0].startswith(STANDING)


def test_one_value_that_moves_is_enough_to_believe_all() -> None:
    frozen = still_from(40)

    def sample(tick: int) -> GpuSample:
        return replace(frozen(tick), energy_j=1000.0 + tick)

    assert not after(120, sample, train()).evidence[0].startswith(STANDING)


# --- util that aliases with the step -------------------------------------------------------------------------------


def jumping(power_swing: float, sm: float | None = None) -> Sample:
    """Util is 0 and 99 by turns; power swings by so many watts."""

    def sample(tick: int) -> GpuSample:
        util = 99.0 if tick % 2 else 0.0
        power = 420.0 + wobble(tick, 9.0) + (power_swing if util else -power_swing)
        return gpu(util=util, sm=sm if util else sm and 0.0, power_w=power)

    return sample


def test_util_that_jumps_beside_an_even_power_starves_nobody() -> None:
    said = after(45, jumping(0.0), train(main=35.0))
    assert said.state != "starved"
    assert said.confidence == "low"
    assert any("alias" in note for note in said.notes)


def test_util_that_power_follows_is_believed() -> None:
    said = after(45, jumping(150.0), train(main=35.0))
    assert said.state == "starved"
    assert not any("alias" in note for note in said.notes)


def test_util_is_not_doubted_where_sm_is_measured() -> None:
    said = after(45, jumping(0.0, sm=90.0), train(main=35.0))
    assert not any("alias" in note for note in said.notes)


# --- a clock that is very low --------------------------------------------------------------------------------------


def slow(clock: float, **changes: Any) -> Sample:
    return lambda tick: replace(
        gpu(util=95.0, sm=None, sm_clock_mhz=clock, sm_clock_max_mhz=3003.0, throttle_reasons=None),
        power_w=None,
        power_limit_w=None,
        **changes,
    )


def test_a_very_low_clock_is_told_with_low_confidence_where_limits_are_unreadable() -> None:
    said = after(121, slow(513.0), train())
    assert said.verdict == "low_clock"
    assert said.confidence == "low"


@pytest.mark.parametrize(
    ("seconds", "sample"),
    [(100, slow(513.0)), (150, slow(1100.0)), (150, slow(513.0, util_pct=80.0))],
)
def test_a_clock_that_may_be_right_is_not_told(seconds: int, sample: Sample) -> None:
    assert after(seconds, sample, train()).verdict != "low_clock"


# --- a kernel that holds all multiprocessors -----------------------------------------------------------------------


def held_from(second: int, power: float = 310.0, **changes: Any) -> Sample:
    def sample(tick: int) -> GpuSample:
        if tick < second:
            one = gpu(util=98.0, sm=86.0, tensor_active_pct=44.0, power_w=560.0 + wobble(tick, 9.0))
            return replace(
                one,
                fp32_active_pct=12.0,
                fp64_active_pct=0.0,
                fp16_active_pct=0.0,
                int_active_pct=15.0,
            )
        one = gpu(util=100.0, sm=100.0, tensor_active_pct=0.0, power_w=power + wobble(tick, 1.0))
        rest = replace(
            one, dram_active_pct=0.4, fp32_active_pct=0.0, fp64_active_pct=0.0, fp16_active_pct=0.0
        )
        return replace(rest, **{"int_active_pct": 24.0, **changes})

    return sample  # fmt: skip


def test_a_kernel_that_holds_all_multiprocessors_is_stalled_whatever_int_says() -> None:
    said = after(140, held_from(60), train(main=100.0))
    assert said.verdict == "stalled"
    assert said.title.startswith("stalled")
    assert said.state == "busy_not_working"
    assert said.efficiency_pct == 0.0
    assert "310 W instead of 560 W" in said.evidence[0].replace("309", "310").replace("311", "310")


@pytest.mark.parametrize(
    "sample",
    [
        held_from(60, fp32_active_pct=30.0),
        held_from(60, dram_active_pct=20.0),
        held_from(60, nvlink_rx_bytes_per_s=90e9),
        # An integer job that has always been one: power has not fallen.
        held_from(0),
        held_from(60, power=540.0),
        held_from(1000),
    ],
)
def test_kernels_that_compute_or_never_did_otherwise_are_not_called_stalled(sample: Sample) -> None:
    said = after(140, sample, train(main=100.0))
    assert not said.title.startswith("stalled")
    assert said.state != "busy_not_working"
