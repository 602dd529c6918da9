"""A trace gets the verdict that the screen gives for the same job, in the catalogue's words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gputop.model.snapshot import GpuSample, ProcessSample
from gputop.recording.reader import read_snapshots
from gputop.recording.writer import RecordingWriter
from tests.features.traces.conftest import Judge
from tests.support.scenes import Watch, gpu, snap, train, workers
from tests.support.synthetic_trace import CAUSES, TraceMaker, planted

LOW = {"tensor_active_pct": 1.0}
RECORDED: dict[str, tuple[GpuSample, Sequence[ProcessSample], str]] = {
    "single_process": (gpu(util=60.0, sm=55.0), [train(main=85.0)], "main_process"),
    "workers": (gpu(util=60.0, sm=55.0), [train(main=2.0), *workers(4, 95.0)], "dataloader_cpu"),
    "launch_bound": (gpu(util=40.0, sm=35.0), [train(main=100.0)], "main_process"),
    "sync_points": (gpu(util=55.0, sm=50.0), [train(main=100.0)], "main_process"),
    "allocator": (gpu(util=49.0, sm=45.0), [train(main=100.0)], "main_process"),
    "copies": (
        gpu(util=45.0, sm=45.0, pcie_rx_bytes_per_s=1.4e10),
        [train(main=10.0)],
        "pcie_transfer",
    ),
    "communication": (
        gpu(util=99.0, sm=20.0, nvlink_rx_bytes_per_s=9e10, **LOW),
        [train()],
        "communication",
    ),
    "small_kernels": (gpu(util=90.0, sm=9.0, dram=5.0, **LOW), [train()], "small_kernels"),
    "low_sm": (gpu(util=99.0, sm=10.0, dram=None, **LOW), [train()], "low_sm"),
    "busy": (
        gpu(util=99.0, sm=None, tensor_active_pct=None, dram=None, sm_source="none"),
        [train()],
        "no_bottleneck_seen",
    ),
}
"""The same causes as a recording sees them, and its verdict. Only of workers can it say more than a trace."""


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_gets_the_same_verdict_as_a_trace_and_as_a_recording(
    cause: str, judge: Judge, tmp_path: Path
) -> None:
    said = judge(planted(cause)).verdict
    sample, processes, recorded = RECORDED[cause]
    writer = RecordingWriter(str(tmp_path / "r.jsonl.gz"))
    for tick in range(60):
        writer.write(snap(tick, sample, processes))
    writer.close()
    watch = Watch()
    for snapshot in read_snapshots(str(tmp_path / "r.jsonl.gz")):
        shown = watch.diagnoser.diagnose(snapshot)[0]
    assert shown.verdict == recorded
    assert said.id == CAUSES[cause][1]
    if cause == "workers":
        assert (said.id, recorded) == ("dataloader_wait", "dataloader_cpu")
    else:
        assert said.id == recorded
        assert said.title == shown.title
        assert said.flag == shown.busy_not_working


@pytest.mark.parametrize(
    ("cause", "narrower"),
    [("single_process", "data"), ("workers", "data"), ("launch_bound", "launch_bound"), ("sync_points", "sync_points"),
     ("allocator", "allocator"), ("copies", "transfer"), ("communication", "communication"), ("busy", None)],
)  # fmt: skip
def test_the_cause_says_which_fix_the_best_case_is_of(
    cause: str, narrower: str | None, judge: Judge
) -> None:
    report = judge(planted(cause))
    assert report.verdict.cause == narrower
    if narrower is None:
        assert report.best_case_step_ms is None
    else:
        saved = report.verdict.saves_pct
        assert saved is not None and saved > 20.0
        assert report.best_case_step_ms == pytest.approx(
            report.measures.step_median_ms * (1.0 - saved / 100.0)
        )


def measured_sm(sm: float, cause: str = "busy") -> dict[str, Any]:
    document = planted(cause)
    last = max(e["ts"] for e in document["traceEvents"])
    key = "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"
    sample = {
        "ph": "C",
        "cat": "hardware_counters",
        "name": key,
        "pid": "GPU 0 Counters",
        "tid": 0,
        "args": {key: sm},
    }
    document["traceEvents"] += [{**sample, "ts": t} for t in range(2000, last, 1000)]
    return document


@pytest.mark.parametrize(
    ("sm", "verdict"),
    [(85.0, "healthy"), (70.0, "working"), (50.0, "half_working"), (20.0, "low_sm")],
)
def test_measured_sm_takes_the_place_of_the_bound(sm: float, verdict: str, judge: Judge) -> None:
    report = judge(measured_sm(sm))
    m = report.measures
    assert (m.sm_active_pct, m.sm_high_pct, m.sm_source) == (sm, None, "kineto")
    assert report.verdict.id == verdict


def test_products_in_fp32_are_not_called_healthy_however_much_of_the_chip_they_fill(
    judge: Judge,
) -> None:
    document = measured_sm(90.0)
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            event["name"] = "ampere_sgemm_128x64_tn"
    assert judge(document).verdict.id == "working"


COPY = "Memcpy HtoD (Pinned -> Device)"


def copying(maker: TraceMaker, times: int) -> None:
    """Copies of 300 µs and kernels of 200 µs in turn, all launched ahead."""
    maker.free = max(maker.free, maker.t + 20)
    for _ in range(times):
        maker.launch(COPY, 300, cat="gpu_memcpy", bytes=6_000_000)
        maker.launch("gemm_kernel", 200)


def test_the_best_case_takes_a_share_of_the_rest_from_what_an_event_left_of_the_window(
    judge: Judge,
) -> None:
    """5 ms of which 3 are copies, and a wait of 4 ms that came once: 6 of 9 ms can be reached."""
    maker = TraceMaker()
    copying(maker, 5)
    maker.free += 4000
    copying(maker, 5)
    report = judge(maker)
    assert report.measures.window_ms == pytest.approx(9.0, abs=0.05)
    assert report.best_case_step_ms == pytest.approx(6.0, abs=0.05)
    assert report.gain_pct == pytest.approx(33.3, abs=0.5)
    assert "60 % of the rest the GPU only copies" in report.verdict.headline


def test_an_event_in_one_step_takes_nothing_from_the_best_case_of_the_typical_one(
    judge: Judge,
) -> None:
    maker = TraceMaker()
    for step in maker.steps(8, ahead=100):
        if step == 4:
            maker.free += 10_000
        copying(maker, 10)
    report = judge(maker)
    assert report.measures.once
    assert report.measures.step_median_ms == pytest.approx(5.0, abs=0.1)
    assert report.best_case_step_ms == pytest.approx(2.0, abs=0.1)


def test_the_best_case_counts_on_nothing_that_is_not_recorded(judge: Judge) -> None:
    """Half of the window has no kernels in the file; of the other half 60 % are copies."""
    maker = TraceMaker()
    copying(maker, 20)
    events = maker.document()
    work = [e for e in events["traceEvents"] if e["cat"] in ("kernel", "gpu_memcpy")]
    lost = {id(event) for event in work[10:30]}
    events["traceEvents"] = [e for e in events["traceEvents"] if id(e) not in lost]
    report = judge(events)
    m = report.measures
    assert m.idle_cause_pct["not_recorded"] == pytest.approx(50.0, abs=0.5)
    assert report.best_case_step_ms == pytest.approx(0.7 * m.window_ms, rel=0.01)
    assert "60 % of the rest" in report.verdict.headline
