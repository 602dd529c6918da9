"""The rules of a busy GPU over its busy time: half working, hollow, stalled, and what is said without an SM counter."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf, nan
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.rules.busy import UNEXPLAINED
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.derived import SOFTWARE_THERMAL
from gputop.model.sm import LackKind, SmLack
from gputop.model.snapshot import GpuSample, ProcessStatic
from tests.support.scenes import HOST, Watch, badges, gpu, snap, steady, train

HALF: dict[str, Any] = {"util": 98.0, "sm": 48.0, "tensor_active_pct": 13.0, "dram": 20.0, "power_w": 450.0}
NO_COUNTER = SmLack(("no counter",))
HOLLOW: dict[str, Any] = {"util": 20.0, "sm": 0.2, "dram": 0.0, "tensor_active_pct": 0.0, "power_w": 40.0}
STALLED: dict[str, Any] = {
    "util": 99.0, "sm": 90.0, "tensor_active_pct": 1.0, "fp64_active_pct": 0.0, "fp32_active_pct": 3.0,
    "fp16_active_pct": 0.0, "int_active_pct": 9.0, "dram": 4.0,
}  # fmt: skip


def shown_over(values: list[dict[str, Any]], processes: list[Any] | None = None) -> list[tuple[str, str | None]]:
    """Verdict and flag from the 40th second on, of a GPU with these values second by second."""
    watch = Watch()
    rows = [train()] if processes is None else processes
    watch.feed(snap(tick, gpu(**value), rows) for tick, value in enumerate(values))
    return [(d.verdict, d.busy_not_working) for t, d in watch.said if t >= 40]


# --- half working ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, "half_working"),
        ({"sm": 58.7}, "half_working"),
        ({"sm": 58.8}, "working"),
        ({"sm": 30.0}, "half_working"),
        ({"sm": 29.9}, "small_kernels"),
        ({"dram": 49.0}, "working"),
        ({"dram": 48.9}, "half_working"),
        ({"dram": None}, "half_working"),
        ({"util": 79.9, "sm": 40.0}, "starved_unattributed"),
    ],
)
def test_half_working_is_judged_over_the_time_in_which_kernels_ran(changes: dict[str, Any], found: str) -> None:
    assert steady(45, gpu(**{**HALF, **changes}), [train()]).verdict == found


def test_half_working_counts_as_work_says_how_much_and_is_surer_where_power_agrees() -> None:
    said = steady(45, gpu(**HALF), [train()])
    assert (said.level, said.state, said.busy_not_working) == ("yellow", "working", None)
    assert said.title == "half working: 49 of 100 while kernels run" and said.confidence == "high"
    assert said.figure is not None and round(said.figure[1] or 0.0) == 49
    assert steady(45, gpu(**{**HALF, "power_w": 525.0}), [train()]).confidence == "medium"
    assert steady(45, gpu(**{**HALF, "power_w": None}), [train()]).confidence == "medium"


@pytest.mark.parametrize(
    ("changes", "main", "words", "remedy"),
    [
        ({"nvlink_rx_bytes_per_s": 23e9}, 10.0, "exchanges data: communication or pipeline (NVLink 5 %)", "overlap"),
        ({"nvlink_rx_bytes_per_s": 22e9}, 10.0, "the cause is not seen", "gputop trace"),
        ({"pcie_rx_bytes_per_s": 9e9, "pcie_tx_bytes_per_s": 9e9}, 10.0, "exchanges data", "overlap"),
        ({}, 95.0, "launch-bound", "CUDA graphs"),
        ({}, 10.0, "the cause is not seen", "gputop trace"),
    ],
)
def test_the_cause_of_half_work_is_named_only_with_evidence(
    changes: dict[str, float], main: float, words: str, remedy: str
) -> None:
    said = steady(45, gpu(**{**HALF, **changes}), [train(main=main)])
    assert said.verdict == "half_working"
    assert any(words in note for note in said.notes) and remedy in said.remedy


def test_a_busy_fabric_is_evidence_of_an_exchange() -> None:
    host = replace(
        HOST, fabric_ports_down=0, fabric_rx_bytes_per_s=4e9, fabric_tx_bytes_per_s=4e9, fabric_peak_bytes_per_s=50e9
    )
    said = steady(45, gpu(**HALF), [train(nccl=True)], host)
    assert any("exchanges data: communication or pipeline (fabric 8 %)" in note for note in said.notes)
    alone = steady(45, gpu(**HALF), [train(nccl=False)], host)
    assert not any("exchanges data" in note for note in alone.notes), "the fabric may be another job's"


# --- hollow ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "flag"),
    [({}, "C"), ({"sm": 1.9}, "C"), ({"sm": 2.0}, None), ({"util": 9.9, "sm": 0.1}, None), ({"sm": 0.0}, None),
     ({"dram": 12.0}, None)],
)  # fmt: skip
def test_a_gpu_is_hollow_where_kernels_hardly_reach_its_multiprocessors(
    changes: dict[str, float], flag: str | None
) -> None:
    said = steady(45, gpu(**{**HOLLOW, **changes}), [train(main=2.0)])
    assert said.busy_not_working == flag
    assert (said.state == "busy_not_working") == (flag is not None)
    if flag is not None:
        assert (said.verdict, said.level, said.confidence) == ("small_kernels", "red", "high")


def test_nobody_is_called_hollow_who_renders_or_serves_or_starts() -> None:
    server = train(main=2.0, static=ProcessStatic(command="vllm serve llama", name="vllm"))
    assert steady(45, gpu(**HOLLOW), [server]).verdict == "low_demand"
    assert steady(45, gpu(**HOLLOW), [train(type="C+G")]).busy_not_working is None
    xorg = replace(train(main=1.0, type="G"), pid=900, static=ProcessStatic(command="Xorg", name="Xorg"))
    assert steady(45, gpu(**HOLLOW), [xorg, train(main=2.0)]).busy_not_working is None
    young = train(main=2.0, age_s=5.0)
    watch = Watch()
    watch.feed(snap(tick, gpu(**HOLLOW), [replace(young, age_s=5.0 + tick)]) for tick in range(20))
    assert watch.said[-1][1].busy_not_working is None


def test_hollow_without_any_process_list_is_said_with_less_confidence() -> None:
    assert steady(45, gpu(**HOLLOW)).busy_not_working == "C"
    assert steady(45, gpu(**HOLLOW)).confidence == "medium"
    elsewhere = Watch()
    both = [gpu(0, **HOLLOW), gpu(1)]
    last = elsewhere.feed(snap(tick, both, [train(1)]) for tick in range(45))
    assert last.busy_not_working is None, "there is a list, and nobody computes here"


def test_a_broken_counter_or_a_source_that_does_not_measure_makes_nobody_hollow() -> None:
    assert steady(45, gpu(util=60.0, sm=0.0), [train()]).busy_not_working is None
    bound = gpu(**{**HOLLOW, "sm_source": "bound", "sm_lack": NO_COUNTER})
    assert steady(45, bound, [train()]).busy_not_working is None


# --- stalled --------------------------------------------------------------------------------------------------------


def test_resident_warps_that_compute_nothing_are_stalled_with_low_confidence() -> None:
    said = steady(90, gpu(**STALLED), [train()])
    assert (said.verdict, said.level, said.confidence, said.state) == ("stalled", "yellow", "low", "working")


@pytest.mark.parametrize("lacking", [key for key in STALLED if key not in ("util", "sm")] + ["pcie_rx_bytes_per_s"])
def test_a_counter_that_is_missing_leaves_open_whether_anything_is_computed(lacking: str) -> None:
    assert steady(45, gpu(**{**STALLED, lacking: None}), [train()]).verdict != "stalled"


@pytest.mark.parametrize("busy", [key for key in STALLED if key.endswith("_pct") or key == "dram"])
def test_one_busy_pipe_is_work(busy: str) -> None:
    assert steady(45, gpu(**{**STALLED, busy: 12.0}), [train()]).verdict != "stalled"


def test_a_board_without_nvlink_can_be_stalled_too() -> None:
    sample = gpu(**{**STALLED, "nvlink_rx_bytes_per_s": None, "nvlink_tx_bytes_per_s": None})
    sample = replace(sample, static=replace(sample.static, nvlink_peak_bytes_per_s=None))
    assert steady(45, sample, [train()]).verdict == "stalled"


# --- calm -----------------------------------------------------------------------------------------------------------

WAVES: dict[str, dict[str, tuple[float, float]]] = {
    "half_working": {"sm": (56.0, 61.0)},
    "memory_bandwidth": {"dram": (55.0, 64.0), "tensor_active_pct": (3.0, 3.0)},
    "healthy": {"sm": (77.5, 84.0)},
    "no_tensor_cores": {"sm": (64.0, 64.0), "tensor_active_pct": (4.2, 5.8), "fp32_active_pct": (50.0, 50.0)},
    "communication": {
        "sm": (16.0, 16.0),
        "tensor_active_pct": (8.5, 11.0),
        "dram": (9.0, 9.0),
        "nvlink_rx_bytes_per_s": (42e9, 60e9),
    },
    "small_kernels": {"sm": (27.0, 32.0), "tensor_active_pct": (1.0, 1.0), "dram": (5.0, 5.0)},
}


@pytest.mark.parametrize("name", WAVES)
def test_a_load_that_wanders_over_a_threshold_keeps_its_verdict(name: str) -> None:
    """Slower than the window, so that the means wander too, and for a quarter of an hour."""
    base: dict[str, Any] = {"util": 98.0, "sm": 60.0, "tensor_active_pct": 30.0, "dram": 20.0, "power_w": 500.0}

    def at(tick: int) -> dict[str, Any]:
        phase = abs((tick % 180) / 90.0 - 1.0)
        return {**base, **{key: low + (high - low) * phase for key, (low, high) in WAVES[name].items()}}

    shown = shown_over([at(tick) for tick in range(900)])
    flips = sum(a != b for a, b in pairwise(shown))
    assert flips <= 1, shown[:: len(shown) // 20]


def requests_by_chance(duty: float, seconds: int) -> Iterator[dict[str, float]]:
    """A server: bursts of a second on average, and pauses between them, both of random length."""
    rnd, busy, until = Random(7), True, 0.0
    for second in range(seconds):
        worked, at = 0.0, float(second)
        while until < second + 1:
            worked += busy * (until - at) if until > at else 0.0
            at, busy = max(at, until), not busy
            until = at + rnd.expovariate(1.0 if busy else duty / (1.0 - duty))
        worked += busy * (second + 1 - at)
        yield {"util": 100 * worked, "sm": 66 * worked, "dram": 68 * worked, "tensor_active_pct": 2 * worked}


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("duty", [0.1, pytest.param(0.3, marks=pytest.mark.slow), 0.8])
def test_a_server_whose_requests_come_by_chance_keeps_its_verdict(duty: float, seen: bool) -> None:
    server = train(main=5.0, static=ProcessStatic(command="vllm serve llama", name="vllm"))
    shown = shown_over(list(requests_by_chance(duty, 1500)), [server] if seen else [])[60:]
    assert sum(a != b for a, b in pairwise(shown)) <= 1, shown[:: len(shown) // 20]
    assert {verdict for verdict, _ in shown} <= {
        "low_demand" if seen else "starved_unattributed", "idle", "memory_bandwidth",
    }  # fmt: skip


# --- sources --------------------------------------------------------------------------------------------------------


def multiplexed(tick: int, **changes: Any) -> GpuSample:
    """Two of three rows of DCGM hold no profiling value, except the memory's."""
    live: dict[str, Any] = {"util": 99.0, "sm": 47.0, "tensor_active_pct": 12.0, "dram": 25.0, "power_w": 250.0}
    void = {"sm": 0.0, "tensor_active_pct": 0.0, "fp16_active_pct": 0.0}
    return gpu(**{**live, **(void if tick % 3 else {}), "sm_source": "dcgmi", **changes})


