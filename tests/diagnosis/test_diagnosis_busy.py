"""The busy family, the end states and the gates: both sides of every threshold."""

from __future__ import annotations

from typing import Any

import pytest

from gputop.model.snapshot import ProcessStatic, Snapshot
from tests.support.scenes import GIB, Watch, gpu, snap, steady, train


def verdict(seconds: int = 45, nccl: bool = False, **changes: Any) -> str:
    return steady(seconds, gpu(**changes), [train(nccl=nccl)]).verdict


@pytest.mark.parametrize(
    ("util", "dram", "found"),
    [(98.0, 61.0, "memory_bandwidth"), (98.0, 60.0, "healthy"), (90.0, 56.0, "memory_bandwidth")],
)
def test_memory_bandwidth_is_judged_over_the_time_in_which_kernels_ran(util: float, dram: float, found: str) -> None:
    assert verdict(util=util, dram=dram) == found


def test_memory_bandwidth_is_never_read_from_the_drivers_memory_time() -> None:
    assert verdict(dram=None, mem_util_pct=95.0) == "healthy"


def test_memory_bandwidth_is_asked_before_ab_and_what_counts_as_work_carries_no_flag() -> None:
    said = steady(45, gpu(util=96.0, sm=25.0, dram=70.0), [train()])
    assert (said.verdict, said.busy_not_working, said.level, said.state) == (
        "memory_bandwidth",
        None,
        "info",
        "working",
    )


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"nvlink_rx_bytes_per_s": 45e9}, "communication"),
        ({"nvlink_rx_bytes_per_s": 44e9}, "small_kernels"),
        ({"nvlink_tx_bytes_per_s": 45e9}, "communication"),
        ({"nvlink_rx_bytes_per_s": 200e9, "tensor_active_pct": 10.0}, "small_kernels"),
        ({"pcie_rx_bytes_per_s": 7.6e9, "pcie_tx_bytes_per_s": 7.6e9}, "communication"),
        ({"pcie_rx_bytes_per_s": 7.6e9, "pcie_tx_bytes_per_s": 7.4e9}, "small_kernels"),
        ({"nvlink_rx_bytes_per_s": 200e9, "sm": 60.0}, "working"),
    ],
)
def test_communication_is_low_sm_with_traffic_and_no_tensor_work(changes: dict[str, Any], found: str) -> None:
    low = {"util": 96.0, "sm": 18.0, "dram": 20.0, "tensor_active_pct": 4.0}
    assert verdict(**{**low, **changes}) == found


def test_communication_is_suspected_from_nccl_threads_without_work() -> None:
    quiet = {"util": 96.0, "sm": 18.0, "dram": 8.0, "tensor_active_pct": 4.0, "power_w": 300.0}
    said = steady(45, gpu(**quiet), [train(nccl=True)])
    assert (said.verdict, said.confidence, said.title) == ("communication", "low", "communication (suspected)")
    assert verdict(nccl=False, **quiet) == "small_kernels"
    assert verdict(nccl=True, **{**quiet, "power_w": 350.0}) == "small_kernels"
    assert verdict(nccl=True, **{**quiet, "dram": 15.0}) == "small_kernels"


@pytest.mark.parametrize(("dram", "found"), [(59.0, "small_kernels"), (None, "low_sm")])
def test_low_sm_is_small_kernels_only_where_dram_says_so(dram: float | None, found: str) -> None:
    assert verdict(util=96.0, sm=10.0, dram=dram, tensor_active_pct=1.0) == found


def test_a_main_thread_that_never_rests_makes_small_kernels_launch_bound() -> None:
    low = gpu(util=85.0, sm=8.0, dram=12.0, tensor_active_pct=1.0)
    assert "many tiny kernels" in steady(45, low, [train(main=100.0)]).evidence[0]
    assert "many tiny kernels" not in steady(45, low, [train(main=89.0)]).evidence[0]


FP32 = {"sm": 95.0, "tensor_active_pct": 0.0, "fp32_active_pct": 70.0}


def test_no_tensor_cores_needs_a_minute() -> None:
    assert verdict(seconds=58, **FP32) == "healthy"
    assert verdict(seconds=75, **FP32) == "no_tensor_cores"


