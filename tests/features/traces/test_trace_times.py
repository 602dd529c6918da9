"""Times that cannot be: cut, left out, counted and said; and what the file does not hold is not idle."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.features.traces.conftest import Judge
from tests.support.command import trace_said
from tests.support.synthetic_trace import TraceMaker, planted, written

SHIFT_US = 1_614_800_519_000_000


def loop(steps: int = 6, kernels: int = 80, gap_us: int = 150) -> TraceMaker:
    """A launch-bound loop: each kernel of 100 µs is launched ``gap_us`` after the one before has ended."""
    maker = TraceMaker()
    for _ in maker.steps(steps):
        for _ in range(kernels):
            maker.launch(length=100)
            maker.t = max(maker.t, maker.free) + gap_us
    return maker


def kernels(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in document["traceEvents"] if event["cat"] == "kernel"]


def as_copy(event: dict[str, Any], us: int, size: int) -> None:
    event.update(cat="gpu_memcpy", name="Memcpy DtoH (Device -> Pinned)", dur=us)
    event["args"] = {
        "device": 0,
        "stream": 7,
        "correlation": event["args"]["correlation"],
        "bytes": size,
    }


@pytest.mark.parametrize("us", [3_150_000, 40_000])
@pytest.mark.parametrize("every", [480, 60])
@pytest.mark.parametrize("copy", [True, False])
def test_an_event_that_reaches_past_later_ones_of_its_stream_changes_no_verdict(
    us: int, every: int, copy: bool, judge: Judge
) -> None:
    document = loop().document()
    right = judge(document)
    for event in kernels(document)[every // 2 :: every]:
        if copy:
            as_copy(event, us, 9_700_000)
        else:
            event["dur"] = us
    report = judge(document)
    assert (report.verdict.id, report.verdict.cause) == (right.verdict.id, right.verdict.cause)
    assert (right.verdict.confidence, report.verdict.confidence) == ("high", "medium")
    assert report.measures.steps == right.measures.steps == 6
    many = len(kernels(loop().document())[every // 2 :: every])
    assert any(
        note.startswith(f"{many} event") and "cut there" in note for note in report.verdict.notes
    )


@pytest.mark.parametrize(
    ("size", "us", "left_out"),
    [(9_700_000, 3_150_000, 1), (9_700_000, 100_000, 0), (900, 90_000, 0)],
)
def test_a_copy_that_no_bus_makes_so_slow_is_left_out_also_as_the_last_event(
    size: int, us: int, left_out: int, judge: Judge
) -> None:
    document = loop().document()
    as_copy(kernels(document)[-1], us, size)
    notes = " ".join(judge(document).verdict.notes)
    assert ("1 × a copy slower than 50 MB/s: left out" in notes) == bool(left_out)


@pytest.mark.parametrize("shift", [0, SHIFT_US])
@pytest.mark.parametrize("every", [3, 4, 10])
def test_kernels_without_a_time_are_left_out_and_their_place_is_not_idle(
    shift: int, every: int, judge: Judge, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = planted("busy")
    for event in document["traceEvents"]:
        event["ts"] += shift
    gone = kernels(document)[::every]
    for event in gone:
        event.update(ts=0, dur=0)
    report = judge(document)
    assert (report.verdict.id, report.verdict.confidence) == ("no_bottleneck_seen", "medium")
    assert f"{len(gone)} kernels without a time left out" in report.verdict.notes
    assert report.measures.share_pct["idle"] < 1.0
    assert report.measures.idle_cause_pct["not_recorded"] == pytest.approx(100.0 / every, abs=2.0)
    status, text = trace_said(capsys, str(written(tmp_path / "t.json", document)))
    assert status == 0 and "not recorded" in text


def dropped(keep: Callable[[float], bool]) -> dict[str, Any]:
    document = planted("busy")
    first = min(event["ts"] for event in kernels(document))
    document["traceEvents"] = [
        event
        for event in document["traceEvents"]
        if event["cat"] != "kernel" or keep((event["ts"] - first) / 1000.0)
    ]
    return document


@pytest.mark.parametrize(
    ("keep", "share"),
    [
        (lambda ms: ms >= 60.0, 50),
        (lambda ms: not 25.0 <= ms < 35.0, 8),
        (lambda ms: ms >= 25.0, 21),
    ],
    ids=["the first half", "a hole", "a step and a quarter"],
)
def test_launches_without_a_kernel_are_counted_and_a_hole_is_not_recorded_and_not_idle(
    keep: Callable[[float], bool],
    share: int,
    judge: Judge,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = dropped(keep)
    report = judge(document)
    assert (report.verdict.id, report.verdict.confidence) == ("no_bottleneck_seen", "medium")
    (note,) = (
        note for note in report.verdict.notes if "have no kernel: the profiler dropped them" in note
    )
    assert abs(int(note.split(" ", 1)[0]) - share) <= 1
    assert report.measures.share_pct["idle"] < 1.0
    status, text = trace_said(capsys, str(written(tmp_path / "t.json", document)), "--json")
    assert status == 0 and json.loads(text)["dropped_events"] > 0


@pytest.mark.parametrize("kernel_us", [1000, 6900])
@pytest.mark.parametrize("operator", ["aten::normal_", "aten::index_select", "resize"])
def test_an_operator_on_the_cpu_that_launches_nothing_is_host_work_however_short_the_gap(
    kernel_us: int, operator: str, judge: Judge
) -> None:
    maker = TraceMaker()
    for _ in maker.steps(20):
        begin = maker.t
        maker.span(operator, begin + 20, begin + 10_000)
        maker.t = begin + 10_020
        maker.launch(
            "Memcpy HtoD (Pageable -> Device)",
            100,
            cat="gpu_memcpy",
            op="aten::copy_",
            bytes=4_000_000,
        )
        maker.t = max(maker.t, maker.free)
        maker.launch("matmul_k", kernel_us, op="aten::mm")
        maker.t += 20
    said = judge(maker).verdict
    assert (said.id, said.cause) == ("main_process", "host_work")
    assert f"it is in {operator} on the CPU" in said.headline
    assert "CUDA graphs" not in said.remedy and 'device="cuda"' in said.remedy


def test_a_long_operator_after_a_wait_for_the_gpu_is_named_and_short_work_after_it_is_the_wait_s(
    judge: Judge,
) -> None:
    maker = TraceMaker()
    for _ in maker.steps(20):
        maker.launch(length=3000)
        maker.wait()
        maker.span("aten::multinomial", maker.t, maker.t + 3000)
        maker.t += 3000
    said = judge(maker).verdict
    assert said.cause == "host_work" and "aten::multinomial" in said.headline
    assert judge(planted("sync_points")).verdict.cause == "sync_points"


def test_many_short_launches_are_launch_bound_and_few_are_not(judge: Judge) -> None:
    assert judge(loop(gap_us=150)).verdict.cause == "launch_bound"
    assert judge(loop(kernels=8, gap_us=2500)).verdict.cause == "host_work"


def test_without_launches_no_host_is_advised_and_causes_are_words(judge: Judge) -> None:
    maker = TraceMaker()
    for n in range(50):
        maker.work("k", 2000 + n * 100, 50, -1)
    said = judge(maker).verdict
    assert said.id == "starved_unattributed" and "ProfilerActivity.CPU" in said.remedy
    assert "kernel gaps" in said.evidence[0] and "kernel_gap" not in said.evidence[0]
