"""GPUs of one process or job of which one works at a time: never told to add workers, whatever the turns are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from gputop.diagnosis.types import GpuDiagnosis
from gputop.model.feeders import main_looks
from gputop.model.snapshot import GpuSample, ProcessSample
from tests.support.scenes import Watch, gpu, snap, train, workers


def sample(index: int, util: float) -> GpuSample:
    return gpu(
        index,
        util=util,
        sm=0.82 * util,
        tensor_active_pct=0.3 * util,
        dram=0.3 * util,
        power_w=120.0 + 3.8 * util,
    )


def told_of(
    n: int,
    util_of: Callable[[int, int], float],
    processes: Sequence[ProcessSample],
    seconds: int = 75,
) -> tuple[GpuDiagnosis, ...]:
    watch = Watch()
    said: tuple[GpuDiagnosis, ...] = ()
    for t in range(seconds):
        said = watch.diagnoser.diagnose(
            snap(t, [sample(i, util_of(t, i)) for i in range(n)], processes)
        )
    return said


def on_all(n: int, **changes: Any) -> list[ProcessSample]:
    """One process on all GPUs, its main thread on a core: CUDA waits by spinning."""
    return [replace(train(i, main=100.0, state="R", **changes), pid=4000) for i in range(n)]


def turn(each_s: float, n: int, util: float = 98.0) -> Callable[[int, int], float]:
    return lambda t, i: util if int(t / each_s) % n == i else 0.0


@pytest.mark.parametrize(
    ("n", "each_s"), [(4, 3), (2, 1), (2, 7), (3, 2), (8, 3), (4, 10), (2, 25)]
)
def test_gpus_of_one_process_that_work_one_after_the_other_take_turns(
    n: int, each_s: float
) -> None:
    for d in told_of(n, turn(each_s, n), on_all(n), seconds=130 if each_s > 5 else 75):
        assert (d.verdict, d.cause, d.confidence, d.state) == (
            "take_turns",
            "turns",
            "high",
            "starved",
        ), d
        assert f"1 of {n} works at a time" in d.title and "num_workers" not in d.remedy
        assert "tensor parallel" in d.remedy and "process 4000 on GPUs 0" in d.evidence[0]


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_where_turns_are_shorter_than_a_sample_only_the_sum_tells(n: int) -> None:
    for d in told_of(n, lambda t, i: 100.0 / n + (1.5 if (t + i) % 2 else -1.5), on_all(n)):
        assert (d.verdict, d.cause, d.confidence) == ("take_turns", "turns", "medium"), d
        assert "num_workers" not in d.remedy and "only the sum tells" in d.notes[0]


def test_turns_that_end_within_a_sample_are_seen_beside_those_that_do_not() -> None:
    def util(t: int, i: int) -> float:
        place = (1.7 * t) % 4.0
        return max(0.0, 100.0 * (1.0 - abs(place - i - 0.5))) if abs(place - i - 0.5) < 1.0 else 0.0

    assert {d.verdict for d in told_of(4, util, on_all(4))} == {"take_turns"}


def test_engines_before_one_dispatcher_wait_for_requests() -> None:
    engines = [
        replace(
            train(i, main=3.0, main_looks=main_looks([("network", 5)])),
            ppid=77,
            static=replace(train(i).static, job_key="ml engine"),
        )
        for i in range(4)
    ]
    for d in told_of(4, turn(4, 4), engines):
        assert (d.verdict, d.cause) == ("take_turns", "turns"), d
        assert "3 of 4 engines wait for requests" in d.title and "num_workers" not in d.remedy


def test_ranks_of_a_pipeline_are_told_of_micro_batches() -> None:
    ranks = [replace(train(i, main=100.0, nccl=True), ppid=77) for i in range(4)]
    for d in told_of(4, turn(2, 4), ranks):
        assert d.verdict == "take_turns" and "micro-batches" in d.remedy


@pytest.mark.parametrize(
    "util",
    [
        lambda t, i: 45.0,  # together and idle together
        lambda t, i: 98.0 if i == 0 else 0.0,  # only one is used at all
        lambda t, i: 98.0 if t % 6 < 2 else 0.0,  # all at once
        lambda t, i: 12.0,  # hardly anything
        lambda t, i: 98.0,
    ],
)
def test_gpus_that_work_at_the_same_time_or_not_at_all_take_no_turns(
    util: Callable[[int, int], float],
) -> None:
    assert all(d.verdict != "take_turns" for d in told_of(4, util, on_all(4)))


def test_gpus_of_different_jobs_take_no_turns() -> None:
    jobs = [
        replace(train(i, main=50.0), static=replace(train(i).static, job_key=f"job {i}"), ppid=1)
        for i in range(4)
    ]
    assert all(d.verdict != "take_turns" for d in told_of(4, turn(3, 4), jobs))


def test_loaders_that_compute_stay_the_cause_where_only_the_sum_would_tell() -> None:
    owner = [
        replace(train(i, main=2.0, main_looks=main_looks([("queue", 5)])), pid=4000)
        for i in range(2)
    ]
    said = told_of(2, lambda t, i: 50.0, [*owner, *workers(4, 98.0)])
    assert all(d.verdict == "dataloader_cpu" for d in said), said