def test_a_multiplexed_row_of_dcgm_is_no_sample() -> None:
    watch = Watch()
    said = watch.feed(snap(0.1 * tick, multiplexed(tick), [train()], interval_s=0.1) for tick in range(600))
    assert (said.verdict, said.busy_not_working) == ("half_working", None)
    assert said.efficiency_pct == pytest.approx(47.0 / 0.99, abs=0.1)
    assert "counter_fault" not in badges(said)


def test_the_zeros_of_the_drivers_own_counters_are_measurements() -> None:
    watch = Watch()
    said = watch.feed(
        snap(0.1 * tick, multiplexed(tick, sm_source="gpm", power_w=60.0), [train()], interval_s=0.1)
        for tick in range(600)
    )
    assert said.busy_not_working == "A"


def test_one_pipe_at_zero_is_a_measurement() -> None:
    said = steady(
        45, gpu(util=98.0, sm=90.0, tensor_active_pct=0.0, fp32_active_pct=60.0, sm_source="dcgmi"), [train()]
    )
    assert said.efficiency_pct == pytest.approx(91.8, abs=0.1)


def test_counters_that_are_all_void_leave_sm_unmeasured() -> None:
    void = {"sm": 0.0, "tensor_active_pct": 0.0, "dram": 30.0, "sm_source": "dcgm-exporter", "power_w": 100.0}
    said = steady(45, gpu(**{"util": 99.0, **void}), [train()])
    assert (said.verdict, said.busy_not_working, said.efficiency_pct) == ("no_bottleneck_seen", None, None)


