"""Process data without wait states: what is visible is not called hidden, and loaders that compute are named."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.snapshot import FeedTime, ProcessSample
from tests.support.scenes import GIB, gpu, steady, train, workers

NOT_MEASURED = {"main_run_pct": None, "main_wait_pct": None, "run_pct": None}


def computing(count: int, cpu_pct: float) -> list[ProcessSample]:
    unread: dict[str, Any] = {
        "feed": FeedTime(),
        "run_pct": None,
        "wait_pct": None,
        "cpu_pct": cpu_pct,
    }
    return [replace(worker, **unread) for worker in workers(count, cpu_pct)]


def told_of(main: ProcessSample, rows: list[ProcessSample], util: float = 19.0) -> GpuDiagnosis:
    return steady(60, gpu(util=util, sm=0.8 * util), [main, *rows])


@pytest.mark.parametrize(("count", "cpu_pct"), [(1, 104.0), (4, 95.0), (8, 85.0)])
@pytest.mark.parametrize("main", [train(main=40.0), replace(train(main=40.0), **NOT_MEASURED)])
def test_loaders_that_compute_are_named_with_low_confidence(
    main: ProcessSample, count: int, cpu_pct: float
) -> None:
    said = told_of(main, computing(count, cpu_pct))
    assert (said.verdict, said.confidence) == ("dataloader_cpu", "low"), said
    assert "what the main thread waits for was not read" in said.notes


def test_loaders_that_compute_beside_a_busy_main_thread_are_not_accused_by_their_means() -> None:
    assert told_of(train(main=95.0), computing(4, 95.0)).verdict == "main_process"


def test_loaders_that_half_compute_are_not_accused_by_their_means() -> None:
    assert (
        told_of(train(main=10.0), computing(4, 60.0), util=60.0).verdict == "starved_unattributed"
    )


def test_a_visible_process_is_not_called_hidden() -> None:
    visible = replace(train(), **NOT_MEASURED)
    said = told_of(visible, computing(2, 40.0))
    text = " ".join((*said.evidence, *said.notes))
    assert (
        "the main thread was not measured" in text
        and "hidden" not in text
        and "2 workers are busy 40 %" in text
    )
    hidden = ProcessSample(pid=77, gpu=0, gpu_mem_bytes=20 * GIB, type="C")
    assert "another PID namespace" in " ".join(told_of(hidden, []).notes)


def test_evidence_says_how_much_workers_run_and_queue() -> None:
    said = steady(60, gpu(util=40.0, sm=35.0), [train(main=2.0), *workers(4, 80.0, 12.0)])
    assert "4 of 4 workers are busy (CPU 80 %, waiting for a core 12 %)" in said.evidence[0]
