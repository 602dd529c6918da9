"""A busy GPU: the flags, what it is bound by, its end states and its gates, on both sides of each threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import nan
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.rules.working import UNEXPLAINED
from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.derived import SOFTWARE_THERMAL
from gputop.model.sm import SmLack
from gputop.model.snapshot import GpuSample, ProcessStatic, Snapshot
from tests.support.scenes import GIB, HOST, Watch, assert_told, gpu, snap, steady, train, workers

OF_PROCESS = ("main", "nccl", "type", "framework", "age_s")
VLLM = ProcessStatic(command="vllm serve llama", name="vllm")
NO_COUNTER = SmLack(("no SM counter on this GPU",))
BLIND: dict[str, Any] = {
    "sm": None, "tensor_active_pct": None, "dram": None, "sm_source": "bound", "sm_lack": NO_COUNTER,
}  # fmt: skip
ADA = {"name": "NVIDIA GeForce RTX 4090", "architecture": "ada"}
LOW = {"util": 96.0, "sm": 18.0, "dram": 20.0, "tensor_active_pct": 4.0}
QUIET = {**LOW, "dram": 8.0, "power_w": 300.0, "nccl": True}
FP32 = {"sm": 95.0, "tensor_active_pct": 0.0, "fp32_active_pct": 70.0, "seconds": 90}
LOW_OCC = {"sm": 70.0, "sm_occupancy_pct": 9.0, "tensor_active_pct": 4.0, "dram": 30.0}
HALF: dict[str, Any] = {
    "util": 98.0,
    "sm": 48.0,
    "tensor_active_pct": 13.0,
    "dram": 20.0,
    "power_w": 450.0,
}
HOLLOW: dict[str, Any] = {
    "util": 20.0, "sm": 0.2, "dram": 0.0, "tensor_active_pct": 0.0, "power_w": 40.0, "main": 2.0,
}  # fmt: skip
STALLED: dict[str, Any] = {
    "util": 99.0, "sm": 90.0, "tensor_active_pct": 1.0, "fp64_active_pct": 0.0, "fp32_active_pct": 3.0,
    "fp16_active_pct": 0.0, "int_active_pct": 9.0, "dram": 4.0,
}  # fmt: skip
SQUARES = {
    "util": 100.0,
    "sm": 90.0,
    "tensor_active_pct": 1.0,
    "dram": 0.0,
    "power_w": 400.0,
    "seconds": 30,
}
"""Each thread squares one float: as an A100 shows it, whose FP32 pipe nobody counts there."""
NO_WITNESS = {"sm": 90.0, "tensor_active_pct": 8.0, "dram": 20.0}
FABRIC = {
    "fabric_ports_down": 0, "fabric_rx_bytes_per_s": 4e9, "fabric_tx_bytes_per_s": 4e9, "fabric_peak_bytes_per_s": 5e10,
}  # fmt: skip
MIG = {"mig_enabled": True, "mig_parent": "GPU-parent"}
UNJUDGED = {"verdict": "no_bottleneck_seen", "busy_not_working": None, "efficiency_pct": None}
GREEN = {"verdict": "working", "level": "green", "title": "working"}
EXCHANGES, NOT_SEEN = "exchanges data: communication or pipeline", "the cause is not seen"

Row = tuple[Mapping[str, Any], Mapping[str, Any] | str]
TABLE: dict[str, tuple[Mapping[str, Any], list[Row]]] = {
    "flags compare strictly": ({"dram": 10.0}, [
        ({"util": 80.0, "sm": 29.9}, {"busy_not_working": "A", "verdict": "small_kernels"}),
        ({"util": 80.0, "sm": 30.0}, {"busy_not_working": None}),
        ({"util": 79.9, "sm": 20.0}, {"busy_not_working": "B", "verdict": "small_kernels"}),
        ({"util": 79.9, "sm": 23.97}, {"busy_not_working": None}),
        ({"util": 50.0, "sm": 15.0}, {"busy_not_working": None}),
        ({"util": 50.0, "sm": 14.9}, {"busy_not_working": "B", "verdict": "small_kernels"}),
        ({"util": 49.9, "sm": 5.0}, {"busy_not_working": None}),
        ({"util": 49.9, "sm": 4.9}, {"busy_not_working": "C", "verdict": "small_kernels"}),
        ({"util": 100.0, "sm": 0.1}, {"busy_not_working": "A", "verdict": "small_kernels"}),
        ({"util": 0.0, "sm": 0.0}, {"busy_not_working": None}),
        ({"util": 96.0, "sm": 10.0}, {"level": "red"}),
        ({"util": 70.0, "sm": 10.0}, {"level": "red"}),
    ]),
    "a named starvation wins, and what kernels use of the chip becomes a note": ({"util": 60.0, "sm": 10.0}, [
        ({"processes": [train(main=2.0), *workers(4, 90.0, 10.0)]},
         {"verdict": "dataloader_cpu", "busy_not_working": None, "says": "while kernels run they use 17 % of the SMs"}),
    ]),
    "SM of a whole GPU in MIG mode never counts": ({"util": 96.0, "sm": 8.0}, [
        ({"static": {**MIG, "mig_parent": None}}, {**UNJUDGED, "says": "MIG"}),
        ({"static": MIG}, {**UNJUDGED, "says": "MIG"}),
    ]),
    "an instance without util is judged by what its own SM proves": ({"util": None, "sm": 88.0, "static": MIG}, [
        ({}, "healthy"),
        ({"sm": 20.0, "tensor_active_pct": 5.0},
         {"verdict": "collecting", "level": "grey", "busy_not_working": None, "says": "not measured"}),
    ]),
    "without a measured SM there is no flag, and the reason is said": (
        {"util": 96.0, "sm": 8.0, "sm_lack": NO_COUNTER}, [
            ({"sm_source": source}, {**UNJUDGED, "efficiency_reason": "no SM counter on this GPU",
                                     "says": "cannot say whether it really works"})
            for source in ("bound", "none")
        ]),
    "a counter that reads zero under load is broken": ({"util": 96.0, "sm": 0.0}, [
        ({}, {**UNJUDGED, "has": "counter_fault"}),
        ({"power_w": 80.0}, {"busy_not_working": "A", "lacks": "counter_fault"}),
        ({"sm": 0.4}, {"busy_not_working": "A", "lacks": "counter_fault"}),
    ]),
    "efficiency is SM over util from ten percent on": ({}, [
        ({"util": 85.0, "sm": 8.0}, {"efficiency_pct": pytest.approx(9.41, abs=0.01), "efficiency_reason": None}),
        ({"util": 10.0, "sm": 5.0}, {"efficiency_pct": 50.0, "efficiency_reason": None}),
        ({"util": 9.9, "sm": 5.0}, {"efficiency_pct": None, "efficiency_reason": "util below 10 %"}),
        ({"util": 50.0, "sm": 55.0}, {"efficiency_pct": pytest.approx(110.0), "figure": ("idle", 50.0)}),
    ]),
    "the number beside a verdict is the one that it is about": ({}, [
        ({"util": 97.0, "sm": 8.0}, {"figure": ("efficiency", pytest.approx(8.2, abs=0.1))}),
        ({"util": 38.0, "sm": 33.0, "processes": [train(main=2.0), *workers(8, 90.0, 10.0)]},
         {"figure": ("idle", 62.0)}),
        ({"util": 99.0, "sm": 92.0, "dram": 78.0, "tensor_active_pct": 12.0}, {"figure": ("DRAM", 78.0)}),
        ({"util": 99.0, "sm": 16.0, "dram": 6.0, "tensor_active_pct": 2.0, "nvlink_rx_bytes_per_s": 157.5e9},
         {"verdict": "communication", "figure": ("NVLink", pytest.approx(35.0))}),
        ({"util": 88.0, "sm": 95.0}, {"figure": ("efficiency", 100.0)}),
        ({"seconds": 5}, {"figure": None}),
    ]),
    "memory bandwidth is judged over the time in which kernels ran": ({}, [
        ({"dram": 61.0}, "memory_bandwidth"),
        ({"dram": 60.0}, "healthy"),
        ({"util": 90.0, "dram": 56.0}, "memory_bandwidth"),
        ({"dram": None, "mem_util_pct": 95.0}, "healthy"),
        ({"util": 96.0, "sm": 25.0, "dram": 70.0},
         {"verdict": "memory_bandwidth", "busy_not_working": None, "level": "info", "state": "working"}),
    ]),
    "communication is low SM with traffic and no tensor work": (LOW, [
        ({"nvlink_rx_bytes_per_s": 45e9}, "communication"),
        ({"nvlink_rx_bytes_per_s": 44e9}, "small_kernels"),
        ({"nvlink_tx_bytes_per_s": 45e9}, "communication"),
        ({"nvlink_rx_bytes_per_s": 200e9, "tensor_active_pct": 10.0}, "small_kernels"),
        ({"pcie_rx_bytes_per_s": 7.6e9, "pcie_tx_bytes_per_s": 7.6e9}, "communication"),
        ({"pcie_rx_bytes_per_s": 7.6e9, "pcie_tx_bytes_per_s": 7.4e9}, "small_kernels"),
        ({"nvlink_rx_bytes_per_s": 200e9, "sm": 60.0}, "working"),
    ]),
    "communication is suspected from NCCL's threads without work": (QUIET, [
        ({}, {"verdict": "communication", "confidence": "low", "title": "communication (suspected)"}),
        ({"nccl": False}, "small_kernels"),
        ({"power_w": 350.0}, "small_kernels"),
        ({"dram": 15.0}, "small_kernels"),
    ]),
    "low SM is small kernels only where DRAM says so": ({"util": 96.0, "sm": 10.0, "tensor_active_pct": 1.0}, [
        ({"dram": 59.0}, "small_kernels"),
        ({"dram": None}, "low_sm"),
    ]),
    "a main thread that never rests makes small kernels launch-bound": (
        {"util": 85.0, "sm": 8.0, "dram": 12.0, "tensor_active_pct": 1.0}, [
            ({"main": 100.0}, {"says": "many tiny kernels"}),
            ({"main": 89.0}, {"never": "many tiny kernels"}),
        ]),
    "no tensor cores": (FP32, [
        ({"seconds": 58}, "healthy"), ({"seconds": 75}, "no_tensor_cores"), ({"sm": 49.9}, "half_working"),
        ({"tensor_active_pct": 8.0}, "healthy"), ({"dram": 50.0}, "healthy"), ({"fp64_active_pct": 5.0}, "healthy"),
        ({"tensor_active_pct": None}, "healthy"), ({"type": "C+G"}, "healthy"),
    ]),
    "no tensor cores accuses only where FP32 work was measured in a framework": (FP32, [
        ({"framework": "torch"}, {"level": "yellow", "confidence": "high", "says": "bf16 autocast"}),
        ({"framework": "jax"}, {"level": "yellow", "confidence": "high", "says": "jax.default_matmul_precision"}),
        ({"framework": "tensorflow"}, {"level": "yellow", "confidence": "high", "says": "other work does not need"}),
        ({}, {"level": "info", "confidence": "medium", "says": "other work does not need them"}),
        ({"fp32_active_pct": 19.9, "framework": "torch"},
         {"level": "info", "confidence": "medium", "says": "bf16 autocast", "never": "not measured here"}),
        ({"fp32_active_pct": None, "framework": "torch"},
         {"level": "info", "confidence": "medium", "says": "whether FP32 work or a stall is not measured here"}),
        ({"sm": 55.0}, {"level": "yellow", "confidence": "medium", "verdict": "no_tensor_cores"}),
    ]),
    "low occupancy is a note and no verdict": (LOW_OCC, [
        ({}, {"says": "of the warp slots"}),
        ({"sm": 49.9}, {"never": "of the warp slots"}),
        ({"sm_occupancy_pct": 15.0}, {"never": "of the warp slots"}),
        ({"tensor_active_pct": 10.0}, {"never": "of the warp slots"}),
        ({"dram": 64.0}, {"never": "of the warp slots"}),
        ({"dram": None}, {"says": "of the warp slots"}),
    ]),
    "the end states": ({"util": 80.1}, [
        ({"sm": 80.0, "tensor_active_pct": 8.0},
         {**GREEN, "verdict": "healthy", "confidence": "high", "says": "healthy"}),
        ({"sm": 80.0, "tensor_active_pct": 7.9}, {**GREEN, "confidence": "medium", "never": "healthy"}),
        ({"sm": 79.9, "tensor_active_pct": 39.9}, {**GREEN, "confidence": "medium"}),
        ({"sm": 60.0, "tensor_active_pct": 40.0}, {**GREEN, "verdict": "healthy", "confidence": "high"}),
        ({"util": 98.0, "sm": 90.0, "tensor_active_pct": None}, {**GREEN, "confidence": "medium"}),
    ]),
    "SM activity is called healthy only with a second witness": (NO_WITNESS, [
        ({}, {"verdict": "working", "confidence": "medium", "says": "no second witness"}),
        ({"dram": 49.0}, "healthy"), ({"fp64_active_pct": 20.0}, "healthy"), ({"fp32_active_pct": 20.0}, "healthy"),
        ({"fp16_active_pct": 20.0}, "healthy"), ({"int_active_pct": 20.0}, "healthy"),
        ({"tensor_active_pct": 9.0}, "healthy"),
    ]),
    "half working is judged over the time in which kernels ran": (HALF, [
        ({}, {"verdict": "half_working", "level": "yellow", "state": "working", "busy_not_working": None,
              "title": "half working: 49 of 100 while kernels run", "confidence": "high",
              "figure": ("efficiency", pytest.approx(49.0, abs=0.1))}),
        ({"power_w": 525.0}, {"verdict": "half_working", "confidence": "medium"}),
        ({"power_w": None}, {"verdict": "half_working", "confidence": "medium"}),
        ({"sm": 58.7}, "half_working"), ({"sm": 58.8}, "working"),
        ({"sm": 30.0}, "half_working"), ({"sm": 29.9}, "small_kernels"),
        ({"dram": 49.0}, "working"), ({"dram": 48.9}, "half_working"), ({"dram": None}, "half_working"),
        ({"util": 79.9, "sm": 40.0}, "starved_unattributed"),
    ]),
    "the cause of half work is named only with evidence": (HALF, [
        ({"nvlink_rx_bytes_per_s": 23e9}, {"says": (f"{EXCHANGES} (NVLink 5 %)", "overlap")}),
        ({"nvlink_rx_bytes_per_s": 22e9}, {"says": (NOT_SEEN, "gputop trace")}),
        ({"pcie_rx_bytes_per_s": 9e9, "pcie_tx_bytes_per_s": 9e9}, {"says": (EXCHANGES, "overlap")}),
        ({"main": 95.0}, {"says": ("launch-bound", "CUDA graphs")}),
        ({}, {"says": (NOT_SEEN, "gputop trace")}),
        ({"nccl": True, "host": FABRIC}, {"says": f"{EXCHANGES} (fabric 8 %)"}),
        # The fabric may be another job's.
        ({"nccl": False, "host": FABRIC}, {"never": EXCHANGES}),
    ]),
    "a GPU is hollow where kernels hardly reach its multiprocessors": (HOLLOW, [
        ({}, {"busy_not_working": "C", "state": "busy_not_working", "verdict": "small_kernels", "level": "red",
              "confidence": "high"}),
        ({"sm": 1.9}, {"busy_not_working": "C"}), ({"sm": 2.0}, {"busy_not_working": None, "state": "starved"}),
        ({"util": 9.9, "sm": 0.1}, {"busy_not_working": None}), ({"sm": 0.0}, {"busy_not_working": None}),
        ({"dram": 12.0}, {"busy_not_working": None}),
        ({"processes": [train(main=2.0, static=VLLM)]}, {"verdict": "low_demand", "state": "idle_allocated"}),
        ({"type": "C+G"}, {"busy_not_working": None}),
        ({"processes": [train(main=1.0, type="G", pid=900, static=ProcessStatic(name="Xorg")), train(main=2.0)]},
         {"busy_not_working": None}),
        ({"age_s": 5.0}, {"busy_not_working": None}),
        ({"processes": []}, {"busy_not_working": "C", "confidence": "medium"}),
        ({"sm_source": "bound", "sm_lack": NO_COUNTER}, {"busy_not_working": None}),
        ({"util": 60.0, "sm": 0.0, "power_w": 420.0}, {"busy_not_working": None}),
    ]),
    "resident warps that compute nothing are stalled": (STALLED, [
        ({"seconds": 90}, {"verdict": "stalled", "level": "yellow", "confidence": "low", "state": "working"}),
        ({"nvlink_rx_bytes_per_s": None, "nvlink_tx_bytes_per_s": None, "static": {"nvlink_peak_bytes_per_s": None}},
         "stalled"),
        # Each counter must be known, and one busy pipe is work.
        *[({key: None}, {"verdict": "working"}) for key in STALLED if key not in ("util", "sm")],
        ({"pcie_rx_bytes_per_s": None}, {"verdict": "working"}),
        *[({key: 12.0}, {"level": "green"}) for key in STALLED if key.endswith("_pct") and key != "tensor_active_pct"],
        ({"tensor_active_pct": 12.0}, "healthy"), ({"dram": 12.0}, {"level": "green"}),
    ]),
    "counters of DCGM": ({"util": 99.0}, [
        ({"util": 98.0, "sm": 90.0, "tensor_active_pct": 0.0, "fp32_active_pct": 60.0, "sm_source": "dcgmi"},
         {"efficiency_pct": pytest.approx(91.8, abs=0.1)}),
        ({"sm": 0.0, "tensor_active_pct": 0.0, "dram": 30.0, "sm_source": "dcgm-exporter", "power_w": 100.0}, UNJUDGED),
        ({"sm": 5.0, "dram": 2.0, "sm_source": "dcgm-exporter", "sm_age_s": 300.0, "sm_window_s": 30.0},
         {"verdict": "no_bottleneck_seen", "busy_not_working": None, "says": "300 s old"}),
        ({"sm": 5.0, "dram": 2.0, "sm_source": "dcgm-exporter", "sm_age_s": 59.0, "sm_window_s": 30.0},
         {"busy_not_working": "A"}),
    ]),
    "a percentage that cannot be one is not measured": ({}, [
        ({"util": 100.4}, "healthy"),
        ({"util": nan}, {"verdict": "collecting", "title": "no util: not judged"}),
        ({"sm": 4e9}, {"verdict": "no_bottleneck_seen", "efficiency_pct": None}),
        ({"tensor_active_pct": -1.0, "dram": 20.0, "seconds": 90}, {"verdict": "working", "confidence": "medium"}),
    ]),
    "a GPU without an SM counter is told how to get it measured": (BLIND, [
        ({"static": {"name": name, "architecture": architecture}}, {"verdict": "no_bottleneck_seen", "says": words})
        for name, architecture, words in (
            ("NVIDIA GeForce RTX 4090", "ada", ("--perf", "CAP_PERFMON")),
            ("NVIDIA GeForce RTX 5090", "blackwell", ("--perf", "CAP_PERFMON")),
            ("Tesla T4", "turing", ("dcgm-exporter", "--dcgmi", "--perf", "CAP_PERFMON")),
            ("NVIDIA A100-SXM4-80GB", "ampere", ("dcgm-exporter", "--perf")),
            ("Tesla V100-SXM2-16GB", "volta", ("dcgm-exporter",)),
            ("NVIDIA H100 80GB HBM3", "hopper", ("dcgm-exporter", "--perf")),
            ("Tesla P100-PCIE-16GB", "pascal", ("gputop.watch()",)),
            ("Orin (nvgpu)", "ampere", ("gputop.watch()",)),
            ("Some future board", None, ("gputop doctor",)),
        )
    ]),
    "counters that are denied need no other advice": (BLIND, [
        ({"sm_lack": SmLack(("no counter",), kind="denied")}, {"says": "CAP_PERFMON", "never": "--perf"}),
    ]),
    "power is the witness where SM is not measured": ({**BLIND, "static": ADA, "util": 99.0}, [
        ({"power_w": 665.0}, {"level": "grey", "confidence": "medium", "says": ("works hard", "--perf")}),
        ({"power_w": 664.0}, {"level": "grey", "confidence": "low", "says": "--perf"}),
        ({"power_w": 349.0}, {"level": "grey", "confidence": "low", "says": "draws little for a busy GPU"}),
        ({"power_w": 349.0, "util": 94.0}, {"level": "grey", "confidence": "low"}),
        ({"power_w": 1000.0}, {"level": "grey", "confidence": "low"}),
        ({"power_w": None}, {"level": "grey", "confidence": "low"}),
        # Heat that holds the clocks down is another reason for little power.
        ({"power_w": 300.0, "throttle_reasons": SOFTWARE_THERMAL}, {"level": "grey", "never": "draws little"}),
    ]),
    "one witness of work is enough for green": ({**SQUARES, "power_w": 200.0}, [
        (witness, GREEN) for witness in (
            {"fp32_active_pct": 6.0}, {"fp64_active_pct": 6.0}, {"int_active_pct": 6.0}, {"fp16_active_pct": 6.0},
            {"tensor_active_pct": 6.0}, {"dram": 11.0}, {"dram": 4.0, "power_w": 400.0},
            {"util": 85.0, "sm": 58.0, "power_w": 400.0},
        )
    ]),
    "without a witness that could be measured a GPU looks busy and is not green": (
        {"util": 99.0, "sm": 90.0, "tensor_active_pct": None, "dram": None, "seconds": 30}, [
            ({"power_w": None}, {"verdict": "working", "level": "grey", "title": "looks busy"}),
            ({"power_w": 420.0}, GREEN),
        ]),
}  # fmt: skip


def told_of(row: Mapping[str, Any]) -> GpuDiagnosis:
    """What stands after a whole window of these values of a GPU; some keys are its process's, or the machine's."""
    values = dict(row)
    seconds, host = values.pop("seconds", 32), values.pop("host", {})
    process = {key: values.pop(key) for key in OF_PROCESS if key in values}
    processes, static = values.pop("processes", [train(**process)]), values.pop("static", {})
    sample = gpu(**values)
    sample = replace(sample, static=replace(sample.static, **static))
    return steady(seconds, sample, processes, replace(HOST, **host))


@pytest.mark.parametrize("title", TABLE)
def test_a_busy_gpu_is_called_what_it_is(title: str) -> None:
    base, rows = TABLE[title]
    for changes, wanted in rows:
        assert_told(told_of({**base, **changes}), wanted)


@pytest.mark.parametrize(
    "scene", [HALF, HOLLOW, STALLED, {"sm": 90.0}, {"sm": 90.0, "tensor_active_pct": 1.0}]
)
def test_with_a_column_missing_less_is_said_and_never_praise(scene: dict[str, Any]) -> None:
    whole = told_of({**scene, "seconds": 90})
    for lacking in (
        ("dram",),
        ("tensor_active_pct",),
        ("power_w",),
        ("dram", "tensor_active_pct"),
        ("sm",),
    ):
        less = told_of({**scene, **dict.fromkeys(lacking), "seconds": 90})
        assert not (
            less.level == "green" and less.confidence == "high" and whole.level != "green"
        ), lacking
        assert whole.level == "red" or less.level != "red", lacking


def test_a_process_list_without_anybody_here_makes_nobody_hollow() -> None:
    sample = {key: value for key, value in HOLLOW.items() if key != "main"}
    last = Watch().feed(snap(tick, [gpu(0, **sample), gpu(1)], [train(1)]) for tick in range(45))
    assert last.busy_not_working is None


# --- over time ------------------------------------------------------------------------------------------------------


def over(*parts: tuple[int, dict[str, Any]], processes: list[Any] | None = None) -> Watch:
    """A GPU for so many seconds each with these values."""
    watch, rows = Watch(), [train()] if processes is None else processes
    values = [value for seconds, value in parts for _ in range(seconds)]
    watch.feed(snap(tick, gpu(**value), rows) for tick, value in enumerate(values))
    return watch


def test_two_sources_of_sm_never_mix() -> None:
    other = {"util": 96.0, "sm": 90.0, "sm_source": "dcgm-exporter"}
    watch = over((40, {"util": 96.0, "sm": 0.5}), (17, other))
    assert watch.said[44][1].efficiency_pct is None, (
        "five samples of the new source are too few of the window"
    )
    assert watch.said[-1][1].efficiency_pct == pytest.approx(93.75)
    # One that begins in the middle is compared with the util of its own samples.
    begins = over(
        (40, {"util": 100.0, **BLIND}),
        (40, {"util": 4.0, "sm": 3.0, "dram": 0.0, "tensor_active_pct": 0.0}),
    )
    assert not [d for _, d in begins.said if d.busy_not_working is not None]
    changes = over(
        (60, {"sm": 90.0}), (60, {"sm": 89.0, "sm_source": "dcgm-exporter"}), (60, BLIND)
    )
    assert {d.verdict for t, d in changes.said if t > 30} == {"healthy", "no_bottleneck_seen"}
    assert changes.said[-1][1].verdict == "no_bottleneck_seen"


def test_a_broken_counter_that_recovers_counts_again() -> None:
    last = over((40, {"util": 96.0, "sm": 0.0}), (40, {"util": 96.0, "sm": 90.0})).said[-1][1]
    assert_told(last, {"verdict": "healthy", "lacks": "counter_fault"})


def test_nothing_is_said_of_fewer_than_ten_samples() -> None:
    watch = over((30, {"util": 96.0, "sm": 8.0}))
    assert_told(
        watch.said[8][1],
        {"verdict": "collecting", "busy_not_working": None, "efficiency_pct": None},
    )
    shown = watch.first(lambda said: said.verdict == "small_kernels")
    assert shown is not None and 9 <= shown <= 18


@pytest.mark.parametrize(("age", "found"), [(15.0, "startup"), (16.0, "healthy")])
def test_a_process_younger_than_a_minute_is_starting_up(age: float, found: str) -> None:
    # At tick 44 the process is 59 or 60 seconds old; ten ticks more let a verdict appear.
    def young(tick: int) -> Snapshot:
        return snap(tick, gpu(), [train(age_s=min(age + tick, age + 44.0))])

    assert Watch().feed(young(tick) for tick in range(60)).verdict == found


@pytest.mark.parametrize(("interval_s", "n"), [(0.25, 120), (0.5, 60), (2.0, 15), (5.0, 6)])
def test_windows_are_in_seconds_whatever_the_interval(interval_s: float, n: int) -> None:
    watch, low = Watch(), gpu(util=96.0, sm=8.0)
    last = watch.feed(
        snap(interval_s * i, low, [train()], interval_s=interval_s)
        for i in range(int(60 / interval_s))
    )
    assert (last.verdict, last.n) == ("small_kernels", n)
    shown = watch.first(lambda said: said.verdict == "small_kernels")
    assert shown is not None and shown <= 45.0


def idle(seconds: int) -> Watch:
    return over((seconds, {"util": 0.0, "sm": 0.0, "power_w": 70.0}), processes=[train(main=0.0)])


def test_memory_held_without_work_is_said_after_five_minutes_and_stays_amber() -> None:
    shown = idle(330).first(lambda said: said.verdict == "idle_holding_memory")
    assert shown is not None and 298 <= shown <= 310
    held = (
        snap(5.0 * t, gpu(util=0.0, sm=0.0), [train(main=0.0)], interval_s=5.0) for t in range(740)
    )
    wanted = {
        "verdict": "idle_holding_memory",
        "level": "yellow",
        "title": "idle, holding memory  62 min",
    }
    assert_told(Watch().feed(held), wanted)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"gpu_mem_bytes": GIB}, "idle_holding_memory"), ({"gpu_mem_bytes": GIB - 1}, "idle"),
        ({"cpu_pct": 49.0}, "idle_holding_memory"), ({"cpu_pct": 50.0}, "startup"), ({"main": 50.0}, "startup"),
        ({"main": 50.0, "gpu_mem_bytes": GIB - 1}, "idle"), ({"static": VLLM}, "idle"),
    ],
)  # fmt: skip
def test_who_holds_memory_and_what_it_does(changes: dict[str, Any], found: str) -> None:
    process = train(**{"main": 0.0, **changes})
    moments = (
        snap(5.0 * t, gpu(util=0.0, sm=0.0, power_w=70.0), [process], interval_s=5.0)
        for t in range(70)
    )
    assert Watch().feed(moments).verdict == found


def test_one_loud_sample_in_thirty_is_still_idle_and_two_are_not() -> None:
    for loud, found in ((1, "idle"), (2, "starved_unattributed")):
        watch = over(*[(1, {"util": 40.0 if tick % 30 < loud else 0.0}) for tick in range(100)])
        assert watch.said[-1][1].verdict == found


def test_after_a_long_pause_the_window_begins_again() -> None:
    watch = idle(70)
    watch.feed(snap(70 + tick, gpu(), [train()]) for tick in range(25))
    assert_told(watch.said[-1][1], {"verdict": "healthy", "n": 25})


def test_a_job_that_ends_is_not_called_starved() -> None:
    watch = over((60, {}))
    watch.feed(snap(60 + tick, gpu(util=0.0, sm=0.0, power_w=70.0)) for tick in range(40))
    assert not [said for _, said in watch.said if said.level in ("yellow", "red")]
    assert watch.said[-1][1].verdict == "idle"


WAVES: dict[str, dict[str, tuple[float, float]]] = {
    "half_working": {"sm": (56.0, 61.0)},
    "memory_bandwidth": {"dram": (55.0, 64.0), "tensor_active_pct": (3.0, 3.0)},
    "healthy": {"sm": (77.5, 84.0)},
    "no_tensor_cores": {"sm": (64.0, 64.0), "tensor_active_pct": (4.2, 5.8), "fp32_active_pct": (50.0, 50.0)},
    "communication": {
        "sm": (16.0, 16.0), "tensor_active_pct": (8.5, 11.0), "dram": (9.0, 9.0), "nvlink_rx_bytes_per_s": (42e9, 60e9),
    },
    "small_kernels": {"sm": (27.0, 32.0), "tensor_active_pct": (1.0, 1.0), "dram": (5.0, 5.0)},
}  # fmt: skip


def flips(watch: Watch, since: float = 40.0) -> int:
    """How often verdict or flag change."""
    shown = [(d.verdict, d.busy_not_working) for t, d in watch.said if t >= since]
    return sum(a != b for a, b in pairwise(shown))


@pytest.mark.parametrize("name", WAVES)
def test_a_load_that_wanders_over_a_threshold_keeps_its_verdict(name: str) -> None:
    """Slower than the window, so that the means wander too."""
    base: dict[str, Any] = {
        "util": 98.0,
        "sm": 60.0,
        "tensor_active_pct": 30.0,
        "dram": 20.0,
        "power_w": 500.0,
    }

    def at(tick: int) -> dict[str, Any]:
        phase = abs((tick % 180) / 90.0 - 1.0)
        return {
            **base,
            **{key: low + (high - low) * phase for key, (low, high) in WAVES[name].items()},
        }

    assert flips(over(*[(1, at(tick)) for tick in range(540)])) <= 1


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
        yield {
            "util": 100 * worked,
            "sm": 66 * worked,
            "dram": 68 * worked,
            "tensor_active_pct": 2 * worked,
        }


@pytest.mark.parametrize(
    ("duty", "seen"),
    [(0.1, False), (0.8, True), *(pytest.param(*more, marks=pytest.mark.slow)
                                  for more in ((0.1, True), (0.3, False), (0.3, True), (0.8, False)))],
)  # fmt: skip
def test_a_server_whose_requests_come_by_chance_keeps_its_verdict(duty: float, seen: bool) -> None:
    values = [(1, value) for value in requests_by_chance(duty, 900)]
    watch = over(*values, processes=[train(main=5.0, static=VLLM)] if seen else [])
    assert flips(watch, 100.0) <= 1
    asleep = "low_demand" if seen else "starved_unattributed"
    assert {d.verdict for t, d in watch.said if t >= 100.0} <= {asleep, "idle", "memory_bandwidth"}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, {"verdict": "half_working", "busy_not_working": None, "lacks": "counter_fault",
              "efficiency_pct": pytest.approx(47.0 / 0.99, abs=0.1)}),
        # The zeros of the driver's own counters are measurements.
        ({"sm_source": "gpm", "power_w": 60.0}, {"busy_not_working": "A"}),
    ],
)  # fmt: skip
def test_a_multiplexed_row_of_dcgm_is_no_sample(
    changes: dict[str, Any], wanted: dict[str, Any]
) -> None:
    """Two of three rows of DCGM hold no profiling value, except the memory's."""
    live = {
        "util": 99.0,
        "sm": 47.0,
        "tensor_active_pct": 12.0,
        "dram": 25.0,
        "power_w": 250.0,
        "sm_source": "dcgmi",
    }
    void = {"sm": 0.0, "tensor_active_pct": 0.0, "fp16_active_pct": 0.0}

    def row(tick: int) -> GpuSample:
        return gpu(**{**live, **(void if tick % 3 else {}), **changes})

    assert_told(
        Watch().feed(snap(0.1 * i, row(i), [train()], interval_s=0.1) for i in range(420)), wanted
    )