def test_stale_counters_are_not_set_against_todays_util() -> None:
    old = gpu(util=99.0, sm=5.0, dram=2.0, sm_source="dcgm-exporter", sm_age_s=300.0, sm_window_s=30.0)
    said = steady(45, old, [train()])
    assert (said.verdict, said.busy_not_working) == ("no_bottleneck_seen", None)
    assert "300 s old" in said.evidence[0]
    assert steady(45, replace(old, sm_age_s=59.0), [train()]).busy_not_working == "A"


@pytest.mark.parametrize("wrong", [101.5, 130.0, 4e9, -1.0, -inf, inf, nan])
def test_a_percentage_that_cannot_be_one_is_not_measured(wrong: float) -> None:
    util = steady(45, gpu(util=wrong), [train()])
    assert (util.verdict, util.title) == ("collecting", "no util: not judged")
    sm = steady(45, gpu(sm=wrong), [train()])
    assert (sm.verdict, sm.efficiency_pct) == ("no_bottleneck_seen", None)
    tensor = steady(90, gpu(tensor_active_pct=wrong, dram=20.0), [train()])
    assert (tensor.verdict, tensor.confidence) == ("working", "medium")


def test_rounding_above_a_hundred_is_a_hundred() -> None:
    assert steady(45, gpu(util=100.4), [train()]).verdict == "healthy"


