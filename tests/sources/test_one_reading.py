"""What a command that looks once has when the driver is slow: all of it, or what is missing by name."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gputop.diagnosis.hysteresis import flag_now
from gputop.model.snapshot import GpuSample, GpuStatic, Machine, Snapshot
from gputop.output.snapshot_data import once_data
from gputop.sources.local import OneReading, incomplete, waiting_for
from gputop.sources.nvml.gpu_device import Progress
from tests.nvml.stand_in import GIB, Process, Scenario
from tests.support.local_run import Run

CARDS = tuple(GpuStatic(i, f"GPU-{i}", "NVIDIA H100 80GB HBM3") for i in range(4))
SAMPLE = GpuSample(CARDS[0], util_pct=90.0, sm_active_pct=20.0, sm_source="gpm", power_w=500.0, power_limit_w=700.0)
SNAPSHOT = Snapshot(1.0, Machine("node"))


def samples(*indices: int) -> tuple[GpuSample, ...]:
    return tuple(replace(SAMPLE, static=CARDS[i]) for i in indices)


def test_gpus_that_were_not_reached_are_named() -> None:
    reading = incomplete(replace(SNAPSHOT, gpus=samples(0)), Progress(CARDS, samples(0)), 10.0, False)
    assert (reading.complete, reading.has_measured) == (False, True)
    assert [(gpu.index, gpu.reason) for gpu in reading.missing] == [(i, "not read within 10 s") for i in (1, 2, 3)]
    assert reading.snapshot.notices == (
        "GPU 1-3: not read within 10 s, the driver answers slowly; --wait gives it longer",
    )


def test_a_gpu_that_hangs_is_missing_though_it_has_a_row() -> None:
    hung = replace(GpuSample(CARDS[1]), lost_reason="NVML call x has not returned for 9 s")
    progress = Progress(CARDS[:2], (*samples(0), hung), (1,))
    reading = incomplete(replace(SNAPSHOT, gpus=progress.read), progress, 10.0, True)
    assert [(gpu.index, gpu.reason) for gpu in reading.missing] == [(1, hung.lost_reason)]
    assert reading.data()["missing_gpus"][0]["uuid"] == "GPU-1"
    assert reading.snapshot.notices == ()


def test_a_single_reading_is_not_called_complete() -> None:
    reading = incomplete(replace(SNAPSHOT, gpus=samples(0, 1)), Progress(CARDS[:2], samples(0, 1)), 10.0, True)
    assert (reading.complete, reading.missing) == (False, ())
    assert "need a second reading" in reading.snapshot.notices[0]


def test_nothing_is_measured_only_where_something_was_asked_for() -> None:
    assert OneReading(SNAPSHOT).has_measured, "every GPU was left out on purpose"
    assert not incomplete(SNAPSHOT, Progress(CARDS), 10.0, False).has_measured
    lost = replace(SAMPLE, lost_reason="GPU is lost")
    assert not OneReading(replace(SNAPSHOT, gpus=(lost,))).has_measured


@pytest.mark.parametrize(
    ("progress", "once", "words"),
    [
        (Progress(), False, "waiting for the driver to list its GPUs; at most 10 s"),
        (Progress(CARDS, samples(0)), False, "waiting for the driver: 1 of 4 GPUs read so far; at most 10 s"),
        (Progress(CARDS, samples(0, 1, 2, 3)), True, "waiting for the driver's second reading; at most 10 s"),
        (Progress(CARDS, samples(0), (2,)), False,
         "waiting for GPU 2, where a driver call has not returned; at most 10 s"),
    ],
)  # fmt: skip
def test_it_is_said_what_is_waited_for(progress: Progress, once: bool, words: str) -> None:
    assert waiting_for(progress, 10.0, once) == words


@pytest.mark.parametrize(
    ("util", "sm", "flag"),
    [(80.0, 29.9, "A"), (80.0, 30.0, None), (79.9, 20.0, "B"), (50.0, 15.0, None), (50.0, 14.9, "B"), (49.9, 5.0, None),
     (49.9, 4.9, "C"),
     (None, 5.0, None), (90.0, None, None)],
)  # fmt: skip
def test_one_sample_is_flagged_by_the_bounds_of_the_verdict(
    util: float | None, sm: float | None, flag: str | None
) -> None:
    gpu = replace(SAMPLE, util_pct=util, sm_active_pct=sm)
    assert flag_now(gpu) == flag
    (given,) = once_data(replace(SNAPSHOT, gpus=(gpu,)))["gpus"]
    assert given["flag_now"] == flag
    assert (given["in_sample"] == "busy, not working") is (flag is not None)
    assert given["gap_pct"] == (None if util is None or sm is None else pytest.approx(util - sm))
    assert "busy_not_working" not in given


def test_one_sample_does_not_flag_what_it_cannot_know() -> None:
    assert flag_now(replace(SAMPLE, sm_source="bound")) is None
    assert flag_now(replace(SAMPLE, static=replace(CARDS[0], mig_enabled=True))) is None
    assert flag_now(replace(SAMPLE, sm_active_pct=0.0)) is None, "a counter that reads 0 at work may be broken"
    assert flag_now(replace(SAMPLE, sm_active_pct=0.0, power_w=90.0)) == "A"


@pytest.mark.nvml
def test_what_was_read_of_a_first_pass_is_shown_with_its_processes(nvml_scenario: Callable[..., Scenario]) -> None:
    scenario = nvml_scenario(4)
    scenario.gpus[0].processes = [Process(os.getpid(), GIB)]
    # The third GPU takes longer than anybody waits; it does not hang.
    scenario.hang("nvmlDeviceGetUtilizationRates", 0.7, gpu=2)
    scenario.hang("nvmlDeviceGetPowerUsage", 0.7, gpu=2)
    scenario.hang("nvmlDeviceGetTemperature", 0.7, gpu=2)
    run = Run(scenario, "once", wait_s=1.6)
    assert [gpu["static"]["index"] for gpu in run.last["gpus"]] == [0, 1]
    assert run.last["notices"] == ["GPU 2, 3: not read within 1.6 s, the driver answers slowly; --wait gives it longer"]
    assert [p["pid"] for p in run.last["processes"] if p["role"] == "gpu"] == [os.getpid()]
    assert json.dumps(run.last["gpus"][0]["sm_reason"]) == '"collecting: needs two samples"'