def test_idle_time_without_any_process_is_a_fact_and_counts_as_idle() -> None:
    half = [
        gpu(util=100.0 * (tick % 3 == 0), sm=30.0 * (tick % 3 == 0), dram=5.0) for tick in range(60)
    ]
    said = Watch().feed(snap(tick, sample) for tick, sample in enumerate(half))
    assert_told(said, {
        "verdict": "starved_unattributed", "level": "info", "state": "idle",
        "title": "idle 67 % of the time: why is not visible without processes",
        "says": "while kernels run they use 30 % of the SMs",
    })  # fmt: skip
    seconds = said.seconds or {}
    assert seconds["starved"] == 0.0 and seconds["idle"] > 0.0
    hidden = [train(main_run_pct=None, main_wait_pct=None, state=None, run_pct=None, cpu_pct=None)]
    seen = Watch().feed(snap(tick, sample, hidden) for tick, sample in enumerate(half))
    assert (seen.level, seen.state) == ("yellow", "starved"), (
        "a process that is there waits for something"
    )


def test_shares_of_all_states_add_up_and_busy_not_working_is_split_by_its_cause() -> None:
    waiting = {
        "util": 99.0,
        "sm": 16.0,
        "dram": 6.0,
        "tensor_active_pct": 2.0,
        "nvlink_rx_bytes_per_s": 157e9,
    }
    tiny = {"util": 97.0, "sm": 8.0, "dram": 12.0, "tensor_active_pct": 1.0}
    watch = over(
        (120, waiting),
        (90, tiny),
        (60, {}),
        (60, {"util": 30.0, "sm": 25.0}),
        (60, {"util": 0.0, "sm": 0.0}),
    )
    said = watch.said[-1][1]
    assert said.seconds is not None and said.causes is not None
    assert sum(said.seconds.values()) == pytest.approx(389)
    assert sum(said.causes.values()) == pytest.approx(said.seconds["busy_not_working"])
    assert set(said.causes) == {"communication", "small_kernels"}
    assert said.causes["communication"] > 60.0 and said.causes["small_kernels"] > 60.0
    assert all(
        (d.busy_not_working is None) == (d.state != "busy_not_working") for _, d in watch.said
    )


def test_a_busy_sm_in_which_nothing_is_seen_to_work_is_never_green_from_the_first_verdict_on() -> (
    None
):
    watch = over((120, {key: value for key, value in SQUARES.items() if key != "seconds"}))
    said = [d for _, d in watch.said if d.verdict != "collecting"]
    assert {(d.verdict, d.level, d.title) for d in said[:40]} == {("working", "info", UNEXPLAINED)}
    assert {d.level for d in said} == {"info"} and not any(d.busy_not_working for d in said)
    assert_told(said[0], {"says": ("FP32, FP64, integer", "DCGM")})