@pytest.mark.parametrize(
    "lacking", [("dram",), ("tensor_active_pct",), ("power_w",), ("dram", "tensor_active_pct"), ("sm",)]
)
@pytest.mark.parametrize("scene", [HALF, HOLLOW, STALLED, {"sm": 90.0}, {"sm": 90.0, "tensor_active_pct": 1.0}])
def test_with_a_column_missing_less_is_said_and_never_praise(scene: dict[str, Any], lacking: tuple[str, ...]) -> None:
    whole = steady(90, gpu(**scene), [train(main=2.0)])
    less = steady(90, gpu(**{**scene, **dict.fromkeys(lacking)}), [train(main=2.0)])
    assert not (less.level == "green" and less.confidence == "high" and whole.level != "green")
    assert whole.level == "red" or less.level != "red"


def test_a_source_that_begins_in_the_middle_is_compared_with_the_util_of_its_own_samples() -> None:
    """Busy without a counter, then hardly busy with one: SM is low because hardly anything runs then."""
    watch = Watch()
    blind = gpu(util=100.0, sm=None, dram=None, tensor_active_pct=None, sm_source="bound", sm_lack=NO_COUNTER)
    watch.feed(snap(tick, blind, [train()]) for tick in range(40))
    seen = gpu(util=4.0, sm=3.0, dram=0.0, tensor_active_pct=0.0)
    watch.feed(snap(40 + tick, seen, [train()]) for tick in range(40))
    assert not [d for _, d in watch.said if d.busy_not_working is not None]


def test_a_change_of_source_never_changes_what_is_said_into_something_else() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(sm=90.0), [train()]) for tick in range(60))
    watch.feed(snap(60 + tick, gpu(sm=89.0, sm_source="dcgm-exporter"), [train()]) for tick in range(60))
    bound = gpu(sm=None, dram=None, tensor_active_pct=None, sm_source="bound", sm_lack=NO_COUNTER)
    watch.feed(snap(120 + tick, bound, [train()]) for tick in range(60))
    assert {d.verdict for t, d in watch.said if t > 30} == {"healthy", "no_bottleneck_seen"}
    assert watch.said[-1][1].verdict == "no_bottleneck_seen"