@pytest.mark.parametrize(
    "changes",
    [{"sm": 49.9}, {"tensor_active_pct": 8.0}, {"dram": 50.0}, {"fp64_active_pct": 5.0}, {"tensor_active_pct": None}],
)
def test_no_tensor_cores_is_not_said_otherwise(changes: dict[str, float | None]) -> None:
    assert verdict(seconds=90, **{**FP32, **changes}) in ("healthy", "working", "half_working")


@pytest.mark.parametrize(
    ("changes", "framework", "level", "confidence", "remedy"),
    [
        ({}, "torch", "yellow", "high", "bf16 autocast"),
        ({}, "jax", "yellow", "high", "jax.default_matmul_precision"),
        ({}, "tensorflow", "yellow", "high", "other work does not need them"),
        ({}, None, "info", "medium", "other work does not need them"),
        ({"fp32_active_pct": 19.9}, "torch", "info", "medium", "bf16 autocast"),
        ({"fp32_active_pct": None}, "torch", "info", "medium", "bf16 autocast"),
        ({"sm": 55.0}, None, "yellow", "medium", "other work does not need them"),
    ],
)
def test_no_tensor_cores_accuses_only_where_fp32_work_was_measured_in_a_framework(
    changes: dict[str, Any], framework: str | None, level: str, confidence: str, remedy: str
) -> None:
    said = steady(90, gpu(**{**FP32, **changes}), [train(framework=framework)])
    assert (said.verdict, said.level, said.confidence) == ("no_tensor_cores", level, confidence)
    assert remedy in said.remedy
    unmeasured = changes.get("fp32_active_pct", 0.0) is None
    assert any("whether FP32 work or a stall is not measured here" in note for note in said.notes) == unmeasured


def test_rendering_needs_no_tensor_cores() -> None:
    assert steady(90, gpu(**FP32), [train(type="C+G")]).verdict == "healthy"


LOW_OCC = {"sm": 70.0, "sm_occupancy_pct": 9.0, "tensor_active_pct": 4.0, "dram": 30.0}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"sm": 49.9}, False),
        ({"sm_occupancy_pct": 15.0}, False),
        ({"tensor_active_pct": 10.0}, False),
        ({"dram": 64.0}, False),
        ({"dram": None}, True),
    ],
)
def test_low_occupancy_is_a_note_and_no_verdict(changes: dict[str, Any], found: bool) -> None:
    said = steady(45, gpu(**{**LOW_OCC, **changes}), [train()])
    assert said.verdict != "low_occupancy"
    assert any("of the warp slots" in note for note in said.notes) == found


@pytest.mark.parametrize(
    ("util", "sm", "tensor", "found"),
    [
        (80.1, 80.0, 8.0, "healthy"),
        (80.1, 80.0, 7.9, "working"),
        (80.1, 79.9, 39.9, "working"),
        (80.1, 60.0, 40.0, "healthy"),
        (98.0, 90.0, None, "working"),
    ],
)
def test_the_end_states(util: float, sm: float, tensor: float | None, found: str) -> None:
    said = steady(45, gpu(util=util, sm=sm, tensor_active_pct=tensor), [train()])
    assert (said.verdict, said.level, said.title) == (found, "green", "working")
    assert said.confidence == ("high" if found == "healthy" else "medium")
    assert ("healthy" in said.evidence[0]) == (found == "healthy")


@pytest.mark.parametrize(
    "witness",
    [{"dram": 49.0}, {"fp64_active_pct": 20.0}, {"fp32_active_pct": 20.0}, {"fp16_active_pct": 20.0},
     {"int_active_pct": 20.0}, {"tensor_active_pct": 9.0}],
)  # fmt: skip
def test_sm_activity_is_called_healthy_only_with_a_second_witness(witness: dict[str, float]) -> None:
    alone: dict[str, Any] = {"sm": 90.0, "tensor_active_pct": 8.0, "dram": 20.0}
    said = steady(45, gpu(**alone), [train()])
    assert (said.verdict, said.confidence) == ("working", "medium")
    assert any("no second witness" in note for note in said.notes)
    assert verdict(**{**alone, **witness}) == "healthy"


