"""Busy but not working: the strict comparisons, when they are off, and efficiency."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gputop.model.sm import SmLack
from tests.support.scenes import Watch, badges, gpu, snap, steady, train, workers


@pytest.mark.parametrize(
    ("util", "sm", "flag"),
    [
        (80.0, 29.9, "A"),
        (80.0, 30.0, None),
        (79.9, 20.0, "B"),
        (79.9, 23.97, None),
        (50.0, 15.0, None),
        (50.0, 14.9, "B"),
        (49.9, 5.0, None),
        (49.9, 4.9, "C"),
        (100.0, 0.1, "A"),
        (0.0, 0.0, None),
    ],
)
def test_flags_compare_strictly(util: float, sm: float, flag: str | None) -> None:
    said = steady(45, gpu(util=util, sm=sm, dram=10.0), [train()])
    assert said.busy_not_working == flag
    assert (said.verdict == "small_kernels") == (flag is not None)


def test_a_mean_of_equal_values_is_that_value_after_any_number_of_ticks() -> None:
    watch = Watch()
    noisy = (snap(tick, gpu(util=100.0 / 3 + tick % 7, sm=100.0 / 7 + tick % 3)) for tick in range(2000))
    watch.feed(noisy)
    last = watch.feed(snap(2000 + tick, gpu(util=80.0, sm=30.0)) for tick in range(60))
    assert (last.busy_not_working, last.efficiency_pct) == (None, 37.5)


def test_flag_a_is_red_and_flag_b_is_yellow() -> None:
    assert steady(45, gpu(util=96.0, sm=10.0), [train()]).level == "red"
    assert steady(45, gpu(util=70.0, sm=10.0), [train()]).level == "yellow"


def test_a_named_starvation_wins_and_what_kernels_use_of_the_chip_becomes_a_note() -> None:
    said = steady(45, gpu(util=60.0, sm=10.0), [train(main=2.0), *workers(4, 90.0, 10.0)])
    assert (said.verdict, said.busy_not_working) == ("dataloader_cpu", None)
    assert "while kernels run they use 17 % of the SMs" in said.notes


@pytest.mark.parametrize("parent", [None, "GPU-parent"])
def test_whole_gpu_sm_on_a_mig_gpu_never_counts(parent: str | None) -> None:
    sample = gpu(util=96.0, sm=8.0)
    sample = replace(sample, static=replace(sample.static, mig_enabled=True, mig_parent=parent))
    said = steady(45, sample, [train()])
    assert (said.verdict, said.busy_not_working, said.efficiency_pct) == ("no_bottleneck_seen", None, None)
    assert "MIG" in (said.efficiency_reason or "")


def test_a_mig_instance_without_util_is_judged_by_what_its_own_sm_proves() -> None:
    sample = gpu(util=None, sm=88.0)
    sample = replace(sample, static=replace(sample.static, mig_enabled=True, mig_parent="GPU-parent"))
    assert steady(45, sample, [train()]).verdict == "healthy"
    low = steady(45, replace(sample, sm_active_pct=20.0, tensor_active_pct=5.0), [train()])
    assert (low.verdict, low.level, low.busy_not_working) == ("collecting", "grey", None)
    assert "not measured" in low.evidence[0]


@pytest.mark.parametrize("source", ["bound", "none"])
def test_without_a_measured_sm_there_is_no_flag_and_the_reason_is_said(source: str) -> None:
    sample = gpu(util=96.0, sm=8.0, sm_source=source, sm_lack=SmLack(("no SM counter on this GPU",)))
    said = steady(45, sample, [train()])
    assert (said.verdict, said.busy_not_working, said.efficiency_pct) == ("no_bottleneck_seen", None, None)
    assert said.efficiency_reason == "no SM counter on this GPU"
    assert any("cannot say whether it really works" in note for note in said.notes)


def test_two_sources_of_sm_never_mix() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(util=96.0, sm=0.5)) for tick in range(40))
    last = watch.feed(snap(40 + tick, gpu(util=96.0, sm=90.0, sm_source="dcgm-exporter")) for tick in range(5))
    assert last.efficiency_pct is None, "five samples of the new source are too few of the window"
    last = watch.feed(snap(45 + tick, gpu(util=96.0, sm=90.0, sm_source="dcgm-exporter")) for tick in range(12))
    assert last.efficiency_pct == pytest.approx(93.75)


def test_a_counter_that_reads_zero_under_load_is_broken_and_switches_the_flag_off() -> None:
    said = steady(45, gpu(util=96.0, sm=0.0), [train()])
    assert (said.busy_not_working, said.verdict) == (None, "no_bottleneck_seen")
    assert "counter_fault" in badges(said)


@pytest.mark.parametrize("changes", [{"power_w": 80.0}, {"sm": 0.4}])
def test_a_counter_is_not_called_broken_when_the_gpu_draws_nothing_or_the_value_is_small(
    changes: dict[str, float],
) -> None:
    said = steady(45, gpu(**{"util": 96.0, "sm": 0.0, **changes}), [train()])
    assert "counter_fault" not in badges(said)
    assert said.busy_not_working == "A"


def test_a_broken_counter_that_recovers_counts_again() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(util=96.0, sm=0.0)) for tick in range(40))
    last = watch.feed(snap(40 + tick, gpu(util=96.0, sm=90.0)) for tick in range(40))
    assert (last.verdict, "counter_fault" in badges(last)) == ("healthy", False)


@pytest.mark.parametrize(
    ("util", "sm", "efficiency"), [(85.0, 8.0, 9.41), (10.0, 5.0, 50.0), (9.9, 5.0, None), (50.0, 55.0, 110.0)]
)
def test_efficiency_is_sm_over_util_from_ten_percent_on(util: float, sm: float, efficiency: float | None) -> None:
    said = steady(45, gpu(util=util, sm=sm), [train()])
    assert said.efficiency_pct == (None if efficiency is None else pytest.approx(efficiency, abs=0.01))
    assert (said.efficiency_reason is None) == (efficiency is not None)


def test_the_number_beside_a_verdict_is_the_one_that_the_verdict_is_about() -> None:
    small = steady(45, gpu(util=97.0, sm=8.0), [train()])
    starved = steady(45, gpu(util=38.0, sm=33.0), [train(main=2.0), *workers(8, 90.0, 10.0)])
    bound = steady(45, gpu(util=99.0, sm=92.0, dram=78.0, tensor_active_pct=12.0), [train()])
    waiting = gpu(util=99.0, sm=16.0, dram=6.0, tensor_active_pct=2.0, nvlink_rx_bytes_per_s=157.5e9)
    talking = steady(45, waiting, [train()])
    healthy = steady(45, gpu(util=50.0, sm=55.0), [train()])
    said = [(d.verdict, d.figure[0], round(d.figure[1] or 0)) for d in (small, starved, bound, talking) if d.figure]
    assert said == [
        ("small_kernels", "efficiency", 8),
        ("dataloader_cpu", "idle", 62),
        ("memory_bandwidth", "DRAM", 78),
        ("communication", "NVLink", 35),
    ]
    assert healthy.efficiency_pct == pytest.approx(110.0) and healthy.figure == ("idle", 50.0)
    assert steady(45, gpu(util=88.0, sm=95.0), [train()]).figure == ("efficiency", 100.0), "never above 100 for people"
    assert steady(5, gpu(), [train()]).figure is None