# --- without an SM counter ------------------------------------------------------------------------------------------


def unmeasured(name: str = "NVIDIA GeForce RTX 4090", architecture: str | None = "ada", **changes: Any) -> GpuSample:
    blind = {"sm": None, "tensor_active_pct": None, "dram": None, "sm_source": "bound", "sm_lack": NO_COUNTER}
    sample = gpu(**{**blind, **changes})
    return replace(sample, static=replace(sample.static, name=name, architecture=architecture))


@pytest.mark.parametrize(
    ("name", "architecture", "words"),
    [
        ("NVIDIA GeForce RTX 4090", "ada", ("--perf", "CAP_PERFMON")),
        ("NVIDIA GeForce RTX 5090", "blackwell", ("--perf", "CAP_PERFMON")),
        ("Tesla T4", "turing", ("dcgm-exporter", "--dcgmi", "--perf", "CAP_PERFMON")),
        ("NVIDIA A100-SXM4-80GB", "ampere", ("dcgm-exporter", "--perf")),
        ("Tesla V100-SXM2-16GB", "volta", ("dcgm-exporter",)),
        ("NVIDIA H100 80GB HBM3", "hopper", ("dcgm-exporter", "--perf")),
        ("Tesla P100-PCIE-16GB", "pascal", ("gputop.watch()",)),
        ("Orin (nvgpu)", "ampere", ("gputop.watch()",)),
        ("Some future board", None, ("gputop doctor",)),
    ],
)
def test_a_gpu_without_an_sm_counter_is_told_how_to_get_it_measured(
    name: str, architecture: str | None, words: tuple[str, ...]
) -> None:
    said = steady(45, unmeasured(name, architecture), [train()])
    assert said.verdict == "no_bottleneck_seen" and said.remedy_short
    assert all(word in said.remedy for word in words), said.remedy


def test_counters_that_are_denied_or_released_need_no_other_advice() -> None:
    def lacking(kind: LackKind) -> SmLack:
        return SmLack(("no counter",), kind=kind)

    denied = steady(45, unmeasured(sm_lack=lacking("denied")), [train()])
    assert "CAP_PERFMON" in denied.remedy and "--perf" not in denied.remedy
    assert "P takes the counters again" in steady(45, unmeasured(sm_lack=lacking("released")), [train()]).remedy


@pytest.mark.parametrize(
    ("util", "power", "level", "confidence", "words"),
    [
        (99.0, 665.0, "grey-green", "medium", "works hard"),
        (99.0, 664.0, "grey-green", "low", None),
        (99.0, 349.0, "grey", "low", "draws little for a busy GPU"),
        (94.0, 349.0, "grey-green", "low", None),
        (99.0, 1000.0, "grey-green", "low", None),
        (99.0, None, "grey-green", "low", None),
    ],
)
def test_power_is_the_witness_where_sm_is_not_measured(
    util: float, power: float | None, level: str, confidence: str, words: str | None
) -> None:
    said = steady(45, unmeasured(util=util, power_w=power), [train()])
    assert (said.verdict, said.level, said.confidence) == ("no_bottleneck_seen", level, confidence)
    assert words is None or any(words in note for note in said.notes)
    assert "--perf" in said.remedy


def test_little_power_says_nothing_while_heat_holds_the_clocks_down() -> None:
    hot = steady(45, unmeasured(util=99.0, power_w=300.0, throttle_reasons=SOFTWARE_THERMAL), [train()])
    assert hot.level == "grey-green" and not any("draws little" in note for note in hot.notes)


# --- idle without a reason to see -----------------------------------------------------------------------------------