def test_nothing_is_said_of_fewer_than_ten_samples() -> None:
    watch = Watch()
    nine = watch.feed(snap(tick, gpu(util=96.0, sm=8.0), [train()]) for tick in range(9))
    assert (nine.verdict, nine.busy_not_working, nine.efficiency_pct) == ("collecting", None, None)
    watch.feed(snap(tick, gpu(util=96.0, sm=8.0), [train()]) for tick in range(9, 30))
    shown = watch.first(lambda said: said.verdict == "small_kernels")
    assert shown is not None and 9 <= shown <= 18


@pytest.mark.parametrize(("age", "found"), [(15.0, "startup"), (16.0, "healthy")])
def test_a_process_younger_than_a_minute_is_starting_up(age: float, found: str) -> None:
    # At tick 44 the process is 59 or 60 seconds old; ten ticks more let a verdict appear.
    def young(tick: int) -> Snapshot:
        return snap(tick, gpu(), [train(age_s=min(age + tick, age + 44.0))])

    assert Watch().feed(young(tick) for tick in range(60)).verdict == found


def test_at_long_intervals_a_full_window_is_enough() -> None:
    watch = Watch()
    last = watch.feed(snap(5.0 * tick, gpu(), [train()], interval_s=5.0) for tick in range(12))
    assert (last.verdict, last.n) == ("healthy", 6)


@pytest.mark.parametrize("interval", [0.25, 0.5, 2.0])
def test_windows_are_in_seconds_whatever_the_interval(interval: float) -> None:
    watch = Watch()
    rows = [train()]
    last = watch.feed(
        snap(interval * tick, gpu(util=96.0, sm=8.0), rows, interval_s=interval) for tick in range(int(60 / interval))
    )
    assert (last.verdict, last.n) == ("small_kernels", round(30 / interval))
    assert watch.first(lambda said: said.verdict == "small_kernels") <= 30.0  # type: ignore[operator]


def idle(seconds: int, **changes: Any) -> Watch:
    watch = Watch()
    for tick in range(seconds):
        watch.feed([snap(tick, gpu(util=0.0, sm=0.0, power_w=70.0), [train(**{"main": 0.0, **changes})])])
    return watch


def test_memory_held_without_work_is_said_after_five_minutes_and_alarms_after_an_hour() -> None:
    watch = idle(330)
    shown = watch.first(lambda said: said.verdict == "idle_holding_memory")
    assert shown is not None and 298 <= shown <= 310
    hour = Watch()
    last = hour.feed(snap(5.0 * t, gpu(util=0.0, sm=0.0), [train(main=0.0)], interval_s=5.0) for t in range(740))
    assert (last.verdict, last.level) == ("idle_holding_memory", "red")
    assert last.title == "idle, holding memory  61 min"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"gpu_mem_bytes": GIB}, "idle_holding_memory"),
        ({"gpu_mem_bytes": GIB - 1}, "idle"),
        ({"cpu_pct": 49.0}, "idle_holding_memory"),
        ({"cpu_pct": 50.0}, "startup"),
        ({"main": 50.0}, "startup"),
        ({"main": 50.0, "gpu_mem_bytes": GIB - 1}, "idle"),
        ({"static": ProcessStatic(command="vllm serve llama", name="vllm")}, "idle"),
    ],
)
def test_who_holds_memory_and_what_it_does(changes: dict[str, Any], found: str) -> None:
    assert idle(330, **changes).said[-1][1].verdict == found


def test_one_loud_sample_in_thirty_is_still_idle_and_two_are_not() -> None:
    def said(loud: int) -> str:
        last = Watch().feed(snap(tick, gpu(util=40.0 if tick % 30 < loud else 0.0), [train()]) for tick in range(100))
        return last.verdict

    assert said(1) == "idle"
    assert said(2) == "starved_unattributed"


def test_after_a_long_pause_the_window_begins_again() -> None:
    watch = idle(70)
    watch.feed(snap(70 + tick, gpu(), [train()]) for tick in range(25))
    assert watch.said[-1][1].verdict == "healthy"
    assert watch.said[-1][1].n == 25


def test_a_job_that_ends_is_not_called_starved() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(), [train()]) for tick in range(60))
    watch.feed(snap(60 + tick, gpu(util=0.0, sm=0.0, power_w=70.0)) for tick in range(40))
    assert not [said for _, said in watch.said if said.level in ("yellow", "red")]
    assert watch.said[-1][1].verdict == "idle"