def test_idle_time_without_any_process_is_a_fact_and_counts_as_idle() -> None:
    half = [gpu(util=100.0 * (tick % 3 == 0), sm=30.0 * (tick % 3 == 0), dram=5.0) for tick in range(60)]
    watch = Watch()
    said = watch.feed(snap(tick, sample) for tick, sample in enumerate(half))
    assert (said.verdict, said.level, said.state) == ("starved_unattributed", "grey", "idle")
    assert said.title == "idle 67 % of the time: why is not visible without processes"
    assert "while kernels run they use 30 % of the SMs" in said.notes
    seconds = said.seconds or {}
    assert seconds["starved"] == 0.0 and seconds["idle"] > 0.0
    hidden = [train(main_run_pct=None, main_wait_pct=None, main_state=None, run_pct=None, cpu_pct=None)]
    seen = Watch().feed(snap(tick, sample, hidden) for tick, sample in enumerate(half))
    assert (seen.level, seen.state) == ("yellow", "starved"), "a process that is there waits for something"


# --- one state ------------------------------------------------------------------------------------------------------


def test_shares_of_all_states_add_up_and_busy_not_working_is_split_by_its_cause() -> None:
    waiting = gpu(util=99.0, sm=16.0, dram=6.0, tensor_active_pct=2.0, nvlink_rx_bytes_per_s=157e9)
    tiny = gpu(util=97.0, sm=8.0, dram=12.0, tensor_active_pct=1.0)
    scenes = [(waiting, 120), (tiny, 90), (gpu(), 60), (gpu(util=30.0, sm=25.0), 60), (gpu(util=0.0, sm=0.0), 60)]
    watch, tick = Watch(), 0
    said: GpuDiagnosis | None = None
    for sample, length in scenes:
        said = watch.feed(snap(tick + step, sample, [train()]) for step in range(length))
        tick += length
    assert said is not None and said.seconds is not None and said.causes is not None
    assert sum(said.seconds.values()) == pytest.approx(tick - 1)
    assert sum(said.causes.values()) == pytest.approx(said.seconds["busy_not_working"])
    assert set(said.causes) == {"communication", "small_kernels"}
    assert said.causes["communication"] > 60.0 and said.causes["small_kernels"] > 60.0
    assert all((d.busy_not_working is None) == (d.state != "busy_not_working") for _, d in watch.said)


SQUARES = {
    "util": 100.0, "sm": 90.0, "tensor_active_pct": 1.0, "dram": 0.0, "power_w": 400.0
}  # fmt: skip
"""Each thread squares one float: as an A100 shows it, whose FP32 pipe nobody counts there."""


def test_a_busy_sm_in_which_nothing_is_seen_to_work_is_never_green_from_the_first_verdict_on() -> None:
    watch = Watch()
    watch.feed(snap(tick, gpu(**SQUARES), [train()]) for tick in range(120))
    said = [d for _, d in watch.said if d.verdict != "collecting"]
    assert {(d.verdict, d.level, d.title) for d in said[:40]} == {("working", "info", UNEXPLAINED)}
    assert {d.level for d in said} == {"info"} and not any(d.busy_not_working for d in said)
    first = said[0]
    assert "FP32, FP64, integer" in first.notes[0] and "DCGM" in first.remedy


@pytest.mark.parametrize(
    "witness",
    [
        {"fp32_active_pct": 6.0}, {"fp64_active_pct": 6.0}, {"int_active_pct": 6.0}, {"fp16_active_pct": 6.0},
        {"tensor_active_pct": 6.0}, {"dram": 11.0}, {"dram": 4.0, "power_w": 400.0},
        {"util": 85.0, "sm": 58.0, "power_w": 400.0},
    ],
)  # fmt: skip
def test_one_witness_of_work_is_enough_for_green(witness: dict[str, float]) -> None:
    """As jobs of FP32 or FP64 alone have it: vision, physics."""
    said = steady(30, gpu(**{**SQUARES, "power_w": 200.0, **witness}), [train()])
    assert (said.verdict, said.level, said.title) == ("working", "green", "working")


def test_without_a_witness_that_could_be_measured_a_gpu_looks_busy_and_is_not_green() -> None:
    blind = {"tensor_active_pct": None, "dram": None}
    said = steady(30, gpu(util=99.0, sm=90.0, power_w=None, **blind), [train()])
    assert (said.verdict, said.level, said.title) == ("working", "grey-green", "looks busy")
    seen = steady(30, gpu(util=99.0, sm=90.0, power_w=420.0, **blind), [train()])
    assert (seen.level, seen.title) == ("green", "working")
